"""The check of a store: every byte of every object, and that the objects fit together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from zambezi.zeps.block import Block
from zambezi.zeps.errors import StoreDamaged, StoreError
from zambezi.zeps.store.catalog import StoredStream
from zambezi.zeps.store.chunk import Chunk, Kind, unpack_object
from zambezi.zeps.store.commands import get
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.view import View, look


@dataclass(slots=True)
class StoreCheck:
    """The result of a check of one stream."""

    messages: int = 0
    octets: int = 0
    objects: int = 0
    problems: list[str] = field(default_factory=list)


def check_stream(store: ObjectStore, stream: StoredStream) -> StoreCheck:
    """Read all objects of a stream, and return what is wrong with them. Blocks."""
    found = StoreCheck()
    view = store.run(look(stream.place))
    found.problems += [f"{key} is not an object that a broker writes" for key in view.strange]
    if not view.is_whole:
        found.problems.append(f"{stream.place.chunks}: a chunk before {view.following - 1} is missing")
    first = view.beginning.first
    following = 0  # the sequence that must follow
    for key in _keys(stream, view):
        octets = store.run(get(key))
        if octets is None:
            found.problems.append(f"{key} was removed while it was checked: check again")
            continue
        found.objects += 1
        found.octets += len(octets)
        try:
            chunk = unpack_object(octets, key)
            _check_batches(chunk, key)
        except StoreDamaged as problem:
            found.problems.append(str(problem))
            continue
        footer = chunk.footer
        if footer.kind not in (Kind.DATA, Kind.SEGMENT) or not footer.count:
            continue
        if following and footer.first > following:
            found.problems.append(
                f"{key} begins at {footer.first}: sequences {following} to {footer.first - 1} are missing"
            )
        found.messages += max(0, footer.last + 1 - max(footer.first, following, first))
        following = max(following, footer.last + 1)
    return found


def _keys(stream: StoredStream, view: View) -> Iterator[str]:
    for segment in view.readable:
        yield stream.place.segment(segment.name)
    for chunk in view.tail:
        yield stream.place.chunk(chunk.number)


def _check_batches(chunk: Chunk, key: str) -> None:
    """Check that each batch has as many messages as its entry says."""
    for entry in chunk.entries:
        octets = chunk.octets[entry.offset : entry.end]
        try:
            block = Block(entry.first, entry.last, entry.count, octets, entry.credit)
            is_right = len(block.keys) == entry.count
        except (ValueError, IndexError) as error:
            raise StoreDamaged(f"{key}: the batch of {entry.first} to {entry.last} has no valid messages") from error
        if not is_right:
            raise StoreDamaged(f"{key}: the batch of {entry.first} to {entry.last} has {len(block.keys)} messages")


def require_streams(streams: list[StoredStream], names: list[str], url: str) -> list[StoredStream]:
    """Return the streams with these names, or all; raise `StoreError` for a name that does not exist."""
    by_name = {stream.name: stream for stream in streams}
    for name in names:
        if name not in by_name:
            known = ", ".join(map(ascii, list(by_name)[:10])) or "none"
            raise StoreError(f"{url} has no stream {name!a}; it has {known}")
    return [by_name[name] for name in names] if names else streams
