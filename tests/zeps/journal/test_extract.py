"""zambezi.zeps.journal.extract: messages and batches of a range, checked, with their times."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.zeps.journal.streams import append, pieces
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.extract import batches, messages


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """Messages 1 to 40 in batches of four, at the times 1 to 10 seconds, in several segments."""
    with Store(tmp_path, policy=Policy(segment=400)) as store:
        journal = store.open("a")
        for number in range(10):
            bodies = [b"%d" % (4 * number + place) for place in range(1, 5)]
            append(journal, *bodies, now=number + 1.0, key="odd" if number % 2 else "even")
        assert len(journal.segments) > 2
        yield journal


@pytest.mark.parametrize(("after", "last"), [(0, 40), (0, 1), (3, 5), (39, 40), (17, 17), (40, 100)])
def test_the_messages_of_a_range(journal: Journal, after: int, last: int) -> None:
    found = list(messages(journal, after, last))
    assert [message.sequence for message in found] == list(range(after + 1, min(last, 40) + 1))
    for message in found:
        number = (message.sequence - 1) // 4
        assert message.body == b"%d" % message.sequence
        assert message.time == (number + 1) * 1_000_000
        assert message.key == (b"odd" if number % 2 else b"even")


def test_keys_that_begin_with_a_prefix(journal: Journal) -> None:
    assert [message.sequence for message in messages(journal, 0, 12, b"ev")] == [1, 2, 3, 4, 9, 10, 11, 12]


def test_the_body_of_a_long_message(journal: Journal) -> None:
    append(journal, b"x" * 1000, key="k")
    (message,) = messages(journal, 40, 41)
    assert message.body == b"x" * 1000


def test_batches_are_whole_and_progress_adds_up(journal: Journal) -> None:
    passed: list[int] = []
    found = list(batches(journal, 0, 40, passed.append))
    assert [(entry.first, entry.last) for entry, _ in found] == [(first, first + 3) for first in range(1, 41, 4)]
    assert [len(octets) for _, octets in found] == [entry.length for entry, _ in found]
    assert sum(passed) == journal.octets
    assert [entry.first for entry, _ in batches(journal, 5, 9)] == [5, 9]


def test_a_damaged_batch_is_an_error_that_says_how_to_skip_it(journal: Journal) -> None:
    path = Path(journal.segments[0].path + ".log")
    octets = bytearray(path.read_bytes())
    octets[-1] ^= 1
    path.write_bytes(octets)
    last = journal.segments[0].last
    found = messages(journal, 0, 40)
    with pytest.raises(JournalError, match=f"the batch of {last - 3} to {last} is damaged; --since {last} skips it"):
        list(found)
    assert [message.sequence for message in messages(journal, last, 40)] == list(range(last + 1, 41))


def test_the_bytes_are_those_of_the_log(journal: Journal) -> None:
    span = journal.reader(0).peek(1)
    assert span is not None
    (first,) = messages(journal, 0, 1)
    assert first.octets == pieces(span.read())[0]
