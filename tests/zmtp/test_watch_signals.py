"""zambezi.zmtp.watch: signals that interrupt the thread that leads."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.zmtp.line import IO_THREAD, Line
from tests.zmtp.programs import run
from tests.zmtp.waiting import PATIENCE, wait_for, wait_until
from zambezi.zmtp.connection import Connection
from zambezi.zmtp.events import Disconnected
from zambezi.zmtp.sync import Dealer, Router


def test_a_signal_interrupts_the_main_thread_and_the_socket_works_on() -> None:
    ended = run("""
        import os, signal, threading, time
        from zambezi.p2p import PeerSocket

        armed = []

        def handle(*_):
            if armed:
                armed.clear()
                raise KeyboardInterrupt

        signal.signal(signal.SIGINT, handle)
        with PeerSocket() as bob, PeerSocket() as ann:
            to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
            ann.send(to_bob, b"hello")
            to_ann, _ = bob.recv(60)
            watch = bob._waiter.reactor.watch

            def interrupt():
                while not watch.polling:
                    time.sleep(0.001)
                # More than once: Python does not notice a signal that comes just before it begins to wait.
                while armed:
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.01)

            for turn in range(3):
                armed.append(True)
                thread = threading.Thread(target=interrupt)
                thread.start()
                try:
                    bob.recv()
                except KeyboardInterrupt:
                    print("interrupted", watch.leader)
                thread.join()
                ann.send(to_bob, b"%d" % turn)
                print(bob.recv(60)[1])
                bob.send(to_ann, b"back")
                print(ann.recv(60)[1])
    """)
    turns = "".join(f"interrupted None\nb'{turn}'\nb'back'\n" for turn in range(3))
    assert (ended.stderr, ended.stdout, ended.returncode) == ("", turns, 0)


def test_an_interrupt_while_the_leader_receives_closes_the_connection_and_nothing_is_garbled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Router() as router, Dealer() as dealer:
        dealer.connect(router.bind("tcp://127.0.0.1:*"))
        dealer.send(b"hello")
        router.send([router.recv(PATIENCE)[0], b"hello"])
        dealer.recv(PATIENCE)
        watch = router._waiter.reactor.watch
        receive = Connection.receive
        caught = threading.Event()

        def interrupted(self: Connection, data: bytes, now: float) -> object:
            if threading.current_thread() is threading.main_thread() and not caught.is_set():
                caught.set()
                raise KeyboardInterrupt
            return receive(self, data, now)

        def send_to_leader() -> None:
            wait_until(lambda: watch.polling)
            dealer.send(b"lost")

        monkeypatch.setattr(Connection, "receive", interrupted)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(send_to_leader)
            with pytest.raises(KeyboardInterrupt):
                router.recv(PATIENCE)
        assert wait_for(router, Disconnected).reason == "a signal interrupted this side while it received"
        wait_for(dealer, Disconnected)  # what it sends before it knows that is lost, too
        dealer.send(b"by the next connection")
        assert router.recv(PATIENCE)[1] == b"by the next connection"


def test_the_lock_is_held_after_an_interrupt_that_came_while_the_leader_waited_for_it(line: Line) -> None:
    """A signal while `wait` gets the lock back: the exception must leave with the lock held."""
    before = signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, lambda *_: _raise(InterruptedError("a signal")))
    polled = threading.Event()

    def hold_and_signal() -> None:
        wait_until(lambda: line.watch.polling)
        with line.lock:
            line.theirs.send(b"x")  # the leader has news, but not the lock
            polled.wait(0.2)
            os.kill(os.getpid(), signal.SIGUSR1)
            polled.wait(0.2)

    holding = threading.Thread(target=hold_and_signal)
    try:
        with line.lock:
            assert line.watch.lead(line.waiter)
            holding.start()
            with pytest.raises(InterruptedError, match="a signal"):
                line.watch.wait(PATIENCE)
            assert line.lock.locked()
            line.watch.retire()
    finally:
        holding.join()
        signal.signal(signal.SIGUSR1, before)
    wait_until(lambda: line.bytes)  # level-triggered: the I/O thread finds it


def _raise(error: BaseException) -> None:
    raise error


def test_a_signal_that_interrupts_the_end_of_a_call_leaves_the_socket_to_the_io_thread(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(line.watch, "retire", interrupted)
        with pytest.raises(KeyboardInterrupt):
            line.read(0.01)
    assert (line.watch.leader, line.watch.waiting, line.waiter.waiting) == (None, 0, 0)
    assert not line.lock.locked()
    line.theirs.send(b"x")
    wait_until(lambda: line.readers == [IO_THREAD])
