"""The streams of a prefix: their names, incarnations and settings, and how a stream is made and found.

The name of a stream leads to a directory with a directory for each generation in it, and the highest generation counts.
`stream.json` is put if absent: of two brokers that make a stream at the same time, one finds that of the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from zambezi.zeps.errors import StoreDamaged, StoreError
from zambezi.zeps.journal.names import directory_of
from zambezi.zeps.store.commands import DONE, Get, Names, Procedure, ask_all, get, names, put
from zambezi.zeps.store.names import FORMAT_KEY, STREAMS, StreamPlace
from zambezi.zeps.store.reader import LogReader

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class StoredStream:
    """A stream in the store."""

    name: str
    incarnation: UUID  # the first one: the log can tell a newer one
    place: StreamPlace
    settings: Mapping[str, object] = field(default_factory=dict)


def check_format(*, create: bool) -> Procedure[None]:
    """Check that the prefix has a format that this release knows; raise `StoreError` if not.

    With `create`, a new prefix gets the format.
    """
    octets = yield from get(FORMAT_KEY)
    if octets is None and create:
        yield from put(FORMAT_KEY, _pack({"format": FORMAT}))
        octets = yield from get(FORMAT_KEY)
    if octets is None:
        raise StoreError(f"there is no {FORMAT_KEY}: this is not the prefix of a store, or nothing was stored yet")
    version = _unpack(octets, FORMAT_KEY).get("format")
    if version != FORMAT:
        raise StoreError(f"{FORMAT_KEY}: unknown format {version!r:.40}; this release reads {FORMAT}: use a newer one")


def find_stream(name: str) -> Procedure[StoredStream | None]:
    """Return a stream by its name; None if it does not exist, or is deleted."""
    found = yield from latest_stream(name)
    if found is None:
        return None
    reader = LogReader(found.place)
    yield from reader.refresh()
    return None if reader.is_deleted else found


def latest_stream(name: str) -> Procedure[StoredStream | None]:
    """Return the newest stream of a name, also if it is deleted; None if there never was one."""
    found = yield from _latest(directory_of(name))
    return found if found is not None and found.name == name else None


def list_streams(
    known: Mapping[str, StoredStream] | None = None,
    *,
    skip_damaged: bool = False,
    skip: AbstractSet[str] = frozenset(),
) -> Procedure[list[StoredStream]]:
    """Return all streams in the order of their directories, also those that are deleted.

    `known` are streams that were listed before, by their directories: they are not read again. Other streams in the
    directories `skip` are left out.
    """
    found = dict(known or {})
    directories = yield from names(STREAMS)
    unknown = [directory for directory in directories if directory not in found and directory not in skip]
    generations = yield from ask_all([Names(f"{STREAMS}/{directory}") for directory in unknown])
    places = [
        StreamPlace(directory, numbers[0])
        for directory, made in zip(unknown, generations, strict=True)
        if (numbers := _numbers(made))
    ]
    contents = yield from ask_all([Get(place.identity) for place in places])
    for place, octets in zip(places, contents, strict=True):
        if isinstance(octets, bytes):
            try:
                found[place.directory] = _parse(octets, place)
            except StoreDamaged:
                if not skip_damaged:
                    raise
    return [found[directory] for directory in directories if directory in found]


def make_stream(name: str, incarnation: UUID, settings: Mapping[str, object]) -> Procedure[StoredStream]:
    """Make a stream, unless it exists, and return it."""
    content = _pack({"format": FORMAT, "name": name, "incarnation": str(incarnation), "settings": dict(settings)})
    while True:
        latest = yield from _latest(directory_of(name))
        if latest is not None:
            reader = LogReader(latest.place)
            yield from reader.refresh()
            if not reader.is_deleted:
                return latest
        place = StreamPlace.of(name, latest.place.generation + 1 if latest is not None else 1)
        if (yield from put(place.identity, content)) is DONE:
            return StoredStream(name, incarnation, place, dict(settings))


def _latest(directory: str) -> Procedure[StoredStream | None]:
    """Return the highest generation in a directory; None if it has none."""
    generations = yield from names(f"{STREAMS}/{directory}")
    for number in _numbers(generations):
        place = StreamPlace(directory, number)
        octets = yield from get(place.identity)
        if octets is not None:
            return _parse(octets, place)
    return None


def _numbers(generations: Sequence[str]) -> list[int]:
    """Return the numbers of generations, the highest first."""
    found = [int(name) for name in generations if len(name) == 10 and name.isascii() and name.isdigit()]
    return sorted(found, reverse=True)


def _parse(octets: bytes, place: StreamPlace) -> StoredStream:
    key = place.identity
    content = _unpack(octets, key)
    try:
        if content["format"] != FORMAT:
            raise StoreDamaged(f"{key}: unknown format {content['format']!r:.40}; use a newer release")
        name, settings = content["name"], content.get("settings", {})
        if not isinstance(name, str) or directory_of(name) != place.directory or not isinstance(settings, dict):
            raise ValueError("the name or the settings do not fit")
        return StoredStream(name, UUID(content["incarnation"]), place, settings)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise StoreDamaged(f"{key} is damaged ({problem})") from None


def _pack(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"


def _unpack(octets: bytes, key: str) -> dict[str, Any]:
    try:
        content = json.loads(octets)
    except (ValueError, RecursionError):
        raise StoreDamaged(f"{key} is damaged: it is not JSON") from None
    if not isinstance(content, dict):
        raise StoreDamaged(f"{key} is damaged: it is not a JSON object")
    return content
