"""Crafted data directories: whatever the files contain, readers and writers raise `JournalError` and nothing else.

The entries of an index are crafted with valid CRCs, so that their values get past the first check.
"""

import os
import random
import shutil
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.zeps.journal.streams import append, directory
from tests.zeps.stage import never_wait_for_the_disk
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.entry import SIZE, IndexEntry, pack
from zambezi.zeps.journal.extract import messages
from zambezi.zeps.journal.identity import STREAM
from zambezi.zeps.journal.restore import restore, restore_missing
from zambezi.zeps.journal.scrub import Scrub
from zambezi.zeps.journal.verify import verify
from zambezi.zeps.layout import ENTRY

POLICY = Policy(segment=600, batch=300)
ROUNDS = 150
MOST = 48 << 20  # bytes that may be allocated, with one message or one batch in memory

NESTED = b"[" * 20_000
IDENTITIES = [
    b"",
    b"{",
    NESTED,
    b'{"format":' + NESTED,
    b"9" * 10_000,
    b'{"format": 2, "name": "a", "incarnation": 7}',
    b'{"format": 2, "name": ["a"], "incarnation": "6cfc8a43-6a90-4f38-a8e5-1a2b0b3e9c41"}',
    b'{"format": 2, "name": "\\ud800", "incarnation": "6cfc8a43-6a90-4f38-a8e5-1a2b0b3e9c41"}',
    b'{"format": 2, "name": "", "incarnation": "6cfc8a43-6a90-4f38-a8e5-1a2b0b3e9c41"}',
    b'{"format": 2, "name": "../b", "incarnation": "6cfc8a43-6a90-4f38-a8e5-1a2b0b3e9c41"}',
    b'{"format": 2e400, "name": "a"}',
    b'{"format": {"a": "' + b"x" * 60_000 + b'"}}',
    b"x" * (1 << 20),
    b"\xff\xfe\x00",
]


def is_small_segment(path: Path) -> bool:
    """Whether it is a file of a segment, and not a hole of gigabytes, which the test itself could not read."""
    return path.suffix in (".log", ".idx") and path.stat().st_size < 1 << 20


def make(path: str) -> None:
    with Store(path, policy=POLICY) as store:
        journal = store.open("a")
        for number in range(12):
            append(journal, *[b"%d" % number * (1 + number * 7 % 60)] * (1 + number % 4), now=float(number))
        append(store.open("b"), b"good")


