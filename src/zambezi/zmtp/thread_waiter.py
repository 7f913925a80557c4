"""Waiting in threads, for the blocking faces.

Its twin for asyncio, with the same names, is in `async_waiter`: so an asyncio face and its blocking face differ by
`await` alone. Here every call takes the lock of the socket; the I/O thread of the process takes the same lock for its
callbacks. A thread that waits watches the kernel sockets of its socket itself, unless another thread does (see
`watch`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from zambezi.zmtp import io_thread
from zambezi.zmtp.async_waiter import Closable, failure
from zambezi.zmtp.errors import TimedOut, ZmtpError
from zambezi.zmtp.reactor import ThreadReactor

T = TypeVar("T")

Mutex: Final = threading.Lock

_NOT_OURS: Final = "this object belongs to the process that forked this one; create a new one here"


class Waiter:
    """Threads that wait for something to change.

    `more` returns whether another caller can succeed, too, after one has: then the next caller is woken. `state`
    returns a text that the error of a timeout ends with, and `timed_out` is the type of that error.
    """

    def __init__(
        self,
        *,
        more: Callable[[], object] | None = None,
        state: Callable[[], str] | None = None,
        timed_out: type[TimedOut] = TimedOut,
        reactor: ThreadReactor | None = None,
    ) -> None:
        self.reactor = reactor or ThreadReactor(io_thread.io_loop(), threading.Lock())
        self.state = state
        self._lock = self.reactor.lock
        self._watch = self.reactor.watch
        self._more = more
        self._timed_out = timed_out
        self._changed = threading.Condition(self._lock)
        self.waiting = 0  # threads that wait now
        self.disowned = False
        io_thread.own(self)

    def sibling(self, more: Callable[[], object] | None = None) -> Waiter:
        """Return a waiter for another change of the same thing."""
        return Waiter(more=more, state=self.state, timed_out=self._timed_out, reactor=self.reactor)

    def disown(self) -> None:
        """Refuse all further calls: this process is a forked child, and the object belongs to its parent."""
        self.disowned = True
        self._lock = threading.Lock()  # the parent's may have been held when it forked
        self._changed = threading.Condition(self._lock)

    def _check(self) -> None:
        if self.disowned:
            raise ZmtpError(_NOT_OURS)

    # Calling

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call, with the lock held, a function that uses the state that callers wait for."""
        with self._lock:
            self._check()
            return function(*args)

    def fast(
        self, attempt: Callable[..., T], socket: Closable, post: Callable[..., bool] | None = None
    ) -> Callable[..., T | None]:
        """Return a function that any thread can call: it calls `post` without the lock, or else `attempt` with it.

        The function returns None if the socket closes. Programs call it for each message, so it calls little itself.
        """
        lock = self._lock  # a forked child, which must not use it, raises before

        def locked(*args: Any) -> T | None:
            if self.disowned:
                raise ZmtpError(_NOT_OURS)
            with lock:
                return None if socket.closing else attempt(*args)

        def posted(*args: Any) -> T | None:
            if self.disowned:
                raise ZmtpError(_NOT_OURS)
            if post(*args):  # type: ignore[misc]
                return True  # type: ignore[return-value]
            with lock:
                return None if socket.closing else attempt(*args)

        return locked if post is None else posted

    def breathe(self) -> None:
        """Do nothing: other threads run by themselves."""

    # Waiting

    def until(self, attempt: Callable[[], T | None], timeout: float | None, what: str) -> T:
        """Call `attempt` whenever it may succeed, until it returns something else than None, and return that.

        Raises `TimedOut`, with the text `what`, after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        left = timeout
        watch = self._watch
        leads = glanced = False
        with self._lock:
            self._check()
            self.waiting += 1
            watch.waiting += 1
            try:
                while (result := attempt()) is None:
                    if deadline is not None:
                        left = deadline - time.monotonic()
                        if left <= 0:
                            if glanced or not watch.glance():
                                raise self._timed_out(self.failure(what, timeout))
                            glanced = True
                            continue
                    if leads or (leads := watch.lead(self)):
                        watch.wait(left)
                    else:
                        self._changed.wait(left)
                return result
            finally:
                self.waiting -= 1
                watch.waiting -= 1
                if leads:
                    try:
                        watch.retire()
                    except BaseException:  # a signal
                        watch.abdicate()
                        raise
                if self.waiting and self._more is not None and self._more():
                    self._changed.notify()

    def failure(self, what: str, timeout: float | None) -> str:
        """Return the text of the error of a timeout."""
        return failure(what, timeout, self.state)

    def wake(self) -> None:
        """Have all waiting callers try again. The caller holds the lock."""
        leads = self._watch.leader is self
        if self.waiting > leads:  # the leader does not wait for the condition
            self._changed.notify_all()
        if leads:
            self._wake_leader()

    def wake_one(self) -> None:
        """Have one waiting caller try again. The caller holds the lock."""
        if not self.waiting:
            return
        if self._watch.leader is self and not self._watch.woken:
            self._wake_leader()
        else:
            self._changed.notify()

    def _wake_leader(self) -> None:
        self._watch.woken = True
        if self._watch.polling:
            self._watch.ring()

    def is_question(self, argument: object) -> bool:
        """Return False: the blocking faces take plain values only."""
        return False

    def answer(self, question: Any) -> object:
        """Return the argument."""
        return question
