"""zambezi.zeps.messages: the grammar, byte by byte as in the specification."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.wire import WireError
from zambezi.zeps.messages import (
    Attach,
    AttachOk,
    Credit,
    Deliver,
    Detach,
    DetachOk,
    Invalid,
    Ping,
    PingOk,
    Publish,
    Subscribe,
    SubscribeOk,
    Zeps,
)

OCTETS = [
    (Attach("prices"), "aaa501 04 5a455053 0001 06 707269636573"),
    (AttachOk(), "aaa502"),
    (Subscribe("gold.", 7), "aaa503 05 676f6c642e 0000000000000007"),
    (SubscribeOk(), "aaa504"),
    (Credit(65536), "aaa505 0000000000010000"),
    (Publish("gold", b"2048"), "aaa506 04 676f6c64 00000004 32303438"),
    (Deliver(258, "gold", b"2048"), "aaa507 0000000000000102 04 676f6c64 00000004 32303438"),
    (Ping(), "aaa508"),
    (PingOk(), "aaa509"),
    (Detach(), "aaa50a"),
    (DetachOk(), "aaa50b"),
    (Invalid("no"), "aaa50c 02 6e6f"),
]


@pytest.mark.spec("ZEP-01", "ZEP-02", "ZEP-03", "ZEP-04", "ZEP-05", "ZEP-06", "ZEP-07", "ZEP-08")
@pytest.mark.parametrize(("message", "octets"), OCTETS, ids=lambda value: type(value).__name__)
def test_each_message_has_the_bytes_of_the_specification(message: Zeps, octets: str) -> None:
    assert message.encode() == (bytes.fromhex(octets),)
    assert Zeps.decode(bytes.fromhex(octets)) == message


@pytest.mark.spec("ZEP-01")
@pytest.mark.parametrize(
    "octets",
    [
        "aaa501 04 5a455054 0001 06 707269636573",  # another protocol
        "aaa501 04 5a455053 0002 06 707269636573",  # another version
        "aaa501 04 5a455053 0001 06 7072696365",  # too short
        "aaa501 04 5a455053 0001 06 707269636573 00",  # too long
    ],
)
def test_an_attach_of_anything_else_is_none(octets: str) -> None:
    with pytest.raises(WireError):
        Zeps.decode(bytes.fromhex(octets))


def test_every_message_is_in_the_list() -> None:
    assert sorted(message.encode()[0][2] for message, _ in OCTETS) == list(range(1, 13))


@given(st.binary(max_size=300) | st.binary(max_size=60).map(lambda rest: b"\xaa\xa5" + rest))
def test_any_bytes_are_a_message_or_an_error(octets: bytes) -> None:
    try:
        message = Zeps.decode(octets)
    except WireError:
        return
    assert message.encode() == (octets,)
