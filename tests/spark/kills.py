"""Kill the driver of `archive` again and again, with messages coming all the while: each is there once in the end.

    python -m tests.spark.kills --times 20
    python -m tests.spark.kills --times 20 --weed

A kill is `kill -9` of the driver, its Java and its workers, at a moment that is drawn: a while after the run has added
a batch, or right when it has written a file, the state, or a commit. After every kill, deltalake and a reader that
shares no code with it must see the same: of each stream the messages from the first to some message, each once, and
never fewer than before. The last run is interrupted when it has everything, as by Ctrl-C: it ends in good order, and
they see every message once. Small files are merged all the while. With `--weed` the table is in an object store.
"""

from __future__ import annotations

import argparse
import glob
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow import fs  # type: ignore[import-untyped]

from tests.spark.delta import DeltaReader, count
from tests.zeps.serving import serving
from tests.zeps.store.weed import running_weed
from zambezi.zeps.sync import Client

PATIENCE = 600.0  # seconds; a loaded machine takes its time to start Java
STREAMS = ("readings", "alarms")
MOMENTS = {"work": "", "file": "date=*/*.parquet", "state": "_zambezi/state/*.json", "commit": "_delta_log/*.json"}
SMALL = (
    "--master",
    "local[2]",
    "--conf",
    "spark.driver.memory=768m",
    "--conf",
    "spark.sql.shuffle.partitions=2",
)


class Publishing:
    """Publishes numbered messages to the streams, from a thread, until it is told to end."""

    def __init__(self, endpoint: str, pause: float = 0.02, each: int = 20) -> None:
        self._endpoint = endpoint
        self._pause = pause
        self._each = each
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._publish, name="publisher", daemon=True)
        self.published = 0  # to each stream

    def _publish(self) -> None:
        with Client.connect(self._endpoint) as client:
            while not self._ended.wait(self._pause):
                numbers = range(self.published + 1, self.published + 1 + self._each)
                for name in STREAMS:
                    client.stream(name).publish_many([(f"k{number % 10}", b"%d" % number) for number in numbers])
                self.published = numbers[-1]
            for name in STREAMS:
                client.stream(name).flush()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(PATIENCE)


