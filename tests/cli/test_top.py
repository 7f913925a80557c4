"""`zambezi top`, before a console that is really there."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from tests.server.test_server import config_for
from tests.zmtp.waiting import in_loop
from zambezi import cli
from zambezi.cli.top import sparkline
from zambezi.console import Console
from zambezi.server import Server
from zambezi.zeps.asyncio import Client


@in_loop
async def test_it_shows_the_streams_of_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_for(tmp_path)
    config = dataclasses.replace(config, console=dataclasses.replace(config.console, port=0, token="secret"))
    async with (
        Server(config) as server,
        Console(server) as console,
        Client.connect(server.endpoints["zeps"]) as client,
    ):
        stream = client.stream("prices")
        await stream.publish("k", b"x")
        await stream.flush()
        command = ["top", "--once", "--console", console.url]
        assert await asyncio.to_thread(cli.main, [*command, "--token", "secret"]) == 0
        assert "prices" in capsys.readouterr().out
        assert await asyncio.to_thread(cli.main, command) == 1
        assert "say --token" in capsys.readouterr().err


def test_no_console_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", "--once", "--console", "http://127.0.0.1:1"]) == 1
    assert "is zambezi serve running there?" in capsys.readouterr().err
    assert cli.main(["top", "--console", "ftp://x"]) == 1
    assert "is no address of a console" in capsys.readouterr().err


def test_sparklines_are_as_high_as_what_they_show() -> None:
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([1, 8]) == "▂█"
