"""Helpers for tests of journals: append messages, and read all of them."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

from zambezi.zeps.block import Block, deliver
from zambezi.zeps.journal import Journal, Store
from zambezi.zeps.messages import Deliver, Publish

# Property tests open hundreds of journals, and do not need a disk.
_MEMORY = Path("/dev/shm")


def directory() -> AbstractContextManager[str]:
    """Return a temporary directory for one example of a property test."""
    return tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)


def block(first: int, bodies: Sequence[bytes], key: str = "key") -> Block:
    """Return a block of messages with these bodies."""
    return deliver([Publish(key, body).encode()[0] for body in bodies], first)


def append(journal: Journal, *bodies: bytes, now: float = 1.0, key: str = "key") -> list[bytes]:
    """Append messages, and return them as they are in the log."""
    made = block(journal.last + 1, bodies, key)
    journal.append(made, now)
    return pieces(made)


def pieces(made: Block) -> list[bytes]:
    """Return the messages of a block, with their frame headers."""
    return [made.octets[start:stop] for start, stop in pairwise(made.starts)]


def held(journal: Journal, after: int | None = None, octets: int = 1 << 20) -> dict[int, bytes]:
    """Return every message that a reader finds, by its sequence; check that each is valid, and found once."""
    found: dict[int, bytes] = {}
    reader = journal.reader(journal.first - 1 if after is None else after)
    while (span := reader.peek(octets)) is not None:
        made = span.read()
        messages = pieces(made)
        assert (span.first, span.last, span.length) == (made.first, made.last, len(made.octets))
        assert span.count == len(messages) > 0
        assert journal.removed or span.count == span.last - span.first + 1
        assert span.credit == sum(map(len, made.bodies))
        for sequence, message, body in zip(made.sequences, messages, made.bodies, strict=True):
            assert span.first <= sequence <= span.last
            assert not found or sequence > max(found)
            assert Deliver.decode([body]).sequence == sequence
            found[sequence] = message
        reader.skip(span)
    return found


def consistent(journal: Journal) -> dict[int, bytes]:
    """Return every message; check that index, log and the fields of the journal agree."""
    entries = journal.entries(0, 1 << 30)
    assert all(before.time <= after.time for before, after in pairwise(entries))
    assert journal.octets == sum(entry.length for entry in entries)
    assert (journal.first_time, journal.last_time) == ((entries[0].time, entries[-1].time) if entries else (0, 0))
    found = held(journal)
    covered = [sequence for entry in entries for sequence in range(entry.first, entry.last + 1)]
    assert set(found) <= set(covered)
    assert covered == list(range(journal.first, journal.last + 1))
    assert len(found) == len(covered) - journal.removed == sum(entry.count for entry in entries) == journal.messages
    assert sum(map(len, found.values())) == journal.octets
    if found:
        assert journal.removed or (min(found), max(found)) == (journal.first, journal.last)
    else:
        assert journal.first == journal.last + 1
    return found


def kill(store: Store) -> None:
    """Drop a store like the kill of its process: nothing is finished, and the lock is released."""
    os.close(store._lock)
    store._lock = -1
    for journal in store._journals.values():
        journal.abandon()
    store._journals.clear()
