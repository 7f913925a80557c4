"""The thread that watches the kernel sockets of a blocking socket: a thread that waits in a call, or the I/O thread.

**The problem.** A thread that waits in `recv` cannot go on before its message has been read. If only the I/O thread
reads, each message wakes two threads, one after the other: the kernel wakes the I/O thread, which reads the message
and then wakes the waiting thread. Both are threads of one interpreter, so they also pass its lock to each other. In a
round trip over loopback that was a third of the time. But the thread that waits has nothing else to do: it can read
the message itself.

**Leader and followers.** Each blocking socket has an epoll of its own, with all of its kernel sockets. (A node of a
mesh has one epoll for all of its sockets.) An epoll is a descriptor, too, so the loop of the I/O thread watches the
epoll of each blocking socket. A thread that has to wait becomes the *leader*, if there is none: it mutes the epoll in
the loop of the I/O thread, waits in the epoll itself, and handles the kernel sockets that become ready, until its own
call can return. Then it unmutes the epoll. Threads that begin to wait meanwhile are *followers*: they wait for a
condition, and the leader reads their messages, too.

**A busy leader.** Muting and unmuting is dear: the kernel takes the locks of both epolls and looks at the kernel
sockets again. In a quick round trip that was another third of the time. So when a thread returns from two calls
within `BUSY` seconds, it is likely to call again, and the epoll stays muted. The I/O thread looks after `CHECK`
seconds: if no thread has led since then, it unmutes the epoll. So a kernel socket that nobody waits for can be read
up to 2 * `CHECK` seconds late. The epoll does not stay muted if followers wait, or if a callback is added: for
example because the kernel accepts no more of a long message, whose rest must go out soon.

**The I/O thread** runs all timers and name look-ups, and watches the kernel sockets while no thread leads. So
heartbeats, reconnections and queued messages never wait until the program calls `recv`. If followers wait when the
leader leaves, the I/O thread reads for them, until one of them begins to wait anew. To wake a follower so that it
leads would cost as much as a leader saves.

**The rules.** The lock of the socket guards all state here. The leader releases the lock only while it waits in the
epoll (`polling`). A thread that has something for the leader then writes to `_bell`, an eventfd in the same epoll.
Callbacks run with the lock held, in the thread that found their kernel socket ready. Five races are possible:

- The I/O thread was already awake when the leader muted the epoll. It takes the lock and then asks the epoll, without
  waiting: so its news is never old. It leaves the bell to the leader.
- Another thread handled a kernel socket between the leader's wait and its lock. The callback finds nothing to read
  and returns, as after any false alarm.
- Meanwhile a descriptor was closed and given to a new kernel socket. `_closes` counts the closed ones; if it has
  changed, the leader drops its news. The epoll reports again all that is still true.
- A signal interrupts the leader while it waits. The exception leaves through `retire`, and nothing is lost.
- A signal interrupts the leader in a callback. Bytes that were read may be lost, so the link closes that connection.

**Rejected options.**

- *The waiting thread blocks in a read of its kernel socket.* A socket has many connections, and timers.
- *The waiting thread runs the loop of the I/O thread.* An asyncio loop belongs to one thread. It has all sockets of
  the process, too, so a leader would have to wake the threads of other sockets.
- *The leader mutes each kernel socket.* That takes a system call for each connection and each wait.
- *No muting: the first thread wins.* The other one is woken in vain, which costs as much as the switch that is saved.
- *A timer for each call, which unmutes the epoll.* To set a timer wakes the I/O thread. A check that repeats itself
  while the socket is busy wakes it once in `CHECK` seconds, and not at all when the socket is quiet.

A process can be out of descriptors at any moment. So the epoll lasts as long as its socket, and only the first `bind`
or `connect` can fail for lack of a descriptor. Without a descriptor for the bell, all threads follow.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from zambezi.zmtp.errors import ZmtpError

# The most kernel sockets that are handled at once, with the lock held: other threads want it, too.
EVENTS: Final = 16
# A thread that returns from two calls within this time is likely to wait again soon.
BUSY: Final = 0.005  # seconds
CHECK: Final = BUSY  # seconds after which the I/O thread looks whether it did

_READ: Final = select.EPOLLIN
_WRITE: Final = select.EPOLLOUT

_ONCE: Final = (True,)

Callback = Callable[[], object]


class IoLoop(asyncio.SelectorEventLoop):
    """The event loop of the I/O thread. Any thread can mute a descriptor that the loop reads from."""

    def __init__(self) -> None:
        selector = selectors.EpollSelector()
        super().__init__(selector)
        self._epoll = select.epoll.fromfd(os.dup(selector.fileno()))

    def mute(self, descriptor: int) -> None:
        """Ignore a descriptor until `unmute`."""
        self._set(descriptor, 0)

    def unmute(self, descriptor: int) -> None:
        """Read from a descriptor again."""
        self._set(descriptor, _READ)

    def _set(self, descriptor: int, events: int) -> None:
        if not self.is_closed():  # it is closed when the process ends, and its threads may not have noticed
            self._epoll.modify(descriptor, events)

    def close(self) -> None:
        super().close()
        self._epoll.close()


class _Entry:
    """The callbacks of one kernel socket."""

    __slots__ = ("mask", "reader", "writer")

    def __init__(self) -> None:
        self.reader: Callback | None = None
        self.writer: Callback | None = None
        self.mask = 0  # as the epoll knows it; 0 if the epoll does not know the kernel socket


class Watch:
    """The kernel sockets that share a lock. Callers hold that lock, except where a method says otherwise.

    `leader` is the waiter of the thread that leads, or None; `polling` is True while that thread waits, without the
    lock. A waiter that has something for its leader sets `woken`, and rings if the leader is polling.
    """

    def __init__(self, loop: IoLoop, lock: threading.Lock) -> None:
        self._loop = loop
        self._lock = lock
        self._entries: dict[int, _Entry] = {}
        self._users = 0
        self._epoll: select.epoll | None = None
        self._registered: select.epoll | None = None  # the epoll that the loop of the I/O thread watches
        self._bell = -1
        self._closes = 0
        self._muted = False
        self._turns = 0  # how often a thread has led
        self._retired = 0.0
        self._checking = False  # the I/O thread will look whether a thread still leads at times
        self._dispatcher = 0  # the thread that leads and calls callbacks now
        self._deferred: list[Callback] = []
        self.waiting = 0  # threads that wait
        self.leader: object | None = None
        self.polling = False
        self.woken = False

    # Kernel sockets

    def add_reader(self, sock: socket.socket, callback: Callback) -> None:
        """Call a function whenever the kernel socket can be read."""
        entry = self._entry(sock)
        if entry is not None:
            entry.reader = callback
            self._update(sock.fileno(), entry)

    def add_writer(self, sock: socket.socket, callback: Callback) -> None:
        """Call a function whenever the kernel socket can be written."""
        entry = self._entry(sock)
        if entry is not None:
            entry.writer = callback
            self._update(sock.fileno(), entry)

    def remove_reader(self, sock: socket.socket) -> None:
        """Cancel `add_reader`."""
        entry = self._entries.get(sock.fileno())
        if entry is not None:
            entry.reader = None
            self._update(sock.fileno(), entry)

    def remove_writer(self, sock: socket.socket) -> None:
        """Cancel `add_writer`."""
        entry = self._entries.get(sock.fileno())
        if entry is not None:
            entry.writer = None
            self._update(sock.fileno(), entry)

    def release(self, sock: socket.socket) -> None:
        """Close a kernel socket. A second call does nothing."""
        self.remove_reader(sock)
        self.remove_writer(sock)
        self._entries.pop(sock.fileno(), None)
        self._closes += 1
        sock.close()
        self._close_if_unused()

    def _entry(self, sock: socket.socket) -> _Entry | None:
        descriptor = sock.fileno()
        if descriptor < 0:
            return None  # released already
        if self._epoll is None:
            self._open()
        return self._entries.setdefault(descriptor, _Entry())

    def _update(self, descriptor: int, entry: _Entry) -> None:
        epoll = self._epoll
        assert epoll is not None
        mask = (_READ if entry.reader is not None else 0) | (_WRITE if entry.writer is not None else 0)
        if mask == entry.mask:
            return
        if not mask:
            # Not modify: the kernel would go on to report errors.
            epoll.unregister(descriptor)
        elif entry.mask:
            epoll.modify(descriptor, mask)
        else:
            epoll.register(descriptor, mask)
        entry.mask = mask
        if self.leader is None:
            self._unmute()  # a message may have to go out, and no thread waits for it

    # The epoll

    def join(self) -> None:
        """Note one more user. The epoll lasts until the last user has left."""
        self._users += 1

    def leave(self) -> None:
        """Note that a user has left."""
        self._users -= 1
        self._close_if_unused()

    def _open(self) -> None:
        try:
            epoll = self._epoll = select.epoll()
        except OSError as error:
            raise ZmtpError(
                f"cannot watch the connections of a socket: {error.strerror}; close other files, or raise their limit"
            ) from error
        if asyncio._get_running_loop() is self._loop:
            self._register(epoll)
        else:
            self._loop.call_soon_threadsafe(self._register, epoll)

    def _register(self, epoll: select.epoll) -> None:
        self._loop.add_reader(epoll.fileno(), self._serve)
        self._registered = epoll

    def _close_if_unused(self) -> None:
        epoll = self._epoll
        if epoll is not None and self.leader is None and not self._entries and self._users <= 0:
            bell, self._bell, self._epoll, self._muted = self._bell, -1, None, False
            with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
                self._loop.call_soon_threadsafe(self._discard, epoll, bell)

    def _discard(self, epoll: select.epoll, bell: int) -> None:
        # Only the thread of the loop closes: else a new file could get the descriptor while the loop still watches it.
        self._loop.remove_reader(epoll.fileno())
        epoll.close()
        if bell >= 0:
            os.close(bell)

    # Leading

    def lead(self, waiter: object) -> bool:
        """Make the calling thread the leader; return False if it must follow."""
        epoll = self._epoll
        if self.leader is not None or epoll is None or self._registered is not epoll:
            return False
        if self._bell < 0 and not self._hang_bell(epoll):
            return False
        self.leader = waiter
        self._turns += 1
        if not self._muted:
            self._muted = True
            self._loop.mute(epoll.fileno())
        return True

    def retire(self) -> None:
        """Leave the kernel sockets to the I/O thread: now, or soon if the thread is likely to lead again."""
        before, self._retired = self._retired, time.monotonic()
        self.leader = None
        if self.waiting or self._retired - before > BUSY or not self._entries or self._loop.is_closed():
            self._unmute()
            self._close_if_unused()
        elif not self._checking:
            self._checking = True
            self._loop.call_soon_threadsafe(self._check_later, self._turns)

    def abdicate(self) -> None:
        """Leave the kernel sockets to the I/O thread at once, after a signal has interrupted `retire`."""
        self.leader = None
        self._muted = True
        self._unmute()

    def _unmute(self) -> None:
        if self._muted and self._epoll is not None:
            self._muted = False
            self._loop.unmute(self._epoll.fileno())

    def _check_later(self, turns: int) -> None:
        self._loop.call_later(CHECK, self._check, turns)

    def _check(self, turns: int) -> None:
        """Unmute the epoll if no thread has led since the last check. Runs in the I/O thread."""
        with self._lock:
            if self._turns != turns:
                self._check_later(self._turns)
                return
            self._checking = False
            if self.leader is None:
                self._unmute()
                self._close_if_unused()

    def wait(self, timeout: float | None) -> None:
        """As the leader, wait until something happens, and handle it. Releases the lock while it waits."""
        epoll = self._epoll
        assert epoll is not None
        closes = self._closes
        self.woken = False
        self.polling = True
        held: list[bool] = []
        interrupt: BaseException | None = None
        try:
            self._lock.release()
            found = epoll.poll(timeout, EVENTS)
        finally:
            while not held:
                try:
                    # Python handles signals after calls, but not within one. So a signal cannot come between the lock
                    # and the note that this thread has it.
                    held.extend(map(self._lock.acquire, _ONCE))
                except BaseException as error:  # the exception of a signal's handler
                    interrupt = error
            self.polling = False
        if interrupt is not None:
            raise interrupt
        if found and self._closes == closes:
            self._handle(found)

    def glance(self) -> bool:
        """Handle what is ready, without waiting, if the epoll is muted and no thread leads; return whether that was so.

        A thread that does not want to wait calls this: the I/O thread may not have read what has arrived.
        """
        if self.leader is not None or not self._muted or self._epoll is None:
            return False
        self._handle(self._epoll.poll(0, EVENTS))
        return True

    def _handle(self, found: list[tuple[int, int]]) -> None:
        self._dispatcher = threading.get_ident()
        try:
            self._dispatch(found)
            self._run_deferred()
        finally:
            self._dispatcher = 0
            if self._deferred:
                self._hand_over()

    def ring(self) -> None:
        """Wake the leader, which is polling."""
        os.eventfd_write(self._bell, 1)

    def defer(self, callback: Callback) -> bool:
        """Call a function when the leader has handled what it found; return False if this thread does not lead.

        The caller needs no lock. The function must not mind to be called twice.
        """
        if self._dispatcher != threading.get_ident():
            return False
        self._deferred.append(callback)
        return True

    def _hang_bell(self, epoll: select.epoll) -> bool:
        try:
            self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:  # out of descriptors
            return False
        epoll.register(self._bell, _READ)
        return True

    # Callbacks

    def _serve(self) -> None:
        """Handle what is ready. Runs in the I/O thread."""
        with self._lock:
            if self._epoll is not None:
                self._dispatch(self._epoll.poll(0, EVENTS))

    def _dispatch(self, found: list[tuple[int, int]]) -> None:
        closes = self._closes
        for descriptor, events in found:
            if self._closes != closes:
                return  # the descriptor may belong to a new kernel socket; the epoll reports the rest again
            entry = self._entries.get(descriptor)
            if entry is None:
                self._hear(descriptor)
                continue
            # Errors are for both: as in asyncio.
            if events & ~_WRITE and entry.reader is not None:
                self._call(entry.reader)
            if events & ~_READ and entry.writer is not None and self._closes == closes:
                self._call(entry.writer)

    def _hear(self, descriptor: int) -> None:
        """Silence the bell; not for a leader that is polling, which would never know that it rang."""
        if descriptor == self._bell and not self.polling:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(descriptor)

    def _run_deferred(self) -> None:
        for callback in self._deferred.copy():
            self._call(callback)
            del self._deferred[0]  # afterwards: if a signal interrupts the call, the I/O thread calls it again

    def _hand_over(self) -> None:
        """Leave deferred calls to the I/O thread: those that were added meanwhile, or all after an interrupt."""
        rest, self._deferred = self._deferred, []
        for callback in rest:
            self._loop.call_soon_threadsafe(self._locked, callback)

    def _locked(self, callback: Callback) -> None:
        with self._lock:
            callback()

    def _call(self, callback: Callback) -> None:
        """Call a function of a kernel socket. Its error is not the error of the thread that happens to lead."""
        try:
            callback()
        except Exception as error:
            self._loop.call_exception_handler({"message": f"Exception in callback {callback!r}", "exception": error})
