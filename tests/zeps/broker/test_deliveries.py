"""zambezi.zeps.broker.deliveries: counters that outlive connections and streams."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.zeps.stage import Stage
from zambezi.zeps.broker.deliveries import Deliveries, deliveries_of
from zambezi.zeps.messages import Credit, Join, Publish

BODY = b"body"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as made:
        yield made


def counted(stage: Stage) -> tuple[Deliveries, Deliveries]:
    total, by_stream = deliveries_of(stage.engine)
    return total, by_stream["s"]


def test_deliveries_count_for_each_subscriber_live_and_from_the_journal(stage: Stage) -> None:
    publisher = stage.client("s")
    follower = stage.client("s", credit=1 << 20)
    follower.follow()
    publisher.send(*[Publish("k", BODY)] * 3)
    late = stage.client("s", credit=1 << 20)
    late.subscribe()
    stage.warm_up()
    late.read(), follower.read()
    size = sum(len(message.encode()[0]) for message in [*late.delivered, *follower.delivered])
    assert counted(stage) == (Deliveries(6, size), Deliveries(6, size))


def test_a_connection_that_ends_takes_nothing_from_the_counters(stage: Stage) -> None:
    publisher = stage.client("s")
    follower = stage.client("s", credit=1 << 20)
    follower.follow()
    publisher.publish("k", BODY)
    before = counted(stage)
    assert before[1].messages == 1
    follower.close()
    assert counted(stage) == before
    again = stage.client("s", credit=1 << 20)
    again.follow()
    publisher.publish("k", BODY)
    assert counted(stage)[1].messages == 2


def test_members_of_a_group_count(stage: Stage) -> None:
    publisher = stage.client("s")
    publisher.publish("k", BODY)
    member = stage.client("s")
    member.send(Join("workers", os.urandom(16), "", 0, 1000, 0, 0, ""), Credit(1 << 20))  # from the journal
    publisher.publish("k", BODY)  # live
    stage.run()
    member.read()
    assert member.sequences == [1, 2]
    assert counted(stage)[0].messages == counted(stage)[1].messages == 2


def test_the_total_keeps_streams_that_are_gone(stage: Stage) -> None:
    publisher = stage.client("s")
    follower = stage.client("s", credit=1 << 20)
    follower.follow()
    publisher.publish("k", BODY)
    stage.engine.lose_stream(stage.stream("s"), "it is damaged")
    stage.run()
    follower.close()
    total, by_stream = deliveries_of(stage.engine)
    assert total.messages == 1
    assert not by_stream
