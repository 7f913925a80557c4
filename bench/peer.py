"""The PEER socket compared with pyzmq's DEALER and ROUTER, in one run, two processes each, 100 bytes on loopback TCP.

    python -m bench.peer [--rounds 5] [--messages 300000]

If ZAMBEZI_LIBZMQ names a libzmq with the draft sockets, its ZMQ_PEER is measured, too, through ctypes. Ratios are to
pyzmq on both sides (`recv` per frame). Each figure is the median of the rounds; the pairs take turns within a round.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from multiprocessing.connection import Connection as ProcessPipe
from typing import Final

import zmq

from bench import zmtp
from bench.report import Bars, environment, table
from bench.zmtp import BOUND, END, Asker, Case, Receiver, Sender, judge_by, measure_one_way, measure_round_trip
from zambezi.p2p import PeerSocket
from zambezi.zmtp import Bound

# The bars of the pairs, to pyzmq.
FASTEST: Final = {"zambezi PEER, 1 thread": 0.9, "zambezi PEER, 4 threads": 0.9}
SLOWEST: Final = {"zambezi PEER": 1.1}


def receive_peer(case: Case, pipe: ProcessPipe) -> None:
    with PeerSocket(receive_bound=BOUND) as socket:
        pipe.send(socket.bind("tcp://127.0.0.1:*"))
        peer, _ = socket.recv()
        start = time.perf_counter()
        recv = socket.recv
        for _ in range(case.count):
            recv()
        pipe.send(time.perf_counter() - start)
        socket.send(peer, END)


def send_peer(threads: int) -> Sender:
    def send(case: Case, endpoint: str) -> None:
        body = b"x" * case.size
        with PeerSocket(send_bound=Bound(messages=20_000), linger=None) as socket:
            peer = socket.connect(endpoint)
            socket.send(peer, body)

            def work() -> None:
                send = socket.send
                for _ in range(case.count // threads):
                    send(peer, body)

            workers = [threading.Thread(target=work) for _ in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            socket.recv()  # when a PEER closes, messages that were not received yet are lost

    return send


def echo_peer(case: Case, pipe: ProcessPipe) -> None:
    with PeerSocket() as socket:
        pipe.send(socket.bind("tcp://127.0.0.1:*"))
        for peer, data in socket:
            if data == END:
                return
            socket.send(peer, data)


def ask_peer(case: Case, endpoint: str) -> list[float]:
    body = b"x" * case.size
    times: list[float] = []
    with PeerSocket() as socket:
        peer = socket.connect(endpoint)
        for _ in range(case.count):
            start = time.perf_counter()
            socket.send(peer, body)
            socket.recv()
            times.append(time.perf_counter() - start)
        socket.send(peer, END)
    return times


def libzmq_pairs() -> tuple[dict[str, tuple[Sender, Receiver]], dict[str, tuple[Asker, Receiver]]]:
    """Return the pairs with libzmq's own PEER, if it is available."""
    library = os.environ.get("ZAMBEZI_LIBZMQ")
    if not library:
        return {}, {}
    from tests.interop.libzmq_peer import LibzmqPeer  # noqa: PLC0415 - loads a library that may be missing

    def receive(case: Case, pipe: ProcessPipe) -> None:
        with LibzmqPeer(library) as socket:
            pipe.send(socket.bind("tcp://127.0.0.1:*"))
            peer, _ = socket.recv()
            start = time.perf_counter()
            for _ in range(case.count):
                socket.recv()
            pipe.send(time.perf_counter() - start)
            socket.send(peer, END)

    def send(case: Case, endpoint: str) -> None:
        with LibzmqPeer(library) as socket:
            peer = socket.connect(endpoint)
            body = b"x" * case.size
            for _ in range(case.count + 1):
                socket.send(peer, body)
            socket.recv()

    def echo(case: Case, pipe: ProcessPipe) -> None:
        with LibzmqPeer(library) as socket:
            pipe.send(socket.bind("tcp://127.0.0.1:*"))
            while True:
                peer, data = socket.recv()
                if data == END:
                    return
                socket.send(peer, data)

    def ask(case: Case, endpoint: str) -> list[float]:
        body = b"x" * case.size
        times: list[float] = []
        with LibzmqPeer(library) as socket:
            peer = socket.connect(endpoint)
            for _ in range(case.count):
                start = time.perf_counter()
                socket.send(peer, body)
                socket.recv()
                times.append(time.perf_counter() - start)
            socket.send(peer, END)
        return times

    one_way: dict[str, tuple[Sender, Receiver]] = {
        "ZMQ_PEER to ZMQ_PEER, by ctypes": (send, receive),
        "zambezi to ZMQ_PEER, by ctypes": (send_peer(1), receive),
    }
    return one_way, {"ZMQ_PEER to ZMQ_PEER, by ctypes": (ask, echo)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="how often to measure each pair; the result is the median"
    )
    parser.add_argument("--messages", type=int, default=300_000, help="messages of a one-way measurement")
    parser.add_argument("--trips", type=int, default=3_000, help="round trips of a measurement")
    arguments = parser.parse_args()
    more_one_way, more_round_trip = libzmq_pairs()
    one_way: dict[str, tuple[Sender, Receiver]] = {
        "pyzmq DEALER to ROUTER": (zmtp.send_pyzmq, zmtp.receive_pyzmq),
        "zambezi PEER, 1 thread": (send_peer(1), receive_peer),
        "zambezi PEER, 4 threads": (send_peer(4), receive_peer),
        **more_one_way,
    }
    round_trip: dict[str, tuple[Asker, Receiver]] = {
        "pyzmq DEALER to ROUTER": (zmtp.ask_pyzmq, zmtp.echo_pyzmq),
        "zambezi PEER": (ask_peer, echo_peer),
        **more_round_trip,
    }
    print(environment({"pyzmq": zmq.__version__, "libzmq": zmq.zmq_version()}))
    bars = Bars("peer")
    print("\n### One way, PEER, 100 B\n")
    case = Case(100, False, arguments.messages)
    judge = judge_by(bars, "one way", FASTEST, is_at_most=False)
    rows = measure_one_way(one_way, case, arguments.rounds, judge)
    print(table(["pair", "messages/s", "to pyzmq"], rows), flush=True)
    print("\n### Round trip, PEER, 100 B\n")
    case = Case(100, False, arguments.trips)
    judge = judge_by(bars, "round trip, blocking", SLOWEST, is_at_most=True)
    rows = measure_round_trip(round_trip, case, arguments.rounds, judge)
    print(table(["pair", "p50 us", "p99 us", "p50 to pyzmq"], rows))
    bars.show()


if __name__ == "__main__":
    main()
