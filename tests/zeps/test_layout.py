"""zambezi.zeps.layout: the offsets agree with the grammar, and with ZMTP's frames."""

from hypothesis import given
from hypothesis import strategies as st

from zambezi.wire.text import as_bytes
from zambezi.zeps.journal.entry import IndexEntry, pack
from zambezi.zeps.layout import (
    BODY_LENGTH,
    DELIVER,
    DELIVER_KEY,
    DELIVER_LEAST,
    ENTRY,
    ENTRY_FIELDS,
    GROWTH,
    LONG,
    LONG_FLAG,
    PUBLISH,
    PUBLISH_KEY,
    PUBLISH_LEAST,
    SEQUENCE_AT,
    SHORT,
    frame_header,
    key_of,
    sequence_of,
)
from zambezi.zeps.messages import Deliver, Publish
from zambezi.zmtp.frames import encode

keys = st.text(max_size=60)
bodies = st.binary(max_size=400)


@given(keys, bodies)
def test_publish(key: str, body: bytes) -> None:
    octets = Publish(key, body).encode()[0]
    name = as_bytes(key)
    assert octets.startswith(PUBLISH)
    assert octets[PUBLISH_KEY - 1] == len(name)
    assert octets[PUBLISH_KEY : PUBLISH_KEY + len(name)] == name
    assert octets[PUBLISH_KEY + len(name) :] == BODY_LENGTH.pack(len(body)) + body
    assert len(octets) == PUBLISH_LEAST + len(name) + len(body)


@given(st.integers(0, (1 << 64) - 1), keys, bodies)
def test_deliver(sequence: int, key: str, body: bytes) -> None:
    octets = Deliver(sequence, key, body).encode()[0]
    name = as_bytes(key)
    assert octets.startswith(DELIVER)
    assert octets[SEQUENCE_AT : SEQUENCE_AT + 8] == sequence.to_bytes(8)
    assert sequence_of(octets) == sequence
    assert key_of(octets) == name
    assert octets[DELIVER_KEY + len(name) :] == BODY_LENGTH.pack(len(body)) + body
    assert len(octets) == DELIVER_LEAST + len(name) + len(body)
    assert len(octets) - len(Publish(key, body).encode()[0]) == GROWTH


@given(st.integers(0, 70_000))
def test_a_frame_header_is_zmtps(size: int) -> None:
    header = frame_header(size)
    assert header + bytes(size) == encode([bytes(size)])
    assert len(header) == (SHORT if size < 256 else LONG)
    assert header[0] == (0 if size < 256 else LONG_FLAG)


def test_an_index_entry_has_64_bytes_in_the_order_of_its_fields() -> None:
    assert ENTRY.size == sum(ENTRY_FIELDS.values()) == 64
    entry = IndexEntry(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    assert list(ENTRY_FIELDS)[:10] == list(entry._fields)
    assert ENTRY.unpack(pack(*entry))[:10] == entry
