"""zambezi.mcollective.keeper: what goes into an archive, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import pytest

from zambezi.mcollective.archive import Kept, MemoryArchive, Since
from zambezi.mcollective.bounds import Counters
from zambezi.mcollective.errors import ArchiveError, Malformed
from zambezi.mcollective.keeper import Keeper
from zambezi.mcollective.messages import Frames
from zambezi.mcollective.session import Replay, Session

E = b""


def put(*bodies: bytes, topic: bytes = b"kept") -> list[Frames]:
    return [(E, b"MESSAGE", b"TOPIC", topic, E, body) for body in bodies]


def numbered(sequence: int, body: bytes) -> Frames:
    return (E, b"MESSAGE", b"TOPIC", b"kept", b"X-SEQUENCE", b"%d" % sequence, E, body)


def keeper() -> tuple[Keeper, Counters]:
    counters = Counters()
    return Keeper(MemoryArchive(lambda topic: topic == b"kept"), counters), counters


def replaying(*replays: Replay) -> Session:
    session = Session(None, b"c", "", "", 0.0)
    session.replays = dict.fromkeys(replays)
    return session


def test_without_an_archive_no_topic_is_kept() -> None:
    keeper = Keeper(None, Counters())
    assert not keeper.keeps(b"kept")
    with pytest.raises(Malformed, match="'kept' is not kept"):
        keeper.replay([b"kept"], b"0")


def test_messages_get_their_sequences_and_come_back_with_them() -> None:
    keeps, counters = keeper()
    assert keeps.keep(b"kept", b"ann", put(b"1", b"2"), None) == [numbered(1, b"1"), numbered(2, b"2")]
    replay = keeps.replay([b"kept"], b"1")
    found, ended = keeps.read(replaying(replay), 1000)
    assert found == [numbered(2, b"2")]
    assert ended == [(replay, "")]
    assert (counters.kept, counters.replayed) == (2, 1)


def test_a_step_reads_about_as_many_bytes_as_there_is_room_for() -> None:
    keeps, _ = keeper()
    keeps.keep(b"kept", b"ann", put(*[bytes(100)] * 10), None)
    session = replaying(keeps.replay([b"kept"], b"0"))
    found, ended = keeps.read(session, 250)
    assert (len(found), ended) == (2, [])
    assert keeps.read(session, 0) == ([], [])
    found, ended = keeps.read(session, 10_000)
    assert (len(found), len(ended)) == (8, 1)


def test_a_client_without_the_empty_frame_gets_none() -> None:
    keeps, _ = keeper()
    keeps.keep(b"kept", b"ann", put(b"1"), None)
    session = replaying(keeps.replay([b"kept"], b"0"))
    session.delimited = False
    assert keeps.read(session, 1000)[0] == [numbered(1, b"1")[1:]]


class Broken:
    """Takes nothing, and plays what it was given, then fails."""

    def __init__(self, *kept: Kept | None) -> None:
        self.kept = kept

    def keeps(self, topic: bytes) -> bool:
        return True

    def append(
        self, topic: bytes, sender: bytes, messages: Sequence[Frames], stored: Callable[[str], object] | None
    ) -> int:
        raise ArchiveError("the disk is full")

    @property
    def first(self) -> int:
        return 3

    @property
    def last(self) -> int:
        return 7

    def replay(self, topics: Collection[bytes], since: Since) -> Iterator[Kept | None]:
        yield from self.kept
        raise ArchiveError("the disk is gone")


def test_messages_that_the_archive_refuses_are_counted_as_lost() -> None:
    counters = Counters()
    with pytest.raises(ArchiveError, match="the disk is full"):
        Keeper(Broken(), counters).keep(b"kept", b"ann", put(b"1", b"2"), None)
    assert (counters.kept, counters.lost) == (0, 2)


def test_a_replay_that_fails_ends_with_its_problem() -> None:
    keeps = Keeper(Broken(), Counters())
    replay = keeps.replay([b"kept"], b"0")
    assert keeps.read(replaying(replay), 1000) == ([], [(replay, "the disk is gone")])


def test_the_nearest_sequence_that_can_be_replayed() -> None:
    keeps = Keeper(Broken(), Counters())
    assert [keeps.nearest(since) for since in (0, 1, 2, 5, 7, 8)] == [2, 2, 2, 5, 7, 7]
    assert (keeps.last, Keeper(None, Counters()).last) == (7, 0)


def test_a_step_ends_after_long_stretches_without_a_message() -> None:
    keeps = Keeper(Broken(*[None] * 25), Counters())
    session = replaying(keeps.replay([b"kept"], b"0"))
    assert [len(keeps.read(session, 1000)[1]) for _ in range(3)] == [0, 0, 1]


@pytest.mark.parametrize(
    "frames",
    [
        (),
        (b"nonsense",),
        (b"PUT", b"TOPIC", b"kept", E, b"x"),
        (b"MESSAGE", b"TOPIC", b"other", E, b"x"),
        (b"MESSAGE", b"TOPIC", b"kept"),
    ],
)
def test_foreign_messages_in_the_archive_are_counted_and_not_sent(frames: Frames) -> None:
    counters = Counters()
    keeps = Keeper(Broken(Kept(1, b"kept", b"ann", frames)), counters)
    found, _ = keeps.read(replaying(keeps.replay([b"kept"], b"0")), 1000)
    assert (found, counters.malformed) == ([], 1)
