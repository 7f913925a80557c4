"""ZMTP over TCP on loopback: Zambezi and pyzmq as sender and as receiver, in one run, two processes each.

    python -m bench.zmtp [--rounds 5] [--messages 300000]

Ratios are to pyzmq on both sides, in the same run, with `recv` per frame (the fastest of pyzmq's calls). Each figure is
the median of the rounds. The pairs take turns within a round, so a machine that slows down affects all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection as ProcessPipe
from multiprocessing.process import BaseProcess
from typing import Any, Final

import zmq

from bench.report import Bars, Usage, environment, table
from zambezi.zmtp import Bound, CurveClient, CurveServer, KeyPair, Null
from zambezi.zmtp import asyncio as zmtp_async
from zambezi.zmtp import sync as zmtp_sync

SERVER = KeyPair.generate()
CLIENT = KeyPair.generate()
BATCH = 500
END = b"end"
BOUND = Bound(messages=20_000, octets=64 << 20)


@dataclass(frozen=True)
class Case:
    """The parameters of one measurement."""

    size: int
    curve: bool
    count: int


# Receivers: bind, report the endpoint, receive `count` messages, and report the time from the first to the last.


def receive_zambezi(case: Case, pipe: ProcessPipe, batches: bool) -> None:
    asyncio.run(_receive_zambezi(case, pipe, batches))


async def _receive_zambezi(case: Case, pipe: ProcessPipe, batches: bool) -> None:
    security = CurveServer(SERVER) if case.curve else Null()
    async with zmtp_async.Router(security=security, receive_bound=BOUND) as router:
        pipe.send(router.bind("tcp://127.0.0.1:*"))
        await router.recv()
        start = time.perf_counter()
        left = case.count
        if batches:
            while left > 0:
                left -= len(await router.recv_batch())
        else:
            recv = router.recv
            for _ in range(left):
                await recv()
        pipe.send(time.perf_counter() - start)


def receive_zambezi_batches(case: Case, pipe: ProcessPipe) -> None:
    receive_zambezi(case, pipe, True)


def receive_zambezi_messages(case: Case, pipe: ProcessPipe) -> None:
    receive_zambezi(case, pipe, False)


def receive_zambezi_blocking(case: Case, pipe: ProcessPipe) -> None:
    security = CurveServer(SERVER) if case.curve else Null()
    with zmtp_sync.Router(security=security, receive_bound=BOUND) as router:
        pipe.send(router.bind("tcp://127.0.0.1:*"))
        router.recv()
        start = time.perf_counter()
        for _ in range(case.count):
            router.recv()
        pipe.send(time.perf_counter() - start)


def _pyzmq_router(case: Case, context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    router = context.socket(zmq.ROUTER)
    if case.curve:
        router.curve_server = True
        router.curve_secretkey = SERVER.secret_z85.encode()
        router.curve_publickey = SERVER.public_z85.encode()
    return router


def receive_pyzmq(case: Case, pipe: ProcessPipe) -> None:
    with zmq.Context() as context, _pyzmq_router(case, context) as router:
        port = router.bind_to_random_port("tcp://127.0.0.1")
        pipe.send(f"tcp://127.0.0.1:{port}")
        router.recv()
        router.recv()
        start = time.perf_counter()
        recv = router.recv
        for _ in range(case.count):
            recv()
            recv()
        pipe.send(time.perf_counter() - start)


# Senders: connect, send one message, which starts the measurement, then `count` messages.


async def _send_zambezi(case: Case, endpoint: str, batches: bool) -> None:
    security = CurveClient(SERVER.public, CLIENT) if case.curve else Null()
    body = b"x" * case.size
    async with zmtp_async.Dealer(security=security, send_bound=BOUND, linger=None) as dealer:
        dealer.connect(endpoint)
        await dealer.send(body)
        if batches:
            for done in range(0, case.count, BATCH):
                await dealer.send_batch([body] * min(BATCH, case.count - done))
        else:
            send = dealer.send
            for _ in range(case.count):
                await send(body)


def send_zambezi_batches(case: Case, endpoint: str) -> None:
    asyncio.run(_send_zambezi(case, endpoint, True))


def send_zambezi_messages(case: Case, endpoint: str) -> None:
    asyncio.run(_send_zambezi(case, endpoint, False))


def send_zambezi_blocking(case: Case, endpoint: str) -> None:
    security = CurveClient(SERVER.public, CLIENT) if case.curve else Null()
    body = b"x" * case.size
    with zmtp_sync.Dealer(security=security, send_bound=BOUND, linger=None) as dealer:
        dealer.connect(endpoint)
        for _ in range(case.count + 1):
            dealer.send(body)


def _pyzmq_dealer(case: Case, context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    dealer = context.socket(zmq.DEALER)
    if case.curve:
        dealer.curve_serverkey = SERVER.public_z85.encode()
        dealer.curve_publickey = CLIENT.public_z85.encode()
        dealer.curve_secretkey = CLIENT.secret_z85.encode()
    return dealer


def send_pyzmq(case: Case, endpoint: str) -> None:
    with zmq.Context() as context, _pyzmq_dealer(case, context) as dealer:
        dealer.connect(endpoint)
        body = b"x" * case.size
        send = dealer.send
        for _ in range(case.count + 1):
            send(body)


# Round trips: one side sends back each message, and the other side measures the time.


def echo_zambezi(case: Case, pipe: ProcessPipe) -> None:
    async def run() -> None:
        security = CurveServer(SERVER) if case.curve else Null()
        async with zmtp_async.Router(security=security) as router:
            pipe.send(router.bind("tcp://127.0.0.1:*"))
            while True:
                message = await router.recv()
                if message[1] == END:
                    return
                await router.send(message)

    asyncio.run(run())


def echo_zambezi_blocking(case: Case, pipe: ProcessPipe) -> None:
    security = CurveServer(SERVER) if case.curve else Null()
    with zmtp_sync.Router(security=security) as router:
        pipe.send(router.bind("tcp://127.0.0.1:*"))
        while (message := router.recv())[1] != END:
            router.send(message)


def echo_pyzmq(case: Case, pipe: ProcessPipe) -> None:
    with zmq.Context() as context, _pyzmq_router(case, context) as router:
        port = router.bind_to_random_port("tcp://127.0.0.1")
        pipe.send(f"tcp://127.0.0.1:{port}")
        while True:
            identity, body = router.recv(), router.recv()
            if body == END:
                return
            router.send(identity, zmq.SNDMORE)
            router.send(body)


def ask_zambezi(case: Case, endpoint: str) -> list[float]:
    async def run() -> list[float]:
        security = CurveClient(SERVER.public, CLIENT) if case.curve else Null()
        body = b"x" * case.size
        times: list[float] = []
        async with zmtp_async.Dealer(security=security) as dealer:
            dealer.connect(endpoint)
            for _ in range(case.count):
                start = time.perf_counter()
                await dealer.send(body)
                await dealer.recv()
                times.append(time.perf_counter() - start)
            await dealer.send(END)
        return times

    return asyncio.run(run())


def ask_zambezi_blocking(case: Case, endpoint: str) -> list[float]:
    security = CurveClient(SERVER.public, CLIENT) if case.curve else Null()
    body = b"x" * case.size
    times: list[float] = []
    with zmtp_sync.Dealer(security=security) as dealer:
        dealer.connect(endpoint)
        for _ in range(case.count):
            start = time.perf_counter()
            dealer.send(body)
            dealer.recv()
            times.append(time.perf_counter() - start)
        dealer.send(END)
    return times


def ask_pyzmq(case: Case, endpoint: str) -> list[float]:
    body = b"x" * case.size
    times: list[float] = []
    with zmq.Context() as context, _pyzmq_dealer(case, context) as dealer:
        dealer.connect(endpoint)
        for _ in range(case.count):
            start = time.perf_counter()
            dealer.send(body)
            dealer.recv()
            times.append(time.perf_counter() - start)
        dealer.send(END)
    return times


# The runs

Receiver = Callable[[Case, ProcessPipe], None]
Sender = Callable[[Case, str], None]
Asker = Callable[[Case, str], list[float]]

ONE_WAY: dict[str, tuple[Sender, Receiver]] = {
    "pyzmq to pyzmq": (send_pyzmq, receive_pyzmq),
    "zambezi to zambezi, batches": (send_zambezi_batches, receive_zambezi_batches),
    "zambezi to zambezi, messages": (send_zambezi_messages, receive_zambezi_messages),
    "zambezi to zambezi, blocking": (send_zambezi_blocking, receive_zambezi_blocking),
    "zambezi to pyzmq, messages": (send_zambezi_messages, receive_pyzmq),
    "pyzmq to zambezi, messages": (send_pyzmq, receive_zambezi_messages),
    "zambezi to pyzmq, batches": (send_zambezi_batches, receive_pyzmq),
    "pyzmq to zambezi, batches": (send_pyzmq, receive_zambezi_batches),
}
ROUND_TRIP: dict[str, tuple[Asker, Receiver]] = {
    "pyzmq to pyzmq": (ask_pyzmq, echo_pyzmq),
    "zambezi to zambezi": (ask_zambezi, echo_zambezi),
    "zambezi to zambezi, blocking": (ask_zambezi_blocking, echo_zambezi_blocking),
    "zambezi to pyzmq": (ask_zambezi, echo_pyzmq),
    "pyzmq to zambezi": (ask_pyzmq, echo_zambezi),
}

# The bars of the pairs, to pyzmq: without CURVE, and with it.
_OURS: Final = "zambezi to zambezi"
FASTEST: Final[tuple[Mapping[str, float], Mapping[str, float]]] = (
    {f"{_OURS}, batches": 1.2, f"{_OURS}, messages": 0.9},
    {f"{_OURS}, batches": 0.6},
)
SLOWEST: Final[tuple[Mapping[str, float], Mapping[str, float]]] = (
    {_OURS: 1.2, f"{_OURS}, blocking": 1.1},
    {f"{_OURS}, blocking": 1.3},
)

spawn = multiprocessing.get_context("fork")


def _start(target: Callable[..., object], *args: object) -> BaseProcess:
    process = spawn.Process(target=target, args=args, daemon=True)
    process.start()
    return process


def one_way(case: Case, send: Sender, receive: Receiver) -> float:
    """Return the messages per second."""
    ours, theirs = spawn.Pipe()
    receiver = _start(receive, case, theirs)
    sender = _start(send, case, ours.recv())
    took = ours.recv() if ours.poll(120) else float("nan")
    for process in (sender, receiver):
        process.join(10)
        process.kill()
    return case.count / float(took)


def _ask(ask: Asker, case: Case, endpoint: str, pipe: ProcessPipe) -> None:
    pipe.send(ask(case, endpoint))


def round_trip(case: Case, ask: Asker, echo: Receiver) -> list[float]:
    ours, theirs = spawn.Pipe()
    echoer = _start(echo, case, theirs)
    asker = _start(_ask, ask, case, ours.recv(), theirs)
    times: list[float] = ours.recv() if ours.poll(120) else [float("nan")]
    for process in (asker, echoer):
        process.join(10)
        process.kill()
    return times


def measure_one_way(
    pairs: Mapping[str, tuple[Sender, Receiver]], case: Case, rounds: int, judge: Judge
) -> list[list[str]]:
    """Measure each pair, and return a row for each; ratios are to the first pair."""
    rates: dict[str, list[float]] = {name: [] for name in pairs}
    used: dict[str, list[float]] = {name: [] for name in pairs}
    for _, (name, (send, receive)) in itertools.product(range(rounds), pairs.items()):
        began = Usage.now()
        rates[name].append(one_way(case, send, receive))
        used[name].append(Usage.now().since(began).processor / case.count * 1e6)
    medians = {name: statistics.median(found) for name, found in rates.items()}
    first = next(iter(pairs))
    for name, rate in medians.items():
        both = f"{statistics.median(used[name]):.2f} us beside {statistics.median(used[first]):.2f}"
        judge(name, rate / medians[first], f"{rate:,.0f}/s", f"{first} {medians[first]:,.0f}/s", both)
    return [[name, f"{rate:,.0f}", f"{rate / medians[first]:.2f}x"] for name, rate in medians.items()]


def measure_round_trip(
    pairs: Mapping[str, tuple[Asker, Receiver]], case: Case, rounds: int, judge: Judge
) -> list[list[str]]:
    """Measure each pair, and return a row for each; ratios are to the first pair."""
    times: dict[str, list[list[float]]] = {name: [] for name in pairs}
    used: dict[str, list[float]] = {name: [] for name in pairs}
    for _, (name, (ask, echo)) in itertools.product(range(rounds), pairs.items()):
        began = Usage.now()
        times[name].append(sorted(round_trip(case, ask, echo)))
        used[name].append(Usage.now().since(began).processor / case.count * 1e6)

    def at(found: list[list[float]], share: float) -> float:
        return statistics.median(one[int(len(one) * share)] for one in found) * 1e6

    medians = {name: at(found, 0.5) for name, found in times.items()}
    first = next(iter(pairs))
    for name, took in medians.items():
        both = f"{statistics.median(used[name]):.0f} us beside {statistics.median(used[first]):.0f}"
        judge(name, took / medians[first], f"{took:.0f} us", f"{first} {medians[first]:.0f} us", both)
    return [
        [name, f"{medians[name]:.0f}", f"{at(found, 0.99):.0f}", f"{medians[name] / medians[first]:.2f}x"]
        for name, found in times.items()
    ]


# Gets a pair, its ratio to the first one, both figures, and the processor times of all processes of both.
Judge = Callable[[str, float, str, str, str], None]


def judge_by(bars: Bars, what: str, promised: Mapping[str, float], *, is_at_most: bool) -> Judge:
    """Return a function that adds rows to the bars, for the pairs that have one."""

    def judge(name: str, ratio: float, result: str, beside: str, processor: str) -> None:
        if name in promised:
            add = bars.at_most if is_at_most else bars.at_least
            add(f"{what}, {name}", ratio, promised[name], result=result, beside=beside, processor=processor)

    return judge


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="how often to measure each pair; the result is the median"
    )
    parser.add_argument("--messages", type=int, default=300_000, help="messages of a one-way measurement")
    parser.add_argument("--trips", type=int, default=3_000, help="round trips of a measurement")
    arguments: Any = parser.parse_args()
    print(environment({"pyzmq": zmq.__version__, "libzmq": zmq.zmq_version()}))
    bars = Bars("zmtp")
    for curve, size in itertools.product((False, True), (100, 1024)):
        name = f"{'CURVE' if curve else 'NULL'}, {size} B"
        count = arguments.messages // (3 if curve else 1)
        print(f"\n### One way, {name}\n")
        judge = judge_by(bars, f"one way, {name}", FASTEST[curve], is_at_most=False)
        rows = measure_one_way(ONE_WAY, Case(size, curve, count), arguments.rounds, judge)
        print(table(["pair", "messages/s", "to pyzmq-pyzmq"], rows), flush=True)
        print(f"\n### Round trip, {name}\n")
        judge = judge_by(bars, f"round trip, {name}", SLOWEST[curve], is_at_most=True)
        rows = measure_round_trip(ROUND_TRIP, Case(size, curve, arguments.trips), arguments.rounds, judge)
        print(table(["pair", "p50 us", "p99 us", "p50 to pyzmq-pyzmq"], rows), flush=True)
    bars.show()


if __name__ == "__main__":
    main()
