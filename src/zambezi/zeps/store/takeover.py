"""Taking a stream: ownership is a chunk that nobody else can put.

To take a stream, a broker

1. LISTs the log, and finds the next number. If it is the wrong one, 2 or 3 finds out;
2. puts a fence with that number, if it is absent. If it is taken, the broker begins again at 1. It never reads on from
   the old reading: the next number may be free only because its chunk was merged and removed since;
3. LISTs again. If the fence is void (`View.is_void`), the broker begins again at 1. Otherwise it owns the stream: no
   other broker can put anything below the fence any more, so what lies below is final, and is read now.

The old owner finds the fence at the number that it wants to put next. Fences are never removed, so it finds it however
late it comes. The epoch of an owner is the number of its fence: so epochs grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from zambezi.zeps.errors import StoreDamaged
from zambezi.zeps.store.chunk import Author, Kind, pack_fence
from zambezi.zeps.store.commands import DONE, Data, Procedure, get, joined, put
from zambezi.zeps.store.ending import End, read_end, read_known
from zambezi.zeps.store.names import StreamPlace
from zambezi.zeps.store.view import ChunkObject, View, glance, look_and_read


class _Reading(NamedTuple):
    """The end of a log; None if the fence above it is void."""

    end: End | None


class Prepared(NamedTuple):
    """The result of step 1, some time ago, and the ends of chunks that need not be read again: see `read_end`."""

    number: int  # the next one
    ends: Mapping[ChunkObject, bytes]
    end: End


def prepare(place: StreamPlace) -> Procedure[Prepared | None]:
    """Read the end of a log, so that a later take needs fewer requests; return None if it changes at this moment."""
    view = yield from glance(place)
    if not view.is_whole:
        return None
    try:
        ends = yield from read_known(place, view)
        end = yield from read_end(place, view, ends)
    except StoreDamaged:
        return None
    return Prepared(view.following, ends, end) if end is not None else None


def take_over(place: StreamPlace, owner: bytes, incarnation: bytes, prepared: Prepared | None = None) -> Procedure[End]:
    """Take a stream, and return the end of its log. `incarnation` is zeros, unless the stream gets a new one.

    The caller checks `is_deleted`: then there is nothing to own.
    """
    ends = prepared.ends if prepared is not None else {}
    while True:
        if prepared is not None:
            number, prepared = prepared.number, None
        else:
            number = yield from look_and_read(place, _following, is_hint=True)
        fence = pack_fence(Kind.FENCE, Author(owner, number, incarnation), number)
        if not (yield from put_own(place.chunk(number), fence)):
            continue
        end = yield from _read_below(place, number, {**ends, ChunkObject(number, len(fence)): fence})
        if end is not None:
            return end


def _following(view: View) -> Procedure[int | None]:
    view.check_whole()
    yield from ()
    return view.following


def put_own(key: str, data: Data) -> Procedure[bool]:
    """Put an object, and return whether the key has these bytes now.

    The store can say that the key exists because an attempt before this one succeeded: so the object is read.
    """
    if (yield from put(key, data)) is DONE:
        return True
    found = yield from get(key)
    return found == joined(data)


def _read_below(place: StreamPlace, fence: int, known: Mapping[ChunkObject, bytes]) -> Procedure[End | None]:
    """Return the end of the log below a fence; None if the fence is void."""
    found = yield from look_and_read(place, partial(_read_if_valid, place, fence, known))
    return found.end


def _read_if_valid(
    place: StreamPlace, fence: int, known: Mapping[ChunkObject, bytes], view: View
) -> Procedure[_Reading | None]:
    if view.is_void(fence):
        return _Reading(None)
    end = yield from read_end(place, view, known)
    return _Reading(end) if end is not None else None
