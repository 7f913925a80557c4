"""zambezi.zeps.client.member: a member of a group, without sockets."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from zambezi.zeps.block import deliver
from zambezi.zeps.client.batch import check_deliveries
from zambezi.zeps.client.member import GroupMember, GroupWish
from zambezi.zeps.errors import BrokerError, ZepsError
from zambezi.zeps.messages import Credit, Done, GiveBack, Join, Keep, Publish, Times, Zeps
from zambezi.zeps.sequences import pack_deliveries, pack_sequences

WISH = GroupWish("workers", "k", 0, 10, 2000, 3, "dead")
OWNER = b"owner-----------"


def member(window: int = 100) -> GroupMember:
    found = GroupMember("s", WISH, OWNER, window)
    found.join_messages()
    return found


def receive(engine: GroupMember, *sequences: int) -> None:
    for sequence in sequences:
        frames = deliver([Publish("k", b"body").encode()[0]], sequence).bodies
        body_at = check_deliveries(frames)
        assert body_at is not None
        engine.accept(frames, body_at)


def answers(engine: GroupMember) -> list[Zeps]:
    return [Zeps.decode(message) for message in engine.take_answers()]


def test_a_member_joins_and_gives_credit() -> None:
    engine = GroupMember("s", WISH, OWNER, 100)
    join, credit = [Zeps.decode(message) for message in engine.join_messages()]
    assert join == Join("workers", OWNER, "k", 0, 10, 2000, 3, "dead")
    assert credit == Credit(100)


def test_credit_is_given_again_as_the_program_reads() -> None:
    engine = member(window=60)
    receive(engine, 1, 5)
    assert engine.next_credit() is None
    batch = engine.next_batch()
    assert batch is not None
    assert batch.sequences() == [1]
    credit = engine.next_credit()
    assert credit is not None
    assert Zeps.decode(credit) == Credit(21)


def test_the_answers_of_a_turn_are_few_messages() -> None:
    engine = member()
    engine.acknowledge([1])
    engine.acknowledge([4, 2])
    engine.give_back([5])
    engine.give_back([6])
    engine.give_back([7], 1.5)
    engine.keep([8])
    assert engine.has_answers
    assert answers(engine) == [
        Done(pack_sequences([1, 4, 2])),
        Keep(pack_sequences([8])),
        GiveBack(0, 1, pack_sequences([5, 6])),
        GiveBack(1500, 1, pack_sequences([7])),
    ]
    assert answers(engine) == []
    engine.acknowledge(range(20_000))
    assert [len(message.sequences) // 8 for message in answers(engine) if isinstance(message, Done)] == [
        8192,
        8192,
        3616,
    ]


def test_messages_know_how_often_they_were_delivered() -> None:
    engine = member()
    engine.learn_deliveries(pack_deliveries([(3, 2)]))
    receive(engine, 3, 4)
    first, second = engine.next_batch(), engine.next_batch()
    assert first is not None
    assert second is not None
    (again,) = first
    assert (again.sequence, again.key, again.body, again.deliveries) == (3, "k", b"body", 2)
    assert repr(again).endswith("delivery 2")
    assert first[0].deliveries == first[:1][0].deliveries == 2
    assert [message.deliveries for message in second] == [1]
    with pytest.raises(ZepsError):
        engine.learn_deliveries(b"odd")


def test_the_messages_of_one_deliveries_can_come_in_pieces() -> None:
    engine = member()
    engine.learn_deliveries(pack_deliveries([(3, 2), (7, 3)]))
    receive(engine, 3, 7)
    messages = [message for _ in range(2) for message in engine.next_batch() or ()]
    assert [message.deliveries for message in messages] == [2, 3]
    assert engine.counters.repeated == 2


def test_messages_have_their_times() -> None:
    engine = GroupMember("s", WISH, OWNER, 100, times=True)
    assert [type(Zeps.decode(message)) for message in engine.join_messages()] == [Times, Join, Credit]
    engine.learn_times(b"".join(number.to_bytes(8) for number in (3, 5_000_000, 7, 0)))
    engine.learn_deliveries(pack_deliveries([(7, 3)]))
    receive(engine, 3, 7)
    first, second = engine.next_batch(), engine.next_batch()
    assert first is not None
    assert second is not None
    assert first.times() == [datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)]
    assert [second[0].time, second[0].deliveries, second[:1].times()] == [None, 3, [None]]
    with pytest.raises(ZepsError):
        engine.learn_times(b"odd")


def test_acknowledgements_that_were_lost_with_the_connection_are_in_doubt() -> None:
    engine = member(window=1000)
    receive(engine, 1, 2, 3)
    engine.acknowledge([1])
    engine.take_answers()
    engine.note_confirmed()
    engine.lose_connection()
    assert not engine.take_doubt()  # all was confirmed
    engine.join_messages()
    engine.acknowledge([2])  # of the lost connection
    assert answers(engine) == []
    assert engine.take_doubt()
    receive(engine, 3, 4)
    engine.acknowledge([3, 4])  # 3 has come again
    assert answers(engine) == [Done(pack_sequences([3, 4]))]
    assert not engine.take_doubt()
    engine.lose_connection()  # before the broker has confirmed
    assert [engine.take_doubt(), engine.take_doubt()] == [True, False]


def test_a_member_that_leaves_gives_back_what_the_program_has_not_seen() -> None:
    engine = member()
    receive(engine, 1, 2)
    engine.next_batch()
    engine.give_back_unread()
    assert answers(engine) == [GiveBack(0, 0, pack_sequences([2]))]


def test_a_lost_connection_takes_everything_with_it() -> None:
    engine = member()
    receive(engine, 1, 2)
    engine.acknowledge([1])
    engine.lose_connection()
    assert engine.losses == 1
    assert not engine.has_answers
    assert engine.next_batch() is None
    engine.lose_connection()
    assert engine.losses == 1


def test_errors() -> None:
    with pytest.raises(ZepsError, match="window"):
        GroupMember("s", WISH, OWNER, 0)
    engine = member()
    engine.fail_refused("no")
    engine.fail_refused("again")
    assert isinstance(engine.failure, BrokerError)
    assert str(engine.failure) == "the group 'workers' of 's' was refused: no"
