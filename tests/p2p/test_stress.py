"""Many threads, and peers that come and go: no message arrives twice, is lost against the rules, or out of order.

The rules (51/P2P): a message that `send` accepted is delivered once, in the order of the calls of its thread, as long
as its queue exists; a queue that is closed or disconnected with a linger is sent first. When a peer that connected to
us leaves, its queue is removed; so of the messages from it and to it, only the first ones arrive.
"""

import contextlib
import itertools
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.zmtp.waiting import PATIENCE, wait_for, wait_until
from zambezi.p2p import NoSuchPeer, PeerConnected, PeerDisconnected, PeerSocket
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.errors import SocketClosed, TimedOut
from zambezi.zmtp.events import Retrying
from zambezi.zmtp.options import Bound

_names = itertools.count()
EAGER = Backoff(0.001, 0.01)
TRANSPORTS = ["tcp", "inproc"]


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Make Python switch threads after microseconds, so that they interrupt each other everywhere."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def where(transport: str) -> str:
    return "tcp://127.0.0.1:*" if transport == "tcp" else f"inproc://peer-stress-{next(_names)}"


def results(working: list[Future[int]]) -> list[int]:
    return [one.result(PATIENCE) for one in working]


# Numbered messages: the sender, the number, and padding, because large messages are not posted.


def numbered(sender: int, number: int) -> bytes:
    return b"%d %d " % (sender, number) + (b"x" * 2000 if number % 41 == 0 else b"")


def read(text: bytes) -> tuple[int, int]:
    sender, number, _ = text.split(b" ")
    return int(sender), int(number)


def flood(socket: PeerSocket, to_peer: int, sender: int, start: int = 0) -> int:
    """Send until the queue or the socket is gone; return the number of the message that was refused."""
    for number in itertools.count(start):
        try:
            socket.send(to_peer, numbered(sender, number))
        except (NoSuchPeer, SocketClosed):
            return number
    raise AssertionError


def collect(socket: PeerSocket, enough: Callable[[list[tuple[int, int]]], bool]) -> list[tuple[int, int]]:
    """Receive until `enough` returns True; return the messages."""
    got: list[tuple[int, int]] = []
    deadline = time.monotonic() + PATIENCE
    while not enough(got):
        assert time.monotonic() < deadline, f"only {len(got)} messages arrived"
        with contextlib.suppress(TimedOut):
            got.append(read(socket.recv(0.05)[1]))
    return got


def by_sender(got: list[tuple[int, int]]) -> dict[int, list[int]]:
    numbers: dict[int, list[int]] = defaultdict(list)
    for sender, number in got:
        numbers[sender].append(number)
    return numbers


