"""zambezi.zeps.journal.reader: a position in a journal, and the spans that follow."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.zeps.journal.streams import append, block, directory, held
from zambezi.zeps.errors import JournalError, OutOfRange
from zambezi.zeps.journal import Journal, Policy, Reader, Span, Store

batches = st.lists(
    st.lists(st.integers(0, 40) | st.sampled_from([233, 234, 235, 236, 237, 300]), min_size=1, max_size=8),
    min_size=1,
    max_size=12,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "data", policy=Policy(segment=400, batch=200)) as store:
        yield store


@pytest.fixture
def journal(store: Store) -> Journal:
    return store.open("prices")


def spans(reader: Reader, octets: int, credit: int | None = None) -> list[Span]:
    found = []
    while (span := reader.peek(octets, credit)) is not None:
        assert reader.peek(octets, credit) is not None
        reader.skip(span)
        found.append(span)
    return found


def span_of(reader: Reader, octets: int = 1 << 20, credit: int | None = None) -> Span:
    span = reader.peek(octets, credit)
    assert span is not None
    return span


def test_a_reader_goes_from_where_it_stands_to_the_end(journal: Journal) -> None:
    expected = [message for _ in range(9) for message in append(journal, b"x" * 50, b"y" * 70)]
    for after in range(len(expected) + 1):
        for octets in (0, 1, 80, 200, 10_000):
            assert list(held(journal, after, octets).values()) == expected[after:]


def test_a_span_is_in_one_segment_and_about_as_long_as_asked(journal: Journal) -> None:
    for _ in range(9):
        append(journal, b"x" * 50, b"y" * 70)
    logs = {segment.first: segment.last for segment in journal.segments}
    assert len(logs) > 2
    found = spans(journal.reader(0), 1 << 20)
    assert {span.first: span.last for span in found} == logs
    assert all(span.length <= 100 for span in spans(journal.reader(0), 100))


def test_one_message_goes_however_large(journal: Journal) -> None:
    append(journal, b"x" * 1000, b"y")
    assert [span.count for span in spans(journal.reader(0), 10)] == [1, 1]


def test_the_time_is_that_of_the_first_message(journal: Journal) -> None:
    append(journal, b"a", b"b", now=1.5)
    append(journal, b"c", now=2.5)
    assert span_of(journal.reader(0)).time == 1_500_000
    assert span_of(journal.reader(1)).time == 1_500_000
    assert span_of(journal.reader(2)).time == 2_500_000


def test_at_the_end_there_is_nothing_until_there_is(journal: Journal) -> None:
    reader = journal.reader(0)
    assert reader.peek(1000) is None
    for number in range(300):
        append(journal, b"%d" % number)
        span = span_of(reader)
        assert (span.first, span.last) == (number + 1, number + 1)
        reader.skip(span)
        assert reader.position == number + 1
        assert reader.peek(1000) is None


@given(batches, st.integers(0, 700), st.integers(1, 700))
def test_credit_is_spent_to_the_last_byte_and_overdrawn_by_one_message(
    sizes: list[list[int]], octets: int, credit: int
) -> None:
    """The span is the one that a count of every single message would give. (ZEP-03)"""
    with directory() as path, Store(path, policy=Policy(segment=1500, batch=300)) as store:
        journal = store.open("a")
        costs: list[int] = []
        for batch in sizes:
            made = block(journal.last + 1, [b"x" * size for size in batch])
            journal.append(made, 1.0)
            costs += map(len, made.bodies)
        for span in spans(journal.reader(0), octets, credit):
            mine = costs[span.first - 1 : span.last]
            assert span.credit == sum(mine)
            assert span.credit - mine[-1] < credit
            assert span.length <= max(octets, len(span.read().octets) if span.count == 1 else 0)
        reader = journal.reader(0)
        left = credit
        while (span_or_none := reader.peek(octets, left)) is not None:
            left -= span_or_none.credit
            reader.skip(span_or_none)
        # All messages that the credit paid for went out, for any sizes of the spans.
        paid = sum(costs[: reader.position])
        assert left == credit - paid
        assert left <= 0 or reader.position == journal.last
        assert paid - costs[reader.position - 1] < credit


def test_credit_that_is_just_enough_for_a_batch_buys_no_more(journal: Journal) -> None:
    for _ in range(3):
        append(journal, b"x" * 20, b"y" * 30)
    price = journal.entries()[0].credit
    for batches in (1, 2, 3):
        span = span_of(journal.reader(0), credit=batches * price)
        assert (span.last, span.credit) == (2 * batches, batches * price)
    assert span_of(journal.reader(0), credit=price + 1).last == 3
    assert span_of(journal.reader(0), credit=price - 1).last == 2


@pytest.mark.parametrize("credit", [0, -5])
def test_without_credit_nothing_goes(credit: int, journal: Journal) -> None:
    append(journal, b"a")
    assert journal.reader(0).peek(1000, credit) is None


def test_many_batches_of_one_message_are_one_span(store: Store) -> None:
    journal = store.open("many", Policy())
    for _ in range(5000):
        append(journal, b"x")
    found = spans(journal.reader(0), 1 << 20)
    assert len(found) <= 4
    assert found[-1].last == 5000
    # The window ends inside the second span, and the reader loads more.
    slices = spans(journal.reader(0), 20_000)
    assert all(span.length > 19_900 for span in slices[:-1])


def test_only_a_batch_that_is_cut_is_looked_into(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(10):
        append(journal, b"x" * 20, b"y" * 20)
    looked: list[int] = []
    cuts = Journal.cuts

    def spy(self: Journal, segment: object, number: int, *rest: object) -> object:
        looked.append(number)
        return cuts(self, segment, number, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Journal, "cuts", spy)
    spans(journal.reader(0), 200)
    spans(journal.reader(4), 1 << 20, 1 << 20)
    assert looked == []
    span_of(journal.reader(1), 200)
    assert set(looked) == {0}


# Retention


def test_behind_retention_the_error_names_the_oldest(journal: Journal) -> None:
    for _ in range(5):
        append(journal, b"x" * 350)
    reader = journal.reader(0)
    reader.skip(span_of(reader))
    journal.policy = Policy(segment=400, keep_bytes=700)
    journal.retain(1.0)
    with pytest.raises(OutOfRange, match="sequence 2 is not kept any more, the oldest is 4") as raised:
        reader.peek(1000)
    assert raised.value.oldest == 4
    reader.seek(raised.value.oldest - 1)
    assert [span.first for span in spans(reader, 1000)] == [4, 5]


def test_a_span_outlives_its_segment(journal: Journal) -> None:
    expected = append(journal, b"x" * 350)
    append(journal, b"y" * 350)
    span = span_of(journal.reader(0))
    journal.policy = Policy(segment=400, keep_bytes=0)
    assert journal.retain(1.0) == 1
    assert not (journal.directory / "00000000000000000001.log").exists()
    journal.close()
    assert [span.read().octets] == expected
    descriptor = span.fd
    os.fstat(descriptor)
    del span
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_descriptors_are_bounded_and_given_back(tmp_path: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = count()
    with Store(tmp_path, policy=Policy(segment=30)) as store:
        journal = store.open("a")
        store._file_cache.limit = most = 16
        for _ in range(3 * most):
            append(journal, b"x")
        assert len(journal.segments) == 3 * most
        readers = [journal.reader(after) for after in range(journal.last)]
        for reader in readers:
            assert reader.peek(1) is not None
        assert count() - before <= 2 * most + 4
        journal.sync()
    assert count() <= before  # other tests can have left some that were closed meanwhile


# Memory


def test_resident_and_warm(journal: Journal) -> None:
    append(journal, b"x" * 350)
    span = span_of(journal.reader(0))
    span.warm()
    assert span.is_resident() is True


def test_pages_that_are_not_in_memory_are_noticed(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    append(journal, b"x" * 350)
    span = span_of(journal.reader(0))
    asked = []

    def preadv(descriptor: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
        asked.append((offset, flags))
        if offset:
            raise BlockingIOError
        return 1

    monkeypatch.setattr(os, "preadv", preadv)
    assert span.is_resident() is False
    assert asked == [(0, os.RWF_NOWAIT), (span.length - 1, os.RWF_NOWAIT)]


def test_a_system_without_nowait_counts_as_in_memory(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    append(journal, b"x")
    span = span_of(journal.reader(0))

    def preadv(*arguments: object) -> int:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "preadv", preadv)
    assert span.is_resident() is True


def test_warm_reads_all_of_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = store.open("big", Policy())
    append(journal, b"x" * 600_000)
    append(journal, b"x" * 100)
    span = span_of(journal.reader(0), 1 << 20)
    read = []
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: read.append((offset, len(buffers[0]))))
    span.warm()
    covered = 0
    for offset, length in read:
        assert offset == covered
        covered += length
    assert covered >= span.length


# Damage


def test_a_log_that_was_cut_under_a_reader(journal: Journal) -> None:
    append(journal, b"x" * 100)
    span = span_of(journal.reader(0))
    os.truncate(journal.directory / "00000000000000000001.log", 50)
    with pytest.raises(JournalError, match="the log ends before sequence 1"):
        span.read()


def test_a_damaged_batch_is_not_cut_at_a_guess(journal: Journal) -> None:
    append(journal, b"x" * 50, b"y" * 20)
    path = journal.directory / "00000000000000000001.log"
    octets = bytearray(path.read_bytes())
    octets[1] = 200
    path.write_bytes(octets)
    with pytest.raises(JournalError, match=r"\.log is damaged between 0 and \d+"):
        journal.reader(1).peek(1000)


def test_a_damaged_index_is_not_followed(journal: Journal) -> None:
    for _ in range(3):
        append(journal, b"x")
    path = journal.directory / "00000000000000000001.idx"
    octets = bytearray(path.read_bytes())
    octets[64 + 27] = 9  # the count of the second entry
    path.write_bytes(octets)
    with pytest.raises(JournalError, match=r"\.idx is damaged near entry 0"):
        journal.reader(0).peek(1000)
    with pytest.raises(JournalError, match=r"\.idx is damaged near entry 0"):
        journal.entries()


def remembered(reader: Reader) -> int:
    return len(reader._window or ())


def test_a_reader_that_rests_holds_little_and_goes_on(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal = store.open("rested")
        for number in range(400):
            append(journal, b"%d" % number)
        reader = journal.reader(0)
        for _ in range(200):
            reader.skip(span_of(reader, 1))
        assert remembered(reader) > 64
        reader.release_window()
        assert remembered(reader) == 0
        span = span_of(reader, 1)
        assert (span.first, span.read().bodies[0][-3:]) == (201, b"200")
        reader.seek(20)
        assert span_of(reader, 1).first == 21
        reader.release_window()
        assert remembered(reader)  # a small window is not worth freeing
        assert [span.first for span in spans(reader, 1)] == list(range(21, 401))
