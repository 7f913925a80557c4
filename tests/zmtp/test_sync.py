"""zambezi.zmtp.sync: any thread, any method, at any time; and processes that fork, or end."""

import contextlib
import itertools
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.zmtp.stranger import Stranger, hello
from tests.zmtp.waiting import PATIENCE, wait_for, wait_until
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Heartbeat
from zambezi.zmtp.errors import QueueFull, SocketClosed, TimedOut, Unroutable
from zambezi.zmtp.events import Connected, Disconnected, Listening, Retrying
from zambezi.zmtp.io_thread import io_loop
from zambezi.zmtp.options import Bound
from zambezi.zmtp.sync import Dealer, Pub, Router, Sub, XPub, XSub

_names = itertools.count()
EAGER = Backoff(0.01, 0.05)


def name() -> str:
    return f"inproc://sync-{next(_names)}"


# Messages


@pytest.mark.parametrize("transport", ["tcp", "tcp6", "ipc", "inproc"])
def test_request_and_reply(transport: str, tmp_path: Path) -> None:
    where = {"tcp": "tcp://127.0.0.1:*", "tcp6": "tcp://[::1]:*", "ipc": f"ipc://{tmp_path}/s", "inproc": name()}
    with Router() as router, Dealer(identity=b"me") as dealer:
        dealer.connect(router.bind(where[transport]))
        for message in ([b""], [b"a", b"", b"c"], [b"x" * 1_000_000]):
            dealer.send(message)
            assert router.recv(PATIENCE) == [b"me", *message]
            router.send([b"me", *message])
            assert dealer.recv(PATIENCE) == message


def test_a_batch_is_the_messages_one_by_one() -> None:
    messages: list[list[bytes]] = [[b"%d" % number] * (1 + number % 3) for number in range(5000)]
    with Router() as router, Dealer(identity=b"me") as dealer:
        dealer.connect(router.bind("tcp://127.0.0.1:*"))
        dealer.send_batch(messages[:2500])
        for message in messages[2500:]:
            dealer.send(message)
        got: list[list[bytes]] = []
        for step in itertools.cycle(range(5)):
            if len(got) == len(messages):
                break
            if step < 3:
                got.append(router.recv(PATIENCE)[1:])
            else:
                got += list(router.recv_batch(PATIENCE))
        assert got == messages
        router.send_to(b"me", messages)
        answers: list[list[bytes]] = []
        while len(answers) < len(messages):
            answers += list(dealer.recv_batch(PATIENCE))
        assert answers == messages


def test_publish_and_subscribe() -> None:
    with XPub() as pub, Sub() as sub, XSub() as xsub:
        endpoint = pub.bind("tcp://127.0.0.1:*")
        sub.subscribe(b"a")
        sub.connect(endpoint)
        xsub.connect(endpoint)
        xsub.send(b"\x01b")
        assert sorted([pub.recv(PATIENCE), pub.recv(PATIENCE)]) == [[b"\x01a"], [b"\x01b"]]
        for topic in (b"a1", b"b1"):
            pub.send(topic)
        assert sub.recv(PATIENCE) == [b"a1"]
        assert xsub.recv(PATIENCE) == [b"b1"]
        sub.unsubscribe(b"a")
        assert pub.recv(PATIENCE) == [b"\x00a"]


def test_a_port_is_free_as_soon_as_close_or_unbind_returns() -> None:
    endpoint = "tcp://127.0.0.1:*"
    for _ in range(20):
        with Router() as router:
            endpoint = router.bind(endpoint)
            router.unbind(endpoint)
            assert router.bind(endpoint) == endpoint


# Bounds and time


def test_a_full_queue_makes_send_wait_and_room_lets_it_go_on() -> None:
    with Dealer(send_bound=Bound(10, 10_000)) as dealer, Router() as router, ThreadPoolExecutor() as pool:
        where = name()
        dealer.connect(where)
        dealer.send_batch([b"x"] * 10)
        with pytest.raises(TimedOut, match=r"within 0[.]01 s") as caught:
            dealer.send(b"never", timeout=0.01)
        assert isinstance(caught.value, TimeoutError)
        waiting = [pool.submit(dealer.send, b"last"), pool.submit(dealer.send_batch, [b"y"] * 25)]
        wait_until(lambda: dealer._writable.waiting == 2)
        router.bind(where)
        for one in waiting:
            one.result(PATIENCE)
        got = [router.recv(PATIENCE)[1] for _ in range(36)]
        assert Counter(got) == {b"x": 10, b"last": 1, b"y": 25}


