"""Streams to read: journals that are written here, message by message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from zambezi.zeps.block import deliver
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.messages import Publish

BEGINNING = 1_700_000_000  # seconds since 1970, when the first batch of a stream is written

Message = tuple[str, bytes]


def numbered(count: int, first: int = 1, size: int = 0) -> list[Message]:
    """Messages that can be told apart: key `k0` to `k9`, body a number, filled up to a size."""
    return [(f"k{number % 10}", str(number).encode().ljust(size, b".")) for number in range(first, first + count)]


def write(
    path: Path,
    stream: str,
    messages: Sequence[Message],
    *,
    batch: int = 10,
    now: float = BEGINNING,
    policy: Policy | None = None,
) -> None:
    """Append messages to a stream, `batch` to an entry of the index, and a second between two of them."""
    with Store(path, policy=policy or Policy()) as store:
        journal = store.open(stream)
        for start in range(0, len(messages), batch):
            frames = [Publish(key, body).encode()[0] for key, body in messages[start : start + batch]]
            journal.append(deliver(frames, journal.last + 1), now + start // batch)


def octets_of(messages: Iterable[Message], first: int = 1) -> bytes:
    """Return the bytes that a journal stores for messages."""
    return deliver([Publish(key, body).encode()[0] for key, body in messages], first).octets
