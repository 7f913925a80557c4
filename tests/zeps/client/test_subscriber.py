"""zambezi.zeps.client.subscriber: where a subscription begins, continues after a loss, and ends; and its credit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zeps.client.batch import check_deliveries, check_delivery_run
from zambezi.zeps.client.subscriber import Subscriber
from zambezi.zeps.directory import StreamInfo
from zambezi.zeps.errors import BrokerError, Incarnation, PatternError, ZepsError
from zambezi.zeps.messages import EARLIEST, LATEST, TIME, Credit, Deliver, Subscribe, Zeps
from zambezi.zmtp.frames import Batch, Decoder, encode_singles
from zambezi.zmtp.runs import Run


def described(first: int = 1, last: int = 100, incarnation: str = "one", owner: str = "") -> StreamInfo:
    return StreamInfo(stream="s", first=first, last=last, incarnation=incarnation, owner=owner)


def frames(*sequences: int, key: str = "k", body: bytes = b"") -> list[bytes]:
    return [Deliver(sequence, key, body).encode()[0] for sequence in sequences]


def deliver(subscriber: Subscriber, given: list[bytes]) -> None:
    body_at = check_deliveries(given)
    assert body_at is not None
    subscriber.accept_from_broker(given, body_at)


def run_of(first: int, count: int = 40) -> tuple[Run, int]:
    """Return a run of so many messages, and the offset of their bodies."""
    (batch,) = Decoder(1 << 20, 1 << 20).feed(encode_singles(frames(*range(first, first + count), body=bytes(50))))
    assert isinstance(batch, Batch)
    assert batch.run is not None
    return batch.run, check_delivery_run(batch.run)


def said(subscriber: Subscriber) -> list[Zeps]:
    return [Zeps.decode(message) for message in subscriber.subscribe_messages()]


def begun(since: int = EARLIEST, until: int | None = None, pattern: str = "", window: int = 1000) -> Subscriber:
    subscriber = Subscriber("s", pattern, since, until, window)
    subscriber.update(described())
    subscriber.subscribe_messages()
    return subscriber


def sequences(subscriber: Subscriber) -> list[int]:
    found = []
    while (batch := subscriber.next_batch()) is not None:
        found += batch.sequences()
    return found


def over(subscriber: Subscriber) -> bool:
    return subscriber.ended


# Where it begins


@pytest.mark.parametrize(
    ("since", "latest"),
    [(EARLIEST, 9), (LATEST, 100), (50, 50), (TIME | 1234, TIME | 1234)],
    ids=["earliest", "latest", "a sequence", "a time"],
)
def test_where_it_begins(since: int, latest: int) -> None:
    subscriber = Subscriber("s", "tea.", since, window=1000)
    subscriber.update(described(first=10))
    assert said(subscriber) == [Subscribe("tea.", latest), Credit(1000)]


@pytest.mark.parametrize("since", [EARLIEST, LATEST, 50, TIME | 1234])
def test_a_broker_that_tells_nothing_is_asked_as_it_is(since: int) -> None:
    subscriber = Subscriber("s", "", since, window=1000)
    subscriber.update(None)
    assert said(subscriber) == [Subscribe("", since), Credit(1000)]


@pytest.mark.spec("ZEP-10")
def test_after_a_loss_it_goes_on_after_the_last_that_came() -> None:
    subscriber = begun()
    deliver(subscriber, frames(1, 2, 3))
    subscriber.update(described())
    assert said(subscriber)[0] == Subscribe("", 3)
    # If the broker sends some again, they are dropped.
    deliver(subscriber, frames(2, 3, 4, 5))
    deliver(subscriber, frames(4, 5))
    assert sequences(subscriber) == [1, 2, 3, 4, 5]
    assert subscriber.counters.repeated == 4
    assert subscriber.counters.received == 5


def test_nothing_follows_the_last_sequence_of_all() -> None:
    subscriber = begun()
    deliver(subscriber, frames((1 << 64) - 1))
    deliver(subscriber, frames(7, (1 << 64) - 1))
    assert sequences(subscriber) == [(1 << 64) - 1]
    assert subscriber.counters.repeated == 2


def test_latest_is_a_place_to_come_back_to() -> None:
    """Messages published while there was no connection are not missed, even if none was received before."""
    subscriber = begun(LATEST)
    subscriber.update(described(last=120))
    assert said(subscriber)[0] == Subscribe("", 100)


def test_messages_that_are_missing_inside_a_batch_are_counted() -> None:
    subscriber = begun()
    deliver(subscriber, frames(1, 2, 5, 6))
    deliver(subscriber, frames(5, 6, 9))
    assert subscriber.counters.missed == 4
    filtered = begun(pattern="k")
    deliver(filtered, frames(1, 2, 5, 6))
    assert filtered.counters.missed == 0


def test_messages_removed_by_retention_are_counted() -> None:
    subscriber = begun()
    deliver(subscriber, frames(1, 2))
    deliver(subscriber, frames(10))
    assert subscriber.counters.missed == 7
    filtered = begun(pattern="k")
    deliver(filtered, frames(1, 2))
    deliver(filtered, frames(10))
    assert filtered.counters.missed == 0


# Another incarnation


def test_another_incarnation_is_an_error() -> None:
    subscriber = begun()
    subscriber.update(described(incarnation="two"))
    assert isinstance(subscriber.failure, Incarnation)
    assert "one" in str(subscriber.failure)
    assert "two" in str(subscriber.failure)


def test_a_stream_that_ends_before_the_position_is_an_error() -> None:
    subscriber = begun(since=50)
    subscriber.update(described(last=20))
    assert isinstance(subscriber.failure, Incarnation)


def test_a_broker_that_is_behind_is_told_from_another_stream() -> None:
    subscriber = begun(since=50)
    assert subscriber.is_ahead_of(described(last=20, owner="tcp://paris:5671"))
    assert not subscriber.is_ahead_of(described(last=50, owner="tcp://paris:5671"))
    assert not subscriber.is_ahead_of(described(last=20))  # not in an object store
    assert not subscriber.is_ahead_of(described(last=20, owner="tcp://paris:5671", incarnation="two"))
    assert not Subscriber("s").is_ahead_of(described(last=20, owner="tcp://paris:5671"))


def test_after_a_refusal_received_messages_can_still_be_read() -> None:
    reason = "the last sequence of this stream is 20"  # the text of a reason decides nothing
    subscriber = begun(since=50)
    deliver(subscriber, frames(51))
    subscriber.fail_refused(reason)
    assert type(subscriber.failure) is BrokerError
    assert reason in str(subscriber.failure)
    assert sequences(subscriber) == [51], "what has come can still be read"


def test_the_first_failure_counts() -> None:
    subscriber = begun()
    subscriber.fail_refused("first")
    subscriber.fail_refused("second")
    assert "first" in str(subscriber.failure)


# Credit


@pytest.mark.spec("ZEP-03")
def test_credit_is_given_as_messages_are_taken() -> None:
    subscriber = begun(window=1000)
    deliver(subscriber, frames(1, body=bytes(400)))
    assert subscriber.next_credit() is None, "nobody has taken it"
    assert subscriber.next_batch() is not None
    credit = subscriber.next_credit()
    assert credit is not None
    assert Zeps.decode(credit) == Credit(417)
    assert subscriber.next_credit() is None


def test_little_credit_is_not_worth_a_message() -> None:
    subscriber = begun(window=1000)
    deliver(subscriber, frames(1, body=bytes(200)))
    subscriber.next_batch()
    assert subscriber.next_credit() is None
    deliver(subscriber, frames(2, body=bytes(200)))
    subscriber.next_batch()
    assert subscriber.next_credit() is not None


def test_a_new_connection_gets_credit_for_the_free_part_of_the_window() -> None:
    subscriber = begun(window=1000)
    deliver(subscriber, frames(1, body=bytes(600)))
    subscriber.update(described())
    assert said(subscriber) == [Subscribe("", 1), Credit(1000 - 617)]
    deliver(subscriber, frames(2, body=bytes(600)))
    subscriber.update(described())
    assert said(subscriber) == [Subscribe("", 2)], "the window is overdrawn"
    subscriber.next_batch()
    assert subscriber.next_credit() == Credit(1000 - 617).encode()[0]


@given(st.lists(st.sampled_from(["send", "take", "lose"]), max_size=100), st.integers(1, 3000))
def test_no_more_is_held_than_the_window_and_one_message(steps: list[str], window: int) -> None:
    """A broker sends while it has credit, so the last message may overdraw it."""
    subscriber = Subscriber("s", "", EARLIEST, window=window)
    subscriber.update(described())
    credit = 0
    held = 0
    sent = 0
    read: list[int] = []

    def hear(messages: list[bytes]) -> None:
        nonlocal credit
        credit += sum(one.credit for one in map(Zeps.decode, messages) if isinstance(one, Credit))

    hear(subscriber.subscribe_messages())
    for step in steps:
        if step == "send" and credit > 0:
            sent += 1
            (frame,) = frames(sent, body=bytes(sent * 37 % 500))
            deliver(subscriber, [frame])
            credit -= len(frame)
            held += len(frame)
        elif step == "take" and (batch := subscriber.next_batch()) is not None:
            held -= batch.octets
            read += batch.sequences()
            grant = subscriber.next_credit()
            hear([grant] if grant else [])
        elif step == "lose":
            credit = 0
            subscriber.update(described())
            hear(subscriber.subscribe_messages())
        assert held <= window + 517
        assert credit > 0 or held > 0, "the broker could never send again, and the program could never read again"
    assert read + sequences(subscriber) == list(range(1, sent + 1))


def test_a_window_is_above_zero() -> None:
    with pytest.raises(ZepsError):
        Subscriber("s", window=0)


# Where it ends


def test_it_ends_with_a_sequence() -> None:
    subscriber = begun(until=5)
    deliver(subscriber, frames(1, 2, 3))
    assert not over(subscriber)
    deliver(subscriber, frames(4, 5, 6, 7))
    assert over(subscriber)
    deliver(subscriber, frames(8))
    assert sequences(subscriber) == [1, 2, 3, 4, 5]
    assert subscriber.next_credit() is None


def test_now_is_the_last_sequence_at_the_beginning() -> None:
    subscriber = begun(until=LATEST)
    assert subscriber.end == 100
    subscriber.update(described(last=500))
    assert subscriber.end == 100


@pytest.mark.parametrize("until", [LATEST, TIME | 1000])
def test_now_and_times_need_a_broker_that_tells(until: int) -> None:
    subscriber = Subscriber("s", until=until)
    subscriber.update(None)
    assert isinstance(subscriber.failure, BrokerError)


@pytest.mark.parametrize(
    ("since", "until", "info"),
    [
        (EARLIEST, LATEST, described(last=0)),
        (LATEST, LATEST, described()),
        (50, 50, described()),
        (50, 20, described()),
        (EARLIEST, 5, described(first=10)),
        (TIME | 1000, LATEST, described()),
    ],
    ids=["an empty stream", "from now to now", "nothing after", "backwards", "gone by retention", "after all of it"],
)
def test_where_nothing_is_to_come_it_ends_at_once(since: int, until: int, info: StreamInfo) -> None:
    subscriber = Subscriber("s", "", since, until)
    subscriber.update(info)
    assert over(subscriber)


def test_a_time_to_end_at_becomes_a_sequence() -> None:
    subscriber = begun(until=TIME | 1000)
    assert subscriber.end is None
    deliver(subscriber, frames(1, 2))
    subscriber.set_end(3, described())
    assert not over(subscriber)
    deliver(subscriber, frames(3))
    assert over(subscriber)
    late = begun(until=TIME | 1000)
    deliver(late, frames(1, 2, 3))
    late.set_end(3, described())
    assert over(late)


def test_with_a_pattern_the_message_at_the_end_is_asked_for_besides() -> None:
    subscriber = Subscriber("s", "tea", EARLIEST, 50, window=1000)
    subscriber.update(described())
    assert said(subscriber) == [Subscribe("tea", 0), Subscribe("", 49), Credit(1000)]
    assert not subscriber.needs_end_mark
    deliver(subscriber, frames(3, key="tea.1"))
    deliver(subscriber, frames(50, key="coffee"))
    assert over(subscriber)
    assert sequences(subscriber) == [3]


@pytest.mark.parametrize(
    ("pattern", "key", "ours"),
    [
        ("tea", "tea.1", True),
        ("exact:tea", "tea.1", False),
        ("glob:*.1", "tea.1", True),
        ("regex:^t.*2$", "tea.1", False),
    ],
)
def test_the_message_at_the_end_is_ours_if_it_matches(pattern: str, key: str, ours: bool) -> None:
    subscriber = begun(until=50, pattern=pattern)
    deliver(subscriber, frames(50, 51, key=key))
    assert sequences(subscriber) == ([50] if ours else [])
    assert over(subscriber)


def test_an_end_that_is_still_to_come_is_asked_for_when_the_stream_reaches_it() -> None:
    subscriber = Subscriber("s", "tea", EARLIEST, 200, window=1000)
    subscriber.update(described())
    assert said(subscriber) == [Subscribe("tea", 0), Credit(1000)]
    assert subscriber.needs_end_mark
    assert subscriber.mark_end() == ()
    subscriber.update(described(last=200))
    assert subscriber.mark_end() == Subscribe("", 199).encode()
    assert subscriber.mark_end() == ()
    # The next connection must ask again.
    subscriber.update(described(last=201))
    assert Subscribe("", 199) in said(subscriber)


def test_a_pattern_that_cannot_be_understood_raises_at_once() -> None:
    with pytest.raises(PatternError):
        Subscriber("s", "regex:(", EARLIEST, 50)


# With a group, the subscriber filters by itself


def filtering(since: int = EARLIEST, until: int | None = None, info: StreamInfo | None = None) -> Subscriber:
    subscriber = Subscriber("s", "tea", since, until, 1000)
    subscriber.update(info or described())
    subscriber.filter_here()
    return subscriber


def from_group(subscriber: Subscriber, *messages: tuple[int, str]) -> None:
    given = [Deliver(sequence, key, b"").encode()[0] for sequence, key in messages]
    body_at = check_deliveries(given)
    assert body_at is not None
    subscriber.accept_from_group(given, body_at)


@pytest.mark.parametrize(
    ("since", "until", "info", "everything_after"),
    [
        (EARLIEST, None, described(), 99),
        (LATEST, None, described(), 100),
        (EARLIEST, None, described(first=101, last=100), 100),
        (EARLIEST, None, described(first=1, last=0), 0),
        (10, 50, described(), 49),
        (10, 500, described(), 99),
    ],
    ids=["history", "live", "all gone by retention", "empty", "an end in the past", "an end to come"],
)
@pytest.mark.spec("ZEP-16")
def test_the_broker_filters_up_to_the_last_message_and_we_from_there_on(
    since: int, until: int | None, info: StreamInfo, everything_after: int
) -> None:
    subscriber = filtering(since, until, info)
    position = subscriber.position
    assert position is not None
    assert said(subscriber) == [Subscribe("tea", position), Subscribe("", everything_after), Credit(1000)]
    assert not subscriber.needs_end_mark


def test_the_broker_filters_while_our_position_is_not_known() -> None:
    assert said(filtering(TIME | 1234)) == [Subscribe("tea", TIME | 1234), Credit(1000)]


def test_without_a_pattern_nothing_is_filtered() -> None:
    subscriber = Subscriber("s", "", EARLIEST, None, 1000)
    subscriber.update(described())
    subscriber.filter_here()
    assert said(subscriber) == [Subscribe("", 0), Credit(1000)]


def test_a_message_that_does_not_match_is_dropped_and_moves_the_position() -> None:
    subscriber = filtering(LATEST)
    from_group(subscriber, (101, "tea"), (102, "coffee"), (103, "tea.green"), (104, "coffee"))
    assert subscriber.position == 104
    assert sequences(subscriber) == [101, 103]
    assert subscriber.counters.received == 2
    from_group(subscriber, (105, "coffee"))
    assert subscriber.position == 105
    assert subscriber.next_batch() is None


def test_a_message_that_is_dropped_becomes_credit_again() -> None:
    subscriber = filtering(LATEST)
    subscriber.subscribe_messages()
    given = [Deliver(101, "coffee", bytes(500)).encode()[0]]
    subscriber.accept_from_broker(given, check_deliveries(given) or 0)
    credit = subscriber.next_credit()
    assert credit is not None
    assert Zeps.decode(credit) == Credit(len(given[0]))


@pytest.mark.parametrize(("key", "expected"), [("tea", [101, 102]), ("coffee", [101])])
def test_the_end_counts_for_any_key(key: str, expected: list[int]) -> None:
    subscriber = filtering(LATEST, 102)
    from_group(subscriber, (101, "tea"), (102, key), (103, "tea"))
    assert subscriber.ended
    assert sequences(subscriber) == expected


def test_a_pattern_that_cannot_be_understood_raises_with_a_group() -> None:
    subscriber = Subscriber("s", "regex:(", LATEST)
    with pytest.raises(PatternError):
        subscriber.filter_here()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.integers(1, 20)), min_size=1))
def test_group_and_broker_that_overlap_give_each_message_once(parts: list[tuple[bool, int, int]]) -> None:
    """When the source changes, each of the two can repeat messages that the other one gave."""
    subscriber = begun(since=EARLIEST, window=1 << 20)
    last = 0
    for is_group, back, count in parts:
        first = max(1, last + 1 - back)
        some = frames(*range(first, first + count))
        body_at = check_deliveries(some)
        assert body_at is not None
        (subscriber.accept_from_group if is_group else subscriber.accept_from_broker)(some, body_at)
        last = max(last, first + count - 1)
    assert sequences(subscriber) == list(range(1, last + 1))
    assert subscriber.counters.received == last
    assert subscriber.counters.missed == 0


def test_a_run_that_follows_is_accepted_as_it_is() -> None:
    whole, cut = begun(window=5000), begun(window=5000)
    for first in (1, 41):
        run, body_at = run_of(first)
        assert whole.accept_run(run, body_at)
        deliver(cut, run.cut())
    assert whole.position == cut.position == 80
    assert whole.counters == cut.counters
    for _ in range(2):
        one, other = whole.next_batch(), cut.next_batch()
        assert one is not None
        assert other is not None
        assert list(one) == list(other)
        assert whole.next_credit() == cut.next_credit()
    assert not whole.readable


@pytest.mark.parametrize("first", [1, 10, 12, 100])
def test_a_run_that_does_not_follow_must_be_cut(first: int) -> None:
    subscriber = begun(since=10)
    assert not subscriber.accept_run(*run_of(first))
    assert subscriber.position == 10
    assert not subscriber.readable


def test_a_run_must_be_cut_if_not_all_of_it_may_be_wanted() -> None:
    filtered = filtering(10)
    timed = Subscriber("s", "", 10, times=True)
    before = Subscriber("s")
    for subscriber in (begun(since=10, until=20), filtered, timed, before):
        assert not subscriber.accept_run(*run_of(11))
        assert not subscriber.readable
