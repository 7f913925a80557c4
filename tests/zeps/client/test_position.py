"""zambezi.zeps.client.position: how many messages of a publisher the broker has, and which must be sent again."""

from zambezi.zeps.client.position import Position
from zambezi.zeps.messages import Resume, ResumeOk, Zeps

ANN = b"ann-------------"


def answer(count: int, epoch: int = 1) -> ResumeOk:
    return ResumeOk(epoch, count, 0, bytes(16), 0)


def test_a_new_publisher_asks_for_the_next_epoch() -> None:
    position = Position(ANN)
    assert Zeps.decode(position.request()) == Resume(ANN, 0, 0)
    assert position.resume(answer(7, 3)) == 0
    assert position.found == 7
    assert Zeps.decode(position.request()) == Resume(ANN, 3, 7)


def test_messages_that_arrived_are_not_sent_again() -> None:
    position = Position(ANN)
    position.resume(answer(0))
    position.begin()
    position.note_confirmed(2)
    position.note_lost(5)
    assert position.resume(answer(4)) == 2
    assert position.begin() == 3
    assert position.done == 4


def test_messages_sent_before_the_first_answer_are_sent_again() -> None:
    position = Position(ANN)
    position.note_lost(3)
    assert position.resume(answer(2)) == 0
    assert position.begin() == 3
    assert position.found == 2


def test_messages_that_are_dropped_between_connections_count_as_done() -> None:
    position = Position(ANN)
    position.resume(answer(0))
    position.begin()
    position.note_lost(2)
    position.note_dropped(3)  # two that were sent, and a new one
    assert Zeps.decode(position.request()) == Resume(ANN, 1, 2)
    assert position.resume(answer(2)) == 0


def test_messages_that_the_broker_does_not_have_can_be_dropped() -> None:
    position = Position(ANN)
    position.resume(answer(0))
    position.begin()
    position.note_lost(2)
    position.resume(answer(0))
    position.begin()
    position.note_dropped(2)
    assert position.done == 0
