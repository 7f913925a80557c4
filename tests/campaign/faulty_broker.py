"""A broker on a disk that fails when it is told to: a program for `disks`.

    python -m tests.campaign.faulty_broker DATA ENDPOINT SYNC

It writes its endpoint. Each line that it reads is a fault, and it writes the line back when the fault is in effect:

    full           writes find no room, and only a part of the last one is written
    unsynced       the disk fails to sync
    read-only      the file system refuses every change
    slow SECONDS   each sync takes so long
    power          the system is about to go down: nothing is written or synced any more, and the file `synced` tells
                   what the disk has
    room           a real disk that is full gets room: the file `filler` is removed
    none           the disk works

The faults are made in this process: the functions of `os` that the journal calls are replaced. `full` on a real disk
(a small tmpfs) needs none of that.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.campaign.load import LARGEST
from zambezi.zeps.broker import Broker
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.journal import Policy, identity
from zambezi.zeps.journal.counts import COUNTS
from zambezi.zeps.journal.segment import INDEX, LOG

FILLER = "filler"
SYNCED = "synced"
BOOT = "boot"  # the file whose content stands for the start of the operating system


def failure(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def lose_unsynced_bytes(data: Path) -> None:
    """Cut off the unsynced end of each file, or a part of it, after `power`. Some files have zeros there instead."""
    chance = random.SystemRandom()
    synced = json.loads((data / SYNCED).read_text())
    for path in data.rglob("*.*"):
        if path.suffix in (LOG, INDEX, COUNTS):
            size = path.stat().st_size
            os.truncate(path, chance.randint(min(synced.get(str(path.relative_to(data)), 0), size), size))
            if chance.random() < 0.5:
                os.truncate(path, size)
    (data / BOOT).write_text(str(uuid4()))


class Disk:
    """The functions of `os` that change files, with a fault in front of them."""

    def __init__(self, data: Path) -> None:
        self._data = data = data.resolve()
        self._fault = "none"
        self._seconds = 0.0
        identity._BOOT = data / BOOT  # type: ignore[misc]
        if not identity._BOOT.exists():
            identity._BOOT.write_text(str(uuid4()))
        self._synced = {path: path.stat().st_size for path in data.rglob("*") if path.is_file()}
        self._pwrite, self._open, self._ftruncate = os.pwrite, os.open, os.ftruncate
        os.pwrite = self.pwrite  # type: ignore[assignment]
        os.ftruncate = self.ftruncate
        os.open = self.open
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._syncing(getattr(os, name)))

    def fail(self, fault: str) -> None:
        """Bring a fault into effect."""
        if fault == "room":
            (self._data / FILLER).unlink()
            return
        self._fault, _, seconds = fault.partition(" ")
        self._seconds = float(seconds or 0)
        if fault == "power":
            time.sleep(0.1)  # calls that are under way end; later ones wait for ever
            sizes = {str(path.relative_to(self._data)): size for path, size in self._synced.items() if path.exists()}
            (self._data / SYNCED).write_text(json.dumps(sizes))

    def _stand_still(self) -> None:
        """Wait for ever, if the system is down."""
        while self._fault == "power":
            time.sleep(1)

    def ftruncate(self, descriptor: int, size: int) -> None:
        self._stand_still()
        self._ftruncate(descriptor, size)

    def pwrite(self, descriptor: int, octets: bytes, offset: int) -> int:
        self._stand_still()
        if self._fault == "full":
            size = os.fstat(descriptor).st_size
            if offset + len(octets) > size:
                if len(octets) > 1 and offset == size:
                    # A real disk takes the part for which it has room. The next write fails.
                    self._pwrite(descriptor, bytes(octets[: len(octets) // 2]), offset)
                raise failure(errno.ENOSPC)
        elif self._fault == "read-only":
            raise failure(errno.EROFS)
        return self._pwrite(descriptor, octets, offset)

    def open(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_CREAT and not Path(path).exists():
            if self._fault == "full":
                raise failure(errno.ENOSPC)
            if self._fault == "read-only":
                raise failure(errno.EROFS)
        return self._open(path, flags, *arguments, **options)

    def _syncing(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def synced(descriptor: int) -> None:
            if self._fault == "unsynced":
                raise failure(errno.EIO)
            if self._fault == "slow":
                time.sleep(self._seconds)
            size = os.fstat(descriptor).st_size
            sync(descriptor)
            self._stand_still()
            self._synced[Path(f"/proc/self/fd/{descriptor}").readlink()] = size

        return synced


def listen(disk: Disk, ended: Callable[[], object]) -> None:
    for line in sys.stdin:
        disk.fail(line.strip())
        print(line.strip(), flush=True)
    ended()


async def main(data: str, endpoint: str, sync: Any) -> None:
    disk = Disk(Path(data))
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    policy = Policy(sync=sync, segment=1 << 20)
    async with Broker(data, policy=policy, limits=Limits(message=LARGEST)) as broker:
        print(broker.bind(endpoint), flush=True)
        threading.Thread(target=listen, args=(disk, lambda: loop.call_soon_threadsafe(ended.set)), daemon=True).start()
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
