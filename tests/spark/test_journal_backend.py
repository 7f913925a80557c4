"""Streams as files, while they are written, trimmed, damaged and replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.journal import BEGINNING, numbered, write
from zambezi.spark.backend import Slice
from zambezi.spark.columns import layout
from zambezi.spark.errors import DamagedLog, Replaced, SparkError, Trimmed, Vanished
from zambezi.spark.journal_backend import JournalBackend
from zambezi.zeps.block import deliver
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.messages import Publish

SMALL = Policy(segment=400)


def whole_stream(origin: JournalBackend, name: str = "s") -> Slice:
    known = origin.streams([name])[name]
    return Slice(name, known.incarnation, known.first - 1, known.last)


def sequences(origin: JournalBackend, piece: Slice) -> list[int]:
    found: list[int] = []
    for window in origin.windows(piece, "", timed=True):
        found += layout(window.octets).sequences().tolist()
    return found


def test_streams_are_told(tmp_path: Path) -> None:
    write(tmp_path, "b", numbered(25))
    write(tmp_path, "a/ü", numbered(1))
    origin = JournalBackend(str(tmp_path))
    streams = origin.streams()
    assert list(streams) == ["a/ü", "b"]
    assert (streams["b"].first, streams["b"].last, streams["b"].last_time) == (1, 25, (BEGINNING + 2) * 10**6)
    assert list(origin.streams(["b", "no"])) == ["b"]


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="option 'path'"):
        JournalBackend(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("policy", [Policy(), SMALL])
@pytest.mark.parametrize(("after", "last"), [(0, 95), (0, 1), (94, 95), (9, 10), (10, 20), (13, 67)])
def test_a_slice_is_read(tmp_path: Path, policy: Policy, after: int, last: int) -> None:
    write(tmp_path, "s", numbered(95), policy=policy)
    origin = JournalBackend(str(tmp_path), verify=True)
    piece = whole_stream(origin)
    found = sequences(origin, Slice("s", piece.incarnation, after, last))
    assert found == list(range(found[0], found[-1] + 1))
    assert found[0] <= after + 1
    assert found[-1] >= last
    assert found[0] > after - 10  # no more than the batches at both ends
    assert found[-1] < last + 10


def test_times_are_those_of_the_batches(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(25))
    origin = JournalBackend(str(tmp_path))
    [window] = origin.windows(whole_stream(origin), "", timed=True)
    assert window.firsts.tolist() == [1, 11, 21]
    assert window.times.tolist() == [(BEGINNING + second) * 10**6 for second in range(3)]
    assert [origin.before("s", (BEGINNING + second) * 10**6 + 1) for second in range(3)] == [10, 20, 25]
    assert origin.before("s", 0) == 0
    assert origin.before("none", 0) == 0


@pytest.mark.parametrize("policy", [Policy(), SMALL])
def test_the_index_tells_how_much_a_slice_is(tmp_path: Path, policy: Policy) -> None:
    write(tmp_path, "s", [*numbered(50, size=300), *numbered(50, 51, size=100)], policy=policy)
    origin = JournalBackend(str(tmp_path))
    piece = whole_stream(origin)
    marks = origin.marks(piece)
    assert marks.size == origin.streams(["s"])["s"].octets
    assert marks.before(51) / marks.size == pytest.approx(0.72, abs=0.03)
    assert origin.marks(Slice("s", piece.incarnation, 50, 60)).size == pytest.approx(10 * 118, rel=0.05)


def test_what_is_appended_is_seen(tmp_path: Path) -> None:
    origin = JournalBackend(str(tmp_path))
    write(tmp_path, "s", numbered(5))
    first = whole_stream(origin)
    write(tmp_path, "s", numbered(500, 6), now=BEGINNING + 10, policy=SMALL)
    assert sequences(origin, Slice("s", first.incarnation, 5, 505)) == list(range(6, 506))


def trim(path: Path, oldest: int) -> int:
    """Let retention work on a stream, until its oldest sequence is about `oldest`."""
    with Store(path, policy=SMALL) as store:
        journal = store.open("s")
        journal.policy = Policy(segment=400, keep_bytes=(journal.last - oldest) * 20)
        journal.retain(BEGINNING)
        return journal.first


def test_what_retention_removed_is_told(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(95), policy=SMALL)
    origin = JournalBackend(str(tmp_path))
    piece = whole_stream(origin)
    oldest = trim(tmp_path, 40)
    assert 1 < oldest < 95
    with pytest.raises(Trimmed, match=f"sequences 1 to {oldest - 1} are not kept any more") as caught:
        sequences(origin, piece)
    assert caught.value.oldest == oldest
    assert sequences(origin, Slice("s", piece.incarnation, oldest - 1, 95)) == list(range(oldest, 96))


def test_what_is_open_is_read_to_its_end(tmp_path: Path) -> None:
    """A segment that retention removes while it is read."""
    write(tmp_path, "s", numbered(95))
    origin = JournalBackend(str(tmp_path))
    windows = origin.windows(whole_stream(origin), "", timed=True)
    first = next(windows)
    with Store(tmp_path) as store:
        store.delete("s")
    assert len(layout(first.octets)) == 95
    assert list(windows) == []


def test_a_stream_that_was_replaced_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(9))
    origin = JournalBackend(str(tmp_path))
    piece = whole_stream(origin)
    with Store(tmp_path) as store:
        store.delete("s")
    with pytest.raises(Vanished):
        sequences(origin, piece)
    write(tmp_path, "s", numbered(9, 100))
    with pytest.raises(Replaced, match=piece.incarnation):
        sequences(origin, piece)
    with pytest.raises(Replaced):
        origin.marks(piece)


def test_a_stream_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    """What was open is read to its end; what would have to be opened is of another stream."""
    write(tmp_path, "s", numbered(95), policy=SMALL)
    origin = JournalBackend(str(tmp_path))
    windows = origin.windows(whole_stream(origin), "", timed=True)
    first = next(windows)
    with Store(tmp_path) as store:
        store.delete("s")
    write(tmp_path, "s", numbered(95), policy=SMALL)
    assert layout(first.octets).sequences()[0] == 1
    with pytest.raises(Replaced, match="while"):
        list(windows)


def test_damage_is_found(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(20, size=30))
    [log] = tmp_path.rglob("*.log")
    octets = bytearray(log.read_bytes())
    octets[-1] ^= 1  # in a body: all lengths are as they were
    log.write_bytes(octets)
    assert len(sequences(JournalBackend(str(tmp_path)), whole_stream(JournalBackend(str(tmp_path))))) == 20
    checked = JournalBackend(str(tmp_path), verify=True)
    with pytest.raises(DamagedLog, match=r"sequence 11, does not have its CRC: `zambezi journal verify`"):
        sequences(checked, whole_stream(checked))


def test_an_index_that_does_not_fit_is_found(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(30))
    [index] = tmp_path.rglob("*.idx")
    octets = bytearray(index.read_bytes())
    octets[48 + 7] ^= 4  # the first sequence of the second entry
    index.write_bytes(octets)
    origin = JournalBackend(str(tmp_path))
    with pytest.raises(DamagedLog, match="idx is damaged"):
        sequences(origin, whole_stream(origin))


def test_a_live_journal_is_read_to_its_last_batch(tmp_path: Path) -> None:
    """The broker writes to the log first, and then to the index."""
    write(tmp_path, "s", numbered(10))
    [log] = tmp_path.rglob("*.log")
    with log.open("ab") as file:
        file.write(deliver([Publish("k", b"half").encode()[0]], 11).octets)
    origin = JournalBackend(str(tmp_path))
    assert sequences(origin, whole_stream(origin)) == list(range(1, 11))
