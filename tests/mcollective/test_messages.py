"""zambezi.mcollective.messages: frames to commands and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.mcollective.errors import Malformed
from zambezi.mcollective.messages import (
    ID,
    MESSAGE,
    PUT,
    TOPIC,
    VERBS,
    Command,
    check,
    decode,
    error,
    message_of,
    noop,
    number_of,
    ok,
    quick_topic,
)

KEYS = st.binary(min_size=1, max_size=12)
BODIES = st.lists(st.binary(max_size=12), max_size=3)
# Frames that are close to a PUT, so that every check is reached.
NEAR = st.sampled_from([b"", b"PUT", b"TOPIC", b"X-REPLY-TO", b"ID", b"a topic", b"X-A", b"NOOP", b"MESSAGE"])


@pytest.mark.spec("MCO-03")
@given(KEYS, st.dictionaries(KEYS, st.binary(max_size=12), max_size=5), BODIES, st.booleans())
def test_a_command_comes_back_as_it_was(
    verb: bytes, headers: dict[bytes, bytes], positional: list[bytes], delimited: bool
) -> None:
    command = Command(verb, headers, tuple(positional), delimited)
    found = decode(command.encode())
    assert found == command
    assert list(found.headers) == list(headers)


@pytest.mark.spec("MCO-03")
def test_the_form_of_a_message() -> None:
    assert decode([b"", b"PUT", b"TOPIC", b"t", b"", b"body", b"", b"more"]) == Command(
        b"PUT", {b"TOPIC": b"t"}, (b"body", b"", b"more"), True
    )
    assert decode([b"NOOP"]) == Command(b"NOOP", {}, (), False)
    assert decode([b"SUB", b"", b"a", b"b"]) == Command(b"SUB", {}, (b"a", b"b"), False)
    assert decode([b"", b"NOOP", b""]) == Command(b"NOOP")


def test_an_empty_value_is_a_value() -> None:
    assert decode([b"NOOP", b"X-A", b"", b"X-B", b"1"]).headers == {b"X-A": b"", b"X-B": b"1"}


def test_a_key_that_comes_twice_keeps_its_first_place_and_its_last_value() -> None:
    headers = decode([b"NOOP", b"X-A", b"1", b"X-B", b"2", b"X-A", b"3"]).headers
    assert list(headers.items()) == [(b"X-A", b"3"), (b"X-B", b"2")]


@pytest.mark.spec("MCO-13")
@pytest.mark.parametrize(
    ("frames", "words", "id"),
    [
        ([b""], "empty message", None),
        ([b"", b"PUT", b"TOPIC"], "no value", None),
        ([b"PUT", b"ID", b"7", b"TOPIC"], "'TOPIC' has no value", b"7"),
        ([b"", b"PUT", b"TOPIC", b"", b"body"], "'body' has no value", None),
    ],
)
def test_what_is_not_in_pairs_is_malformed(frames: list[bytes], words: str, id: bytes | None) -> None:  # noqa: A002
    with pytest.raises(Malformed, match=words) as caught:
        decode(frames)
    assert caught.value.id == id


@pytest.mark.spec("MCO-12", "MCO-13")
@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([b"HELLO"], "'HELLO' is no verb; there are CONNECT, DISCONNECT, SUB, UNSUB, PUT, NOOP"),
        ([b"put", b"TOPIC", b"t", b"", b"x"], "'put' is no verb"),
        ([b"MESSAGE", b"TOPIC", b"t", b"", b"x"], "only the middleware sends"),
        ([b"NOOP", b"TTL", b"1"], "'TTL'.*reserved"),
        ([b"NOOP", b"x-lower", b"1"], "'x-lower'.*reserved"),
        ([b"PUT", b"", b"x"], "needs the header TOPIC"),
        ([b"PUT", b"X-A", b"b", b"", b"x"], "needs the header TOPIC"),
        ([b"PUT", b"TOPIC", b"t"], "no body"),
        ([b"PUT", b"TOPIC", b"t", b""], "no body"),
    ],
)
def test_what_a_client_must_not_say(frames: list[bytes], words: str) -> None:
    with pytest.raises(Malformed, match=words):
        check(decode(frames), "client")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_may_have_an_id_and_headers_of_applications(verb: bytes) -> None:
    headers = {ID: b"1", b"X-ANY": b"thing", TOPIC: b"t"} if TOPIC in VERBS[verb].headers else {ID: b"1", b"X-A": b"b"}
    by = "middleware" if VERBS[verb].said_by == "middleware" else "client"
    check(Command(verb, headers, (b"body",)), by)  # type: ignore[arg-type]


def test_answers_in_both_forms() -> None:
    assert ok(b"7", True) == (b"", b"OK", b"ID", b"7")
    assert ok(b"7", False) == (b"OK", b"ID", b"7")
    assert error("no", b"7", True) == (b"", b"ERROR", b"ID", b"7", b"MESSAGE", b"no")
    assert error("no", None, False) == (b"ERROR", b"MESSAGE", b"no")
    assert noop(True) == (b"", b"NOOP")
    assert noop(False) == (b"NOOP",)


@pytest.mark.spec("MCO-11", "MCO-12")
def test_a_message_has_all_headers_of_the_put_but_its_id_in_their_order() -> None:
    put = decode([b"PUT", b"X-Z", b"1", b"ID", b"9", b"TOPIC", b"t", b"X-A", b"\xff\0", b"", b"one", b"", b"three"])
    assert message_of(put) == (
        b"", b"MESSAGE", b"X-Z", b"1", b"TOPIC", b"t", b"X-A", b"\xff\0", b"", b"one", b"", b"three",
    )  # fmt: skip


@given(st.lists(NEAR, min_size=1, max_size=9))
def test_the_quick_way_agrees_with_the_grammar(frames: list[bytes]) -> None:
    topic = quick_topic(frames)
    if topic:
        command = decode(frames)
        check(command, "client")
        assert command.verb == PUT
        assert command.headers[TOPIC] == topic
        assert command.id is None
        assert message_of(command) == (b"", MESSAGE, *frames[2:])


@pytest.mark.parametrize("more", [[], [b"X-REPLY-TO", b"mcollective reply me 1"]])
def test_the_quick_way_knows_what_connectors_send(more: list[bytes]) -> None:
    assert quick_topic([b"", b"PUT", b"TOPIC", b"mcollective x", *more, b"", b"body"]) == b"mcollective x"


@pytest.mark.parametrize(
    ("value", "number"), [(b"7", 7), ("7", 7), (b"", None), (b"-1", None), ("\u0663", None), (b"7" * 5000, None)]
)
def test_the_number_of_a_header(value: bytes | str, number: int | None) -> None:
    assert number_of(value) == number