class Driver:
    """`zambezi pipeline run` in a process group of its own."""

    def __init__(self, name: str, endpoint: str, out: str | Path, place: Path, *options: str) -> None:
        command = [sys.executable, "-m", "zambezi", "pipeline", "run", name, "--endpoint", endpoint]
        command += ["--out", str(out), *options]
        self._errors = (place / "driver.log").open("ab")
        # What the killed leave behind goes when the test's own directory goes.
        local = place / "local"
        local.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            command,
            stdout=self._errors,
            stderr=self._errors,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"TMPDIR": str(local), "SPARK_LOCAL_DIRS": str(local)},
            start_new_session=True,
        )

    def until(self, condition: Callable[[], bool], pause: float = 0.02) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.process.poll() is not None:
                raise AssertionError(f"the driver ended by itself, with {self.process.returncode}: {self.said()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"the driver does not come so far: {self.said()}")
            time.sleep(pause)

    def said(self) -> str:
        return Path(self._errors.name).read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """End it as a crash of the machine would: all at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        self._errors.close()

    def wait(self) -> int:
        """Wait for its end."""
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.kill()


class Table:
    """The archive, as two independent readers see it."""

    def __init__(self, uri: str, options: dict[str, str] | None = None, files: Any = None) -> None:
        self.uri = uri
        self.options = options or {}
        self._files = files

    def version(self) -> int:
        """Return the number of the last commit; -1 if there is no table."""
        try:
            return int(DeltaTable(self.uri, storage_options=self.options).version())
        except TableNotFoundError:
            return -1

    def count(self) -> int:
        """Return the number of messages, as deltalake counts them."""
        return int(DeltaTable(self.uri, storage_options=self.options).count()) if self.version() >= 0 else 0

    def seen(self) -> dict[str, Counter[int]]:
        """Return how often the table has each sequence, by stream."""
        if self.version() < 0:
            return {}
        found = DeltaTable(self.uri, storage_options=self.options)
        by_deltalake = count(found.to_pyarrow_table(columns=["stream", "sequence"]))
        assert DeltaReader(self.uri.removeprefix("s3://"), self._files).sequences() == by_deltalake
        return by_deltalake

    def paths(self, pattern: str) -> set[str]:
        """Return the files of a table on a disk that match a pattern."""
        return set(glob.glob(f"{self.uri}/{pattern}"))  # noqa: PTH207 - the quick way

    def arguments(self) -> list[str]:
        """Return the options of the command for the object store."""
        return [part for name, value in self.options.items() for part in ("--store-option", f"{name}={value}")]


def batches(out: Path) -> int:
    """Return the number of batches that a table on a disk has: each leaves a state before its commit."""
    states = (out / "_zambezi" / "state").glob("*.json")
    return max((int(path.stem) >> 20 for path in states), default=-1) + 1


def kill_once(endpoint: str, table: Table, place: Path, chance: random.Random) -> str:
    """Run the archive, and kill it; at which moment."""
    moment = "work" if table.options else chance.choice(list(MOMENTS))
    before = table.version()
    known = table.paths(MOMENTS[moment]) if moment != "work" else set()
    options = (*SMALL, *table.arguments(), "--follow", "--every", "200ms")
    driver = Driver("archive", endpoint, table.uri, place, *options)
    try:
        if moment == "work":
            driver.until(lambda: table.version() > before + 1, pause=0.1)
            time.sleep(chance.uniform(0, 1.5))
        else:
            driver.until((place / "local").exists, pause=0.05)
            some = chance.randrange(2)
            driver.until(lambda: len(table.paths(MOMENTS[moment]) - known) > some, pause=0.002)
    finally:
        driver.kill()
    return moment


def run(times: int, seed: int, say: Callable[[str], object] = print, *, weed: bool = False) -> int:
    """Kill it so many times; how many messages there were. Raises AssertionError if one is missing or twice."""
    with new_table(weed=weed) as (place, table):
        return _run(times, seed, say, place, table)


@contextmanager
def new_table(*, weed: bool) -> Iterator[tuple[Path, Table]]:
    """Give a directory, and a table that does not exist yet, there or in an object store."""
    with TemporaryDirectory(prefix="zambezi-kills-") as name:
        place = Path(name)
        if not weed:
            yield place, Table(str(place / "archive"))
            return
        (place / "weed").mkdir()
        with running_weed(place / "weed") as store:
            # The second reader has a client of its own.
            host = store.options["endpoint"].removeprefix("http://")
            files = fs.S3FileSystem(access_key="key", secret_key="secret", scheme="http", endpoint_override=host)
            yield place, Table(store.url("archive"), store.options, files)


def _run(times: int, seed: int, say: Callable[[str], object], place: Path, table: Table) -> int:
    chance = random.Random(seed)
    before: dict[str, int] = {}
    with serving(place / "data") as (_, endpoint):
        with Publishing(endpoint) as publishing:
            for number in range(1, times + 1):
                moment = kill_once(endpoint, table, place, chance)
                found = table.seen()
                for name, sequences in found.items():
                    last = max(sequences)
                    assert sequences == Counter(range(1, last + 1)), f"seed {seed}, kill {number} at {moment}: {name}"
                    assert last >= before.get(name, 0), f"seed {seed}, kill {number} at {moment}: {name} has shrunk"
                    before[name] = last
                said = f"{sum(map(len, found.values())):,} messages in {len(found)} streams, version {table.version()}"
                say(f"kill {number} ({moment}): {said}, each once")
        _finish(endpoint, table, place, publishing.published * len(STREAMS))
    found = table.seen()
    for name in STREAMS:
        expected = Counter(range(1, publishing.published + 1))
        wrong = sorted(((expected - found[name]) | (found[name] - expected)).items())[:10]
        assert found[name] == expected, f"seed {seed}: {name} has {found[name].total()} of {len(expected)}: {wrong}"
    say(f"after {times} kills: {publishing.published:,} messages in each stream, each once")
    return publishing.published


def _finish(endpoint: str, table: Table, place: Path, count: int) -> None:
    """Let a run follow the streams until the table has all messages, and interrupt it."""
    driver = Driver("archive", endpoint, table.uri, place, *SMALL, *table.arguments(), "--follow", "--every", "200ms")
    try:
        driver.until(lambda: table.count() >= count, pause=0.2)
        os.kill(driver.process.pid, signal.SIGINT)
        assert driver.wait() == 0, f"the last run failed: {driver.said()}"
    finally:
        driver.kill()
    assert f"healthy: yes ({len(STREAMS)} streams, {count:,} messages" in driver.said(), driver.said()
    assert "Traceback" not in driver.said(), driver.said()


def command(run: Callable[..., int], description: str | None, times: int) -> None:
    """Run kills as the command line says."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--times", type=int, default=times)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--weed", action="store_true", help="in an object store")
    arguments = parser.parse_args()
    # A shell starts programs in the background so that they ignore Ctrl-C, and the last run must be interrupted by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 32)
    print(f"seed {seed}")
    run(arguments.times, seed, weed=arguments.weed)


if __name__ == "__main__":
    command(run, __doc__, 20)
