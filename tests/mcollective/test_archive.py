"""zambezi.mcollective.archive: X-SINCE, and the archive in memory."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from zambezi.mcollective.archive import Kept, MemoryArchive, read_since
from zambezi.mcollective.errors import ArchiveError, Malformed

START = datetime(2026, 11, 15, 8, tzinfo=UTC)


def filled(count: int, most: int = 100) -> MemoryArchive:
    times = (START + timedelta(seconds=second) for second in itertools.count())
    archive = MemoryArchive(clock=lambda: next(times), most=most)
    for number in range(1, count + 1):
        assert archive.append(b"even" if number % 2 == 0 else b"odd", b"ann", [(b"%d" % number,)], None) == number
    return archive


def played(archive: MemoryArchive, topics: set[bytes], since: int | datetime) -> list[int]:
    return [kept.sequence for kept in archive.replay(topics, since) if kept is not None]


def test_stored_messages_are_replayed_in_order() -> None:
    archive = filled(6)
    assert played(archive, {b"odd", b"even"}, 0) == [1, 2, 3, 4, 5, 6]
    assert played(archive, {b"odd"}, 1) == [3, 5]
    assert played(archive, {b"even"}, 6) == []
    assert next(iter(archive.replay({b"odd"}, 0))) == Kept(1, b"odd", b"ann", (b"1",))


def test_many_at_once_follow_each_other() -> None:
    archive = filled(2)
    assert archive.append(b"odd", b"ann", [(b"a",), (b"b",), (b"c",)], None) == 3
    assert archive.append(b"odd", b"ann", [(b"d",)], None) == 6
    assert played(archive, {b"odd"}, 3) == [4, 5, 6]


def test_by_time() -> None:
    assert played(filled(6), {b"odd", b"even"}, START + timedelta(seconds=3)) == [4, 5, 6]
    with pytest.raises(ArchiveError, match="times are not kept"):
        MemoryArchive().replay({b"a"}, START)


def test_the_oldest_are_let_go() -> None:
    assert played(filled(6, most=2), {b"odd", b"even"}, 0) == [5, 6]


def test_a_sequence_that_is_not_there_yet_is_refused() -> None:
    with pytest.raises(ArchiveError, match="the last one is 6"):
        filled(6).replay({b"odd"}, 7)


def test_what_is_put_while_it_is_played_is_played_too() -> None:
    archive = filled(2)
    playing = archive.replay({b"late"}, 2)
    archive.append(b"late", b"ann", [(b"x",)], None)
    assert [kept.sequence for kept in playing if kept] == [3]


def test_stored_is_called() -> None:
    told: list[str] = []
    MemoryArchive().append(b"a", b"ann", [(b"x",)], told.append)
    assert told == [""]


@pytest.mark.parametrize(
    ("value", "since"),
    [(b"0", 0), (b"42", 42), (b"2026-11-15T08:00:00Z", START), (b"2026-11-15T09:00:00+01:00", START)],
)
def test_since(value: bytes, since: int | datetime) -> None:
    assert read_since(value) == since


@pytest.mark.parametrize("value", [b"", b"-1", b"yesterday", b"2026-11-15T08:00:00", b"\xff", b"9" * 30, b"1.5"])
def test_since_that_says_nothing(value: bytes) -> None:
    with pytest.raises(Malformed, match="X-SINCE"):
        read_since(value)
