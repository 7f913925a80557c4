"""zambezi.p2p.sync: the blocking socket. Any thread, any method, at any time."""

import contextlib
import itertools
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.zmtp.engines import MECHANISMS, guard, securities
from tests.zmtp.stranger import Stranger, hello
from tests.zmtp.waiting import PATIENCE, wait_for, wait_until
from zambezi.p2p import NoSuchPeer, PeerConnected, PeerDisconnected, PeerSocket
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Heartbeat
from zambezi.zmtp.errors import EndpointError, MessageError, QueueFull, SocketClosed, TimedOut, ZmtpError
from zambezi.zmtp.events import HandshakeFailed, Listening, Retrying
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Bound
from zambezi.zmtp.security import CurveClient, CurveServer, PlainClient, PlainServer

_names = itertools.count()
EAGER = Backoff(0.01, 0.05)
TRANSPORTS = ["tcp", "tcp6", "ipc", "inproc"]


def name() -> str:
    return f"inproc://peer-sync-{next(_names)}"


def where(transport: str, directory: Path) -> str:
    places = {
        "tcp": "tcp://127.0.0.1:*",
        "tcp6": "tcp://[::1]:*",
        "ipc": f"ipc://{directory}/s",
        "inproc": name(),
    }
    return places[transport]


# Messages


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_peers_talk(transport: str, tmp_path: Path) -> None:
    with PeerSocket() as ann, PeerSocket() as bob:
        to_bob = ann.connect(bob.bind(where(transport, tmp_path)))
        for data in (b"", b"\0", b"a" * 255, b"b" * 256, b"c" * 1_000_000):
            ann.send(to_bob, data)
            to_ann, got = bob.recv(PATIENCE)
            assert got == data
            bob.send(to_ann, data)
            assert ann.recv(PATIENCE) == (to_bob, data)
        assert ann.peers == [to_bob]
        assert bob.peers == [to_ann]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_every_mechanism(mechanism: str, transport: str, tmp_path: Path) -> None:
    client, server = securities(mechanism)
    with PeerSocket(security=server, authenticator=guard(mechanism)) as bob, PeerSocket(security=client) as ann:
        to_bob = ann.connect(bob.bind(where(transport, tmp_path)))
        ann.send(to_bob, b"hello")
        to_ann, got = bob.recv(PATIENCE)
        assert got == b"hello"
        bob.send(to_ann, b"x" * 100_000)
        assert ann.recv(PATIENCE) == (to_bob, b"x" * 100_000)
        connected = wait_for(bob, PeerConnected)
        assert connected.user == ("" if mechanism == "NULL" else "ali")


def test_any_buffer_is_sent_and_a_mutable_one_is_copied() -> None:
    with PeerSocket() as ann, PeerSocket() as bob:
        to_bob = ann.connect(bob.bind(name()))
        buffer = bytearray(b"before")
        ann.send(to_bob, buffer)
        buffer[:] = b"after!"
        ann.send(to_bob, memoryview(buffer)[:5])
        assert [bob.recv(PATIENCE)[1] for _ in range(2)] == [b"before", b"after"]


@pytest.mark.parametrize("data", ["text", [b"one", b"two"], None, 7])
def test_what_is_no_message_is_refused(data: object) -> None:
    with PeerSocket(linger=0) as ann:
        to_nobody = ann.connect(name())
        with pytest.raises(MessageError):
            ann.send(to_nobody, data)  # type: ignore[arg-type]
        assert ann._shell.peers[to_nobody].drained


def test_a_thousand_small_ones_and_a_large_one_arrive_in_order() -> None:
    """Some go by the mailbox, some by the lock: the order is that of the calls."""
    messages = [b"%d" % number + (b"x" * 5000 if number % 7 == 0 else b"") for number in range(3000)]
    with PeerSocket() as ann, PeerSocket() as bob, ThreadPoolExecutor(1) as pool:
        to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))

        def send() -> None:
            for message in messages:
                ann.send(to_bob, message)

        sending = pool.submit(send)
        assert [bob.recv(PATIENCE)[1] for _ in messages] == messages
        sending.result(PATIENCE)


def test_iterating_gives_messages_until_the_socket_is_closed() -> None:
    with PeerSocket() as ann, PeerSocket() as bob, ThreadPoolExecutor() as pool:
        to_bob = ann.connect(bob.bind(name()))
        got: list[bytes] = []

        def collect() -> None:
            for _, text in bob:
                got.append(text)

        collecting = pool.submit(collect)
        for text in (b"1", b"2", b"3"):
            ann.send(to_bob, text)
        wait_until(lambda: len(got) == 3)
        bob.close()
        collecting.result(PATIENCE)
        assert got == [b"1", b"2", b"3"]


