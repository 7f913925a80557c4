"""The messages of Ruby programs: recorded ones, and those of an attacker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interop.ruby_bodies import BODIES
from tests.mcollective.ruby.encoder import Symbol, dump
from zambezi.mcollective.ruby.envelope import MAX_NAME, MAX_TEXT, Envelope, read
from zambezi.mcollective.ruby.values import Unreadable

ID = "7a3c3ad3f2d85ecbb3c8e4b5d7b1a002"
NODE = "node3.example.net"
NOON = 1_700_049_600
FILTER = "fact osfamily==Debian, class apache, identity web1, identity /^db/, compound a=1 and not b"
REQUEST = Envelope(
    "marshal",
    "request",
    ID,
    "rpcutil",
    NODE,
    NOON,
    caller="uid=0",
    collective="mcollective",
    ttl=60,
    action="get_fact",
    wants_reply=True,
)
REPLY = Envelope("marshal", "reply", ID, "rpcutil", NODE, NOON, status="ok")
MESSAGES = {
    "request": REQUEST,
    "filtered": replace(REQUEST, agent="package", filter=FILTER),
    "ping": replace(REQUEST, agent="discovery", action="ping", filter="agent rpcutil"),
    "reply": REPLY,
    "error": replace(REPLY, status="error", error="No such package: über"),
    "pong": replace(REPLY, agent="discovery"),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_mcollective_wrote(name: str) -> None:
    plugin, *serializer, message = name.split()
    expected = replace(MESSAGES[message], format=serializer[0] if serializer else "marshal")  # type: ignore[arg-type]
    if expected.kind == "request" and plugin != "psk":
        expected = replace(expected, caller="cert=ann")
    if name == "psk filtered":
        expected = replace(expected, wants_reply=False)
    if plugin == "aes":  # only the envelope
        expected = replace(expected, is_encrypted=True, action=None, wants_reply=None, status=None)
    assert read(BODIES[name]) == expected


def symbols(**pairs: Any) -> dict[Symbol, Any]:
    return {Symbol(key): value for key, value in pairs.items()}


def test_strings_of_ruby_1_8_have_no_encoding() -> None:
    body = dump(symbols(requestid=b"1", agent=b"ag\xff", senderid=b"s", callerid=b"c", body=dump(b"ping")))
    found = read(body)
    assert (found.id, found.agent, found.sender, found.caller) == ("1", "ag\ufffd", "s", "c")
    assert (found.action, found.wants_reply) == ("ping", True)


def test_an_envelope_whose_message_cannot_be_read() -> None:
    for inside in (b"\x04\x08[\x06@\0", "no Marshal", b"", 7, None):
        found = read(dump(symbols(requestid="1", agent="package", callerid="c", body=inside)))
        assert found == Envelope("marshal", "request", "1", "package", caller="c")
        assert read(dump(symbols(requestid="1", senderagent="package", body=inside))).status is None


def test_the_signed_time_counts() -> None:
    inside = dump(symbols(ssl_msg=symbols(action="a"), ssl_ttl=30, ssl_msgtime=5))
    found = read(dump(symbols(requestid="1", agent="x", ttl=60, msgtime=9, body=inside)))
    assert (found.time, found.ttl, found.action) == (5, 30, "a")


def test_keys_that_are_strings_count_too() -> None:
    inside = dump({"action": "status", "data": {"process_results": False}})
    found = read(dump(symbols(requestid="1", agent="x", body=inside)))
    assert (found.action, found.wants_reply) == ("status", False)


def test_long_and_odd_fields() -> None:
    inside = dump(symbols(statuscode=5, statusmsg="é" * 10_000))
    pairs = symbols(requestid=7, senderagent="x" * 1000, senderid=[1], msgtime=10**30, body=inside)
    found = read(dump(pairs))
    assert found.id == "7"
    assert found.agent == "x" * MAX_NAME
    assert found.error == "é" * MAX_TEXT
    assert (found.sender, found.time, found.status) == (None, None, "error")
    filters = {"identity": ["x" * 300] * 1000, "cf_class": 7, 8: [], "fact": [{}, 1], "compound": [[1], [{"a": []}]]}
    narrowed = read(dump(symbols(requestid="1", agent="x", filter=filters))).filter
    assert narrowed is not None
    assert len(narrowed) == MAX_NAME


@pytest.mark.parametrize(
    "body",
    [b"", b'{"zambezi": 1}', dump([]), dump({}), dump(symbols(requestid="1")), dump(symbols(agent="x")), b"--- x"],
)
def test_other_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(Unreadable):
        read(body)


@given(st.sampled_from(sorted(BODIES)), st.data())
def test_a_changed_byte_gives_an_envelope_or_the_error(name: str, data: st.DataObject) -> None:
    octets = bytearray(BODIES[name])
    position = data.draw(st.integers(0, len(octets) - 1))
    octets[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        found = read(bytes(octets))
    except Unreadable:
        return
    for each in (found.id, found.agent, found.sender, found.caller, found.action, found.filter, found.error):
        if each is not None:
            each.encode()  # it is valid Unicode
