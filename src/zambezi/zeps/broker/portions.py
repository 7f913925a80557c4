"""The messages for a member of a group as they go out: after a DELIVERIES where one is needed, and a TIMES if asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from zambezi.zeps.block import Block
from zambezi.zeps.broker.group_member import Portion
from zambezi.zeps.broker.prefixed_block import PrefixedBlock
from zambezi.zeps.errors import Absent
from zambezi.zeps.journal import Journal
from zambezi.zeps.journal.entry import IndexEntry
from zambezi.zeps.layout import sequence_of
from zambezi.zeps.messages import Deliveries
from zambezi.zeps.sequences import pack_deliveries
from zambezi.zeps.times import Pair, encode_times

_ENTRIES: Final = 64  # of the index, read at once


def framed(portion: Portion, timed: Journal | None = None) -> PrefixedBlock | Block:
    """Return the messages for a member, as they go out; with their times from the journal, if it is given."""
    prefixes = []
    if timed is not None:
        prefixes.append(encode_times(_pairs(timed, [sequence_of(body) for body in portion.block.bodies])))
    if portion.deliveries or not portion.in_order:
        prefixes.append(Deliveries(pack_deliveries(portion.deliveries)).encode()[0])
    return PrefixedBlock(prefixes, portion.block) if prefixes else portion.block


def _pairs(journal: Journal, sequences: Sequence[int]) -> list[Pair]:
    """Return the times of messages that are in order, but not one after another."""
    pairs: list[Pair] = []
    entries: Iterator[IndexEntry] = iter(())
    entry: IndexEntry | None = None
    for sequence in sequences:
        while entry is not None and entry.last < sequence:
            entry = next(entries, None)
        if entry is None:
            entries = iter(_entries(journal, sequence))
            entry = next(entries, None)
        is_here = entry is not None and entry.first <= sequence
        time = entry.time if entry is not None and is_here else journal.remembered_time(sequence)
        if not pairs or pairs[-1][1] != time:
            pairs.append((sequence, time))
    return pairs


def _entries(journal: Journal, sequence: int) -> list[IndexEntry]:
    """Return entries from a sequence on; none if the disk does not have the message any more."""
    try:
        return journal.entries(sequence - 1, _ENTRIES)
    except Absent:
        return []
