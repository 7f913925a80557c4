"""The copy of a stream: its messages, with new sequences from 1 on, and the times of the originals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zambezi.zeps.block import Block, deliver
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.extract import batches
from zambezi.zeps.journal.journal import Journal
from zambezi.zeps.layout import DELIVER_KEY, PUBLISH

_MICRO: Final = 1_000_000


def copy_messages(source: Journal, check: Callable[[], object], target: Journal) -> None:
    """Append the messages that a journal has now to an empty one. Blocks.

    The copy ends early if `check`, which is called now and then, raises an error.
    """
    incarnation = source.incarnation
    for entry, octets in batches(source, source.first - 1, source.last):
        check()
        block = Block(entry.first, entry.last, entry.count, octets, entry.credit)
        frames = [PUBLISH + body[DELIVER_KEY - 1 :] for body in block.bodies]
        target.append(deliver(frames, target.last + 1), (entry.time + 0.5) / _MICRO)
    if source.incarnation != incarnation:
        raise JournalError(f"stream {source.name!a} was truncated while it was copied: copy it again")
