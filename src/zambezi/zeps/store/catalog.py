"""The streams of a prefix: their names, incarnations and settings, and how a stream is made and found.

The name of a stream leads to a directory with a directory for each generation in it, and the highest generation counts.
`stream.json` is put if absent: of two brokers that make a stream at the same time, one finds that of the other.

A generation that continues a stream which was truncated (see `truncation`) names a chunk of the old one. It counts when
that chunk exists, and is a deletion with the incarnation of the new generation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from zambezi.zeps.errors import StoreDamaged, StoreError
from zambezi.zeps.journal.entry import HIGHEST
from zambezi.zeps.journal.names import directory_of
from zambezi.zeps.store.chunk import Footer, Kind, unpack_footer
from zambezi.zeps.store.commands import DONE, Get, Names, Procedure, ask_all, get, names, put
from zambezi.zeps.store.names import FORMAT_KEY, STREAMS, StreamPlace
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.takeover import put_own

FORMAT: Final = 1


class Origin(NamedTuple):
    """The chunk that makes a generation count: it ends the generation before."""

    generation: int
    chunk: int


@dataclass(frozen=True, slots=True)
class StoredStream:
    """A stream in the store."""

    name: str
    incarnation: UUID  # the first one: the log can tell a newer one
    place: StreamPlace
    settings: Mapping[str, object] = field(default_factory=dict)
    origin: Origin | None = None  # of a stream that was truncated
    has_others: bool = field(default=False, compare=False)  # whether the store had other generations of it


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
    opened = yield from open_stream(name)
    return None if opened is None else opened[0]


def open_stream(name: str) -> Procedure[tuple[StoredStream, LogReader] | None]:
    """Return a stream by its name, with a reader that has seen its log; None if it does not exist, or is deleted."""
    before: StreamPlace | None = None
    while True:
        found = yield from latest_stream(name)
        if found is None or found.place == before:
            return None
        reader = LogReader(found.place)
        yield from reader.refresh()
        if not reader.is_deleted:
            return found, reader
        before = found.place  # it was deleted, or truncated meanwhile: then there is a newer one


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
        try:
            stream = _parse(octets, place, place.generation > 1) if isinstance(octets, bytes) else None
            if stream is None or not (yield from _counts(stream)):
                stream = yield from _latest(place.directory)
            if stream is not None:
                found[place.directory] = stream
        except StoreDamaged:
            if not skip_damaged:
                raise
    return [found[directory] for directory in directories if directory in found]


def make_stream(name: str, incarnation: UUID, settings: Mapping[str, object]) -> Procedure[StoredStream]:
    """Make a stream, unless it exists, and return it. Of several brokers that do so, all get the same stream."""
    content = _pack({"format": FORMAT, "name": name, "incarnation": str(incarnation), "settings": dict(settings)})
    directory = directory_of(name)
    while True:
        # The place is chosen before the search. If another broker makes the stream after the search, it has that place,
        # and is found in the next turn; if the place were chosen after it, there would be two streams.
        place = yield from _next_place(directory)
        found = yield from find_stream(name)
        if found is not None:
            return found
        if (yield from put(place.identity, content)) is DONE:
            return StoredStream(name, incarnation, place, dict(settings))


def claim_generation(stream: StoredStream, incarnation: UUID, chunk: int) -> Procedure[StoredStream]:
    """Make a generation that continues a stream, and counts when the next chunk of the stream says so.

    No other attempt has this incarnation: so the generation is that of the caller alone.
    """
    origin = Origin(stream.place.generation, chunk)
    content = _pack(
        {
            "format": FORMAT,
            "name": stream.name,
            "incarnation": str(incarnation),
            "settings": dict(stream.settings),
            "truncated": origin._asdict(),
        }
    )
    while True:
        place = yield from _next_place(stream.place.directory)
        if (yield from put_own(place.identity, content)):
            return StoredStream(stream.name, incarnation, place, stream.settings, origin, has_others=True)


def _next_place(directory: str) -> Procedure[StreamPlace]:
    """Return the place of a generation that no object has."""
    generations = yield from names(f"{STREAMS}/{directory}")
    return StreamPlace(directory, max(_numbers(generations), default=0) + 1)


def other_generations(place: StreamPlace) -> Procedure[list[StoredStream]]:
    """Return all other generations of a stream, whether they count or not."""
    generations = yield from names(f"{STREAMS}/{place.directory}")
    places = [StreamPlace(place.directory, number) for number in _numbers(generations) if number != place.generation]
    contents = yield from ask_all([Get(one.identity) for one in places])
    return [_parse(octets, one) for one, octets in zip(places, contents, strict=True) if isinstance(octets, bytes)]


def is_void(stream: StoredStream) -> Procedure[bool]:
    """Return whether a generation will never count: another chunk is where its own should be."""
    if stream.origin is None:
        return False
    footer = yield from _read_origin(stream, stream.origin)
    return footer is not None and not _makes_count(footer, stream)


def _counts(stream: StoredStream) -> Procedure[bool]:
    if stream.origin is None:
        return True
    footer = yield from _read_origin(stream, stream.origin)
    return footer is not None and _makes_count(footer, stream)


def _read_origin(stream: StoredStream, origin: Origin) -> Procedure[Footer | None]:
    key = StreamPlace(stream.place.directory, origin.generation).chunk(origin.chunk)
    octets = yield from get(key)
    return None if octets is None else unpack_footer(octets, key)


def _makes_count(footer: Footer, stream: StoredStream) -> bool:
    return footer.kind is Kind.DELETION and footer.incarnation == stream.incarnation.bytes


def _latest(directory: str) -> Procedure[StoredStream | None]:
    """Return the highest generation in a directory that counts; None if it has none."""
    generations = yield from names(f"{STREAMS}/{directory}")
    numbers = _numbers(generations)
    for number in numbers:
        place = StreamPlace(directory, number)
        octets = yield from get(place.identity)
        if octets is not None:
            found = _parse(octets, place, len(numbers) > 1)
            if (yield from _counts(found)):
                return found
    return None


def _numbers(generations: Sequence[str]) -> list[int]:
    """Return the numbers of generations, the highest first."""
    found = [int(name) for name in generations if len(name) == 10 and name.isascii() and name.isdigit()]
    return sorted(found, reverse=True)


def _parse(octets: bytes, place: StreamPlace, has_others: bool = False) -> StoredStream:
    key = place.identity
    content = _unpack(octets, key)
    try:
        if content["format"] != FORMAT:
            raise StoreDamaged(f"{key}: unknown format {content['format']!r:.40}; use a newer release")
        name, settings = content["name"], content.get("settings", {})
        if not isinstance(name, str) or directory_of(name) != place.directory or not isinstance(settings, dict):
            raise ValueError("the name or the settings do not fit")
        origin = _parse_origin(content["truncated"]) if "truncated" in content else None
        return StoredStream(name, UUID(content["incarnation"]), place, settings, origin, has_others)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise StoreDamaged(f"{key} is damaged ({problem})") from None


def _parse_origin(content: Mapping[str, Any]) -> Origin:
    numbers = [content[name] for name in Origin._fields]
    if not all(isinstance(number, int) and 1 <= number <= HIGHEST for number in numbers):
        raise ValueError("the generation or the chunk before does not fit")
    return Origin(*numbers)


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
