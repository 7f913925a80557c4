"""A kernel socket that threads read from, for the tests of `zambezi.zmtp.watch`. The fixtures are in `conftest`."""

import contextlib
import socket
import threading

from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi.zmtp.io_thread import IoThread
from zambezi.zmtp.reactor import ThreadReactor
from zambezi.zmtp.thread_waiter import Waiter
from zambezi.zmtp.watch import Watch

IO_THREAD = "zambezi-io"


class Line:
    """A kernel socket, its bytes as they are read, and the names of the threads that read them."""

    def __init__(self, io: IoThread) -> None:
        self.lock = threading.Lock()
        self.reactor = ThreadReactor(io.loop, self.lock)
        self.waiter = Waiter(reactor=self.reactor)
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.bytes: list[bytes] = []
        self.readers: list[str] = []
        with self.lock:
            self.watch.join()
            self.watch.add_reader(self.ours, self.readable)
        wait_until(lambda: self.watch._registered is not None)

    @property
    def watch(self) -> Watch:
        return self.reactor.watch

    def readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = self.ours.recv(1)
            self.readers.append(threading.current_thread().name)
            self.bytes.append(data)
            self.waiter.wake_one()

    def take(self) -> bytes | None:
        return self.bytes.pop(0) if self.bytes else None

    def read(self, timeout: float | None = PATIENCE) -> bytes:
        return self.waiter.until(self.take, timeout, "nothing arrived")

    def close(self) -> None:
        with self.lock:
            self.watch.release(self.ours)
            self.watch.leave()
        self.theirs.close()