def test_what_is_sent_before_the_connection_waits_for_it() -> None:
    with PeerSocket(backoff=EAGER) as ann:
        with PeerSocket() as bob:
            endpoint = bob.bind("tcp://127.0.0.1:*")
        to_bob = ann.connect(endpoint)
        for number in range(100):
            ann.send(to_bob, b"%d" % number)
        with PeerSocket() as bob:
            bob.bind(endpoint)
            assert [bob.recv(PATIENCE)[1] for _ in range(100)] == [b"%d" % number for number in range(100)]


def test_a_routing_id_survives_restarts_of_the_other_side() -> None:
    with PeerSocket(backoff=EAGER) as ann:
        endpoint = "tcp://127.0.0.1:*"
        to_bob = 0
        seen = set()
        for number in range(3):
            with PeerSocket() as bob:
                endpoint = bob.bind(endpoint)
                to_bob = to_bob or ann.connect(endpoint)
                ann.send(to_bob, b"%d" % number)
                to_ann, text = bob.recv(PATIENCE)
                assert text == b"%d" % number
                bob.send(to_ann, b"answer")
                assert ann.recv(PATIENCE) == (to_bob, b"answer")
                seen.add(to_ann)
            wait_for(ann, Retrying)
            assert ann.peers == [to_bob]
        assert len(seen) == 3


def test_an_endpoint_that_makes_no_sense_leaves_no_peer() -> None:
    with PeerSocket() as ann:
        with pytest.raises(EndpointError):
            ann.connect("tcp://127.0.0.1")
        assert ann.peers == []


# Bounds and time


def test_a_full_queue_blocks_and_room_lets_it_go_on() -> None:
    with PeerSocket(send_bound=Bound(3, 1000)) as ann, PeerSocket() as bob, ThreadPoolExecutor() as pool:
        endpoint = name()
        to_bob = ann.connect(endpoint)
        for number in range(3):
            ann.send(to_bob, b"%d" % number)
        with pytest.raises(TimedOut, match=r"within 0[.]01 s") as caught:
            ann.send(to_bob, b"never", timeout=0.01)
        assert isinstance(caught.value, TimeoutError)
        with pytest.raises(TimedOut):
            ann.send(to_bob, b"never", timeout=0)
        waiting = pool.submit(ann.send, to_bob, b"3")
        wait_until(lambda: ann._writable.waiting == 1)
        bob.bind(endpoint)
        waiting.result(PATIENCE)
        assert [bob.recv(PATIENCE)[1] for _ in range(4)] == [b"0", b"1", b"2", b"3"]


def test_a_full_queue_raises_where_that_is_wanted() -> None:
    with PeerSocket(send_bound=Bound(3, 1000), on_full="error", linger=0) as ann:
        to_nobody = ann.connect(name())
        for _ in range(3):
            ann.send(to_nobody, b"x")
        with pytest.raises(QueueFull, match=str(to_nobody)):
            ann.send(to_nobody, b"x")


def test_the_bound_holds_over_a_connection_to_one_who_does_not_read() -> None:
    """In whichever way messages get into the queue, it is bounded, and what was accepted is what arrives."""
    bound = Bound(100, 1 << 30)
    with PeerSocket(send_bound=bound, linger=0) as ann:
        endpoint = ann.bind("tcp://127.0.0.1:*")
        with Stranger.calling(endpoint, small=True) as deaf:
            deaf.say(hello("PEER"))
            to_deaf = wait_for(ann, PeerConnected).routing_id
            peer = ann._shell.peers[to_deaf]
            sent = 0
            with contextlib.suppress(TimedOut):
                while True:
                    ann.send(to_deaf, b"%d" % sent + b"x" * 900, timeout=0.05)
                    sent += 1
                    assert len(peer._outbox) + len(peer._mailbox) <= 100
            wait_until(lambda: deaf.heard_all() and len(deaf.messages) == sent)
            assert [message[0].rstrip(b"x") for message in deaf.messages] == [b"%d" % number for number in range(sent)]
            ann.send(to_deaf, b"there is room again", PATIENCE)


def test_there_is_no_policy_to_drop() -> None:
    with pytest.raises(ZmtpError, match="never drops"):
        PeerSocket(on_full="drop")


