"""Messages to journal, and all that a journal has."""

import os
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path

from zambezi.zeps.block import Block, deliver
from zambezi.zeps.journal import Journal, Store
from zambezi.zeps.messages import Deliver, Publish

# Properties open hundreds of journals, and whether a disk is fast is not what they ask.
_MEMORY = Path("/dev/shm")


def directory() -> AbstractContextManager[str]:
    """A directory for one example of a property."""
    return tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)


def block(first: int, bodies: Sequence[bytes], key: str = "key") -> Block:
    """A block of messages with these bodies."""
    return deliver([Publish(key, body).encode()[0] for body in bodies], first)


def append(journal: Journal, *bodies: bytes, now: float = 1.0, key: str = "key") -> list[bytes]:
    """Append a block, and say what its messages are in the log."""
    made = block(journal.last + 1, bodies, key)
    journal.append(made, now)
    return pieces(made)


def pieces(made: Block) -> list[bytes]:
    """The messages of a block, with their frame headers."""
    return [made.octets[start:stop] for start, stop in pairwise(made.starts)]


def held(journal: Journal, after: int | None = None, octets: int = 1 << 20) -> dict[int, bytes]:
    """Every message that a reader finds, by its sequence. Each is one, says so itself, and was found once."""
    found: dict[int, bytes] = {}
    reader = journal.reader(journal.first - 1 if after is None else after)
    while (span := reader.peek(octets)) is not None:
        made = span.read()
        messages = pieces(made)
        assert (span.first, span.last, span.length) == (made.first, made.last, len(made.octets))
        assert span.count == len(messages) == span.last - span.first + 1
        assert span.credit == sum(map(len, made.bodies))
        for sequence, message, body in zip(range(span.first, span.last + 1), messages, made.bodies, strict=True):
            assert sequence not in found
            assert Deliver.decode([body]).sequence == sequence
            found[sequence] = message
        reader.skip(span)
    return found


def consistent(journal: Journal) -> dict[int, bytes]:
    """Every message, after seeing that index, log and what the journal says of itself agree."""
    entries = journal.entries(0, 1 << 30)
    assert all(before.time <= after.time for before, after in pairwise(entries))
    assert journal.octets == sum(entry.length for entry in entries)
    assert (journal.first_time, journal.last_time) == ((entries[0].time, entries[-1].time) if entries else (0, 0))
    found = held(journal)
    assert list(found) == [sequence for entry in entries for sequence in range(entry.first, entry.last + 1)]
    assert sum(map(len, found.values())) == journal.octets
    if found:
        assert (min(found), max(found)) == (journal.first, journal.last)
    else:
        assert journal.first == journal.last + 1
    return found


def kill(store: Store) -> None:
    """Let go of a store as the end of its process would: nothing is finished, and the lock is gone."""
    os.close(store._lock)
    store._lock = -1
    for journal in store._journals.values():
        journal.abandon()
    store._journals.clear()