def craft_entry(path: Path, dice: random.Random) -> None:
    """Change a field of an entry to an interesting value, and give it a valid CRC."""
    octets = bytearray(path.read_bytes())
    number = dice.randrange(max(1, len(octets) // SIZE))
    fields = list(ENTRY.unpack_from(octets, number * SIZE)[:7]) if len(octets) >= SIZE else [1, 0, 0, 1, 18, 16, 0]
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(7)
        bits = 64 if at < 3 else 32
        choices = [
            0,
            1,
            2,
            (1 << bits) - 1,
            1 << bits - 1,
            (1 << bits - 1) - 1,
            656 << 20,
            fields[at] + 1,
            fields[at] * 2,
        ]
        fields[at] = dice.choice(choices) & ((1 << bits) - 1)
    octets[number * SIZE : (number + 1) * SIZE] = pack(*fields)
    path.write_bytes(octets)


def flip(path: Path, dice: random.Random) -> None:
    octets = bytearray(path.read_bytes())
    for _ in range(dice.randint(1, 4)):
        if octets:
            octets[dice.randrange(len(octets))] = dice.choice([0, 1, 2, 0x7F, 0xFF, dice.randrange(256)])
    path.write_bytes(octets)


def resize(path: Path, dice: random.Random) -> None:
    os.truncate(path, dice.choice([0, 1, SIZE - 1, path.stat().st_size // 2, path.stat().st_size + SIZE, 1 << 34]))


def swap(path: Path, dice: random.Random) -> None:
    other = dice.choice([one for one in sorted(path.parent.iterdir()) if one.stat().st_size < 1 << 20])
    shutil.copy(other, path) if other != path else None


def rename(path: Path, dice: random.Random) -> None:
    stem = dice.choice(["9" * 20, f"{(1 << 63) - 1:020d}", f"{1 << 63:020d}", "0" * 20, f"{5:020d}"])
    path.rename(path.with_name(stem + path.suffix))


CRAFTS: list[Callable[[Path, random.Random], object]] = [
    craft_entry,
    craft_entry,
    craft_entry,
    flip,
    resize,
    swap,
    rename,
]


def attempt(action: Callable[[], object]) -> None:
    with suppress(JournalError):
        action()


def read_all(journal: Journal) -> None:
    for after in (0, 3, journal.first - 1, journal.last - 1, 1 << 62):
        for octets, credit in ((1 << 20, None), (1, None), (100, 50)):
            reader = journal.reader(max(0, after))
            for _ in range(200):
                span = reader.peek(octets, credit)
                if span is None:
                    break
                block = span.read()
                assert len(block.octets) == span.length
                reader.skip(span)


def use(journal: Journal) -> None:
    """Do everything that reads a journal."""
    attempt(lambda: read_all(journal))
    attempt(lambda: journal.entries(0, 1000))
    for time in (0, 3_000_000, 1 << 62):
        attempt(lambda time=time: journal.before(time))  # type: ignore[misc]
    attempt(lambda: list(verify(journal)))
    attempt(lambda: list(messages(journal, 0, 1 << 62)))
    scrub = Scrub(lambda: [journal])
    attempt(lambda: scrub.step(1 << 40, 0.0))


def use_read_only(path: str) -> None:
    with Store(path, write=False) as store:
        assert "b" in store.names()
        attempt(lambda: use(store.open("a")))


def use_for_writing(path: str, copy: str) -> None:
    with Store(path, policy=POLICY) as store, Store(copy, write=False) as other:
        assert "b" in store.names()

        def write() -> None:
            journal = store.open("a")
            use(journal)
            attempt(lambda: list(restore_missing(journal, other.open("a"))))
            attempt(lambda: list(restore(journal, other.open("a"))))
            attempt(lambda: append(journal, b"more"))
            attempt(lambda: journal.truncate(journal.last - 2))
            attempt(lambda: append(journal, b"more"))
            attempt(lambda: journal.retain(1e12))

        attempt(write)
        append(store.open("b"), b"the other stream is not affected")


@pytest.mark.parametrize("seed", range(8))
def test_crafted_segments(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    never_wait_for_the_disk(monkeypatch)
    dice = random.Random(seed)
    with directory() as root:
        good, bad = f"{root}/good", f"{root}/bad"
        make(good)
        tracemalloc.start()
        try:
            for _ in range(ROUNDS // 8):
                shutil.copytree(good, bad)
                for _ in range(dice.randint(1, 3)):
                    files = [path for path in sorted(Path(bad, "a").iterdir()) if is_small_segment(path)]
                    dice.choice(CRAFTS)(dice.choice(files), dice)
                use_read_only(bad)
                use_for_writing(bad, good)
                shutil.rmtree(bad)
            assert tracemalloc.get_traced_memory()[1] < MOST
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("content", IDENTITIES)
@pytest.mark.parametrize("name", [STREAM, "unsynced", ".lock"])
def test_crafted_small_files(content: bytes, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    never_wait_for_the_disk(monkeypatch)
    with directory() as root:
        good, bad = f"{root}/good", f"{root}/bad"
        make(good)
        shutil.copytree(good, bad)
        Path(bad, "" if name == ".lock" else "a", name).write_bytes(content)
        use_read_only(bad)
        use_for_writing(bad, good)


def test_an_entry_that_claims_hundreds_of_megabytes(tmp_path: Path) -> None:
    """The log is a hole of that size, which takes no room on the disk."""
    with Store(tmp_path) as store:
        path = store.open("a").directory / "00000000000000000001"
    size = 656 << 20
    os.truncate(path.with_suffix(".log"), size)
    path.with_suffix(".idx").write_bytes(IndexEntry(1, 0, 1, 1, size, size - 9, 7).pack())
    tracemalloc.start()
    try:
        with Store(tmp_path, write=False) as store:
            journal = store.open("a")
            span = journal.reader(0).peek(1 << 20)
            assert span is not None
            with pytest.raises(JournalError, match="the log has no message of 687865856 bytes at 0"):
                span.read()
            attempt(lambda: list(messages(journal, 0, 1)))
            assert "has no valid message after sequence 0" in str(next(verify(journal)))
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


def test_a_stream_without_any_segment_is_empty_for_a_reader(tmp_path: Path) -> None:
    make(str(tmp_path))
    for path in tmp_path.rglob("*.*"):
        if path.suffix in (".log", ".idx"):
            path.unlink()
    with Store(tmp_path, write=False) as store:
        assert store.open("a").last == 0
