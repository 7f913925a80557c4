"""zambezi.zeps.ranges: the form of requests and answers, and answers that are not of this form."""

from __future__ import annotations

import json

import pytest

from zambezi.zeps.block import message_at
from zambezi.zeps.errors import BrokerError
from zambezi.zeps.messages import Deliver, Publish, Zeps
from zambezi.zeps.ranges import (
    Answer,
    State,
    block_answer,
    json_answer,
    read_block_head,
    read_end,
    read_points,
    read_states,
    request,
)


def decoded(answer: Answer) -> Deliver:
    message = Zeps.decode(b"".join(answer.pieces(framed=False)))
    assert isinstance(message, Deliver)
    return message


def test_a_request_is_a_publish() -> None:
    message = Zeps.decode(request("read", stream="ü\udcff", after=5))
    assert isinstance(message, Publish)
    assert message.key == "read"
    assert json.loads(message.body) == {"stream": "ü\udcff", "after": 5}


@pytest.mark.parametrize("size", [0, 10, 70_000])
def test_an_answer_is_a_deliver(size: int) -> None:
    answer = Answer(b"key", b"x" * size, b"yz")
    answer.sequence = 7
    assert decoded(answer) == Deliver(7, "key", b"x" * size + b"yz")
    framed = b"".join(answer.pieces(framed=True))
    place = message_at(framed, 0, len(framed))
    assert place is not None
    assert (place.sequence, place.stop) == (7, len(framed))
    assert len(answer) == len(b"".join(answer.pieces(framed=False)))


def test_states_and_points() -> None:
    state = State("ü\udcff", "inc", 1, 5, 600, 7, 8)
    assert read_states(decoded(json_answer(b"states", [state])).body) == [state]
    assert read_points(decoded(json_answer(b"points", [(1, 0), (9, 500)])).body) == [(1, 0), (9, 500)]
    assert read_end(decoded(json_answer(b"end", {"result": "all"})).body) == {"result": "all"}


def test_the_head_of_a_block() -> None:
    body = decoded(block_answer(5, 9, bytes(32), b"messages")).body
    head = read_block_head(body)
    assert (head.first, head.last, head.pairs) == (5, 9, 2)
    assert body[head.messages :] == b"messages"


@pytest.mark.parametrize("body", [b"", bytes(19), bytes(20), b"".join([bytes(19), b"\xff"]), b"\xff" * 40])
def test_a_block_that_cannot_be_parsed(body: bytes) -> None:
    with pytest.raises(BrokerError, match="sent a block that cannot be parsed"):
        read_block_head(body)


@pytest.mark.parametrize("body", [b"", b"{", b"5", b"[5]", b"[[]]", b'[["s", 1]]', b"[[1, true]]", b"[" * 100_000])
def test_answers_that_cannot_be_parsed(body: bytes) -> None:
    for read in (read_states, read_points, read_end):
        with pytest.raises(BrokerError, match="cannot be parsed"):
            read(body)