def test_the_policies_error_and_drop() -> None:
    with Dealer(send_bound=Bound(1, 1000), on_full="error", linger=0) as strict:
        strict.connect(name())
        strict.send(b"x")
        with pytest.raises(QueueFull):
            strict.send(b"x")
    with Dealer(send_bound=Bound(1, 1000), on_full="drop", linger=0) as careless:
        careless.connect(name())
        careless.send_batch([b"x"] * 3)
        assert careless.counters.dropped == 2
    with Router(unroutable="error") as router, pytest.raises(Unroutable):
        router.send([b"nobody", b"x"])


def test_a_late_receive_eats_nothing() -> None:
    with Router() as router, Dealer(identity=b"me") as dealer:
        for call in (router.recv, router.recv_batch, dealer.recv):
            with pytest.raises(TimedOut):
                call(0.01)
        dealer.connect(router.bind("tcp://127.0.0.1:*"))
        for number in range(200):
            dealer.send(b"%d" % number)
            with contextlib.suppress(TimedOut):
                assert router.recv(0) == [b"me", b"%d" % number]
                continue
            assert router.recv(PATIENCE) == [b"me", b"%d" % number]


# Closing


def test_closing_wakes_all_who_wait() -> None:
    dealer = Dealer(send_bound=Bound(1, 1000))
    dealer.connect(name())
    dealer.send(b"fills the queue")
    calls: list[Callable[[], object]] = [
        dealer.recv,
        dealer.recv_batch,
        lambda: dealer.send(b"x"),
        lambda: dealer.send_batch([b"x"]),
        dealer.next_event,
    ]
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(call) for call in calls]
        iterating = pool.submit(lambda: [list(dealer), list(dealer.events())])
        wait_until(
            lambda: [each.waiting for each in (dealer._readable, dealer._writable, dealer._eventful)] == [3, 2, 1]
        )
        dealer.close(0)
        for one in waiting:
            assert isinstance(one.exception(PATIENCE), SocketClosed)
        assert iterating.result(PATIENCE) == [[], []]
    assert dealer.closed
    assert repr(dealer) == "<Dealer closed>"


def test_a_closed_socket_says_so() -> None:
    sub = Sub()
    sub.close()
    sub.close()
    calls: list[Callable[[], object]] = [
        sub.recv,
        sub.recv_batch,
        sub.next_event,
        lambda: sub.bind(name()),
        lambda: sub.connect(name()),
        lambda: sub.unbind(name()),
        lambda: sub.disconnect(name()),
        lambda: sub.subscribe(b""),
        lambda: sub.unsubscribe(b""),
        lambda: sub.send(b"x"),
        lambda: sub.send_batch([b"x"]),
    ]
    for call in calls:
        with pytest.raises(SocketClosed):
            call()


def test_closing_delivers_what_is_queued() -> None:
    with Router() as router, ThreadPoolExecutor() as pool:
        dealer = Dealer()
        dealer.connect(router.bind("tcp://127.0.0.1:*"))
        dealer.send_batch([b"x" * 1000] * 5000)
        closing = pool.submit(dealer.close, None)
        for _ in range(5000):
            router.recv(PATIENCE)
        closing.result(PATIENCE)
        assert dealer.counters.abandoned == 0


def test_leaving_by_an_exception_does_not_wait() -> None:
    dealer = Dealer(linger=None)

    def fail() -> None:
        with dealer:
            dealer.connect(name())
            dealer.send(b"nobody will ever take this")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert dealer.counters.abandoned == 1


# Many threads


@pytest.mark.parametrize("frames", [1, 2])
@pytest.mark.parametrize("transport", ["tcp://127.0.0.1:*", "inproc"])
def test_many_threads_send_and_receive_each_message_once_and_in_order(transport: str, frames: int) -> None:
    senders, receivers, each = 8, 4, 2500
    with Router() as router, Dealer(identity=b"me") as dealer, ThreadPoolExecutor(16) as pool:
        dealer.connect(router.bind(name() if transport == "inproc" else transport))

        def message(sender: int, number: int) -> list[bytes]:
            return [b"%d %d" % (sender, number), b"more"][:frames]

        def send(sender: int) -> None:
            for number in range(0, each, 10):
                for more in range(6):
                    dealer.send(message(sender, number + more))
                dealer.send_batch([message(sender, number + more) for more in range(6, 10)])

        def receive() -> list[tuple[int, int]]:
            got = []
            while (text := router.recv(PATIENCE)[1]) != b"stop":
                sender, number = text.split()
                got.append((int(sender), int(number)))
            return got

        receiving = [pool.submit(receive) for _ in range(receivers)]
        sending = [pool.submit(send, sender) for sender in range(senders)]
        for one in sending:
            one.result(PATIENCE)
        for _ in range(receivers):
            dealer.send(b"stop")
        results = [one.result(PATIENCE) for one in receiving]
    everything = Counter(pair for result in results for pair in result)
    assert everything == Counter(itertools.product(range(senders), range(each)))
    for result in results:
        for sender in range(senders):
            numbers = [number for who, number in result if who == sender]
            assert numbers == sorted(numbers)


