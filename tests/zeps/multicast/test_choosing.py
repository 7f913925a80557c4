"""With a group and a pattern it is for the client to choose: what it asks the broker for, and what it leaves out."""

import pytest

from zambezi.zeps.client.batch import check_deliveries
from zambezi.zeps.client.subscriber import Subscriber
from zambezi.zeps.directory import StreamInfo
from zambezi.zeps.errors import PatternError
from zambezi.zeps.messages import EARLIEST, LATEST, TIME, Credit, Deliver, Subscribe, Zeps


def told(first: int = 1, last: int = 100) -> StreamInfo:
    return StreamInfo(stream="s", first=first, last=last, incarnation="one")


def choosing(since: int = EARLIEST, until: int | None = None, info: StreamInfo | None = None) -> Subscriber:
    subscriber = Subscriber("s", "tea", since, until, 1000)
    subscriber.update(info or told())
    subscriber.filter_here()
    return subscriber


def said(subscriber: Subscriber) -> list[Zeps]:
    return [Zeps.decode(message) for message in subscriber.subscribe_messages()]


def frames(*messages: tuple[int, str]) -> list[bytes]:
    return [Deliver(sequence, key, b"").encode()[0] for sequence, key in messages]


def accept_from_group(subscriber: Subscriber, *messages: tuple[int, str]) -> None:
    given = frames(*messages)
    after = check_deliveries(given)
    assert after is not None
    subscriber.accept_from_group(given, after)


def sequences(subscriber: Subscriber) -> list[int]:
    found = []
    while (batch := subscriber.next_batch()) is not None:
        found += batch.sequences()
    return found


@pytest.mark.parametrize(
    ("since", "until", "info", "everything_after"),
    [
        (EARLIEST, None, told(), 99),
        (LATEST, None, told(), 100),
        (EARLIEST, None, told(first=101, last=100), 100),
        (EARLIEST, None, told(first=1, last=0), 0),
        (10, 50, told(), 49),
        (10, 500, told(), 99),
    ],
    ids=["history", "live", "all gone by retention", "empty", "an end in the past", "an end to come"],
)
@pytest.mark.spec("ZEP-16")
def test_the_broker_chooses_up_to_the_last_message_and_we_from_there_on(
    since: int, until: int | None, info: StreamInfo, everything_after: int
) -> None:
    subscriber = choosing(since, until, info)
    position = subscriber.position
    assert position is not None
    assert said(subscriber) == [Subscribe("tea", position), Subscribe("", everything_after), Credit(1000)]
    assert not subscriber.needs_end_mark


def test_where_it_is_not_known_where_we_stand_the_broker_chooses() -> None:
    assert said(choosing(TIME | 1234)) == [Subscribe("tea", TIME | 1234), Credit(1000)]


def test_without_a_pattern_there_is_nothing_to_choose() -> None:
    subscriber = Subscriber("s", "", EARLIEST, None, 1000)
    subscriber.update(told())
    subscriber.filter_here()
    assert said(subscriber) == [Subscribe("", 0), Credit(1000)]


def test_what_does_not_match_is_left_out_and_yet_moves_the_place() -> None:
    subscriber = choosing(LATEST)
    accept_from_group(subscriber, (101, "tea"), (102, "coffee"), (103, "tea.green"), (104, "coffee"))
    assert subscriber.position == 104
    assert sequences(subscriber) == [101, 103]
    assert subscriber.counters.received == 2
    accept_from_group(subscriber, (105, "coffee"))
    assert subscriber.position == 105
    assert subscriber.next_batch() is None


def test_what_is_left_out_is_credit_again() -> None:
    subscriber = choosing(LATEST)
    subscriber.subscribe_messages()
    given = [Deliver(101, "coffee", bytes(500)).encode()[0]]
    subscriber.accept_from_broker(given, check_deliveries(given) or 0)
    credit = subscriber.next_credit()
    assert credit is not None
    assert Zeps.decode(credit) == Credit(len(given[0]))


@pytest.mark.parametrize(("key", "expected"), [("tea", [101, 102]), ("coffee", [101])])
def test_the_end_counts_whatever_its_key_is(key: str, expected: list[int]) -> None:
    subscriber = choosing(LATEST, 102)
    accept_from_group(subscriber, (101, "tea"), (102, key), (103, "tea"))
    assert subscriber.ended
    assert sequences(subscriber) == expected


def test_a_pattern_that_cannot_be_understood_is_told() -> None:
    subscriber = Subscriber("s", "regex:(", LATEST)
    with pytest.raises(PatternError):
        subscriber.filter_here()
