"""The beginning of a stream: the messages before it are removed, to the message.

An operator trims a stream, or retention removes its oldest segments. An empty object names the new beginning (see
`names`), so that a LIST tells it to every owner and every reader. Beginnings only grow: it does not matter how often,
how late and by which broker one is put.

A broker that puts a beginning may have lost the stream already, and then the new owner does not know it. So the order
of an operator is confirmed when the broker has stored a chunk after the beginning. Then it was the owner when the
beginning was put, and every owner after it finds the beginning with the LIST that follows its fence.

The messages themselves go later. A reader without a broker that has begun to read them has a time, the grace, in which
it can do so. Objects with removed messages only are removed then; an object that also has others stays as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from zambezi.zeps.store.commands import Procedure, put
from zambezi.zeps.store.names import Beginning, StreamPlace
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.view import SegmentObject, View


def begin_after(view: View, expired: Sequence[SegmentObject]) -> Beginning:
    """Return the beginning of a stream without its first segments."""
    following = view.readable[view.readable.index(expired[-1]) + 1]
    last = max(segment.name.last for segment in expired)
    return Beginning(last + 1, following.name.first_time)


def trim(place: StreamPlace, first: int) -> Procedure[Beginning]:
    """Let a stream begin with a sequence, and return its beginning: perhaps it begins later already."""
    reader = LogReader(place)
    yield from reader.refresh()
    if first <= reader.first:
        return reader.beginning
    opened = yield from reader.open_after(first - 1)
    if opened is None:
        made = Beginning(first, reader.last_time)  # all messages are removed
    else:
        made = Beginning(first, opened.entries[bisect_right(opened.firsts, first) - 1].time)
    yield from put(place.listed(made), b"")
    return made
