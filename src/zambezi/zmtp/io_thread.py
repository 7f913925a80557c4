"""The thread that serves all blocking sockets of the process: it starts with the first one, and is a daemon.

It runs their timers, and watches their kernel sockets while no thread of the program waits for them (see `watch`).

A forked child does not inherit the thread: it starts its own. The child must not use the sockets of its parent, because
its bytes would be mixed with those that the parent writes; so the sockets are disowned in the child.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from typing import Protocol

from zambezi.zmtp.watch import IoLoop


class Disownable(Protocol):
    """An object that only the process that created it can use."""

    def disown(self) -> None:
        """Give the object up in a forked child, with no effect on the parent."""


class IoThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = IoLoop()
        self._thread = threading.Thread(target=self._run, name="zambezi-io", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def stop(self) -> None:
        """End the thread and close its loop. Its sockets must be closed already."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


_lock = threading.Lock()
_thread: IoThread | None = None
_owned: weakref.WeakSet[Disownable] = weakref.WeakSet()
_orphaned: list[IoThread] = []


def io_loop() -> IoLoop:
    """Return the event loop of the I/O thread; start the thread if it does not run."""
    global _thread
    with _lock:
        if _thread is None:
            _thread = IoThread()
        return _thread.loop


def own(thing: Disownable) -> None:
    """Disown an object in every child that this process forks."""
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
        _orphaned.append(_thread)  # keeps the loop open: closing it here would affect the selector of the parent
    _thread = None
    for thing in list(_owned):
        thing.disown()
    _owned.clear()


atexit.register(_stop)
os.register_at_fork(after_in_child=_forget)
