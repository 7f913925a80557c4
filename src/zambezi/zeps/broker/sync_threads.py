"""Threads in which journals are synced: quick to wake, and quick to tell the event loop.

A publisher that flushes each message waits for two switches of threads besides the disk. A sync wakes exactly one
thread, because each idle thread waits for its own queue. (With a queue that threads share, one thread wakes the next
one, and both then want the interpreter.) An eventfd wakes the loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

Work: TypeAlias = Callable[[], Callable[[], object]]


class SyncThreads:
    """A pool of threads. Each piece of work returns a function, which the event loop then calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self._loop = loop
        self._most = most
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle: list[SimpleQueue[Work | None]] = []  # the queues of the threads that wait
        self._waiting: deque[Work] = deque()
        self._is_over = False
        self._done: deque[Callable[[], object]] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._bell, self._call_done)

    def submit(self, work: Work) -> None:
        """Do some work in a thread. It must not raise an exception."""
        with self._lock:
            if self._idle:
                self._idle.pop().put(work)
            elif len(self._threads) < self._most:
                name = f"zambezi-sync-{len(self._threads)}"
                thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            else:
                self._waiting.append(work)

    def _run(self, first: Work) -> None:
        queue: SimpleQueue[Work | None] = SimpleQueue()
        work: Work | None = first
        while work is not None:
            done = work()
            with self._lock:
                work = self._waiting.popleft() if self._waiting else None
                is_idle = work is None and not self._is_over
                if is_idle:
                    self._idle.append(queue)
            self._done.append(done)
            os.eventfd_write(self._bell, 1)  # the last step: from now on, the loop wants the interpreter
            if is_idle:
                work = queue.get()

    def _call_done(self) -> None:
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            return
        try:
            while self._done:
                self._done.popleft()()
        finally:
            if self._done:  # one of them has raised an exception: the others are called in the next turn
                os.eventfd_write(self._bell, 1)

    def shutdown(self) -> None:
        """Wait until all work is done, and end the threads. Blocks."""
        with self._lock:
            self._is_over = True
            while self._idle:
                self._idle.pop().put(None)
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Free the descriptor, after `shutdown`. The loop makes no further calls."""
        self._loop.remove_reader(self._bell)
        os.close(self._bell)
