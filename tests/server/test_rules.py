"""The permissions of clients, and the streams that only the server writes."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.server.test_server import config_for
from tests.zmtp.waiting import PATIENCE, in_loop
from zambezi import mcollective
from zambezi.mcollective.sync import Connector
from zambezi.server import Server
from zambezi.server.config import Rule
from zambezi.server.rules import Rules
from zambezi.zeps.asyncio import Client
from zambezi.zeps.errors import BrokerError

TOPIC = "mcollective orders"


def test_without_rules_every_client_may_do_everything() -> None:
    assert Rules().allow("", "publish", "prices")
    assert Rules().topics == []


def test_with_rules_a_client_may_do_only_what_one_of_them_allows() -> None:
    rules = Rules([Rule(keys=["ann"], publish=["prices"]), Rule(keys=["a*"], subscribe=["*"])])
    assert rules.allow("ann", "publish", "prices")
    assert not rules.allow("ann", "publish", "other")
    assert rules.allow("ann", "subscribe", "other")
    assert not rules.allow("abe", "publish", "prices")
    assert not any(rules.allow("bob", action, "prices") for action in ("publish", "subscribe", "create"))


def test_a_rule_can_limit_each_user_to_streams_of_their_own() -> None:
    rules = Rules([Rule(publish=["of-{user}"])])
    assert rules.allow("ann", "publish", "of-ann")
    assert not rules.allow("ann", "publish", "of-bob")
    assert not rules.allow("*", "publish", "of-bob"), "the name of a user is not a pattern"
    assert rules.allow("[x]", "publish", "of-[x]")


def test_the_middleware_gets_the_rules_for_topics() -> None:
    topics = Rules([Rule(keys=["ann", "bob"], put=["mcollective *"], sub=["x"])]).topics
    assert [(rule.user, rule.put, rule.sub) for rule in topics] == [
        ("*", (), ()),
        ("ann", ("mcollective *",), ("x",)),
        ("bob", ("mcollective *",), ("x",)),
    ]


def test_a_rule_without_keys_allows_nothing() -> None:
    rules = Rules([Rule(keys=[], publish=["*"], put=["*"], sub=["*"])])
    assert not rules.allow("ann", "publish", "prices")
    assert not mcollective.Rules(rules.topics).allow("ann", "PUT", b"mcollective package")


def test_only_a_rule_with_the_exact_name_lets_a_client_read_the_servers_own_streams() -> None:
    own = ("mcollective", "logs")
    patterns = ["*", "mcoll*", "mcollectiv?", "[m]collective", "{user}"]
    rules = Rules([Rule(keys=["*"], subscribe=patterns), Rule(keys=["auditor"], subscribe=["mcollective"])], own=own)
    assert not rules.allow("ann", "subscribe", "mcollective")
    assert not rules.allow("mcollective", "subscribe", "mcollective"), "the name of a key names no stream"
    assert rules.allow("auditor", "subscribe", "mcollective")
    assert not rules.allow("auditor", "subscribe", "logs")
    assert rules.allow("ann", "subscribe", "prices")
    assert Rules(own=own).allow("ann", "subscribe", "mcollective"), "without rules every client may read everything"


@asynccontextmanager
async def keeping(path: Path, *rules: Rule, logs: str = "zrelog") -> AsyncIterator[tuple[Server, Client]]:
    """Run a server that journals topics, with one message, and connect a client without a key."""
    config = config_for(path)
    fleet = dataclasses.replace(config.mcollective, enabled=True, endpoint="tcp://127.0.0.1:*", journal=["*"])
    log = dataclasses.replace(config.log, stream=logs)
    config = dataclasses.replace(config, mcollective=fleet, log=log, rules=list(rules))
    async with Server(config) as server, Client.connect(server.endpoints["zeps"]) as client:
        assert server.middleware is not None
        server.middleware.replace_rules(mcollective.Rules())
        await asyncio.to_thread(put, server, b"genuine")
        server.middleware.replace_rules(mcollective.Rules(server.rules.topics))
        yield server, client


def put(server: Server, body: bytes) -> None:
    with Connector(server.endpoints["mcollective"]) as connector:
        connector.put(TOPIC, body, confirm=True, timeout=PATIENCE)


EVERYTHING = Rule(publish=["*", "mcollective"], subscribe=["*"], create=["*", "logs"])


@in_loop
@pytest.mark.parametrize("rules", [[], [EVERYTHING]], ids=["without rules", "with a rule for everything"])
async def test_no_client_writes_the_servers_own_streams(tmp_path: Path, rules: list[Rule]) -> None:
    async with keeping(tmp_path, *rules) as (server, client):
        forged = client.stream("mcollective")
        await forged.publish(TOPIC, b"\0\0\0\x05admin\0\0\0\x06forged")
        with pytest.raises(BrokerError, match="only the server itself publishes to its stream mcollective"):
            await forged.flush(timeout=PATIENCE)
        assert server.broker is not None
        stream = server.broker.engine.find("mcollective")
        assert stream is not None
        assert stream.journal.last == 1, "only the message that came through the middleware"
        assert server.broker.counters.invalid["forbidden"] >= 1


@in_loop
async def test_the_console_cannot_write_the_servers_own_streams_either(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (server, _):
        assert server.local_zeps is not None
        async with Client.connect(server.local_zeps) as inside:
            stream = inside.stream("mcollective")
            await stream.publish(TOPIC, b"x")
            with pytest.raises(BrokerError, match="only the server itself publishes"):
                await stream.flush(timeout=PATIENCE)


@in_loop
async def test_a_client_cannot_create_the_servers_own_streams(tmp_path: Path) -> None:
    async with keeping(tmp_path, EVERYTHING, logs="logs") as (server, client):
        with pytest.raises(BrokerError, match="may not create it"):
            async with client.stream("logs").subscribe() as subscription:
                await subscription.recv(timeout=PATIENCE)
        assert server.broker is not None
        assert server.broker.engine.find("logs") is None


@in_loop
async def test_a_wildcard_does_not_let_a_client_read_all_topics(tmp_path: Path) -> None:
    async with keeping(tmp_path, EVERYTHING) as (server, client):
        with pytest.raises(BrokerError, match="anybody may not subscribe to the stream mcollective"):
            async with client.stream("mcollective").subscribe(since="earliest") as subscription:
                await subscription.recv(timeout=PATIENCE)
        with pytest.raises(BrokerError, match="may not subscribe"):
            await client.index("mcollective", timeout=PATIENCE)
        named = dataclasses.replace(server.config, rules=[Rule(subscribe=["mcollective"])])
        server.reload(named)
        async with client.stream("mcollective").subscribe(since="earliest") as subscription:
            assert (await subscription.recv(timeout=PATIENCE)).body.endswith(b"genuine")
            server.reload(dataclasses.replace(named, rules=[EVERYTHING]))
            with pytest.raises(BrokerError, match="any more"):
                await subscription.recv(timeout=PATIENCE)
