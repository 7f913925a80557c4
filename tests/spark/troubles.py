"""Run `archive` where it cannot succeed: each trouble ends it with one line that names the cause.

    python -m tests.spark.troubles

The disks are small file systems in memory, so this needs root. The object store is `weed`.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from tests.spark.journal import write
from tests.zeps.store.weed import Weed, running_weed
from zambezi.cli import main, pipeline, sql
from zambezi.spark import session

_NOBODY = 65534
_MOUNT = "/bin/mount"
_UNMOUNT = "/bin/umount"


@contextlib.contextmanager
def small_disk(place: Path, size: int, left: int | None = None) -> Iterator[Path]:
    """Mount a file system of `size` bytes; with `left`, fill it up to so many bytes."""
    place.mkdir()
    subprocess.run([_MOUNT, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True)
    try:
        if left is not None:
            (place / "filling").write_bytes(bytes(os.statvfs(place).f_bavail * os.statvfs(place).f_frsize - left))
        yield place
    finally:
        subprocess.run([_UNMOUNT, str(place)], check=True)


def run(*command: str) -> str:
    """Run a command that fails, and return what it says."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = main(list(command))
    assert status == 1, status
    return said.getvalue().strip().splitlines()[-1]


def as_nobody(action: Callable[[], str]) -> str:
    os.seteuid(_NOBODY)
    try:
        return action()
    finally:
        os.seteuid(0)


def on_disks(home: Path, data: str) -> Iterator[tuple[str, str, str]]:
    """Yield the trouble, the expected cause, and the line that the command said."""

    def archive(out: Path) -> str:
        return run("pipeline", "run", "archive", "--path", data, "--out", str(out / "archive"))

    with small_disk(home / "one", 1 << 18) as disk:
        yield "the disk is full when executors write", "the disk is full", archive(disk)
    for left in (0, 4096, 1 << 15):
        with small_disk(home / f"left-{left}", 1 << 20, left) as disk:
            yield f"the disk has {left} bytes left", "the disk is full", archive(disk)
    with small_disk(home / "two", 1 << 20) as disk:
        subprocess.run([_MOUNT, "-o", "remount,ro", str(disk)], check=True)
        yield "the disk can only be read", "the disk can only be read", archive(disk)
    locked = home / "locked"
    locked.mkdir(mode=0o755)
    home.chmod(0o755)
    yield "no permission", "no permission to read or write there", as_nobody(lambda: archive(locked))


def in_a_store(weed: Weed, data: str) -> Iterator[tuple[str, str, str]]:
    def archive(url: str, **options: str) -> str:
        given = [f"{name}={value}" for name, value in (weed.options | options).items()]
        stored = [text for one in given for text in ("--store-option", one)]
        return run("pipeline", "run", "archive", "--path", data, "--out", url, *stored)

    def query(url: str) -> str:
        stored = [text for name, value in weed.options.items() for text in ("--store-option", f"{name}={value}")]
        return run("sql", "--archive", url, *stored, "-e", "SELECT count(*) FROM readings")

    place = weed.url("archive")
    yield "no such bucket", "there is no such bucket", archive("s3://nothing/archive")
    yield "a wrong secret", "the secret key is wrong", archive(place, secret_access_key="wrong")
    yield "an unknown key", "the store does not know the access key", archive(place, access_key_id="nobody")
    yield "a port without a store", "nobody listens", archive(place, endpoint="http://127.0.0.1:9")
    yield "a query of no archive", "there is no such bucket", query("s3://nothing/archive")


def check(found: Iterator[tuple[str, str, str]]) -> int:
    wrong = 0
    for trouble, cause, said in found:
        is_right = cause in said and "Traceback" not in said
        wrong += not is_right
        print(f"{'ok   ' if is_right else 'WRONG'} {trouble}: {said}", flush=True)
    return wrong


def start() -> int:
    with TemporaryDirectory(prefix="zambezi-troubles-") as directory, contextlib.ExitStack() as stack:
        home = Path(directory)
        bodies = random.Random(1)
        write(home / "data", "readings", [("k", bodies.randbytes(1000)) for _ in range(1000)])
        spark = session("local[2]", settings={"spark.ui.enabled": "false", "spark.log.level": "OFF"})
        stack.callback(spark.stop)

        @contextlib.contextmanager
        def shared(_arguments: Any, _name: str) -> Iterator[Any]:
            java: Any = spark._jvm
            java.SparkSession.setActiveSession(spark._jsparkSession)  # for this thread
            yield spark

        for module in (pipeline, sql):
            stack.enter_context(mock.patch.object(module, "spark_session", shared))
        wrong = check(on_disks(home, str(home / "data")))
        (home / "weed").mkdir()
        with running_weed(home / "weed") as weed:
            wrong += check(in_a_store(weed, str(home / "data")))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(start())
