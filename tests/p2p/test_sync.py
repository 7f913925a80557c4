"""zambezi.p2p.sync: many threads, and processes that fork. `test_faces` has the tests that both faces share."""

import contextlib
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.zmtp.programs import run
from tests.zmtp.stranger import Stranger, hello
from tests.zmtp.waiting import PATIENCE, wait_for, wait_until
from zambezi.p2p import PeerConnected, PeerSocket
from zambezi.zmtp.errors import SocketClosed, TimedOut
from zambezi.zmtp.options import Bound

_names = itertools.count()


def name() -> str:
    return f"inproc://peer-sync-{next(_names)}"


def test_small_and_large_messages_arrive_in_order() -> None:
    """Some are posted to the mailbox, some are sent with the lock held: the order is that of the calls."""
    messages = [b"%d" % number + (b"x" * 5000 if number % 7 == 0 else b"") for number in range(3000)]
    with PeerSocket() as ann, PeerSocket() as bob, ThreadPoolExecutor(1) as pool:
        to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))

        def send() -> None:
            for message in messages:
                ann.send(to_bob, message)

        sending = pool.submit(send)
        assert [bob.recv(PATIENCE)[1] for _ in messages] == messages
        sending.result(PATIENCE)


def test_the_bound_holds_for_a_peer_that_does_not_read() -> None:
    """The bound counts the mailbox and the outbox together, and every accepted message arrives."""
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
            ann.send(to_deaf, b"the queue has room again", PATIENCE)


def test_connect_in_many_threads_returns_different_ids() -> None:
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


def test_closing_while_many_threads_use_the_socket() -> None:
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


def test_a_forked_child_cannot_use_the_sockets_of_its_parent() -> None:
    ended = run("""
        import os
        from zambezi.p2p import PeerSocket
        from zambezi.zmtp import ZmtpError

        with PeerSocket() as ann, PeerSocket() as bob:
            to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
            ann.send(to_bob, b"before")
            print(bob.recv(60)[1])
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
                    assert dora.recv(60)[1] == b"x"
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            ann.send(to_bob, b"after")
            print(bob.recv(60)[1])
    """)
    assert (ended.stderr, ended.stdout) == ("", "b'before'\nb'after'\n")


def test_a_program_that_forgets_to_close_a_socket_is_warned() -> None:
    ann = PeerSocket()
    ann.connect(name())
    with pytest.warns(ResourceWarning, match="unclosed <PeerSocket inproc://"):
        ann.__del__()
    ann.close(0)