def test_a_late_receive_eats_nothing() -> None:
    with PeerSocket() as ann, PeerSocket() as bob:
        with pytest.raises(TimedOut):
            bob.recv(0.01)
        to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
        for number in range(200):
            ann.send(to_bob, b"%d" % number)
            with contextlib.suppress(TimedOut):
                assert bob.recv(0)[1] == b"%d" % number
                continue
            assert bob.recv(PATIENCE)[1] == b"%d" % number


# A blocked call ends, and says why


@contextlib.contextmanager
def blocked_sender(ann: PeerSocket, to_peer: int) -> Iterator["Future[None]"]:
    """A thread that waits for room in a peer's queue, which is full."""
    with contextlib.suppress(TimedOut):
        while True:
            ann.send(to_peer, b"x" * 900, timeout=0.05)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ann.send, to_peer, b"one too many")
        wait_until(lambda: ann._writable.waiting == 1)
        yield waiting


def test_the_end_of_a_peer_ends_who_waits_to_send_to_it() -> None:
    with PeerSocket(send_bound=Bound(5, 1000)) as ann:
        with Stranger.calling(ann.bind("tcp://127.0.0.1:*"), small=True) as deaf:
            deaf.say(hello("PEER"))
            to_deaf = wait_for(ann, PeerConnected).routing_id
            with blocked_sender(ann, to_deaf) as waiting:
                deaf.close()
                with pytest.raises(NoSuchPeer, match=str(to_deaf)):
                    waiting.result(PATIENCE)
        with pytest.raises(NoSuchPeer, match=str(to_deaf)):
            ann.send(to_deaf, b"x")


def test_disconnecting_a_peer_ends_who_waits_to_send_to_it() -> None:
    with PeerSocket(send_bound=Bound(5, 1000), linger=0) as ann:
        to_nobody = ann.connect(name())
        with blocked_sender(ann, to_nobody) as waiting:
            ann.disconnect(to_nobody)
            with pytest.raises(NoSuchPeer, match=str(to_nobody)):
                waiting.result(PATIENCE)


def test_closing_ends_who_waits_to_send() -> None:
    ann = PeerSocket(send_bound=Bound(5, 1000), linger=0)
    with blocked_sender(ann, ann.connect(name())) as waiting:
        ann.close()
        with pytest.raises(SocketClosed):
            waiting.result(PATIENCE)


def test_the_end_of_another_peer_does_not_disturb_who_waits() -> None:
    with PeerSocket(send_bound=Bound(5, 1000), linger=0) as ann, PeerSocket() as bob:
        to_bob, to_nobody = ann.connect(bob.bind(name())), ann.connect(name())
        with blocked_sender(ann, to_nobody) as waiting:
            ann.disconnect(to_bob)
            with pytest.raises(TimedOut):  # it has room for neither, and was woken for nothing
                ann.send(to_nobody, b"x", timeout=0.01)
            assert not waiting.done()
            ann.disconnect(to_nobody)
            assert isinstance(waiting.exception(PATIENCE), NoSuchPeer)


def test_closing_wakes_all_who_wait() -> None:
    ann = PeerSocket()
    ann.connect(name())
    with ThreadPoolExecutor(4) as pool:
        waiting: list[Future[object]] = [pool.submit(ann.recv), pool.submit(ann.next_event)]
        iterating = pool.submit(lambda: [list(ann), list(ann.events())])
        wait_until(lambda: (ann._readable.waiting, ann._eventful.waiting) == (2, 1))
        ann.close(0)
        for one in waiting:
            assert isinstance(one.exception(PATIENCE), SocketClosed)
        assert iterating.result(PATIENCE) == [[], []]
    assert ann.closed
    assert repr(ann) == "<PeerSocket closed>"


def test_a_closed_socket_says_so() -> None:
    ann = PeerSocket()
    ann.close()
    ann.close()
    calls: list[Callable[[], object]] = [
        ann.recv,
        ann.next_event,
        lambda: ann.bind(name()),
        lambda: ann.unbind(name()),
        lambda: ann.connect(name()),
        lambda: ann.disconnect(1),
        lambda: ann.send(1, b"x"),
        lambda: ann.send(0, b"x"),
    ]
    for call in calls:
        with pytest.raises(SocketClosed, match="closed"):
            call()
    assert list(ann) == []
    assert ann.peers == []


# Who is there, and who is not


