"""zambezi.zmtp.watch: a thread that waits reads the socket itself, and the I/O thread does when no thread waits.

`tests/p2p/test_stress.py` and `test_sync` have many threads that send, receive and close at the same time.
"""

import contextlib
import itertools
import logging
import os
import select
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tests.zmtp.line import IO_THREAD, Line
from tests.zmtp.stranger import Stranger, hello
from tests.zmtp.waiting import PATIENCE, wait_for, wait_until, waiting_calls
from zambezi.p2p import PeerConnected, PeerSocket
from zambezi.zmtp import watch as watch_module
from zambezi.zmtp.connection import Heartbeat
from zambezi.zmtp.errors import SocketClosed, TimedOut
from zambezi.zmtp.options import Bound
from zambezi.zmtp.sync import Dealer, Router
from zambezi.zmtp.watch import IoLoop

# Who reads


def test_a_thread_that_waits_reads_itself(line: Line, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(line.read)
    wait_until(lambda: line.watch.polling)
    line.theirs.send(b"x")
    assert waiting.result(PATIENCE) == b"x"
    assert [name.startswith("worker") for name in line.readers] == [True]
    assert line.watch.leader is None


def test_the_io_thread_reads_before_a_thread_waits_and_after_it_has_left(line: Line, pool: ThreadPoolExecutor) -> None:
    for _ in range(3):
        line.readers.clear()
        line.theirs.send(b"a")
        wait_until(lambda: line.bytes)
        assert line.read() == b"a"
        waiting = pool.submit(line.read)
        wait_until(lambda: line.watch.polling)
        line.theirs.send(b"b")
        waiting.result(PATIENCE)
        line.theirs.send(b"c")
        wait_until(lambda: line.bytes)
        assert line.read() == b"c"
        assert [name == IO_THREAD for name in line.readers] == [True, False, True]


def test_a_leader_that_times_out_leaves_the_socket_to_the_io_thread(line: Line) -> None:
    for timeout in (0, 0.01):
        with pytest.raises(TimedOut):
            line.read(timeout)
    line.theirs.send(b"x")
    wait_until(lambda: line.bytes)
    assert line.readers == [IO_THREAD]


def test_other_threads_follow_and_the_leader_reads_for_them(line: Line, pool: ThreadPoolExecutor) -> None:
    sibling = line.waiter.sibling()
    done: list[bool] = []
    leading = pool.submit(sibling.until, lambda: True if done else None, PATIENCE, "not done")
    wait_until(lambda: line.watch.polling)
    following = pool.submit(line.read)
    wait_until(lambda: line.waiter.waiting == 1)
    assert line.watch.leader is sibling
    line.theirs.send(b"x")
    assert following.result(PATIENCE) == b"x"
    assert line.readers[0] != IO_THREAD
    with line.lock:
        done.append(True)
        sibling.wake()
    assert leading.result(PATIENCE)


def test_followers_are_served_when_the_leader_has_left(line: Line, pool: ThreadPoolExecutor) -> None:
    waiting = [pool.submit(line.read) for _ in range(3)]
    wait_until(lambda: line.waiter.waiting == 3 and line.watch.polling)
    for _ in range(3):
        line.theirs.send(b"x")
    assert [one.result(PATIENCE) for one in waiting] == [b"x"] * 3


def test_another_thread_wakes_the_leader(line: Line, pool: ThreadPoolExecutor) -> None:
    for wake in (line.waiter.wake, line.waiter.wake_one):
        waiting = pool.submit(line.read)
        wait_until(lambda: line.watch.polling)
        with line.lock:
            line.bytes.append(b"from another thread")
            wake()
        assert waiting.result(PATIENCE) == b"from another thread"
    assert line.readers == []


def test_the_io_thread_leaves_the_bell_to_the_leader(line: Line, pool: ThreadPoolExecutor) -> None:
    """It may be awake when a thread begins to lead, and then finds the bell, too."""
    waiting = pool.submit(line.read)
    wait_until(lambda: line.watch.polling)
    with line.lock:
        line.bytes.append(b"x")
        line.waiter.wake_one()
        assert line.watch._epoll is not None
        line.watch._dispatch(line.watch._epoll.poll(0))
        assert select.select([line.watch._bell], [], [], 0)[0]
    assert waiting.result(PATIENCE) == b"x"
    line.watch._serve()  # nobody leads: the bell is silenced, else the I/O thread would never sleep
    assert not select.select([line.watch._bell], [], [], 0)[0]


def test_each_wake_up_wakes_one_thread_and_the_leader_is_one_of_them(line: Line, pool: ThreadPoolExecutor) -> None:
    for _ in range(50):
        waiting = [pool.submit(line.read) for _ in range(4)]
        wait_until(lambda: line.waiter.waiting == 4 and line.watch.polling)
        with line.lock:
            for number in range(4):
                line.bytes.append(b"%d" % number)
                line.waiter.wake_one()
        assert sorted(one.result(PATIENCE) for one in waiting) == [b"0", b"1", b"2", b"3"]


# A busy leader


def read_twice(line: Line, pool: ThreadPoolExecutor) -> None:
    """Let a thread wait for a message, and get it, two times in a row."""
    for _ in range(2):
        waiting = pool.submit(line.read)
        wait_until(lambda: line.watch.polling)
        line.theirs.send(b"x")
        waiting.result(PATIENCE)


@pytest.fixture
def busy(line: Line, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> Line:
    """A line whose epoll is still muted after two calls, as if they had been quick; the I/O thread checks later."""
    monkeypatch.setattr(watch_module, "BUSY", 1e9)
    monkeypatch.setattr(watch_module, "CHECK", 3600.0)
    read_twice(line, pool)
    line.readers.clear()
    assert line.watch._muted
    assert line.watch.leader is None
    return line


def check(line: Line, turns: int) -> None:
    """Let the I/O thread look whether a thread leads at times."""
    done = threading.Event()
    line.reactor._loop.call_soon_threadsafe(line.watch._check, turns)
    line.reactor._loop.call_soon_threadsafe(done.set)
    assert done.wait(PATIENCE)


@pytest.mark.parametrize(("pause", "is_busy"), [(0.0011, True), (0.0049, True), (0.0051, False)])
def test_a_thread_that_gets_a_message_each_millisecond_is_busy(
    line: Line, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, pause: float, is_busy: bool
) -> None:
    """The thread returns so often that the I/O thread would look at the epoll for each message, otherwise."""
    clock = itertools.count(100)
    monkeypatch.setattr(watch_module, "time", SimpleNamespace(monotonic=lambda: next(clock) * pause))
    monkeypatch.setattr(watch_module, "CHECK", 3600.0)
    read_twice(line, pool)
    assert line.watch._muted == is_busy


def test_the_io_thread_takes_over_from_a_thread_that_does_not_come_back(busy: Line) -> None:
    busy.theirs.send(b"y")
    check(busy, busy.watch._turns - 1)  # a thread has led since the last check
    assert (busy.watch._muted, busy.readers) == (True, [])
    check(busy, busy.watch._turns)
    wait_until(lambda: busy.readers == [IO_THREAD])
    assert not busy.watch._checking


def test_a_leader_that_has_waited_long_needs_no_more_checks(busy: Line, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(busy.read)
    wait_until(lambda: busy.watch.polling)
    check(busy, busy.watch._turns)
    assert (busy.watch._checking, busy.watch._muted) == (False, True)
    busy.theirs.send(b"y")
    assert waiting.result(PATIENCE) == b"y"


def test_a_call_that_does_not_wait_finds_what_has_arrived(busy: Line) -> None:
    busy.theirs.send(b"y")
    assert busy.read(0) == b"y"
    assert busy.readers != [IO_THREAD]
    with pytest.raises(TimedOut):
        busy.read(0)


def test_a_kernel_socket_that_is_to_be_written_is_not_kept_waiting(busy: Line) -> None:
    written = threading.Event()
    with busy.lock:
        busy.watch.add_writer(busy.ours, written.set)
    assert written.wait(PATIENCE)
    with busy.lock:
        busy.watch.remove_writer(busy.ours)


def test_followers_are_not_kept_waiting_by_a_busy_leader(busy: Line, pool: ThreadPoolExecutor) -> None:
    waiting = [pool.submit(busy.read) for _ in range(2)]
    wait_until(lambda: busy.waiter.waiting == 2 and busy.watch.polling)
    for _ in range(2):
        busy.theirs.send(b"y")
    assert [one.result(PATIENCE) for one in waiting] == [b"y"] * 2


def test_closing_a_busy_line_frees_its_descriptors(busy: Line) -> None:
    with busy.lock:
        busy.watch.release(busy.ours)
        busy.watch.leave()
        busy.watch.join()  # for the end of the fixture
    assert busy.watch._epoll is None


@pytest.mark.parametrize("size", [10, 5_000_000])
def test_a_busy_socket_sends_all_of_a_long_message(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "BUSY", 1e9)
    monkeypatch.setattr(watch_module, "CHECK", 3600.0)
    with PeerSocket() as bob, PeerSocket(linger=0) as ann:
        to_bob = ann.connect(bob.bind("tcp://127.0.0.1:*"))
        for _ in range(3):
            ann.send(to_bob, b"question")
            to_ann, _ = bob.recv(PATIENCE)
            bob.send(to_ann, b"x" * size)
            # bob does not wait any more: its I/O thread sends the rest.
            assert ann.recv(PATIENCE) == (to_bob, b"x" * size)


def test_without_a_descriptor_for_the_bell_threads_follow(
    line: Line, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "eventfd", none_left)
    waiting = pool.submit(line.read)
    wait_until(lambda: line.waiter.waiting == 1)
    line.theirs.send(b"x")
    assert waiting.result(PATIENCE) == b"x"
    assert line.readers == [IO_THREAD]


def test_without_kernel_sockets_threads_wait_without_descriptors(pool: ThreadPoolExecutor) -> None:
    with Router() as router, Dealer() as dealer:
        dealer.connect(router.bind("inproc://watch"))
        waiting = pool.submit(router.recv, PATIENCE)
        wait_until(lambda: waiting_calls(router) == 1)
        dealer.send(b"x")
        assert waiting.result(PATIENCE)[1] == b"x"
        assert router._waiter.reactor.watch._epoll is None


# Old news


def test_a_callback_that_closes_a_socket_ends_the_turn(line: Line) -> None:
    """The descriptor may belong to a new kernel socket already."""
    called: list[str] = []
    other, far = socket.socketpair()
    number = other.fileno()

    def replace() -> None:
        called.append("first")
        line.ours.recv(1)
        line.watch.release(other)
        new = socket.socket()  # gets the lowest free descriptor: the one that was closed
        assert new.fileno() == number
        fresh.append(new)
        line.watch.add_reader(new, lambda: called.append("new"))

    fresh: list[socket.socket] = []
    with line.lock:
        line.watch.add_reader(line.ours, replace)
        line.watch.add_reader(other, lambda: called.append("old"))
        line.theirs.send(b"x")
        line.watch._dispatch([(line.ours.fileno(), 1), (number, 1)])
        line.watch.release(fresh[0])
    assert called == ["first"]
    far.close()


def test_the_leader_drops_its_news_if_a_socket_was_closed_meanwhile(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = itertools.count()
    watch = line.watch
    assert watch._epoll is not None
    real = watch._epoll

    class Epoll:
        """An epoll during whose first wait another thread closes a kernel socket."""

        def poll(self, timeout: float | None, most: int) -> list[tuple[int, int]]:
            if not next(polls):
                with line.lock:
                    watch.release(socket.socket())
                return [(line.ours.fileno(), 1)]
            return real.poll(timeout, most)

        def fileno(self) -> int:
            return real.fileno()

    line.theirs.send(b"x")
    wait_until(lambda: line.bytes)
    line.bytes.clear()
    line.readers.clear()
    with line.lock:
        assert watch.lead(line.waiter)
        monkeypatch.setattr(watch, "_epoll", Epoll())
        watch.wait(0)
        assert line.readers == []
        line.theirs.send(b"y")
        watch.wait(PATIENCE)
        monkeypatch.setattr(watch, "_epoll", real)
        watch.retire()
    assert line.bytes == [b"y"]


def test_a_socket_can_be_paused_and_read_again_by_any_thread(line: Line, pool: ThreadPoolExecutor) -> None:
    with line.lock:
        line.watch.remove_reader(line.ours)
    line.theirs.send(b"x")
    with pytest.raises(TimedOut):
        line.read(0.01)
    waiting = pool.submit(line.read)
    wait_until(lambda: line.watch.polling)
    with line.lock:
        line.watch.add_reader(line.ours, line.readable)  # the leader waits in the epoll meanwhile
    assert waiting.result(PATIENCE) == b"x"


# Errors and deferred calls


def test_an_error_of_a_callback_is_logged_and_is_not_the_error_of_the_leader(
    line: Line, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        line.readable()
        raise KeyError("a bug")

    with line.lock:
        line.watch.add_reader(line.ours, broken)
    waiting = pool.submit(line.read)
    wait_until(lambda: line.watch.polling)
    with caplog.at_level(logging.ERROR, "asyncio"):
        line.theirs.send(b"x")
        assert waiting.result(PATIENCE) == b"x"
    assert "a bug" in caplog.text


def test_deferred_calls_run_in_the_leader_and_those_they_defer_in_the_io_thread(
    line: Line, pool: ThreadPoolExecutor
) -> None:
    ran: list[tuple[str, str, bool]] = []

    def note(what: str) -> None:
        ran.append((what, threading.current_thread().name, line.lock.locked()))

    def first() -> None:
        note("first")
        line.reactor.defer(lambda: note("second"))

    def readable() -> None:
        line.reactor.defer(first)
        line.readable()

    with line.lock:
        line.watch.add_reader(line.ours, readable)
    waiting = pool.submit(line.read)
    wait_until(lambda: line.watch.polling)
    line.theirs.send(b"x")
    waiting.result(PATIENCE)
    wait_until(lambda: len(ran) == 2)
    assert [(what, name == IO_THREAD, locked) for what, name, locked in ran] == [
        ("first", False, True),
        ("second", True, True),
    ]
    line.reactor.defer(lambda: note("from a thread that does not lead"))
    wait_until(lambda: len(ran) == 3)
    assert ran[2][1] == IO_THREAD


def test_deferred_calls_that_were_interrupted_are_left_to_the_io_thread(line: Line) -> None:
    ran: list[str] = []

    def call() -> None:
        ran.append(threading.current_thread().name)
        if len(ran) == 1:
            raise KeyboardInterrupt

    def readable() -> None:
        line.ours.recv(1)
        line.reactor.defer(call)

    with line.lock:
        line.watch.add_reader(line.ours, readable)
        assert line.watch.lead(line.waiter)
        line.theirs.send(b"x")
        with pytest.raises(KeyboardInterrupt):
            line.watch.wait(PATIENCE)
        line.watch.retire()
    wait_until(lambda: len(ran) == 2)
    assert ran[1] == IO_THREAD


# Sockets


def test_heartbeats_are_answered_whether_a_thread_waits_or_not(pool: ThreadPoolExecutor) -> None:
    ping = b"\x04\x07\x04PING\x00\x64"
    with PeerSocket() as bob, Stranger.calling(bob.bind("tcp://127.0.0.1:*")) as ann:
        ann.say(hello("PEER"))
        wait_for(bob, PeerConnected)
        ann.say(ping)
        wait_until(lambda: ann.heard_all() and len(ann.commands) == 2)  # READY and PONG
        waiting = pool.submit(bob.recv, PATIENCE)
        wait_until(lambda: bob._waiter.reactor.watch.polling)
        ann.say(ping)
        wait_until(lambda: ann.heard_all() and len(ann.commands) == 3)
        assert not waiting.done()
        ann.say(b"\0\1x")
        assert waiting.result(PATIENCE)[1] == b"x"


def test_our_own_heartbeats_go_out_while_a_thread_leads(pool: ThreadPoolExecutor) -> None:
    with (
        PeerSocket(heartbeat=Heartbeat(0.02, 60.0)) as bob,
        Stranger.calling(bob.bind("tcp://127.0.0.1:*")) as ann,
    ):
        ann.say(hello("PEER"))
        wait_for(bob, PeerConnected)
        waiting = pool.submit(bob.recv, PATIENCE)
        wait_until(lambda: bob._waiter.reactor.watch.polling)
        wait_until(lambda: ann.heard_all() and len(ann.commands) >= 3)
        ann.say(b"\0\1x")
        waiting.result(PATIENCE)


def test_closing_ends_the_leader_and_its_followers(pool: ThreadPoolExecutor) -> None:
    for _ in range(20):
        bob = PeerSocket()
        bob.bind("tcp://127.0.0.1:*")
        watch = bob._waiter.reactor.watch
        waiting: list[Future[object]] = [pool.submit(call) for call in (bob.recv, bob.recv, bob.next_event, bob.recv)]
        wait_until(lambda bob=bob: waiting_calls(bob) >= 3)  # type: ignore[misc]
        bob.close()
        for one in waiting:
            with contextlib.suppress(SocketClosed):
                one.result(PATIENCE)
        wait_until(lambda watch=watch: watch._epoll is None)  # type: ignore[misc]
        assert watch.leader is None


def test_the_leader_connects_again(pool: ThreadPoolExecutor) -> None:
    with Dealer() as dealer:
        with Router() as first:
            endpoint = first.bind("tcp://127.0.0.1:*")
            dealer.connect(endpoint)
            dealer.send(b"x")
            first.recv(PATIENCE)
            waiting = pool.submit(dealer.recv, PATIENCE)
            wait_until(lambda: dealer._waiter.reactor.watch.polling)
        with Router() as second:
            second.bind(endpoint)
            dealer.send(b"y")
            second.send([second.recv(PATIENCE)[0], b"z"])
            assert waiting.result(PATIENCE) == [b"z"]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_ring_of_sockets_passes_every_token_in_order(threads: int) -> None:
    """Each socket has several threads, each of which leads at times; the I/O thread serves all of them."""
    size, tokens, rounds = 5, 8, 60
    ring = [PeerSocket(send_bound=Bound(), linger=0) for _ in range(size)]
    endpoints = [one.bind("tcp://127.0.0.1:*") for one in ring]
    nexts = [one.connect(endpoints[(place + 1) % size]) for place, one in enumerate(ring)]
    finished: list[int] = []
    lock = threading.Lock()

    def work(place: int) -> None:
        with contextlib.suppress(SocketClosed):
            while True:
                token, turn = ring[place].recv()[1].split()
                if place:
                    ring[place].send(nexts[place], token + b" " + turn)
                elif int(turn) < rounds:
                    ring[0].send(nexts[0], b"%s %d" % (token, int(turn) + 1))
                else:
                    with lock:
                        finished.append(int(token))

    with ThreadPoolExecutor(size * threads) as workers:
        working = [workers.submit(work, place) for place in range(size) for _ in range(threads)]
        for token in range(tokens):
            ring[0].send(nexts[0], b"%d 1" % token)
        wait_until(lambda: len(finished) == tokens)
        for one in ring:
            one.close()
        for done in working:
            done.result(PATIENCE)
    assert sorted(finished) == list(range(tokens))


# The loop


def test_any_thread_can_mute_a_descriptor() -> None:
    loop = IoLoop()
    ours, theirs = socket.socketpair()
    called: list[Callable[[], object]] = []
    loop.add_reader(ours.fileno(), called.append, print)
    theirs.send(b"x")
    loop.mute(ours.fileno())
    loop.call_later(0.02, loop.stop)
    loop.run_forever()
    assert called == []
    loop.unmute(ours.fileno())
    loop.call_later(0.02, loop.stop)
    loop.run_forever()
    assert called
    loop.close()
    loop.unmute(ours.fileno())  # of a closed loop: nothing happens
    ours.close()
    theirs.close()
