"""A disk that fills, fails to sync, turns read-only or is slow, and a process that stands still: nothing is lost.

The broker is a process of its own (`faulty_broker`), which makes the faults itself when it is told to. One run has a
real full disk: a small tmpfs in a mount namespace, where the system allows that.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from bench.report import table
from tests.campaign.faulty_broker import FILLER, lose_unsynced_bytes
from tests.campaign.load import Load, Published, check_journal
from tests.campaign.server import environment

PATIENCE: Final = 60.0
PROGRESS: Final = 2000  # messages that are confirmed before and after a fault
POWER_CUTS: Final = 20
SMALL: Final = 8 << 20  # bytes of the real disk


class FaultyBroker:
    """The process of a broker whose disk can fail."""

    def __init__(self, data: Path, sync: str, small_disk: bool = False) -> None:
        self.data = data
        self._sync = sync
        self._small_disk = small_disk
        self.endpoint = "tcp://127.0.0.1:*"
        self.start()

    def start(self) -> None:
        """Start the process, for the first time or again, with a disk that works."""
        command = [sys.executable, "-m", "tests.campaign.faulty_broker", str(self.data), self.endpoint, self._sync]
        if self._small_disk:
            prepare = (
                f"mount -t tmpfs -o size={SMALL} none '{self.data}' && "
                f"head -c {SMALL // 2} /dev/zero > '{self.data}/{FILLER}' && exec \"$@\""
            )
            command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", prepare, "sh", *command]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()
        )
        self.endpoint = self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode().strip()
        if not line:
            raise RuntimeError("the broker ended")
        return line

    def fail(self, fault: str) -> None:
        """Bring a fault into effect."""
        assert self.process.stdin is not None
        self.process.stdin.write(fault.encode() + b"\n")
        self.process.stdin.flush()
        assert self._line() == fault

    @property
    def visible_data(self) -> Path:
        """The data as this process sees it: in the mount namespace of the broker."""
        return Path(f"/proc/{self.process.pid}/root{self.data}") if self._small_disk else self.data

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def restart(self) -> None:
        """Kill the process, and start it again."""
        self.process.kill()
        self._reap()
        self.start()

    def cut_power(self) -> None:
        """Let the system go down, and start the process again on a disk that has not everything."""
        self.fail("power")
        self.process.kill()
        self._reap()
        lose_unsynced_bytes(self.data)
        self.start()

    def _reap(self) -> None:
        self.process.wait(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self._reap()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@dataclass
class Times:
    """The lengths of the faults of a run, in seconds."""

    fault: float = 2.0
    slow: float = 2.0  # each sync
    stop: float = 5.0  # SIGSTOP


Story: TypeAlias = Callable[[FaultyBroker, Load, Times], Coroutine[Any, Any, None]]


async def full(broker: FaultyBroker, load: Load, times: Times) -> None:
    broker.fail("full")
    await asyncio.sleep(times.fault)
    before = sum(load.confirmed)
    await asyncio.sleep(0.5)
    if sum(load.confirmed) != before:
        raise AssertionError("messages were confirmed for which there is no room")
    broker.fail("none")


async def really_full(broker: FaultyBroker, load: Load, times: Times) -> None:
    before = -1
    async with asyncio.timeout(PATIENCE):
        while sum(load.confirmed) != before:  # until the disk is full, and nothing is confirmed any more
            before = sum(load.confirmed)
            await asyncio.sleep(1.5)
    broker.fail("room")


async def unsynced(broker: FaultyBroker, load: Load, times: Times) -> None:
    """A failed sync stops the stream for good: only a restart shows what the disk has."""
    broker.fail("unsynced")
    await asyncio.sleep(times.fault)
    await asyncio.to_thread(broker.restart)


async def power_cut(broker: FaultyBroker, load: Load, times: Times) -> None:
    """Let the system go down some times: the disk has what was synced, and some of the rest."""
    for _ in range(POWER_CUTS):
        await asyncio.to_thread(broker.cut_power)
        await load.progress(PROGRESS // 10)


async def read_only(broker: FaultyBroker, load: Load, times: Times) -> None:
    broker.fail("read-only")
    await asyncio.sleep(times.fault)
    await asyncio.to_thread(broker.restart)


async def slow(broker: FaultyBroker, load: Load, times: Times) -> None:
    broker.fail(f"slow {times.slow}")
    await asyncio.sleep(2 * times.slow + times.fault)
    broker.fail("none")


async def stopped(broker: FaultyBroker, load: Load, times: Times) -> None:
    broker.signal(signal.SIGSTOP)
    await asyncio.sleep(times.stop)
    broker.signal(signal.SIGCONT)


STORIES: Final[dict[str, Story]] = {
    "fills": full,
    "fills (a tmpfs of 8 MiB)": really_full,
    "fails to sync": unsynced,
    "turns read-only": read_only,
    "loses power": power_cut,
    "is slow": slow,
    "SIGSTOP": stopped,
}


@dataclass(frozen=True)
class DiskResult:
    """The figures of a run; a run in which something did not hold raises instead."""

    fault: str
    sync: str
    messages: int
    lost: int  # without those that a publisher has dropped
    renewed: int  # times that a reader had to begin again, because the stream has a new incarnation
    back: float  # seconds from the end of the fault until messages are confirmed again


async def _run(broker: FaultyBroker, story: Story, times: Times, lossy: bool) -> tuple[list[Published], int, float]:
    load = Load(broker.endpoint, lossy=lossy)
    try:
        await load.progress(PROGRESS)
        await story(broker, load, times)
        began = time.monotonic()
        await load.progress(1)
        back = time.monotonic() - began
        await load.progress(PROGRESS)
        published = await load.finish()
        await load.finish_reading(broker.visible_data)
        return published, max(reader.renewed for reader in load.readers), back
    finally:
        await load.close()


def can_mount() -> bool:
    """Return whether this system lets us mount a tmpfs in a namespace of our own."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run_fault(fault: str, sync: str, times: Times) -> DiskResult:
    """Let a disk fail under load, and check the journal."""
    story = STORIES[fault]
    lossy = (
        story is power_cut and sync != "always"
    )  # then the last second can be lost, and is not confirmed by the disk
    with tempfile.TemporaryDirectory(prefix="zambezi-campaign-") as name:
        data = Path(name)
        with FaultyBroker(data, sync, small_disk=story is really_full) as broker:
            published, renewed, back = asyncio.run(_run(broker, story, times, lossy))
            messages, lost = check_journal(broker.visible_data, published, lossy)
    return DiskResult(fault, sync, messages, lost, renewed, back)


def report(results: list[DiskResult]) -> str:
    """Return the figures as a table."""
    heads = ["fault", "sync", "messages", "twice", "lost", "new incarnations", "confirms again after"]
    return table(
        heads,
        [
            [
                one.fault,
                one.sync,
                f"{one.messages:,}",
                "0",
                f"{one.lost:,}",
                str(one.renewed),
                f"{one.back * 1000:.0f} ms",
            ]
            for one in results
        ],
    )
