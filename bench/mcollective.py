"""The MCollective middleware compared with a plain pyzmq ROUTER loop that does the same fan-out, in one run.

    python -m bench.mcollective [--rounds 3] [--seconds 1.0] [--subscribers 1 10 50 500]

One publisher PUTs 200 bytes to a topic with the given number of subscribers, in the form of the real connector: six
frames. The middleware, the publisher and the subscribers are separate processes on loopback TCP. Publisher and
subscribers are the same for both middlewares and do as little as possible: the publisher writes bytes that were encoded
before (with CURVE it encrypts them during the run), and the subscribers count bytes. The publisher is never more than
two windows ahead of the subscribers. Every delivery is counted, so a lost one would be noticed.

`CPU` is the processor time of the middleware's process, with all threads, per delivery. With CURVE every frame is
encrypted for each subscriber, and `per frame` is the processor time of one frame. `libsodium alone` is the floor: the
calls from Python that decrypt the frames of a PUT once and encrypt them for each subscriber, with all arguments ready,
and nothing else. Figures are medians of the rounds; the middlewares take turns within a round.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import selectors
import socket
import statistics
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from multiprocessing.connection import Connection as ProcessPipe
from typing import Final

import zmq
from nacl import _sodium
from nacl.bindings import crypto_box_BEFORENMBYTES, crypto_box_NONCEBYTES

from bench.brokers.system import processor_time
from bench.report import Bars, environment, table
from zambezi.mcollective.asyncio import Middleware
from zambezi.zmtp import Bound, CurveClient, CurveServer, KeyPair, Null, z85
from zambezi.zmtp.box import OVERHEAD
from zambezi.zmtp.connection import Connection, Ready
from zambezi.zmtp.frames import Batch, wire_size
from zambezi.zmtp.security import Security

BODY: Final = b"x" * 200
TOPIC: Final = b"mcollective discovery"
PUT: Final = (b"", b"PUT", b"TOPIC", TOPIC, b"", BODY)
MESSAGE: Final = (b"", b"MESSAGE", b"TOPIC", TOPIC, b"", BODY)
SERVER: Final = KeyPair.generate()
AHEAD: Final = 2  # windows
DELIVERIES: Final = 100_000  # of one window, approximately
READ: Final = 1 << 20
PATIENCE: Final = 60.0
FLOOR_MESSAGES: Final = 300
MOST: Final = {1: 13.0, 50: 5.0}  # us of processor per delivery, with CURVE: the bars
MAC: Final = 16  # bytes that libsodium adds to a box

Figures = tuple[float, float]  # deliveries per second, and processor time per delivery in seconds


@dataclass(frozen=True)
class Case:
    subscribers: int
    curve: bool
    seconds: float

    @property
    def window(self) -> int:
        """The PUTs of a window, after which the publisher waits for the subscribers."""
        return max(20, min(5000, DELIVERIES // self.subscribers // (10 if self.curve else 1)))

    @property
    def delivery(self) -> int:
        """The bytes of one delivery."""
        if self.curve:
            return sum(wire_size(bytes(len(frame) + OVERHEAD)) for frame in MESSAGE)
        return sum(map(wire_size, MESSAGE))

    @property
    def security(self) -> Security:
        return CurveClient(SERVER.public) if self.curve else Null()


# The two middlewares


def serve_zambezi(case: Case, pipe: ProcessPipe) -> None:
    async def serve() -> None:
        security: Security = CurveServer(SERVER) if case.curve else Null()
        async with Middleware(security=security, send_bound=Bound(octets=1 << 28), linger=0) as middleware:
            pipe.send(middleware.bind("tcp://127.0.0.1:*"))
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
            assert not middleware.counters.missed
            pipe.send(None)

    asyncio.run(serve())


def serve_pyzmq(case: Case, pipe: ProcessPipe) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.sndhwm = router.rcvhwm = 0
    if case.curve:
        router.curve_server = True
        router.curve_secretkey = z85.encode(SERVER.secret).encode()
        router.curve_publickey = z85.encode(SERVER.public).encode()
    port = router.bind_to_random_port("tcp://127.0.0.1")
    pipe.send(f"tcp://127.0.0.1:{port}")
    subscribers: dict[bytes, list[bytes]] = {}
    send = router.send  # per frame: the fastest of its calls
    while True:
        identity, empty, verb, *rest = router.recv_multipart()
        if verb == b"PUT":
            message = [empty, b"MESSAGE", *rest[:-1]]
            last = rest[-1]
            for subscriber in subscribers.get(rest[1], ()):
                send(subscriber, zmq.SNDMORE)
                for frame in message:
                    send(frame, zmq.SNDMORE)
                send(last)
        elif verb == b"SUB":
            subscribers.setdefault(rest[-1], []).append(identity)
            router.send_multipart([identity, empty, b"OK", b"ID", rest[1]])


# Clients that cost almost nothing


class Raw:
    """A DEALER with a blocking socket: it does the handshake, sends a command and waits for the answer."""

    def __init__(self, case: Case, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self.sock = socket.create_connection((host, int(port)))
        self.sock.settimeout(PATIENCE)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = Connection("DEALER", time.monotonic(), security=case.security)
        self._until(lambda event: isinstance(event, Ready))

    def _until(self, wanted: Callable[[object], bool]) -> None:
        while True:
            output = self.connection.take_output()
            if output:
                self.sock.sendall(output)
            for event in self.connection.receive(self.sock.recv(READ), time.monotonic()):
                if wanted(event):
                    output = self.connection.take_output()
                    self.sock.sendall(output)
                    return

    def subscribe(self) -> None:
        self.sock.sendall(self.connection.encode([(b"", b"SUB", b"ID", b"1", b"", TOPIC)]))
        self._until(lambda event: isinstance(event, Batch) and list(event) == [[b"", b"OK", b"ID", b"1"]])


def subscribe(case: Case, endpoint: str, pipe: ProcessPipe) -> None:
    """Count bytes, and report each window that all subscribers have got completely."""
    clients = [Raw(case, endpoint) for _ in range(case.subscribers)]
    selector = selectors.DefaultSelector()
    for client in clients:
        client.subscribe()
        selector.register(client.sock, selectors.EVENT_READ, client.sock.recv_into)
    pipe.send(None)
    buffer = bytearray(READ)
    of_window = case.window * case.delivery * case.subscribers
    total = 0
    reported = 0
    while True:
        for key, _ in selector.select():
            got = key.data(buffer)
            if not got:
                return
            total += got
        while total >= (reported + 1) * of_window:
            reported += 1
            pipe.send(reported)


def publish(case: Case, endpoint: str, windows: ProcessPipe) -> tuple[int, float]:
    """PUT until the time is over; return the number of deliveries and their time in seconds."""
    client = Raw(case, endpoint)
    block = client.connection.encode([PUT] * case.window)
    start = time.perf_counter()
    sent = 0
    seen = 0
    while time.perf_counter() - start < case.seconds or seen < sent:
        if time.perf_counter() - start < case.seconds and sent - seen < AHEAD:
            client.sock.sendall(block)
            sent += 1
            if case.curve:
                block = client.connection.encode([PUT] * case.window)  # an encrypted frame can be sent only once
        else:
            if not windows.poll(PATIENCE):
                raise AssertionError(f"{sent - seen} windows did not arrive")
            seen = windows.recv()
    took = time.perf_counter() - start
    client.sock.close()
    return sent * case.window * case.subscribers, took


Server = Callable[[Case, ProcessPipe], None]
SERVERS: Final[dict[str, Server]] = {"pyzmq ROUTER loop": serve_pyzmq, "zambezi": serve_zambezi}


def measure(serve: Server, case: Case) -> Figures:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(case, theirs))
    server.start()
    endpoint = ours.recv()
    windows, counted = context.Pipe()
    readers = context.Process(target=subscribe, args=(case, endpoint, counted))
    readers.start()
    try:
        if not windows.poll(PATIENCE):
            raise AssertionError("the subscribers did not get ready")
        windows.recv()
        assert server.pid is not None
        before = processor_time(server.pid)
        deliveries, took = publish(case, endpoint, windows)
        processor = processor_time(server.pid) - before
        if serve is serve_zambezi:
            ours.send(None)
            ours.recv()
        return deliveries / took, processor / deliveries
    finally:
        for each in (readers, server):
            each.kill()
            each.join()


def libsodium_alone(case: Case) -> float:
    """Return the processor time of libsodium's calls for one delivery, in seconds."""
    texts = [b"\0" + frame for frame in MESSAGE] * FLOOR_MESSAGES
    sizes = list(map(len, texts))
    boxed = [size + MAC for size in sizes]
    rooms = [_sodium.ffi.new("unsigned char[]", size) for size in boxed]
    key, nonce = bytes(crypto_box_BEFORENMBYTES), bytes(crypto_box_NONCEBYTES)

    def seal() -> None:
        assert not any(map(_sodium.lib.crypto_box_easy_afternm, rooms, texts, sizes, repeat(nonce), repeat(key)))

    seal()
    boxes = [bytes(_sodium.ffi.buffer(room)) for room in rooms]

    def open_all() -> None:
        assert not any(map(_sodium.lib.crypto_box_open_easy_afternm, rooms, boxes, boxed, repeat(nonce), repeat(key)))

    took = [min(timeit.repeat(work, timer=time.process_time, number=1, repeat=50)) for work in (seal, open_all)]
    return (took[0] + took[1] / case.subscribers) / FLOOR_MESSAGES