def test_sockets_come_and_go_in_many_threads() -> None:
    with Router() as router:
        endpoints = [router.bind("tcp://127.0.0.1:*"), router.bind(name())]

        def echo() -> None:
            for message in router:
                router.send(message)

        def visit(number: int) -> None:
            for turn in range(15):
                with Dealer(identity=b"%d-%d" % (number, turn)) as dealer:
                    dealer.connect(endpoints[turn % 2])
                    dealer.send(b"%d" % turn)
                    assert dealer.recv(PATIENCE) == [b"%d" % turn]

        def fidget() -> None:
            for _ in range(15):
                endpoint = router.bind("tcp://127.0.0.1:*")
                router.connect(name_of_nobody := name())
                router.disconnect(name_of_nobody)
                router.unbind(endpoint)

        with ThreadPoolExecutor(10) as pool:
            echoing = [pool.submit(echo) for _ in range(2)]
            visiting = [pool.submit(visit, number) for number in range(5)] + [pool.submit(fidget)]
            for one in visiting:
                one.result(2 * PATIENCE)
            router.close(0)
            for one in echoing:
                one.result(PATIENCE)


def test_closing_in_many_threads_while_others_send() -> None:
    for _ in range(10):
        with Router(receive_bound=Bound(100, 10_000)) as router:
            dealer = Dealer(send_bound=Bound(100, 10_000))
            dealer.connect(router.bind("tcp://127.0.0.1:*"))
            start = threading.Barrier(7)

            def send(dealer: Dealer = dealer, start: threading.Barrier = start) -> None:
                start.wait()
                while True:
                    dealer.send(b"x" * 100)

            def close(dealer: Dealer = dealer, start: threading.Barrier = start) -> None:
                start.wait()
                dealer.close(0)

            with ThreadPoolExecutor(7) as pool:
                sending = [pool.submit(send) for _ in range(4)]
                for one in [pool.submit(close) for _ in range(3)]:
                    one.result(PATIENCE)
                for one in sending:
                    assert isinstance(one.exception(PATIENCE), SocketClosed)


# What happens


def test_events_tell_the_story() -> None:
    with Router() as router:
        endpoint = router.bind("tcp://127.0.0.1:*")
        assert router.next_event() == Listening(endpoint)
        with Dealer(identity=b"me", backoff=EAGER) as dealer:
            dealer.connect(endpoint)
            assert wait_for(router, Connected).identity == b"me"
            router.close()
            assert wait_for(dealer, Disconnected).reason == "the peer closed the connection"
            assert wait_for(dealer, Retrying).attempt == 1


def test_a_restarted_server_is_found_again() -> None:
    with Dealer(identity=b"me", backoff=EAGER) as dealer:
        endpoint = "tcp://127.0.0.1:*"
        for number in range(3):
            with Router() as router:
                endpoint = router.bind(endpoint)
                if not number:
                    dealer.connect(endpoint)
                dealer.send(b"%d" % number)
                assert router.recv(PATIENCE) == [b"me", b"%d" % number]
            wait_for(dealer, Retrying)


def test_a_silent_peer_is_disconnected() -> None:
    with Router(heartbeat=Heartbeat(0.05)) as router, Stranger.calling(router.bind("tcp://127.0.0.1:*")) as silent:
        silent.say(hello(identity=b"silent"))
        assert "after a PING" in wait_for(router, Disconnected).reason


def test_a_deaf_subscriber_hurts_nobody() -> None:
    with Pub(send_bound=Bound(100, 1 << 20)) as pub, Sub() as sub:
        endpoint = pub.bind("tcp://127.0.0.1:*")
        with Stranger.calling(endpoint, small=True) as deaf:
            deaf.say(hello("SUB") + b"\x00\x01\x01")
            sub.subscribe(b"")
            sub.connect(endpoint)
            wait_until(lambda: len(pub._shell.subscriptions.match(b"x")) == 2)  # type: ignore[attr-defined]
            for number in range(1000):
                pub.send([b"%d" % number, b"x" * 10_000])
                assert sub.recv(PATIENCE)[0] == b"%d" % number
            wait_until(lambda: pub.counters.dropped)
        pub.close(0)


# Processes


def descriptors() -> set[Path]:
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them is among them
            found.add(descriptor.readlink())
    return found


