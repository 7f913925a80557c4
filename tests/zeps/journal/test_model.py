"""A journal against a model of it: a dictionary of messages."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.effort import cases
from tests.zeps.journal.streams import append, consistent, directory, held, kill
from tests.zeps.journal.test_compaction import compact, expected
from zambezi.zeps.errors import OutOfRange
from zambezi.zeps.journal import Journal, Policy, Reader, Store

POLICY = Policy(segment=500, batch=150)
numbers = st.integers(0, 1 << 16)
bodies = st.lists(st.integers(0, 90) | st.integers(220, 260), min_size=1, max_size=6)


class Streams(RuleBasedStateMachine):
    """Everything that a broker and readers can do to a stream, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.place = directory()
        self.path = Path(self.place.__enter__())
        self.messages: dict[int, bytes] = {}
        self.times: dict[int, int] = {}
        self.last = 0
        self.now = 0
        self.synced = 0
        self.readers: list[tuple[Reader, list[int]]] = []
        self.open()
        self.incarnation = self.journal.incarnation
        self.incarnations: set[UUID] = {self.incarnation}

    def teardown(self) -> None:
        self.other.close()
        self.store.close()
        self.place.__exit__(None, None, None)

    def open(self) -> None:
        self.store = Store(self.path, policy=POLICY)
        self.journal: Journal = self.store.open("a")
        self.other = Store(self.path, write=False)
        self.copy = self.other.open("a")
        self.readers = []

    # The broker

    @rule(of=bodies, later=st.integers(-2, 5), key=st.sampled_from("abc"))
    def append(self, of: list[int], later: int, key: str) -> None:
        made = append(self.journal, *[bytes([size % 256]) * size for size in of], now=self.now + later, key=key)
        self.now = max(self.now, self.now + later)
        for message in made:
            self.last += 1
            self.messages[self.last] = message
            self.times[self.last] = self.now * 1_000_000

    @rule()
    def sync(self) -> None:
        assert self.journal.sync() == self.last
        self.synced = self.last

    @rule(octets=st.none() | st.integers(0, 3000), seconds=st.none() | st.integers(0, 20))
    def retain(self, octets: int | None, seconds: int | None) -> None:
        self.journal.policy = Policy(segment=500, batch=150, keep_bytes=octets, keep_seconds=seconds)
        active = self.journal.segments[-1].first
        dropped = self.journal.retain(self.now)
        oldest = self.journal.first
        for sequence in [sequence for sequence in self.messages if sequence < oldest]:
            del self.messages[sequence]
            dropped -= 1
        assert dropped == 0
        assert oldest <= active
        if oldest < active:
            assert octets is None or self.journal.octets - self.journal.segments[0].size < octets
            assert seconds is None or self.journal.segments[0].last_time >= (self.now - seconds) * 1_000_000

    @rule()
    def compact(self) -> None:
        self.journal.policy = replace(POLICY, compact=True)
        if segments := self.journal.to_compact(self.now):
            self.messages = expected(self.messages, segments[-1].last)
        compact(self.journal, self.now)

    @rule(number=numbers)
    def trim(self, number: int) -> None:
        first = self.journal.first + number % (self.last + 2 - self.journal.first)
        self.journal.trim(first)
        self.messages = {sequence: message for sequence, message in self.messages.items() if sequence >= first}

    @rule(how=st.sampled_from(["close", "kill"]))
    def restart(self, how: str) -> None:
        self.other.close()
        if how == "close":
            self.store.close()
        else:
            kill(self.store)
        self.open()
        self.synced = self.last

    @precondition(lambda self: self.messages)
    @rule(number=numbers)
    def truncate(self, number: int) -> None:
        cut = self.journal.first - 1 + number % (self.last + 2 - self.journal.first)
        last = max([sequence for sequence in self.messages if sequence <= cut], default=self.journal.first - 1)
        self.journal.truncate(cut)
        if last < self.last:
            assert self.journal.incarnation not in self.incarnations
            self.incarnations.add(self.journal.incarnation)
            self.incarnation = self.journal.incarnation
        self.messages = {sequence: message for sequence, message in self.messages.items() if sequence <= last}
        self.last = last
        self.synced = min(self.synced, last)
        self.now = self.times[last] // 1_000_000 if self.messages else 0
        self.readers = []

    # Readers

    @rule(number=numbers)
    def join(self, number: int) -> None:
        if len(self.readers) < 5:
            after = self.journal.first - 1 + number % (self.last + 2 - self.journal.first)
            self.readers.append((self.journal.reader(after), [after]))

    @rule(which=numbers, octets=st.integers(0, 1200), credit=st.none() | st.integers(0, 1200), steps=st.integers(1, 5))
    def read(self, which: int, octets: int, credit: int | None, steps: int) -> None:
        if not self.readers:
            return
        reader, passed = self.readers[which % len(self.readers)]
        for _ in range(steps):
            assert reader.position == passed[-1]
            if reader.position + 1 < self.journal.first:
                with pytest.raises(OutOfRange) as raised:
                    reader.peek(octets, credit)
                assert raised.value.oldest == self.journal.first
                reader.seek(self.journal.first - 1)
                passed.append(reader.position)
                continue
            span = reader.peek(octets, credit)
            if span is None:
                assert reader.position == self.last or credit == 0
                return
            found = [sequence for sequence in self.messages if reader.position < sequence <= span.last]
            assert span.first == reader.position + 1
            assert list(span.read().sequences) == found
            assert span.read().octets == b"".join([self.messages[sequence] for sequence in found])
            assert span.time == self.times[found[0]]
            assert span.count == 1 or span.length <= octets
            if credit is not None:
                message = self.messages[found[-1]]
                assert span.credit - (len(message) - (9 if message[0] else 2)) < credit
            reader.skip(span)
            passed.append(span.last)

    @rule(number=numbers)
    def look_up(self, number: int) -> None:
        time = number % ((self.now + 2) * 2) * 500_000
        later = [sequence for sequence in self.messages if self.times[sequence] >= time]
        before = self.journal.before(time)
        assert [sequence for sequence in self.messages if sequence > before] == later
        after = number % (self.last + 2)
        assert [entry.last > after for entry in self.journal.entries(after)].count(False) == 0
        covered = [sequence for entry in self.journal.entries(after) for sequence in range(entry.first, entry.last + 1)]
        assert [sequence for sequence in covered if sequence > after] == list(
            range(max(after + 1, self.journal.first), self.last + 1)
        )

    @rule()
    def refresh(self) -> None:
        """Check what another process reads."""
        self.copy.refresh()
        assert self.copy.incarnation == self.incarnation
        assert (self.copy.first, self.copy.last) == (self.journal.first, self.journal.last)
        assert held(self.copy) == self.messages

    @invariant()
    def is_what_the_model_says(self) -> None:
        assert consistent(self.journal) == self.messages
        assert (self.journal.last, self.journal.synced) == (self.last, self.synced)
        assert self.journal.incarnation == self.incarnation
        assert (self.journal.failed, self.journal.problems) == ("", [])


@pytest.mark.spec("ZEP-09", "ZEP-17")
def test_a_journal_behaves_like_its_model() -> None:
    run_state_machine_as_test(Streams, settings=settings(max_examples=cases(10), stateful_step_count=30, deadline=None))
