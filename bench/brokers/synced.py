"""The floor of a broker that confirms each message when the disk has it: only its system calls.

`python -m bench.brokers.synced DIRECTORY WAY` is a program without a protocol. It reads, writes to a file that has its
full size, syncs the file, and answers. WAY is `thread`, if a thread syncs, so that the program could serve others
meanwhile; or `loop`, if all wait for the disk, as with Redis. Messages that come while the thread syncs share a sync.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from bench.brokers.bare import DONE, BareProgram
from bench.brokers.relay import admit, listen
from zambezi.memory import keep_memory

READ: Final = 16 * 1024
ROOM: Final = 1 << 20  # bytes of the file


class BareSync(BareProgram):
    def __init__(self, way: str) -> None:
        self.way = way

    def command(self, directory: Path, port: int) -> list[str]:
        return [sys.executable, "-m", "bench.brokers.synced", str(directory), self.way]

    def frame(self, key: str, body: bytes) -> bytes:
        return key.encode() + body


class _File:
    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / "synced", os.O_WRONLY | os.O_CREAT, 0o600)
        self._place = 0
        os.pwrite(self._file, bytes(ROOM), 0)
        os.fsync(self._file)

    def write(self, octets: bytes) -> None:
        """Write some bytes, and wait until the disk has them."""
        if self._place + len(octets) > ROOM:
            self._place = 0
        self._place += os.pwrite(self._file, octets, self._place)
        os.fdatasync(self._file)


class _Turn:
    """The messages that share a sync, and the connections that wait for it."""

    def __init__(self) -> None:
        self.octets: list[bytes] = []
        self.waiting: list[socket.socket] = []

    def answer(self) -> None:
        for sock in self.waiting:
            sock.send(DONE)


class _Loop:
    """All wait for the disk."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self.callbacks: dict[int, Callable[[], object]] = {}

    def end_turn(self, turn: _Turn) -> _Turn:
        """Sync the messages of a turn, if there are any; return the turn to which later messages belong."""
        if not turn.octets:
            return turn
        self._file.write(b"".join(turn.octets))
        turn.answer()
        return _Turn()


class _Thread:
    """A thread syncs, and an eventfd tells it to the loop."""

    def __init__(self, file: _File, epoll: select.epoll) -> None:
        self._file = file
        self._queue: SimpleQueue[_Turn] = SimpleQueue()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._syncing: _Turn | None = None
        epoll.register(self._bell, select.EPOLLIN)
        self.callbacks: dict[int, Callable[[], object]] = {self._bell: self._synced}
        threading.Thread(target=self._run, daemon=True).start()

    def end_turn(self, turn: _Turn) -> _Turn:
        """Begin to sync the messages of a turn, unless a sync runs; return the turn to which later messages belong."""
        if not turn.octets or self._syncing is not None:
            return turn
        self._syncing = turn
        self._queue.put(turn)
        return _Turn()

    def _run(self) -> None:
        while True:
            self._file.write(b"".join(self._queue.get().octets))
            os.eventfd_write(self._bell, 1)

    def _synced(self) -> None:
        os.eventfd_read(self._bell)
        turn, self._syncing = self._syncing, None
        if turn is not None:
            turn.answer()


def _serve(directory: Path, way: str) -> None:
    file, listener = _File(directory), listen(directory)
    socks: dict[int, socket.socket] = {}
    turn = _Turn()
    with select.epoll() as epoll:
        epoll.register(listener, select.EPOLLIN)
        syncer = _Thread(file, epoll) if way == "thread" else _Loop(file)
        while True:
            for descriptor, _ in epoll.poll():
                if descriptor == listener.fileno():
                    admit(listener, epoll, socks)
                elif descriptor in syncer.callbacks:
                    syncer.callbacks[descriptor]()
                elif octets := socks[descriptor].recv(READ):
                    turn.octets.append(octets)
                    turn.waiting.append(socks[descriptor])
                else:
                    epoll.unregister(descriptor)
            turn = syncer.end_turn(turn)


if __name__ == "__main__":
    keep_memory()  # as the broker does
    _serve(Path(sys.argv[1]), sys.argv[2])
