"""zambezi.spark.fleet_columns: messages of a fleet as Arrow columns; invalid ones become null and disturb no others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from struct import pack
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from tests.interop.ruby_bodies import BODIES
from zambezi.spark.fleet_columns import MAX_STRINGS, envelope_column, message_column

INVALID = (b"", b"\xaa", b"no log", bytes(40))


def column(bodies: Sequence[bytes | None]) -> Any:
    return pa.array(bodies, pa.binary())


def fleet_body(sender: bytes, *frames: bytes) -> bytes:
    """Return a body of the stream `mcollective`."""
    return b"".join(pack(">I", len(part)) + part for part in (sender, *frames))


def test_a_request_is_decoded() -> None:
    body = fleet_body(b"ann\xff", b"MESSAGE", b"TOPIC", b"jobs", b"X-REPLY-TO", b"reply ann", b"", b"paint", b"twice")
    [found] = message_column(column([body])).to_pylist()
    assert found == {
        "sender": b"ann\xff",
        "headers": [("TOPIC", "jobs"), ("X-REPLY-TO", "reply ann")],
        "content": [b"paint", b"twice"],
    }


frame = st.binary(min_size=1, max_size=20)
text = st.text(min_size=1, max_size=8).map(str.encode)


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=20),
            st.lists(st.tuples(text, text), max_size=4, unique_by=lambda pair: pair[0]),
            st.lists(frame, max_size=3),
        ),
        max_size=20,
    ),
    st.data(),
)
def test_invalid_bodies_do_not_disturb_others(messages: list[Any], data: st.DataObject) -> None:
    bodies: list[bytes | None] = []
    expected: list[Any] = []
    for sender, pairs, content in messages:
        if data.draw(st.booleans()):
            bodies.append(
                data.draw(
                    st.sampled_from([None, *INVALID, fleet_body(b"a"), fleet_body(b"a", b"MESSAGE", b"TOPIC", b"t")])
                )
            )
            expected.append(None)
        bodies.append(fleet_body(sender, b"MESSAGE", *[part for pair in pairs for part in pair], b"", *content))
        expected.append(
            {
                "sender": sender,
                "headers": [(key.decode(), value.decode()) for key, value in pairs],
                "content": content,
            }
        )
    made = message_column(column(bodies))
    made.validate(full=True)
    assert made.to_pylist() == expected


@given(st.binary(max_size=60))
def test_random_bytes_do_no_harm(body: bytes) -> None:
    message_column(column([body, fleet_body(b"a", b"MESSAGE", b""), body])).validate(full=True)


def test_a_slice_of_bodies() -> None:
    bodies = column([fleet_body(b"a", b"MESSAGE", b"", b"1"), fleet_body(b"b", b"MESSAGE", b"", b"2"), b"x"]).slice(
        1, 1
    )
    assert [found["sender"] for found in message_column(bodies).to_pylist()] == [b"b"]


def test_headers_that_are_not_utf8_are_replaced() -> None:
    bodies = [fleet_body(b"a", b"MESSAGE", b"TOPIC", topic, b"\xff", b"1", b"") for topic in (b"jobs\xe9", b"ok")]
    made = message_column(column(bodies))
    made.validate(full=True)
    assert [found["headers"] for found in made.to_pylist()] == [
        [("TOPIC", "jobs\ufffd"), ("\ufffd", "1")],
        [("TOPIC", "ok"), ("\ufffd", "1")],
    ]


def test_bodies_with_too_many_strings_are_invalid() -> None:
    most = fleet_body(b"a", b"MESSAGE", b"", *[b"x"] * (MAX_STRINGS - 3))
    bodies = [most, most + bytes(4), bytes(4_000_000), fleet_body(b"a", b"MESSAGE", b"", b"x")]
    made = message_column(column(bodies))
    made.validate(full=True)
    assert [found and len(found["content"]) for found in made.to_pylist()] == [MAX_STRINGS - 3, None, None, 1]


def test_no_bodies() -> None:
    assert message_column(column([])).to_pylist() == []
    assert envelope_column(column([])).to_pylist() == []


def test_envelopes_of_ruby_programs() -> None:
    made = envelope_column(column([BODIES["psk request"], None, b"{}", BODIES["ssl yaml error"], b"\x04\x08[", b"---"]))
    made.validate(full=True)
    request, *others = made.to_pylist()
    assert request == {
        "format": "marshal",
        "kind": "request",
        "id": "7a3c3ad3f2d85ecbb3c8e4b5d7b1a002",
        "agent": "rpcutil",
        "sender": "node3.example.net",
        "time": datetime(2023, 11, 15, 12, tzinfo=UTC),
        "is_encrypted": False,
        "caller": "uid=0",
        "collective": "mcollective",
        "ttl": 60,
        "filter": None,
        "action": "get_fact",
        "wants_reply": True,
        "status": None,
        "error": None,
    }
    assert [found and (found["format"], found["status"]) for found in others] == [
        None,
        None,
        ("yaml", "error"),
        None,
        None,
    ]


@given(st.lists(st.sampled_from(sorted(BODIES.values())) | st.binary(max_size=20) | st.none(), max_size=6))
def test_columns_of_any_content(contents: list[bytes | None]) -> None:
    made = envelope_column(column(contents))
    made.validate(full=True)
    assert [found is not None for found in made.to_pylist()] == [each in BODIES.values() for each in contents]
