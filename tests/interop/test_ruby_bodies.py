"""The bodies of real Ruby daemons and their client, as a middleware journalled them, say what the client did."""

from __future__ import annotations

import pytest

from tests.interop.ruby_bodies import BODIES, DAEMONS
from zambezi.mcollective.ruby import marshal, yaml
from zambezi.mcollective.ruby.envelope import read


def test_a_client_asks_two_daemons() -> None:
    found = [(topic.split()[1:3], read(body)) for topic, body in DAEMONS]
    told = [(place, said.kind, said.agent, said.action, said.sender, said.status) for place, said in found]
    assert told == [
        (["discovery"], "request", "discovery", "ping", "client", None),
        (["reply", "client"], "reply", "discovery", None, "node1", "ok"),
        (["reply", "client"], "reply", "discovery", None, "node2", "ok"),
        (["nodes", "node1"], "request", "rpcutil", "get_fact", "client", None),
        (["nodes", "node2"], "request", "rpcutil", "get_fact", "client", None),
        (["reply", "client"], "reply", "rpcutil", None, "node1", "ok"),
        (["reply", "client"], "reply", "rpcutil", None, "node2", "ok"),
        (["reply", "client"], "reply", "rpcutil", None, "node1", "ok"),
    ]
    ids = [said.id for _, said in found]
    assert len(set(ids[:3])) == len(set(ids[3:7])) == 1
    ping, asked = found[0][1], found[3][1]
    assert (ping.caller, ping.filter, ping.ttl, ping.collective) == ("uid=0", "agent rpcutil", 60, "mcollective")
    assert (asked.caller, asked.filter, asked.wants_reply) == ("uid=0", None, True)


def test_a_reply_with_more_than_text() -> None:
    envelope = marshal.load(DAEMONS[-1][1])
    assert isinstance(envelope, dict)
    body = envelope["body"]
    assert isinstance(body, bytes)
    inventory = marshal.load(body)
    assert isinstance(inventory, dict)
    assert inventory["statusmsg"] == "OK"
    data = inventory["data"]
    assert isinstance(data, dict)
    assert data["agents"] == ["blob", "discovery", "rpcutil"]


@pytest.mark.parametrize("name", [name for name in BODIES if name.startswith("aes")])
def test_an_encrypted_body_stays_closed(name: str) -> None:
    read_by = marshal if "marshal" in name else yaml
    envelope = read_by.load(BODIES[name])
    assert isinstance(envelope, dict)
    assert "sslkey" in envelope
    said = read(BODIES[name])
    assert said.is_encrypted
    assert (said.action, said.status, said.error) == (None, None, None)
