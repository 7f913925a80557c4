"""zambezi.zeps.broker.timed_cursor: TIMES before its messages. tests/zeps/test_times.py has the properties."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.zeps.stage import PLENTY, Client, Stage
from zambezi.zeps.block import deliver
from zambezi.zeps.broker.prefixed_block import PrefixedBlock
from zambezi.zeps.broker.timed_cursor import TimedCursor
from zambezi.zeps.messages import Deliver, Publish, Subscribe, Times
from zambezi.zeps.times import Pair, encode_times
from zambezi.zmtp.frames import encode

NOW = 1_700_000_000_000_000  # the time of the stage, in microseconds
SECOND = 1_000_000


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as made:
        yield made


def timed(stage: Stage, pattern: str = "", *, credit: int = PLENTY) -> Client:
    """Return a client that gets messages from the beginning, with their times."""
    client = stage.client("prices")
    client.send(Times(b""))
    client.subscribe(pattern)
    client.credit(credit)
    return client


def told(client: Client) -> list[int | list[Pair]]:
    """Return what the client has heard: sequences, and lists of times before them."""
    found: list[int | list[Pair]] = []
    for message in client.heard:
        if isinstance(message, Times):
            values = [int.from_bytes(message.times[at : at + 8]) for at in range(0, len(message.times), 8)]
            found.append(list(zip(values[::2], values[1::2], strict=True)))
        elif isinstance(message, Deliver):
            found.append(message.sequence)
    return found


def gear_of(client: Client) -> str:
    assert isinstance(client.session.cursor, TimedCursor)
    return client.session.cursor.gear


def publish_each_second(stage: Stage, *batches: list[str]) -> Client:
    publisher = stage.client("prices")
    for keys in batches:
        publisher.publish_many(keys)
        stage.now += 1
    return publisher


def test_one_list_is_enough_for_the_batches_of_a_span(stage: Stage) -> None:
    publish_each_second(stage, ["a", "b"], ["a"], ["a", "a"])
    client = timed(stage)
    assert told(client) == [[(1, NOW), (3, NOW + SECOND), (4, NOW + 2 * SECOND)], 1, 2, 3, 4, 5]


def test_batches_of_the_same_time_are_one_pair(stage: Stage) -> None:
    publisher = stage.client("prices")
    for _ in range(5):
        publisher.publish("k")
    assert told(timed(stage)) == [[(1, NOW)], 1, 2, 3, 4, 5]


def test_a_live_block_comes_after_its_time(stage: Stage) -> None:
    client = timed(stage)
    publish_each_second(stage, ["a", "b"], ["c"])
    client.read()
    assert told(client) == [[(1, NOW)], 1, 2, [(3, NOW + SECOND)], 3]
    assert gear_of(client) == "live"


def test_with_a_pattern_only_the_times_of_its_messages_are_told(stage: Stage) -> None:
    publish_each_second(stage, ["a", "b"], ["b"], ["b", "a"], ["b"])
    client = timed(stage, "a")
    assert told(client) == [[(1, NOW), (5, NOW + 2 * SECOND)], 1, 5]
    publish_each_second(stage, ["b"], ["b", "a"])
    client.read()
    assert told(client)[3:] == [[(8, NOW + 5 * SECOND)], 9]  # from the first sequence of the batch on


def test_a_list_costs_no_credit(stage: Stage) -> None:
    publish_each_second(stage, ["a"], ["a"], ["a"])
    one = len(Deliver(1, "a", b"").encode()[0])
    client = timed(stage, credit=one)
    assert told(client) == [[(1, NOW)], 1]
    assert client.session.cursor is not None
    assert client.session.cursor.credit == 0
    client.credit(2 * one)
    assert told(client)[2:] == [[(2, NOW + SECOND), (3, NOW + 2 * SECOND)], 2, 3]


def test_a_client_that_has_not_asked_gets_no_times(stage: Stage) -> None:
    plain = stage.client("prices", credit=PLENTY)
    plain.subscribe()
    publish_each_second(stage, ["a"], ["a"])
    plain.read()
    assert told(plain) == [1, 2]
    assert not isinstance(plain.session.cursor, TimedCursor)


def test_a_slow_client_goes_on_from_the_journal(stage: Stage) -> None:
    client = timed(stage)
    client.room = 0
    publish_each_second(stage, ["a"], ["a"])
    assert gear_of(client) == "history"
    client.room = PLENTY
    client._blocked = False
    client.wake()
    stage.run()
    client.read()
    assert told(client) == [[(1, NOW), (2, NOW + SECOND)], 1, 2]
    assert gear_of(client) == "live"


def test_messages_whose_times_were_told_do_not_come_after_the_end_of_the_subscription(stage: Stage) -> None:
    publish_each_second(stage, ["a"], ["a"])
    client = stage.client("prices")
    client.send(Times(b""))
    client.session.receive([Subscribe("", 0).encode()[0]])
    client.session.delivery.add_credit(PLENTY)
    times = client.session.pull()
    assert isinstance(times, PrefixedBlock)
    client.session.delivery.stop()
    assert client.session.pull() is None
    assert client.session.cursor is not None
    assert client.session.cursor.credit > 0
    client.subscribe("", 1)  # it has times, too
    assert told(client) == [[(2, NOW + SECOND)], 2]


def test_requests_that_are_not_possible_are_refused(stage: Stage) -> None:
    client = stage.client("prices")
    client.send(Times(bytes(16)))
    client.credit(1)
    client.send(Times(b""))
    reserved = stage.client("$streams")
    reserved.send(Times(b""))
    early = stage.client()
    early.send(Times(b""))
    assert [one.reasons[-1] for one in (client, reserved, early)] == [
        "TIMES is not allowed here: it comes before JOIN, and before the first SUBSCRIBE and CREDIT",
        "the messages of a reserved stream have no times",
        "Times came before ATTACH; attach to a stream first",
    ]
    assert client.reasons[0] == "only servers send times: the list of a client is empty"
    client.subscribe()
    client.credit(PLENTY)
    publish_each_second(stage, ["a"])
    client.read()
    assert told(client) == [1]


def test_a_block_with_times_has_the_same_messages_as_bytes_and_one_by_one() -> None:
    for size in (0, 300):
        block = deliver([Publish("k", bytes(size)).encode()[0]] * 3, 1)
        for pairs in ([(1, 5)], [(number, number) for number in range(1, 40)]):
            both = PrefixedBlock([encode_times(pairs)], block)
            assert both.bodies == [encode_times(pairs), *block.bodies]
            assert encode(both.bodies) == both.octets
        alone = PrefixedBlock([encode_times([(1, 5)])])
        assert encode(alone.bodies) == alone.octets
