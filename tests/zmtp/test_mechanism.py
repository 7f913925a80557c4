"""zambezi.zmtp.mechanism: the state machine of a handshake, with NULL."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.zmtp.engines import OTHER_KEYS
from zambezi.zmtp import commands, frames
from zambezi.zmtp.authenticator import Authenticator, Claim
from zambezi.zmtp.commands import command, encode_metadata, error
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.frames import Batch, CommandFrame, Item
from zambezi.zmtp.mechanism import Null, Refused, Rejected, Terms

READY = command(b"READY", encode_metadata({"Socket-Type": b"ROUTER", "Identity": b"you"}))


def null(authenticator: Authenticator | None = None, address: str = "") -> Null:
    return Null(Terms({"Socket-Type": b"DEALER", "Identity": b"me"}, address, authenticator))


def test_null_is_complete_when_both_sides_have_sent_ready() -> None:
    mechanism = null()
    assert mechanism.begin() == command(b"READY", encode_metadata({"Socket-Type": b"DEALER", "Identity": b"me"}))
    assert mechanism.state == "wait for READY"
    assert mechanism.receive(READY, 0.0) is None
    assert mechanism.complete
    assert mechanism.peer == {"socket-type": b"ROUTER", "identity": b"you"}
    assert mechanism.user == ""


def test_the_worked_example_of_the_specification() -> None:
    ready = bytes([4, 41]) + b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
    assert frames.encode_command(Null(Terms({"Socket-Type": b"DEALER", "Identity": b""})).begin()) == ready


@pytest.mark.parametrize("name", [b"HELLO", b"PING", b"MESSAGE", b"ready", b"READYX", b"\xff"])
def test_another_command_than_ready_is_refused(name: bytes) -> None:
    mechanism = null()
    with pytest.raises(ProtocolError, match="is not allowed now"):
        mechanism.receive(command(name, b""), 0.0)
    assert not mechanism.complete


def test_a_second_ready_is_refused() -> None:
    mechanism = null()
    mechanism.receive(READY, 0.0)
    with pytest.raises(ProtocolError, match="is not allowed now"):
        mechanism.receive(READY, 0.0)


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x09READY", b"\x05READY\x00", b"\x05READY\x01"])
def test_malformed_commands(body: bytes) -> None:
    mechanism = null()
    with pytest.raises(ProtocolError):
        mechanism.receive(body, 0.0)
    assert not mechanism.complete


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("300", "try again later"),
        ("400", "does not let us in"),
        ("500", "failed while it authenticated us"),
        ("go away", "refused the handshake: go away"),
        ("", "no reason given"),
    ],
)
def test_the_status_of_an_error_is_explained(status: str, words: str) -> None:
    with pytest.raises(Rejected, match=words):
        null().receive(error(status), 0.0)


def test_metadata_is_checked_before_the_handshake_is_complete() -> None:
    mechanism = null()

    def check(properties: Mapping[str, bytes]) -> None:
        assert properties["identity"] == b"you"
        raise ProtocolError("not you")

    mechanism.check = check
    with pytest.raises(ProtocolError, match="not you"):
        mechanism.receive(READY, 0.0)
    assert not mechanism.complete
    assert mechanism.peer == {}


def test_null_asks_the_authenticator_about_the_address_first() -> None:
    with pytest.raises(Refused, match=r"192\.0\.2\.1"):
        null(Authenticator(deny=["192.0.2.0/24"]), "192.0.2.1").begin()
    with pytest.raises(Refused, match="NULL"):
        null(Authenticator(keys={"a": OTHER_KEYS.public})).begin()
    allowed = null(Authenticator(allow=["192.0.2.0/24"]), "192.0.2.1")
    assert allowed.begin()
    assert allowed.claim == Claim("NULL", "192.0.2.1")


def test_null_leaves_messages_as_they_are() -> None:
    mechanism = null()
    assert mechanism.encode([b"a", (b"b", b"c")], False) == frames.encode([b"a", (b"b", b"c")])
    assert mechanism.encode([b"a", b"b"], True) == frames.encode([b"a", b"b"])
    assert mechanism.encode_command(b"\x04PONG") == frames.encode_command(b"\x04PONG")
    items: list[Item] = [Batch([b"a"]), CommandFrame(b"\x04PONG")]
    assert mechanism.decode(items) is items
    assert mechanism.failure is None


def test_the_names_of_the_commands() -> None:
    assert (commands.READY, commands.ERROR, commands.PING, commands.PONG) == (b"READY", b"ERROR", b"PING", b"PONG")
    assert (commands.SUBSCRIBE, commands.CANCEL) == (b"SUBSCRIBE", b"CANCEL")
