"""What changes while a server runs: rules, retention; and what its logs look like."""

import dataclasses
import json
import logging
from pathlib import Path

import pytest

from tests.server.test_server import config_for
from tests.zmtp.waiting import in_loop
from zambezi.cli import logs
from zambezi.server import Server
from zambezi.server.config import JournalConfig, Rule
from zambezi.zeps.asyncio import Client
from zambezi.zeps.errors import BrokerError


@in_loop
async def test_rules_hold_from_the_moment_of_the_reload(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    async with Server(config) as server:
        server.reload(dataclasses.replace(config, rules=[Rule(publish=["allowed"], create=["*"])]))
        async with Client.connect(server.endpoints["zeps"]) as client:
            allowed = client.stream("allowed")
            await allowed.publish("k", b"x")
            await allowed.flush()
            other = client.stream("other")
            await other.publish("k", b"x")
            with pytest.raises(BrokerError, match="may not publish"):
                await other.flush()


@in_loop
async def test_retention_is_changed_for_streams_that_are_there_and_for_new_ones(tmp_path: Path) -> None:
    config = config_for(tmp_path, streams={"prices": JournalConfig()})
    async with Server(config) as server:
        assert server.broker is not None
        changed = dataclasses.replace(
            config.zeps, journal=JournalConfig(keep=60.0), streams={"prices": JournalConfig(keep=10.0)}
        )
        server.reload(dataclasses.replace(config, zeps=changed))
        engine = server.broker.engine
        prices, new = engine.find("prices", create=False), engine.find("new", create=True)
        assert prices is not None
        assert new is not None
        assert prices.journal.policy.keep_seconds == 10.0
        assert new.journal.policy.keep_seconds == 60.0


def test_json_lines_have_what_a_machine_wants() -> None:
    record = logging.makeLogRecord({"name": "zambezi.server", "levelname": "ERROR", "msg": "no %s", "args": ("room",)})
    record.stream = "prices"
    told = json.loads(logs.JsonLines().format(record))
    assert told["message"] == "no room"
    assert told["level"] == "error"
    assert told["logger"] == "zambezi.server"
    assert told["stream"] == "prices"
    assert set(told) == {"time", "level", "logger", "message", "stream"}