@pytest.mark.parametrize("routing_id", [0, 1, 0xFFFFFFFF, -1, 1 << 40])
def test_sending_to_nobody_is_an_error(routing_id: int) -> None:
    with PeerSocket() as ann:
        with pytest.raises(NoSuchPeer, match=str(routing_id)):
            ann.send(routing_id, b"x")
        with pytest.raises(NoSuchPeer, match=str(routing_id)):
            ann.disconnect(routing_id)


def test_disconnect_delivers_what_was_sent_before() -> None:
    with PeerSocket() as ann, PeerSocket(receive_bound=Bound(1, 1000)) as bob:
        to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
        ann.send(to_bob, b"hello")
        to_ann, _ = bob.recv(PATIENCE)
        bob.send(to_ann, b"goodbye")
        bob.disconnect(to_ann)
        assert ann.recv(PATIENCE) == (to_bob, b"goodbye")
        with pytest.raises(NoSuchPeer):
            bob.send(to_ann, b"x")


def test_messages_of_a_peer_that_left_are_gone_with_it() -> None:
    with PeerSocket() as bob:
        endpoint = bob.bind("tcp://127.0.0.1:*")
        with Stranger.calling(endpoint) as stranger:
            stranger.say(hello("PEER") + b"\x00\x01x" * 10)
            wait_until(lambda: bob._shell.readable)
            to_stranger, _ = bob.recv(PATIENCE)
        wait_for(bob, PeerDisconnected)
        with pytest.raises(TimedOut):
            bob.recv(0)
        with pytest.raises(NoSuchPeer):
            bob.send(to_stranger, b"x")
        assert bob.peers == []


def test_closing_waits_until_what_was_sent_is_out() -> None:
    """All of it was read by the kernel of the other side; the other side, which connected, keeps it."""
    with PeerSocket() as ann, ThreadPoolExecutor(1) as pool:
        bob = PeerSocket()
        to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
        ann.send(to_bob, b"hello")
        to_ann, _ = bob.recv(PATIENCE)
        for number in range(5000):
            bob.send(to_ann, b"%d" % number + b"x" * 1000)
        closing = pool.submit(bob.close, None)
        got = [ann.recv(PATIENCE)[1].rstrip(b"x") for _ in range(5000)]
        closing.result(PATIENCE)
        assert got == [b"%d" % number for number in range(5000)]
        assert bob.counters.abandoned == 0


def test_leaving_by_an_exception_does_not_wait() -> None:
    ann = PeerSocket(linger=None)

    def fail() -> None:
        with ann:
            ann.send(ann.connect(name()), b"nobody will ever take this")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert ann.counters.abandoned == 1


# Events


def test_events_tell_the_story() -> None:
    with PeerSocket() as bob, PeerSocket(backoff=EAGER) as ann:
        endpoint = bob.bind("tcp://127.0.0.1:*")
        assert bob.next_event() == Listening(endpoint)
        to_bob = ann.connect(endpoint)
        theirs = wait_for(bob, PeerConnected)
        assert (theirs.endpoint, theirs.address, theirs.user) == (endpoint, "127.0.0.1", "")
        assert wait_for(ann, PeerConnected) == PeerConnected(endpoint, to_bob, "127.0.0.1", "")
        bob.close()
        left = wait_for(ann, PeerDisconnected)
        assert left == PeerDisconnected(endpoint, to_bob, "127.0.0.1", "the peer closed the connection")
        assert wait_for(ann, Retrying).attempt == 1


def test_a_failed_handshake_is_told_to_both_sides() -> None:
    server, right, wrong = (KeyPair.generate(seed=bytes([number]) * 32) for number in (4, 5, 6))
    with PeerSocket(security=CurveServer(server)) as bob, PeerSocket(linger=0) as ann:
        endpoint = bob.bind("tcp://127.0.0.1:*")
        ann.connect(endpoint)
        assert "NULL" in wait_for(bob, HandshakeFailed).reason
        assert "CURVE" in wait_for(ann, HandshakeFailed).reason
        with PeerSocket(security=CurveClient(wrong.public, right), linger=0) as eve:
            eve.connect(endpoint)
            assert wait_for(bob, HandshakeFailed).address == "127.0.0.1"
            assert wait_for(eve, HandshakeFailed).endpoint == endpoint
        assert bob.peers == []


def test_a_wrong_password_lets_nobody_in() -> None:
    with (
        PeerSocket(security=PlainServer(), authenticator=guard("PLAIN")) as bob,
        PeerSocket(security=PlainClient("ali", "guess"), linger=0) as eve,
    ):
        to_bob = eve.connect(bob.bind("tcp://127.0.0.1:*"))
        eve.send(to_bob, b"let me in")
        assert "password" in wait_for(bob, HandshakeFailed).reason
        assert bob.peers == []
        assert eve.peers == [to_bob]  # an outgoing queue stays: the next attempt may succeed