def compare(case: Case, rounds: int, bars: Bars) -> list[list[str]]:
    figures: dict[str, list[Figures]] = {name: [] for name in SERVERS}
    for _ in range(rounds):
        for name, serve in SERVERS.items():
            figures[name].append(measure(serve, case))
    rows = []
    base: Figures | None = None
    for name, found in figures.items():
        rate = statistics.median(each[0] for each in found)
        processor = statistics.median(each[1] for each in found)
        base = base or (rate, processor)
        row = [f"{name}, {case.subscribers}", f"{rate:,.0f}", f"{rate / base[0]:.2f}x", f"{processor * 1e6:.2f}"]
        row.append(f"{base[1] / processor:.2f}x")
        if case.curve:
            row.append(f"{processor * 1e6 / len(MESSAGE):.2f}")
        rows.append(row)
    if case.curve and base is not None:
        floor = libsodium_alone(case)
        row = [f"libsodium alone, {case.subscribers}", "", "", f"{floor * 1e6:.2f}", f"{base[1] / floor:.2f}x"]
        rows.append([*row, f"{floor * 1e6 / len(MESSAGE):.2f}"])
        if case.subscribers in MOST:
            ours = statistics.median(each[1] for each in figures["zambezi"]) * 1e6
            beside = f"libsodium alone {floor * 1e6:.1f} us, libzmq {base[1] * 1e6:.1f} us"
            name = f"CURVE, PUT to {case.subscribers}, processor of a delivery"
            bars.at_most(name, ours, MOST[case.subscribers], " us", beside=beside, processor=f"{ours:.1f} us")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often to measure each; the result is the median")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each measurement takes")
    parser.add_argument(
        "--subscribers", type=int, nargs="+", default=[1, 10, 50, 500], help="the numbers of subscribers to measure"
    )
    parser.add_argument("--only", choices=["NULL", "CURVE"], help="measure only this mechanism")
    arguments = parser.parse_args()
    print(environment({"pyzmq": zmq.__version__, "libzmq": zmq.zmq_version()}))
    bars = Bars("mcollective")
    for mechanism in ("NULL", "CURVE"):
        if arguments.only in (None, mechanism):
            print(f"\n### PUT to subscribers, {len(BODY)} B, {mechanism}\n")
            curve = mechanism == "CURVE"
            heads = ["middleware, subscribers", "deliveries/s", "to pyzmq", "CPU us", "less CPU by"]
            rows = []
            for subscribers in arguments.subscribers:
                rows += compare(Case(subscribers, curve, arguments.seconds), arguments.rounds, bars)
            print(table([*heads, "per frame"] if curve else heads, rows), flush=True)
    bars.show()


if __name__ == "__main__":
    main()