# Peers that stay, among peers that come and go


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_peers_that_stay_lose_nothing_while_others_come_and_go(transport: str) -> None:
    each, senders, visits, words = 5000, 4, 25, 30
    visitor_ids = itertools.count(1000)
    seen_by_hub: list[list[tuple[int, int, int]]] = [[] for _ in range(4)]
    seen_by_ann: list[list[tuple[int, int]]] = [[] for _ in range(4)]
    answers: list[tuple[int, list[int]]] = []
    bound = Bound(200, 1 << 20)

    with PeerSocket(send_bound=bound, receive_bound=bound) as hub, PeerSocket(send_bound=bound) as ann:
        endpoint = hub.bind(where(transport))
        to_hub = ann.connect(endpoint)
        to_ann = wait_for(hub, PeerConnected).routing_id

        def speak(socket: PeerSocket, to_peer: int, sender: int) -> None:
            for number in range(each):
                socket.send(to_peer, numbered(sender, number), PATIENCE)

        def hear_at_hub(turn: int) -> None:
            for routing_id, text in hub:
                sender, number = read(text)
                seen_by_hub[turn].append((routing_id, sender, number))
                if sender >= 1000:
                    with contextlib.suppress(NoSuchPeer, TimedOut):
                        hub.send(routing_id, text, timeout=0.5)

        def hear_at_ann(turn: int) -> None:
            for routing_id, text in ann:
                assert routing_id == to_hub
                seen_by_ann[turn].append(read(text))

        def visit(turn: int) -> None:
            for _ in range(visits):
                visitor = next(visitor_ids)
                heard: list[int] = []
                with PeerSocket(linger=0 if visitor % 2 else 1) as guest:
                    to_host = guest.connect(endpoint)
                    for number in range(words):
                        guest.send(to_host, numbered(visitor, number), PATIENCE)
                    heard += [read(guest.recv(PATIENCE)[1])[1] for _ in range(visitor % words)]
                answers.append((visitor, heard))

        with ThreadPoolExecutor(20) as pool:
            hearing = [pool.submit(hear_at_hub, turn) for turn in range(4)]
            hearing += [pool.submit(hear_at_ann, turn) for turn in range(4)]
            working = [pool.submit(speak, ann, to_hub, sender) for sender in range(senders)]
            working += [pool.submit(speak, hub, to_ann, sender) for sender in range(senders)]
            working += [pool.submit(visit, turn) for turn in range(4)]
            for one in working:
                one.result(2 * PATIENCE)
            total = each * senders
            wait_until(lambda: sum(map(len, seen_by_ann)) >= total)
            wait_until(lambda: sum(who < 1000 for seen in seen_by_hub for _, who, _ in seen) >= total)
            ann.close(0)
            hub.close(0)
            for one in hearing:
                one.result(PATIENCE)

    everything = Counter(itertools.product(range(senders), range(each)))
    assert Counter(pair for seen in seen_by_ann for pair in seen) == everything
    assert Counter(tuple(pair) for seen in seen_by_hub for _, *pair in seen if pair[0] < 1000) == everything
    # A receiving thread sees the messages of one thread in the order in which they were sent.
    for at_ann in seen_by_ann:
        for numbers in by_sender(at_ann).values():
            assert numbers == sorted(numbers)
    for at_hub in seen_by_hub:
        for numbers in by_sender([(sender, number) for _, sender, number in at_hub]).values():
            assert numbers == sorted(numbers)
    # Of the visitors: the first messages, each once; and each answer is to a message of the visitor, once.
    connections: dict[tuple[int, int], list[int]] = defaultdict(list)
    for routing_id, sender, number in itertools.chain.from_iterable(seen_by_hub):
        if sender >= 1000:
            connections[routing_id, sender].append(number)
    assert len(connections) == len({routing_id for routing_id, _ in connections})
    for numbers in connections.values():
        assert sorted(numbers) == list(range(len(numbers)))
    assert len(answers) == 4 * visits
    for visitor, heard in answers:
        assert len(heard) == len(set(heard)) == visitor % words


# The end of a queue, in the middle of a flood

ROUNDS = 30


