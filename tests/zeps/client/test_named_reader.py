"""zambezi.zeps.client.named_reader: claims, acknowledgements, and what the broker has confirmed."""

from zambezi.zeps.client.named_reader import NamedReader
from zambezi.zeps.messages import AGAIN, EARLIEST, REFUSE, TAKE, Ack, Claim, ClaimOk, Zeps


def reader(*, takes: bool = True) -> NamedReader:
    return NamedReader("billing", EARLIEST, takes=takes, is_automatic=True)


def claim(one: NamedReader) -> Claim:
    message = Zeps.decode(one.claim())
    assert isinstance(message, Claim)
    return message


def test_the_first_claim_takes_the_name_or_not_and_the_next_ones_come_again() -> None:
    one, other = reader(), reader(takes=False)
    first = claim(one)
    assert (first.name, first.latest, first.mode) == ("billing", EARLIEST, TAKE)
    assert claim(other).mode == REFUSE
    assert claim(other).owner != first.owner
    one.note_disconnected()
    assert claim(one) == first  # the broker has not answered yet
    one.note_claimed(ClaimOk(3, 0))
    one.note_disconnected()
    assert claim(one).mode == AGAIN
    assert claim(one).owner == first.owner


def test_only_the_last_acknowledgement_is_sent() -> None:
    one = reader()
    one.note_claimed(ClaimOk(3, 0))
    assert one.take_ack() is None
    assert one.acknowledge(4)
    assert not one.acknowledge(5)  # it is scheduled already
    assert not one.acknowledge(2)
    assert one.take_ack() == Ack(5).encode()[0]
    assert one.take_ack() is None
    one.is_scheduled = False
    assert one.acknowledge(6)


def test_a_ping_confirms_what_was_sent_before_it() -> None:
    one = reader()
    one.note_claimed(ClaimOk(3, 0))
    assert one.is_confirmed
    one.acknowledge(5)
    one.take_ack()
    one.note_ping()
    one.acknowledge(9)
    one.take_ack()
    one.note_ping()
    assert one.confirmed == 3
    one.note_ping_answered()
    assert one.confirmed == 5
    assert one.confirmed < one.acknowledged
    one.note_ping_answered()
    assert one.is_confirmed
    one.note_ping_answered()  # an answer without a question
    assert one.confirmed == 9


def test_what_the_broker_does_not_have_is_sent_again() -> None:
    one = reader()
    one.note_claimed(ClaimOk(0, 0))
    one.acknowledge(7)
    one.take_ack()
    one.note_ping()
    one.note_disconnected()
    one.note_ping_answered()
    assert one.confirmed == 0
    one.note_claimed(ClaimOk(2, 0))
    assert one.confirmed == 2
    assert one.take_ack() == Ack(7).encode()[0]
    one.note_disconnected()
    one.note_claimed(ClaimOk(7, 0))
    assert one.take_ack() is None
    assert one.is_confirmed