def test_a_silent_peer_is_disconnected() -> None:
    with PeerSocket(heartbeat=Heartbeat(0.05)) as bob, Stranger.calling(bob.bind("tcp://127.0.0.1:*")) as silent:
        silent.say(hello("PEER"))
        left = wait_for(bob, PeerDisconnected)
        assert "after a PING" in left.reason
        assert left.routing_id not in bob.peers


# Threads and processes


def test_connect_in_many_threads_gives_each_an_id_of_its_own() -> None:
    with PeerSocket() as hub, PeerSocket() as ann, ThreadPoolExecutor(8) as pool:
        endpoint = hub.bind("tcp://127.0.0.1:*")

        def visit(number: int) -> int:
            to_hub = ann.connect(endpoint)
            ann.send(to_hub, b"%d" % number)
            return to_hub

        ids = list(pool.map(visit, range(64)))
        assert len(set(ids)) == 64
        got = dict(hub.recv(PATIENCE) for _ in range(64))
        assert sorted(got.values()) == sorted(b"%d" % number for number in range(64))
        for routing_id, text in got.items():
            hub.send(routing_id, text)
        assert dict(ann.recv(PATIENCE) for _ in ids) == {ids[number]: b"%d" % number for number in range(64)}


def test_everything_at_once_from_many_threads_while_the_socket_is_closed() -> None:
    for _ in range(10):
        with PeerSocket(send_bound=Bound(50, 100_000)) as hub:
            endpoint = hub.bind("tcp://127.0.0.1:*")
            ann = PeerSocket(send_bound=Bound(50, 100_000), linger=0)
            start = threading.Barrier(9)
            kept = ann.connect(endpoint)

            def send(ann: PeerSocket = ann, kept: int = kept) -> None:
                while True:
                    ann.send(kept, b"x" * 100)

            def come_and_go(ann: PeerSocket = ann, endpoint: str = endpoint) -> None:
                while True:
                    peer = ann.connect(endpoint)
                    ann.send(peer, b"x")
                    ann.disconnect(peer)

            def receive(ann: PeerSocket = ann) -> None:
                while True:
                    ann.recv()

            def look(ann: PeerSocket = ann) -> None:
                while True:
                    ann.next_event()

            def until_closed(work: Callable[[], None], start: threading.Barrier = start) -> None:
                start.wait(PATIENCE)
                with pytest.raises(SocketClosed):
                    work()

            with ThreadPoolExecutor(8) as pool:
                jobs: list[Callable[[], None]] = [send, send, come_and_go, come_and_go, receive, receive, look, look]
                working = [pool.submit(until_closed, job) for job in jobs]
                start.wait(PATIENCE)
                for _ in range(20):
                    hub.recv(PATIENCE)
                ann.close()
                for one in working:
                    one.result(PATIENCE)


def test_a_forked_child_has_no_use_of_its_parents_socket() -> None:
    program = """
        import os
        from zambezi.p2p import PeerSocket
        from zambezi.zmtp import ZmtpError

        with PeerSocket() as ann, PeerSocket() as bob:
            to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
            ann.send(to_bob, b"before")
            print(bob.recv(20)[1])
            child = os.fork()
            if not child:
                calls = [
                    lambda: ann.send(to_bob, b"x"), ann.recv, lambda: ann.connect("inproc://x"), lambda: ann.peers,
                    lambda: ann.disconnect(to_bob), lambda: ann.bind("tcp://127.0.0.1:*"),
                ]
                for call in calls:
                    try:
                        call()
                    except ZmtpError as error:
                        assert "belongs to the process that forked" in str(error), error
                    else:
                        raise AssertionError(call)
                with PeerSocket() as carl, PeerSocket() as dora:
                    to_dora = carl.connect(dora.bind("tcp://127.0.0.1:*"))
                    carl.send(to_dora, b"x")
                    assert dora.recv(20)[1] == b"x"
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            ann.send(to_bob, b"after")
            print(bob.recv(20)[1])
    """
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert (ended.stderr, ended.stdout) == ("", "b'before'\nb'after'\n")


def test_an_unclosed_socket_is_told_of() -> None:
    ann = PeerSocket()
    ann.connect(name())
    with pytest.warns(ResourceWarning, match="unclosed <PeerSocket inproc://"):
        ann.__del__()
    ann.close(0)
