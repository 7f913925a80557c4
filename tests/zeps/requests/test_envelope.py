"""The messages of request and reply, as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zeps.directory import GROUP_NAME
from zambezi.zeps.layout import key_and_body
from zambezi.zeps.messages import Publish
from zambezi.zeps.requests.envelope import (
    GROWTH,
    LONGEST,
    MAGIC,
    Asked,
    Stored,
    encode_reply,
    group_of,
    publish_frame,
    read_asked,
    read_stored,
)


@given(st.binary(min_size=8, max_size=8), st.integers(0, LONGEST), st.binary(max_size=100))
def test_a_request_is_read_as_it_was_written(number: bytes, timeout: int, content: bytes) -> None:
    asked = Asked(number, timeout, content)
    assert read_asked(asked.encode()) == asked
    stored = Stored(b"a" * 16, number, timeout, content)
    assert read_stored(stored.encode()) == stored
    assert len(stored.encode()) == len(asked.encode()) + GROWTH
    assert encode_reply(stored, content) == b"a" * 16 + number + content


@pytest.mark.parametrize("body", [b"", MAGIC, MAGIC + bytes(31), b"X" * 40])
def test_another_message_is_no_request(body: bytes) -> None:
    assert read_stored(body) is None


def test_a_short_request_is_none() -> None:
    assert read_asked(bytes(11)) is None
    assert read_asked(bytes(12)) == Asked(bytes(8), 0, b"")


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=255), st.binary(max_size=300))
def test_a_frame_is_a_publish(key: str, body: bytes) -> None:
    frame = publish_frame(key.encode(), body)
    assert frame == Publish(key, body).encode()[0]
    assert key_and_body(frame) == (key.encode(), body)


def test_the_name_of_a_group_of_servers_is_never_too_long() -> None:
    names = [group_of("x" * length) for length in (1, 242, 243, 255)]
    assert names[1] == "serve " + "x" * 242
    assert len(set(names)) == 4
    assert max(map(len, names)) <= GROUP_NAME
