"""zambezi.zmtp.sync: many threads, and processes that fork or end. `test_faces` has the tests that both faces share."""

import contextlib
import itertools
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.zmtp.programs import run
from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi.zmtp.errors import SocketClosed
from zambezi.zmtp.io_thread import io_loop
from zambezi.zmtp.options import Bound
from zambezi.zmtp.sync import Dealer, Router

_names = itertools.count()


def name() -> str:
    return f"inproc://sync-{next(_names)}"


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


# Processes


def descriptors() -> set[Path]:
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself is among them
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


def test_a_program_that_ends_prints_no_warnings() -> None:
    ended = run("""
        from zambezi.zmtp.sync import Dealer, Router
        with Router() as router, Dealer() as dealer:
            dealer.connect(router.bind("tcp://127.0.0.1:*"))
            dealer.connect("tcp://localhost:1")
            dealer.disconnect("tcp://localhost:1")
            dealer.send(b"hello")
            print(router.recv(60)[1])
    """)
    assert (ended.stderr, ended.stdout, ended.returncode) == ("", "b'hello'\n", 0)


def test_a_program_without_sockets_ends_without_warnings() -> None:
    ended = run("import zambezi.zmtp.sync")
    assert (ended.stderr, ended.returncode) == ("", 0)


def test_a_forked_child_can_use_its_own_sockets_but_not_its_parents() -> None:
    forked = run("""
        import os, threading
        from zambezi.zmtp import ZmtpError
        from zambezi.zmtp.sync import Dealer, Router, Sub

        with Router() as router, Dealer(identity=b"me") as dealer, Sub() as sub:
            dealer.connect(router.bind("tcp://127.0.0.1:*"))
            dealer.send(b"before")
            print(router.recv(60))
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
                    # With an I/O thread of the child's own, the errors are the same.
                    with Router() as ours, Dealer(identity=b"child") as client:
                        client.connect(ours.bind("tcp://127.0.0.1:*"))
                        client.send(b"hello")
                        assert ours.recv(60) == [b"child", b"hello"]
                dealer.close()
                router.close()
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            dealer.send(b"after")
            print(router.recv(60))
            router.send([b"me", b"and back"])
            print(dealer.recv(60))
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
                        ours.recv(60)
                    os._exit(0)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            over.set()
            for thread in threads:
                thread.join()
    """)
    assert (forked.stderr, forked.returncode) == ("", 0)


def test_a_forked_child_that_leaves_a_with_closes_no_socket_of_its_parent() -> None:
    forked = run("""
        import os, sys
        from zambezi.zmtp.sync import Dealer, Router

        child = None
        try:
            with Router() as router, Dealer(identity=b"me") as dealer:
                dealer.connect(router.bind("tcp://127.0.0.1:*"))
                dealer.send(b"before")
                router.recv(60)
                child = os.fork()
                if not child:
                    raise KeyError("leaves the with")
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
                dealer.send(b"after")
                print(router.recv(60))
        except KeyError:
            os._exit(7)
    """)
    assert forked.stderr == ""
    assert forked.stdout == "[b'me', b'after']\n"
