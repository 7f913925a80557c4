"""zambezi.zmtp.io_thread: one event loop for the process, in a thread of its own; and none of it in a forked child.

`test_sync` forks processes that use sockets.
"""

import threading

from tests.zmtp.programs import run
from tests.zmtp.waiting import wait_until
from zambezi.zmtp import io_thread
from zambezi.zmtp.io_thread import IoThread


def test_the_process_has_one_loop_which_runs_in_a_daemon() -> None:
    loop = io_thread.io_loop()
    assert io_thread.io_loop() is loop
    found: list[threading.Thread] = []
    loop.call_soon_threadsafe(lambda: found.append(threading.current_thread()))
    wait_until(lambda: found)
    assert [(thread.name, thread.daemon) for thread in found] == [("zambezi-io", True)]


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
            assert io_thread.io_loop() is not loop
            os.write(1, b"started")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert io_thread.io_loop() is loop
    """)
    assert (forked.stderr, forked.stdout) == ("", "disowned started")
