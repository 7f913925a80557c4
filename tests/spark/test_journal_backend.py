"""zambezi.spark.journal_backend: journals read as files while they are written, trimmed, damaged and replaced."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.spark.backends import read_messages, read_sequences
from tests.spark.journal import BEGINNING, numbered, write
from zambezi.spark import journal_backend
from zambezi.spark.backend import Request, SequenceRange
from zambezi.spark.columns import BareMessages, EncodedMessages, find_messages
from zambezi.spark.errors import DamagedLog, Replaced, SparkError, Trimmed, Vanished
from zambezi.spark.journal_backend import JournalBackend
from zambezi.zeps.block import deliver
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.entry import SIZE
from zambezi.zeps.messages import Publish

SMALL = Policy(segment=400)


def whole_stream(backend: JournalBackend, name: str = "s") -> SequenceRange:
    state = backend.streams([name])[name]
    return SequenceRange(name, state.incarnation, state.first - 1, state.last)


def test_streams_are_listed(tmp_path: Path) -> None:
    write(tmp_path, "b", numbered(25))
    write(tmp_path, "a/ü", numbered(1))
    backend = JournalBackend(str(tmp_path))
    streams = backend.streams()
    assert list(streams) == ["a/ü", "b"]
    assert (streams["b"].first, streams["b"].last, streams["b"].last_time) == (1, 25, (BEGINNING + 2) * 10**6)
    assert list(backend.streams(["b", "no"])) == ["b"]


def test_a_journal_is_scanned_once_for_each_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "s", numbered(25))
    scans: list[str] = []
    scan = Journal._scan

    def counted(journal: Journal) -> None:
        scans.append(journal.name)
        scan(journal)

    monkeypatch.setattr(Journal, "_scan", counted)
    backend = JournalBackend(str(tmp_path))
    assert backend.streams(["s"])["s"].last == 25
    assert scans == ["s"]
    write(tmp_path, "s", numbered(5))
    assert backend.streams(["s"])["s"].last == 30
    assert scans.count("s") - 1 == 1


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="option 'path'"):
        JournalBackend(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("policy", [Policy(), SMALL])
@pytest.mark.parametrize(("after", "last"), [(0, 95), (0, 1), (94, 95), (9, 10), (10, 20), (13, 67)])
def test_a_range_is_read(tmp_path: Path, policy: Policy, after: int, last: int) -> None:
    write(tmp_path, "s", numbered(95), policy=policy)
    backend = JournalBackend(str(tmp_path), verify=True)
    wanted = whole_stream(backend)
    found = read_sequences(backend, SequenceRange("s", wanted.incarnation, after, last))
    assert found == list(range(found[0], found[-1] + 1))
    assert found[0] <= after + 1
    assert found[-1] >= last
    assert found[0] > after - 10  # only whole batches at both ends
    assert found[-1] < last + 10


def test_times_are_those_of_the_batches(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(25))
    backend = JournalBackend(str(tmp_path))
    [messages] = read_messages(backend, whole_stream(backend))
    assert messages.batches.firsts.tolist() == [1, 11, 21]
    assert messages.batches.times.tolist() == [(BEGINNING + second) * 10**6 for second in range(3)]
    times = [(BEGINNING + second) * 10**6 + 1 for second in range(3)]
    assert [backend.last_before({"s": time})["s"] for time in times] == [10, 20, 25]
    assert backend.last_before({"s": 0, "none": 0}) == {"s": 0, "none": 0}


@pytest.mark.parametrize("policy", [Policy(), SMALL])
def test_the_index_gives_the_size_of_a_range(tmp_path: Path, policy: Policy) -> None:
    write(tmp_path, "s", [*numbered(50, size=300), *numbered(50, 51, size=100)], policy=policy)
    backend = JournalBackend(str(tmp_path))
    wanted = whole_stream(backend)
    [sizes] = backend.size_indexes([wanted], 100)
    assert sizes is not None
    assert sizes.size == backend.streams(["s"])["s"].size
    assert sizes.size_before(51) / sizes.size == pytest.approx(0.72, abs=0.03)
    [sizes] = backend.size_indexes([SequenceRange("s", wanted.incarnation, 50, 60)], 100)
    assert sizes is not None
    assert sizes.size == pytest.approx(10 * 118, rel=0.05)


def test_appended_messages_are_seen(tmp_path: Path) -> None:
    backend = JournalBackend(str(tmp_path))
    write(tmp_path, "s", numbered(5))
    first = whole_stream(backend)
    write(tmp_path, "s", numbered(500, 6), now=BEGINNING + 10, policy=SMALL)
    assert read_sequences(backend, SequenceRange("s", first.incarnation, 5, 505)) == list(range(6, 506))


def trim(path: Path, oldest: int) -> int:
    """Apply retention to a stream, so that its oldest sequence is about `oldest`. Return the oldest."""
    with Store(path, policy=SMALL) as store:
        journal = store.open("s")
        journal.policy = Policy(segment=400, keep_bytes=(journal.last - oldest) * 20)
        journal.retain(BEGINNING)
        return journal.first


def test_trimmed_messages_raise(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(95), policy=SMALL)
    backend = JournalBackend(str(tmp_path))
    wanted = whole_stream(backend)
    oldest = trim(tmp_path, 40)
    assert 1 < oldest < 95
    with pytest.raises(Trimmed, match=f"sequences 1 to {oldest - 1} are not kept any more") as caught:
        read_sequences(backend, wanted)
    assert caught.value.oldest == oldest
    assert read_sequences(backend, SequenceRange("s", wanted.incarnation, oldest - 1, 95)) == list(range(oldest, 96))


def test_the_rest_of_a_trimmed_range_is_read_after_the_error(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(95), policy=SMALL)
    backend = JournalBackend(str(tmp_path))
    wanted = whole_stream(backend)
    oldest = trim(tmp_path, 40)
    (_, loss), *rest = backend.read([wanted], Request())
    assert isinstance(loss, Trimmed)
    assert next(one.first for _, one in rest if isinstance(one, EncodedMessages)) == oldest


def test_bare_messages_need_no_log(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(95), policy=SMALL)
    for log in tmp_path.glob("*/*.log"):
        log.write_bytes(bytes(log.stat().st_size))
    backend = JournalBackend(str(tmp_path))
    wanted = SequenceRange("s", whole_stream(backend).incarnation, 12, 61)
    found = [one for _, one in backend.read([wanted], Request(bare=True)) if isinstance(one, BareMessages)]
    assert found[0].first <= 13
    assert 61 <= found[-1].last < 95
    assert all(before.last + 1 == after.first for before, after in pairwise(found))


def test_a_message_that_is_too_large_fails_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "s", [("k", bytes(5000))])
    monkeypatch.setattr(journal_backend, "MAX_MESSAGE_SIZE", 4000)
    backend = JournalBackend(str(tmp_path))
    with pytest.raises(SparkError, match=r"\.log: a message of 5026 bytes is too large for Spark"):
        read_sequences(backend, whole_stream(backend))


def test_an_open_segment_is_read_to_its_end(tmp_path: Path) -> None:
    """The stream is deleted while its segment is read."""
    write(tmp_path, "s", numbered(95))
    backend = JournalBackend(str(tmp_path))
    reading = read_messages(backend, whole_stream(backend))
    first = next(reading)
    with Store(tmp_path) as store:
        store.delete("s")
    assert len(find_messages(first.octets)) == 95
    assert list(reading) == []


def test_a_replaced_stream_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(9))
    backend = JournalBackend(str(tmp_path))
    wanted = whole_stream(backend)
    with Store(tmp_path) as store:
        store.delete("s")
    with pytest.raises(Vanished):
        read_sequences(backend, wanted)
    write(tmp_path, "s", numbered(9, 100))
    with pytest.raises(Replaced, match=wanted.incarnation):
        read_sequences(backend, wanted)
    assert backend.size_indexes([wanted], 100) == [None]


def test_a_stream_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    """An open segment is read to its end. The next one belongs to another incarnation."""
    write(tmp_path, "s", numbered(95), policy=SMALL)
    backend = JournalBackend(str(tmp_path))
    reading = read_messages(backend, whole_stream(backend))
    first = next(reading)
    with Store(tmp_path) as store:
        store.delete("s")
    write(tmp_path, "s", numbered(95), policy=SMALL)
    assert find_messages(first.octets).sequences()[0] == 1
    with pytest.raises(Replaced, match="while"):
        list(reading)


def test_damage_is_found(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(20, size=30))
    [log] = tmp_path.rglob("*.log")
    octets = bytearray(log.read_bytes())
    octets[-1] ^= 1  # in a body, so that all lengths are still valid
    log.write_bytes(octets)
    assert len(read_sequences(JournalBackend(str(tmp_path)), whole_stream(JournalBackend(str(tmp_path))))) == 20
    checked = JournalBackend(str(tmp_path), verify=True)
    with pytest.raises(DamagedLog, match=r"sequence 11, does not match its CRC: `zambezi journal verify`"):
        read_sequences(checked, whole_stream(checked))


def test_a_damaged_index_is_found(tmp_path: Path) -> None:
    write(tmp_path, "s", numbered(30))
    [index] = tmp_path.rglob("*.idx")
    octets = bytearray(index.read_bytes())
    octets[SIZE + 7] ^= 4  # the first sequence of the second entry
    index.write_bytes(octets)
    backend = JournalBackend(str(tmp_path))
    with pytest.raises(DamagedLog, match="idx is damaged"):
        read_sequences(backend, whole_stream(backend))


def test_a_live_journal_is_read_to_its_last_batch(tmp_path: Path) -> None:
    """The broker writes to the log first, and to the index after that."""
    write(tmp_path, "s", numbered(10))
    [log] = tmp_path.rglob("*.log")
    with log.open("ab") as file:
        file.write(deliver([Publish("k", b"half").encode()[0]], 11).octets)
    backend = JournalBackend(str(tmp_path))
    assert read_sequences(backend, whole_stream(backend)) == list(range(1, 11))
