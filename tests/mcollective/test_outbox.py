"""zambezi.mcollective.outbox: answers go before messages, and nothing goes before an answer that is pending."""

from __future__ import annotations

import pytest

from zambezi.mcollective.bounds import Counters
from zambezi.mcollective.outbox import Outbox
from zambezi.mcollective.outputs import Deliver, Drop, Send
from zambezi.mcollective.session import Session, Topic

OK = [(b"", b"OK", b"ID", b"%d" % number) for number in range(5)]


def session(name: bytes = b"c") -> Session:
    return Session(None, name, "", "", 0.0)


def outbox(held_bytes: int = 1000) -> tuple[Outbox, Counters]:
    counters = Counters()
    return Outbox(counters, held_bytes), counters


def taken(out: Outbox) -> list[tuple[bytes, object]]:
    """Return the outputs in order, with their client: frames of a message, or messages of a delivery."""
    found: list[tuple[bytes, object]] = []
    for output in out.take():
        if isinstance(output, Send):
            found.append((output.session.identity, output.frames))
        elif isinstance(output, Deliver):
            found += [(each.identity, list(output.shared.messages)) for each in output.sessions]
    return found


def test_answers_and_events_go_before_deliveries() -> None:
    out, _ = outbox()
    client = session()
    topic = Topic(b"a", kept=False, payer=client)
    out.deliver([client], [(b"x",)], topic)
    out.answer(client, OK[1], b"1")
    out.add(Drop(client, "gone"))
    answer, drop, delivery = out.take()
    assert answer == Send(client, OK[1], answer=True)
    assert drop == Drop(client, "gone")
    assert isinstance(delivery, Deliver)
    assert (delivery.sessions, delivery.topic) == ([client], topic)
    assert out.take() == []


def test_a_message_without_an_id_is_no_answer_and_does_not_overtake() -> None:
    out, _ = outbox()
    client = session()
    out.answer(client, (b"", b"ERROR"), None)
    assert out.take() == [Send(client, (b"", b"ERROR"), answer=False)]


def test_while_an_answer_is_pending_all_else_waits_for_it_in_order() -> None:
    out, _ = outbox()
    client, other = session(), session(b"other")
    first, second = out.promise(client, b"1"), out.promise(client, b"2")
    out.answer(client, OK[3], b"3")
    out.deliver([client, other], [(b"x",)])
    out.answer(client, (b"", b"ERROR"), None)
    assert out.holding == 1
    assert taken(out) == [(b"other", [(b"x",)])]
    out.resolve(client, [second], "")
    assert taken(out) == []
    out.resolve(client, [first], "")
    assert taken(out) == [(b"c", frames) for frames in (OK[1], OK[2], OK[3], [(b"x",)], (b"", b"ERROR"))]
    assert (out.holding, client.held, client.held_bytes) == (0, [], 0)


def test_a_pending_answer_can_become_an_error() -> None:
    out, counters = outbox()
    client = session()
    client.delimited = False
    out.resolve(client, [out.promise(client, b"7")], "the disk is full")
    assert taken(out) == [(b"c", (b"ERROR", b"ID", b"7", b"MESSAGE", b"the disk is full"))]
    assert counters.errors == 1


def test_messages_held_for_a_client_are_bounded_and_the_rest_is_missed() -> None:
    out, counters = outbox(held_bytes=10)
    client = session()
    answer = out.promise(client, b"1")
    for _ in range(5):
        out.deliver([client], [(b"12345",)])
    assert (len(client.held), client.held_bytes, client.missed, counters.missed) == (2, 10, 3, 3)
    out.resolve(client, [answer], "")
    assert len(taken(out)) == 3


def test_a_client_that_is_gone_leaves_no_pending_answers() -> None:
    out, _ = outbox()
    client = session()
    out.promise(client, b"1")
    out.forget(client)
    assert (out.holding, len(client.pending)) == (0, 0)


def test_messages_to_a_client_that_settles_are_held_and_its_answers_are_not() -> None:
    out, _ = outbox()
    client, other = session(), session(b"other")
    out.settle(client)
    out.deliver([client, other], [(b"x",)])
    out.answer(client, OK[1], b"1")
    out.answer(client, (b"an error",), None)
    assert taken(out) == [(b"c", OK[1]), (b"other", [(b"x",)])]
    out.settled(client)
    out.deliver([client], [(b"z",)])
    assert taken(out) == [(b"c", [(b"x",)]), (b"c", (b"an error",)), (b"c", [(b"z",)])]
    assert out.holding == 0


def test_a_burst_ends_the_settling_of_a_client_and_nothing_is_missed() -> None:
    out, counters = outbox(held_bytes=10)
    client = session()
    out.settle(client)
    for _ in range(5):
        out.deliver([client], [(b"12345",)])
    assert taken(out) == [(b"c", [(b"12345",)])] * 5
    out.settled(client)
    assert (out.holding, client.settling, counters.missed) == (0, False, 0)


@pytest.mark.parametrize("settled_first", [True, False])
def test_a_client_that_settles_and_has_pending_answers_waits_for_both(settled_first: bool) -> None:
    out, _ = outbox()
    client = session()
    out.settle(client)
    answer = out.promise(client, b"1")
    out.deliver([client], [(b"x",)])
    if settled_first:
        out.settled(client)
    else:
        out.resolve(client, [answer], "")
    assert (b"c", [(b"x",)]) not in taken(out)
    if settled_first:
        out.resolve(client, [answer], "")
    else:
        out.settled(client)
    assert taken(out)[-1] == (b"c", [(b"x",)])
