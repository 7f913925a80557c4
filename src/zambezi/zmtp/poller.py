"""Watching very many sockets in an asyncio loop.

To watch a socket, asyncio makes several objects and looks it up in several tables, which takes longer than the system
call. A mesh of fifty nodes has five thousand sockets. So the loop itself watches only descriptors with low numbers. The
others have an `epoll` of their own, and the loop watches that one for all of them. That costs one more system call when
the loop wakes up. A program with few sockets, in which one message at a time must be fast, does not pay for it: the
kernel gives it low numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import weakref
from collections.abc import Callable
from typing import Final, TypeAlias

Callback: TypeAlias = Callable[[], object]

DIRECT: Final = 64  # the loop itself watches descriptors below this number
_READ: Final = select.EPOLLIN
_WRITE: Final = select.EPOLLOUT


class Poller:
    """The watched descriptors of one loop. Only the thread of the loop can use it."""

    __slots__ = ("_epoll", "_fresh", "_loop", "_readers", "_writers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: asyncio.AbstractEventLoop = weakref.proxy(loop)
        self._epoll: select.epoll | None = None
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._fresh: set[int] | None = None  # the descriptors that callbacks registered, while callbacks run

    def add_reader(self, fd: int, callback: Callback) -> None:
        """Call back whenever a descriptor can be read. This replaces an earlier callback."""
        if fd < DIRECT:
            self._loop.add_reader(fd, callback)
        else:
            self._watch(fd, self._readers, callback)

    def add_writer(self, fd: int, callback: Callback) -> None:
        """Call back whenever a descriptor can be written. This replaces an earlier callback."""
        if fd < DIRECT:
            self._loop.add_writer(fd, callback)
        else:
            self._watch(fd, self._writers, callback)

    def remove_reader(self, fd: int) -> None:
        """Do not call back any more when a descriptor can be read, if it is watched at all."""
        if fd < DIRECT:
            self._loop.remove_reader(fd)
        else:
            self._forget(fd, self._readers)

    def remove_writer(self, fd: int) -> None:
        """Do not call back any more when a descriptor can be written, if it is watched at all."""
        if fd < DIRECT:
            self._loop.remove_writer(fd)
        else:
            self._forget(fd, self._writers)

    def _watch(self, fd: int, callbacks: dict[int, Callback], callback: Callback) -> None:
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._ready)
        before = self._mask(fd)
        callbacks[fd] = callback
        mask = self._mask(fd)
        if mask == before:
            return
        try:
            if before:
                self._epoll.modify(fd, mask)
                return
            self._epoll.register(fd, mask)
        except OSError:
            del callbacks[fd]
            raise
        if self._fresh is not None:
            self._fresh.add(fd)

    def _forget(self, fd: int, callbacks: dict[int, Callback]) -> None:
        if callbacks.pop(fd, None) is None or self._epoll is None:
            return
        mask = self._mask(fd)
        with contextlib.suppress(OSError):  # closing a descriptor ends its registration, too
            if mask:
                self._epoll.modify(fd, mask)
            else:
                self._epoll.unregister(fd)

    def _mask(self, fd: int) -> int:
        return (_READ if fd in self._readers else 0) | (_WRITE if fd in self._writers else 0)

    def _ready(self) -> None:
        """Call back for the descriptors that are ready."""
        if self._epoll is None:
            return
        # A callback can close a descriptor, and another one can get its number. What the kernel says of the number is
        # about the old one, then; if the new one is ready as well, the kernel says so next time.
        fresh = self._fresh = set()
        try:
            for fd, mask in self._epoll.poll(0):
                # An error or the end of a connection is reported to both.
                if mask & ~_WRITE and fd not in fresh:
                    self._call(self._readers.get(fd))
                if mask & ~_READ and fd not in fresh:
                    self._call(self._writers.get(fd))
        finally:
            self._fresh = None

    def _call(self, callback: Callback | None) -> None:
        """Call back. As in asyncio, a callback that raises is logged, and does not keep others from being called."""
        if callback is None:
            return
        try:
            callback()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._loop.call_exception_handler({"message": f"Exception in callback {callback!r}", "exception": error})


_POLLERS: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Poller]] = weakref.WeakKeyDictionary()


def poller_of(loop: asyncio.AbstractEventLoop) -> Poller:
    """Return the poller of a loop, which all its sockets share."""
    found = _POLLERS.get(loop)
    if found is None:
        found = _POLLERS[loop] = Poller(loop)
    return found