@pytest.mark.parametrize("ending", ["close", "disconnect"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_accepted_messages_arrive_and_refused_ones_do_not(transport: str, ending: str) -> None:
    """The flooding socket binds, so the queue of the receiver, which connects, outlives the connection."""
    for turn in range(ROUNDS):
        bound = Bound(100 + 10 * turn, 1 << 20)
        host = PeerSocket(send_bound=bound, linger=None)
        with PeerSocket() as guest, ThreadPoolExecutor(6) as pool:
            guest.connect(host.bind(where(transport)))
            to_guest = wait_for(host, PeerConnected).routing_id
            ended = threading.Event()
            flooding = [pool.submit(flood, host, to_guest, sender) for sender in range(4)]
            sent: list[int] = []

            def enough(got: list[tuple[int, int]], ended: threading.Event = ended, sent: list[int] = sent) -> bool:
                return ended.is_set() and len(got) >= sum(sent)

            collecting = pool.submit(collect, guest, enough)
            wait_until(lambda collecting=collecting, guest=guest: guest._shell.readable or collecting.done())  # type: ignore[misc]
            if ending == "close":
                host.close()  # it has no time limit: it hangs if a message is forgotten
            else:
                host.disconnect(to_guest)
            sent += results(flooding)
            if ending == "disconnect":
                host.close()
            ended.set()
            got = collecting.result(2 * PATIENCE)
            wait_for(guest, PeerDisconnected)
            with pytest.raises(TimedOut):
                guest.recv(0)  # no refused message
        assert dict(by_sender(got)) == {sender: list(range(count)) for sender, count in enumerate(sent) if count}, (
            f"{sent} were accepted, and {[len(numbers) for numbers in by_sender(got).values()]} came"
        )
        assert host.counters.abandoned == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_peer_that_leaves_receives_the_first_messages_only(transport: str) -> None:
    with PeerSocket(send_bound=Bound(200, 1 << 20), linger=0) as host, ThreadPoolExecutor(5) as pool:
        endpoint = host.bind(where(transport))
        start = [0, 0, 0, 0]
        for _ in range(ROUNDS):
            with PeerSocket(linger=0) as guest:
                guest.connect(endpoint)
                to_guest = wait_for(host, PeerConnected).routing_id
                flooding = [pool.submit(flood, host, to_guest, sender, number) for sender, number in enumerate(start)]
                got = collect(guest, lambda got: len(got) >= 500)
            refused = results(flooding)  # only the end of the queue ends them
            for sender, numbers in by_sender(got).items():
                first = start[sender]
                assert numbers == list(range(first, first + len(numbers)))
                assert first + len(numbers) <= refused[sender]
            start = refused
            wait_until(lambda: not host.peers)


def test_across_restarts_messages_arrive_once_and_in_order() -> None:
    """Bytes in the kernel that were not read are lost: each connection has an unbroken run of later messages."""
    restarts, last = 6, b"the last"
    with PeerSocket(send_bound=Bound(200, 1 << 20), backoff=EAGER) as ann, ThreadPoolExecutor(5) as pool:
        over = threading.Event()
        endpoint, to_host = "tcp://127.0.0.1:*", 0
        flooding: list[Future[int]] = []
        pieces: list[dict[int, list[int]]] = []

        def speak(sender: int, to_host: int) -> int:
            for number in itertools.count():
                if over.is_set():
                    ann.send(to_host, b"%d %d " % (sender, number) + last, PATIENCE)
                    return number
                ann.send(to_host, numbered(sender, number), PATIENCE)
            raise AssertionError

        for turn in range(restarts + 1):
            with PeerSocket(linger=0) as host:
                endpoint = host.bind(endpoint)
                if not to_host:
                    to_host = ann.connect(endpoint)
                    flooding = [pool.submit(speak, sender, to_host) for sender in range(4)]
                if turn < restarts:
                    pieces.append(by_sender(collect(host, lambda got: len(got) >= 500)))
                else:
                    over.set()
                    final: list[tuple[int, int]] = []
                    ends = 0
                    while ends < 4:
                        who, which, rest = host.recv(PATIENCE)[1].split(b" ", 2)
                        final.append((int(who), int(which)))
                        ends += rest == last
                    pieces.append(by_sender(final))
                    assert results(flooding) == [pieces[-1][sender][-1] for sender in range(4)]
            if turn < restarts:
                wait_for(ann, Retrying)
            assert ann.peers == [to_host]
        next_number = [0, 0, 0, 0]
        for piece in pieces:
            for sender, numbers in piece.items():
                assert numbers[0] >= next_number[sender]
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
                next_number[sender] = numbers[-1] + 1


def test_disconnecting_from_many_threads_ends_a_peer_once() -> None:
    for _ in range(ROUNDS):
        with PeerSocket() as host, PeerSocket() as guest, ThreadPoolExecutor(8) as pool:
            to_host = guest.connect(host.bind("tcp://127.0.0.1:*"))
            flooding = [pool.submit(flood, guest, to_host, sender) for sender in range(4)]
            host.recv(PATIENCE)
            start = threading.Barrier(4)

            def leave(start: threading.Barrier = start, guest: PeerSocket = guest, to_host: int = to_host) -> bool:
                start.wait(PATIENCE)
                try:
                    guest.disconnect(to_host)
                except NoSuchPeer:
                    return False
                return True

            leaving = [pool.submit(leave) for _ in range(4)]
            assert sorted(one.result(PATIENCE) for one in leaving) == [False, False, False, True]
            results(flooding)
            assert guest.peers == []
