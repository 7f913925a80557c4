"""zambezi.zmtp.security: the choices of security, and that no repr shows a secret."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from tests.zmtp.engines import (
    CLIENT_KEYS,
    MECHANISMS,
    PASSWORD,
    SERVER_KEYS,
    connected,
    exchange,
    guard,
    pair,
    securities,
)
from zambezi.zmtp import curve, mechanism, plain
from zambezi.zmtp.connection import Connection
from zambezi.zmtp.errors import ZmtpError
from zambezi.zmtp.mechanism import Terms
from zambezi.zmtp.security import CurveClient, CurveServer, Null, PlainClient, PlainServer, Security

METADATA = {"Socket-Type": b"DEALER"}


@pytest.mark.parametrize(
    ("security", "made", "name", "as_server"),
    [
        (Null(), mechanism.Null, "NULL", False),
        (PlainClient("ali", PASSWORD), plain.PlainClient, "PLAIN", False),
        (PlainServer(), plain.PlainServer, "PLAIN", True),
        (CurveClient(SERVER_KEYS.public), curve.CurveClient, "CURVE", False),
        (CurveServer(SERVER_KEYS), curve.CurveServer, "CURVE", True),
    ],
)
def test_each_security_makes_a_new_mechanism(
    security: Security, made: type[mechanism.Mechanism], name: str, as_server: bool
) -> None:
    rules = guard(name)
    one = security.mechanism(Terms(METADATA, "192.0.2.1", rules, 1000))
    assert type(one) is made
    assert (one.name, one.as_server) == (name, as_server)
    assert (one.metadata, one.address, one.authenticator) == (METADATA, "192.0.2.1", rules)
    assert not one.complete
    assert security.mechanism(Terms(METADATA, "192.0.2.1", rules, 1000)) is not one
    if isinstance(one, curve.CurveClient | curve.CurveServer):
        assert one.assembler.message_limit == 1000


def test_a_curve_client_without_keys_makes_its_own() -> None:
    one, other = CurveClient(SERVER_KEYS.public), CurveClient(SERVER_KEYS.public)
    assert one.keys != other.keys


def test_the_connections_of_a_curve_server_share_one_cookie_key() -> None:
    security = CurveServer(SERVER_KEYS)
    first, second = (security.mechanism(Terms(METADATA)) for _ in range(2))
    assert isinstance(first, curve.CurveServer)
    assert isinstance(second, curve.CurveServer)
    assert first._cookie_key is second._cookie_key


@pytest.mark.parametrize("size", [0, 31, 33, 40])
def test_a_server_key_has_32_bytes(size: int) -> None:
    with pytest.raises(ZmtpError, match="32 bytes"):
        CurveClient(bytes(size))


@pytest.mark.parametrize(("username", "password"), [("u" * 256, "p"), ("u", "p" * 256), ("ü" * 128, "p")])
def test_names_and_passwords_have_at_most_255_bytes(username: str, password: str) -> None:
    with pytest.raises(ZmtpError, match="255 bytes") as failure:
        PlainClient(username, password)
    assert password not in str(failure.value) or password == "p"
    PlainClient("u" * 255, "ü" * 127)


def test_securities_are_values() -> None:
    assert PlainClient("ali", "x") == PlainClient("ali", "x") != PlainClient("ali", "y")
    assert CurveServer(SERVER_KEYS) == CurveServer(SERVER_KEYS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        PlainClient("ali", "x").password = "y"  # type: ignore[misc]


# Secrets


def reachable(start: object) -> Iterator[object]:
    """Yield an object, and all objects of Zambezi that its attributes and containers lead to."""
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, dict):
            waiting += [*thing.keys(), *thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset):
            waiting += thing
        elif type(thing).__module__.startswith("zambezi") or isinstance(thing, BaseException):
            yield thing
            names = {name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())}
            names |= vars(thing).keys() if hasattr(thing, "__dict__") else set()
            waiting += [getattr(thing, name) for name in names if hasattr(thing, name)]
            waiting += [getattr(thing, "__cause__", None), getattr(thing, "__self__", None)]


def texts_of(secret: bytes) -> list[str]:
    return [repr(secret)[2:-1], secret.hex(), secret.decode("latin-1")]


def short_secrets(connection: Connection) -> list[bytes]:
    made = connection.mechanism
    if isinstance(made, curve.CurveClient):
        return [made._short_secret, made._sealer._key]
    if isinstance(made, curve.CurveServer):
        return [made._sealer._key, made._cookie_key._current]
    return []


@pytest.mark.parametrize("name", MECHANISMS)
def test_no_secret_is_in_the_repr_of_anything(name: str) -> None:
    client, server = connected(name)
    things: list[object] = [client, server, client.claim, server.claim, *securities(name), guard(name)]
    refused = pair(name)
    things += [refused, exchange(refused[0], Connection("ROUTER", 0.0, security=securities(name)[1]))]
    secrets = [PASSWORD, CLIENT_KEYS.secret_z85, SERVER_KEYS.secret_z85]
    for secret in [CLIENT_KEYS.secret, SERVER_KEYS.secret, *short_secrets(client), *short_secrets(server)]:
        secrets += texts_of(secret)
    found = list(reachable(things))
    assert {type(thing) for thing in found} >= {Connection, type(client.mechanism), type(server.mechanism)}
    for thing in found:
        for text in (repr(thing), str(thing), f"{thing}"):
            for secret_text in secrets:
                assert secret_text not in text, type(thing)


def test_the_search_for_secrets_finds_them() -> None:
    claim = connected("PLAIN")[1].claim
    assert claim is not None
    shown = dataclasses.make_dataclass("Shown", [("password", str)])(claim.password)
    type(shown).__module__ = "zambezi.made"
    assert any(PASSWORD in repr(thing) for thing in reachable([{"x": (shown,)}]))
