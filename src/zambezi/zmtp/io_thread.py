"""The thread that serves all blocking sockets of the process: it starts with the first one, and is a daemon.

A process that forks does not take the thread along: a child starts its own. The sockets of its parent are not its own,
and what it would write to them would go into the middle of what the parent writes; so they are disowned in the child.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from typing import Protocol

from zambezi.zmtp.reactor import running_in


class Disownable(Protocol):
    """Something that belongs to the process that made it."""

    def disown(self) -> None:
        """Let go of it, without a trace for its owner."""


class IoThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="zambezi-io", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def settle(self) -> None:
        """Return when all that was asked for until now has been done. The caller must hold no lock of a socket."""
        if not running_in(self.loop):
            done = threading.Event()
            self.loop.call_soon_threadsafe(done.set)
            done.wait()

    def stop(self) -> None:
        """End the thread and close its loop; the sockets on it must be closed by now."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


_lock = threading.Lock()
_thread: IoThread | None = None
_owned: weakref.WeakSet[Disownable] = weakref.WeakSet()
_orphaned: list[IoThread] = []


def io_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the I/O thread, which is started if it does not run."""
    global _thread
    with _lock:
        if _thread is None:
            _thread = IoThread()
        return _thread.loop


def settle() -> None:
    """Return when the I/O thread has done all that it was asked for until now."""
    thread = _thread
    if thread is not None:
        thread.settle()


def own(thing: Disownable) -> None:
    """Have something disowned in every child that this process forks."""
    _owned.add(thing)


def _stop() -> None:
    global _thread
    with _lock:
        if _thread is not None:
            _thread.stop()
            _thread = None


def _forget() -> None:
    global _lock, _thread
    _lock = threading.Lock()
    if _thread is not None:
        _orphaned.append(_thread)  # the loop shares its selector with the parent's, so that it must not be closed here
    _thread = None
    for thing in list(_owned):
        thing.disown()
    _owned.clear()


atexit.register(_stop)
os.register_at_fork(after_in_child=_forget)
