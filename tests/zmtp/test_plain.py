"""zambezi.zmtp.plain: users and passwords, and malformed handshakes."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zmtp.engines import PASSWORD, guard
from zambezi.zmtp.authenticator import Authenticator, Claim
from zambezi.zmtp.commands import command, encode_metadata, error
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.mechanism import Refused, Rejected, Terms
from zambezi.zmtp.plain import PlainClient, PlainServer

METADATA = {"Socket-Type": b"DEALER"}
INITIATE = command(b"INITIATE", encode_metadata(METADATA))


def client(username: bytes = b"ali", password: bytes = PASSWORD.encode()) -> PlainClient:
    return PlainClient(Terms(METADATA), username, password)


def server(authenticator: Authenticator | None = None, address: str = "") -> PlainServer:
    return PlainServer(Terms({"Socket-Type": b"ROUTER"}, address, authenticator))


def hello(username: bytes, password: bytes) -> bytes:
    return command(b"HELLO", bytes([len(username)]) + username + bytes([len(password)]) + password)


def test_the_whole_handshake() -> None:
    one, other = client(), server(guard("PLAIN"), "192.0.2.1")
    first = one.begin()
    assert first == b"\x05HELLO\x03ali\x0bopen sesame"
    welcome = other.receive(first, 0.0)
    assert welcome == b"\x07WELCOME"
    assert other.user == "ali"
    assert other.state == "wait for INITIATE"
    initiate = one.receive(welcome, 0.0)
    assert initiate == INITIATE
    ready = other.receive(initiate, 0.0)
    assert ready == command(b"READY", encode_metadata({"Socket-Type": b"ROUTER"}))
    assert one.receive(ready, 0.0) is None
    assert one.complete
    assert other.complete
    assert other.peer == {"socket-type": b"DEALER"}
    assert one.peer == {"socket-type": b"ROUTER"}
    assert other.claim == Claim("PLAIN", "192.0.2.1", "ali", PASSWORD)
    assert other.begin() is None


@pytest.mark.parametrize(
    ("username", "password"),
    [
        (b"ali", b"wrong"),
        (b"ali", b""),
        (b"baba", PASSWORD.encode()),
        (b"", b""),
        (b"ALI", PASSWORD.encode()),
        (b"ali", PASSWORD.encode() + b"\0"),
        (b"\xff", b"\xfe\xff"),
    ],
)
def test_a_wrong_user_or_password_is_refused(username: bytes, password: bytes) -> None:
    other = server(guard("PLAIN"))
    with pytest.raises(Refused) as refusal:
        other.receive(hello(username, password), 0.0)
    assert not other.complete
    assert other.user == ""
    assert "sesame" not in str(refusal.value)
    with pytest.raises(ProtocolError, match="is not allowed now"):
        other.receive(INITIATE, 0.0)


def test_a_right_password_from_a_wrong_address_is_refused() -> None:
    rules = Authenticator(users={"ali": PASSWORD}, deny=["192.0.2.1"])
    with pytest.raises(Refused):
        server(rules, "192.0.2.1").receive(client().begin(), 0.0)


def test_without_an_authenticator_every_client_is_refused() -> None:
    with pytest.raises(Refused, match="no authenticator"):
        server().receive(client().begin(), 0.0)


def test_users_that_are_not_ascii() -> None:
    rules = Authenticator(users={"älî": "pässwörd"})
    other = server(rules)
    assert other.receive(client("älî".encode(), "pässwörd".encode()).begin(), 0.0)
    assert other.user == "älî"


def test_passwords_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    compare = hmac.compare_digest

    def counted(one: bytes, other: bytes) -> bool:
        calls.append(len(one))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    server(guard("PLAIN")).receive(client().begin(), 0.0)
    for username, password in ((b"ali", b"x"), (b"nobody", b"x")):
        with pytest.raises(Refused):
            server(guard("PLAIN")).receive(hello(username, password), 0.0)
    assert calls == [32, 32, 32]


@pytest.mark.parametrize(
    "data", [b"", b"\x03ali", b"\x03al", b"\x03ali\x05pass", b"\x03ali\x04pass!", b"\xff", b"\x03ali\x01"]
)
def test_a_malformed_hello(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="PLAIN") as failure:
        server(guard("PLAIN")).receive(command(b"HELLO", data), 0.0)
    assert not isinstance(failure.value, Refused)


@pytest.mark.parametrize("name", [b"INITIATE", b"WELCOME", b"READY", b"MESSAGE", b"hello"])
def test_a_server_wants_hello_first(name: bytes) -> None:
    with pytest.raises(ProtocolError, match="is not allowed now"):
        server(guard("PLAIN")).receive(command(name), 0.0)


@pytest.mark.parametrize("name", [b"HELLO", b"WELCOME", b"READY"])
def test_a_server_wants_initiate_next(name: bytes) -> None:
    other = server(guard("PLAIN"))
    other.receive(client().begin(), 0.0)
    with pytest.raises(ProtocolError, match="is not allowed now"):
        other.receive(command(name, b"\x03ali\x0bopen sesame"), 0.0)
    assert not other.complete


@pytest.mark.parametrize("name", [b"READY", b"HELLO", b"INITIATE"])
def test_a_client_wants_welcome_first(name: bytes) -> None:
    one = client()
    with pytest.raises(ProtocolError, match="is not allowed now"):
        one.receive(command(name), 0.0)
    assert not one.complete


@pytest.mark.parametrize("name", [b"WELCOME", b"HELLO", b"INITIATE"])
def test_a_client_wants_ready_next(name: bytes) -> None:
    one = client()
    one.receive(command(b"WELCOME"), 0.0)
    with pytest.raises(ProtocolError, match="is not allowed now"):
        one.receive(command(name), 0.0)


def test_a_welcome_with_data_is_malformed() -> None:
    with pytest.raises(ProtocolError, match="WELCOME"):
        client().receive(command(b"WELCOME", b"x"), 0.0)


def test_a_client_learns_that_it_was_refused() -> None:
    with pytest.raises(Rejected, match="400"):
        client().receive(error("400"), 0.0)


def test_a_client_learns_from_libzmqs_misspelled_error_that_it_was_refused() -> None:
    with pytest.raises(Rejected, match="400"):
        client().receive(b"^RROR\x03400", 0.0)


def test_the_error_of_a_libzmq_server_is_understood() -> None:
    """By mistake, its first two bytes, the length of the name and the E, are one byte."""
    with pytest.raises(Rejected, match="400"):
        client().receive(b"^RROR\x03400", 0.0)
    waiting = client()
    waiting.receive(command(b"WELCOME"), 0.0)
    with pytest.raises(Rejected, match="no reason given"):
        waiting.receive(b"^RROR", 0.0)


@settings(max_examples=cases(25))
@given(st.binary(max_size=255), st.binary(max_size=255))
def test_any_user_and_password_are_judged(username: bytes, password: bytes) -> None:
    with pytest.raises(Refused):
        server(guard("PLAIN")).receive(client(username, password).begin(), 0.0)