def test_closed_sockets_leave_no_descriptor_and_no_thread(tmp_path: Path) -> None:
    io_loop()
    before, threads = descriptors(), threading.active_count()
    for transport in ("tcp://127.0.0.1:*", f"ipc://{tmp_path}/s", "ipc://*"):
        with Router() as router, Dealer() as dealer, Dealer() as other:
            endpoint = router.bind(transport)
            dealer.connect(endpoint)
            other.connect(endpoint)
            dealer.send(b"x")
            other.send(b"x")
            router.recv(PATIENCE)
            router.recv(PATIENCE)
        with Dealer(linger=0) as nowhere:
            nowhere.connect(endpoint)
            nowhere.send(b"x")
    wait_until(lambda: descriptors() <= before)
    assert threading.active_count() <= threads


def run(program: str) -> subprocess.CompletedProcess[str]:
    """A program, with everything that Python can complain about turned on."""
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )


def test_a_program_that_ends_says_nothing_about_it() -> None:
    ended = run("""
        from zambezi.zmtp.sync import Dealer, Router
        with Router() as router, Dealer() as dealer:
            dealer.connect(router.bind("tcp://127.0.0.1:*"))
            dealer.connect("tcp://localhost:1")
            dealer.disconnect("tcp://localhost:1")
            dealer.send(b"hello")
            print(router.recv(20)[1])
    """)
    assert (ended.stderr, ended.stdout, ended.returncode) == ("", "b'hello'\n", 0)


def test_a_program_that_never_made_a_socket_ends_too() -> None:
    ended = run("import zambezi.zmtp.sync")
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_a_forked_child_has_sockets_of_its_own_and_not_its_parents() -> None:
    forked = run("""
        import os, threading
        from zambezi.zmtp import ZmtpError
        from zambezi.zmtp.sync import Dealer, Router, Sub

        with Router() as router, Dealer(identity=b"me") as dealer, Sub() as sub:
            dealer.connect(router.bind("tcp://127.0.0.1:*"))
            dealer.send(b"before")
            print(router.recv(20))
            child = os.fork()
            if not child:
                calls = [
                    lambda: dealer.send(b"from the child"), lambda: dealer.send_batch([b"x"]), dealer.recv,
                    router.recv_batch, lambda: router.send([b"me", b"x"]), lambda: router.send_to(b"me", [b"x"]),
                    lambda: router.bind("tcp://127.0.0.1:*"), lambda: dealer.connect("inproc://x"),
                    lambda: sub.subscribe(b""), sub.next_event,
                ]
                for turn in range(2):
                    for call in calls:
                        try:
                            call()
                        except ZmtpError as error:
                            assert "belongs to the process that forked" in str(error), error
                        else:
                            raise AssertionError(call)
                    # With an I/O thread of the child's own, the answer is the same.
                    with Router() as ours, Dealer(identity=b"child") as client:
                        client.connect(ours.bind("tcp://127.0.0.1:*"))
                        client.send(b"hello")
                        assert ours.recv(20) == [b"child", b"hello"]
                dealer.close()
                router.close()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            dealer.send(b"after")
            print(router.recv(20))
            router.send([b"me", b"and back"])
            print(dealer.recv(20))
    """)
    assert forked.stderr == ""
    assert forked.stdout.splitlines() == ["[b'me', b'before']", "[b'me', b'after']", "[b'and back']"]


def test_a_fork_while_other_threads_are_busy() -> None:
    forked = run("""
        import os, threading
        from zambezi.zmtp import ZmtpError
        from zambezi.zmtp.sync import Dealer, Router

        with Router() as router, Dealer() as dealer:
            dealer.connect(router.bind("tcp://127.0.0.1:*"))
            over = threading.Event()

            def busy():
                while not over.is_set():
                    dealer.send(b"x")
                    router.recv()

            threads = [threading.Thread(target=busy) for _ in range(3)]
            for thread in threads:
                thread.start()
            for _ in range(20):
                child = os.fork()
                if not child:
                    try:
                        dealer.send(b"x")
                    except ZmtpError:
                        pass
                    with Router() as ours, Dealer() as client:
                        client.connect(ours.bind("tcp://127.0.0.1:*"))
                        client.send(b"hello")
                        ours.recv(20)
                    os._exit(0)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            over.set()
            for thread in threads:
                thread.join()
    """)
    assert (forked.stderr, forked.returncode) == ("", 0)


def test_a_fork_in_the_middle_does_not_break_errors(tmp_path: Path) -> None:
    """A child that leaves by the `with` of its parent's socket closes nothing of its parent's."""
    forked = run("""
        import os, sys
        from zambezi.zmtp.sync import Dealer, Router

        child = None
        try:
            with Router() as router, Dealer(identity=b"me") as dealer:
                dealer.connect(router.bind("tcp://127.0.0.1:*"))
                dealer.send(b"before")
                router.recv(20)
                child = os.fork()
                if not child:
                    raise KeyError("leaves the with")
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
                dealer.send(b"after")
                print(router.recv(20))
        except KeyError:
            os._exit(7)
    """)
    assert forked.stderr == ""
    assert forked.stdout == "[b'me', b'after']\n"
