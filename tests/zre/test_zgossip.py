"""zambezi.zre.zgossip: the messages of zgossip, byte by byte, and the keys of tuples."""

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.wire import BadValue, WireError
from zambezi.zre import zgossip

UUID_TEXT = "BCA5D8D589BC46B99296CAB47DCF9F43"
VALUE = "tcp://127.0.0.1:7001"


@pytest.mark.parametrize(
    ("message", "octets"),
    [
        (zgossip.Hello(), "aaa00101"),
        (
            zgossip.Publish(UUID_TEXT, VALUE),
            "aaa00201" + "20" + UUID_TEXT.encode().hex() + "00000014" + VALUE.encode().hex() + "00000000",
        ),
        (zgossip.Publish("k", "v", 1500), "aaa00201016b0000000176000005dc"),
        (zgossip.Ping(), "aaa00301"),
        (zgossip.Pong(), "aaa00401"),
        (zgossip.Invalid(), "aaa00501"),
    ],
)
def test_messages_have_the_bytes_of_czmq(message: zgossip.Zgossip, octets: str) -> None:
    assert message.encode() == (bytes.fromhex(octets),)
    assert zgossip.Zgossip.decode(bytes.fromhex(octets)) == message


def test_another_version_is_refused() -> None:
    with pytest.raises(BadValue):
        zgossip.Zgossip.decode(bytes.fromhex("aaa00102"))


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(octets: bytes) -> None:
    for start in (b"", b"\xaa\xa0\x02\x01"):
        with contextlib.suppress(WireError):
            zgossip.Zgossip.decode(start + octets)


def test_the_key_of_a_node_is_its_uuid_as_zyre_writes_it() -> None:
    uuid = UUID(UUID_TEXT)
    assert zgossip.key_of(uuid) == UUID_TEXT
    assert zgossip.uuid_of(UUID_TEXT) == zgossip.uuid_of(UUID_TEXT.lower()) == uuid


@pytest.mark.parametrize(
    "key", ["", "inproc://service1", UUID_TEXT[:-1], UUID_TEXT[:-1] + "G", str(UUID(int=1)), "{" + "0" * 30 + "}"]
)
def test_other_keys_are_not_nodes(key: str) -> None:
    assert zgossip.uuid_of(key) is None
