"""zambezi.zmtp.io_thread: one event loop for the process, in a thread of its own; and none of it in a forked child.

`test_sync` forks processes that use sockets.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

from tests.zmtp.programs import run
from tests.zmtp.waiting import PATIENCE
from zambezi.zmtp import io_thread
from zambezi.zmtp.io_thread import IoThread


def test_the_process_has_one_loop_which_runs_in_a_daemon() -> None:
    loop = io_thread.io_loop()
    assert io_thread.io_loop() is loop
    found: list[threading.Thread] = []
    loop.call_soon_threadsafe(lambda: found.append(threading.current_thread()))
    io_thread.settle()
    assert [(thread.name, thread.daemon) for thread in found] == [("zambezi-io", True)]


def test_settle_waits_for_the_callbacks_that_are_queued() -> None:
    thread = IoThread()
    go = threading.Event()
    done: list[str] = []
    thread.loop.call_soon_threadsafe(go.wait, PATIENCE)
    thread.loop.call_soon_threadsafe(done.append, "callback")
    with ThreadPoolExecutor(1) as pool:
        settling = pool.submit(thread.settle)
        assert not settling.done()
        go.set()
        settling.result(PATIENCE)
    assert done == ["callback"]
    thread.stop()


def test_settle_in_the_thread_itself_returns_at_once() -> None:
    thread = IoThread()
    settled = threading.Event()
    thread.loop.call_soon_threadsafe(thread.settle)
    thread.loop.call_soon_threadsafe(settled.set)
    assert settled.wait(PATIENCE)
    thread.stop()


def test_stop_ends_the_thread_and_closes_the_loop() -> None:
    before = threading.active_count()
    thread = IoThread()
    thread.stop()
    assert thread.loop.is_closed()
    assert threading.active_count() <= before


def test_a_forked_child_disowns_the_objects_of_its_parent_and_starts_a_thread_of_its_own() -> None:
    forked = run("""
        import os
        from zambezi.zmtp import io_thread

        class Thing:
            def disown(self):
                os.write(1, b"disowned ")

        thing = Thing()
        loop = io_thread.io_loop()
        io_thread.own(thing)
        child = os.fork()
        if not child:
            io_thread.settle()  # without a thread, it returns at once
            assert io_thread.io_loop() is not loop
            os.write(1, b"started")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert io_thread.io_loop() is loop
    """)
    assert (forked.stderr, forked.stdout) == ("", "disowned started")
