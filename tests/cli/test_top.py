"""`zambezi top`, before a console that is really there."""

import asyncio
import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest

from tests.server.test_server import config_for
from tests.zmtp.waiting import in_loop
from zambezi import cli
from zambezi.cli.terminal import Console as Output
from zambezi.cli.top import Look, Screen, TopError, ask, shares, sparkline
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


def busy(streams: int, subscribers: int) -> dict[str, Any]:
    """The state of a server with much to do."""
    return {
        "time": 1000.0,
        "started": 0.0,
        "endpoints": {"zeps": "tcp://127.0.0.1:5671"},
        "process": {"memory": 1 << 26, "descriptors": 7, "loop_lag": 0.001},
        "problems": [],
        "zeps": {
            "streams": [
                {
                    "stream": f"{number} is a stream whose name is rather long",
                    "first": 1,
                    "last": 1_234_567,
                    "octets": 123_456_789,
                    "rate": float(number),
                    "subscribers": 1,
                    "held": "",
                    "sync": "interval",
                }
                for number in range(streams)
            ],
            "clients": [
                {
                    "client": number,
                    "user": "",
                    "address": "127.0.0.1",
                    "stream": "1 is a stream whose name is rather long",
                    "patterns": [""],
                    "gear": "live",
                    "lag": number,
                    "delivered": 1_000_000,
                }
                for number in range(subscribers)
            ],
        },
        "zre": None,
        "mcollective": None,
    }


def drawn(state: dict[str, Any], width: int, height: int, trouble: str = "") -> list[str]:
    output = Output(file=io.StringIO(), width=width, height=height)
    output.print(Screen().draw(state, height, trouble))
    assert isinstance(output.file, io.StringIO)
    return output.file.getvalue().splitlines()


def test_it_fits_a_small_terminal_and_no_figure_is_cut() -> None:
    lines = drawn(busy(40, 10), 80, 24)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "of 40" in text
    assert "of 10" in text
    (busiest,) = [line for line in lines if " 39 " in line]
    assert "1,234,567" in busiest
    assert "117.7 MiB" in busiest
    assert "interval" in busiest


def test_on_a_huge_terminal_all_is_there() -> None:
    lines = drawn(busy(40, 10), 400, 100)
    assert len(lines) <= 100
    assert sum("rather long" in line for line in lines) == 50
    assert not any(" of " in line for line in lines)


@pytest.mark.parametrize(("width", "height"), [(10, 3), (1, 1), (20, 8)])
def test_a_tiny_terminal_does_no_harm(width: int, height: int) -> None:
    drawn(busy(3, 3), width, height)


def test_rows_are_shared_by_those_who_want_them() -> None:
    assert shares([100, 100], 32) == [11, 11]
    assert shares([100, 2], 32) == [20, 2]
    assert shares([], 32) == []
    assert shares([5], 3) == [0]


def test_a_server_that_goes_away_is_waited_for() -> None:
    answers: list[dict[str, Any] | TopError] = [busy(1, 0), TopError("there is no console"), busy(2, 0)]

    def answer() -> dict[str, Any]:
        said = answers.pop(0)
        if isinstance(said, TopError):
            raise said
        return said

    look = Look(answer)
    look.first()
    look.again()
    assert look.trouble == "there is no console"
    lines = drawn(look.state, 80, 24, look.trouble)
    assert any("there is no console" in line for line in lines)
    assert any("0 is a str" in line for line in lines), "what was seen last stays"
    look.again()
    assert look.trouble == ""
    assert len(look.state["zeps"]["streams"]) == 2


def test_where_there_is_no_terminal_states_are_printed_one_below_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [busy(1, 0), busy(1, 0), busy(1, 0)]

    def answer(_url: str, _token: str) -> dict[str, Any]:
        if not answers:
            raise KeyboardInterrupt
        return answers.pop()

    monkeypatch.setattr("zambezi.cli.top.ask", answer)
    assert cli.main(["top", "--interval", "1ms"]) == 0
    assert capsys.readouterr().out.count("0 is a str") == 3


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://127.0.0.1:x", "http://127.0.0.1:1/ x"])
def test_addresses_that_are_none_are_told(url: str) -> None:
    with pytest.raises(TopError, match="there is no console at"):
        ask(url, "")


@in_loop
async def test_what_is_no_console_is_told() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TopError, match="there is no console at"):
            await asyncio.to_thread(ask, f"http://127.0.0.1:{port}", "")


def test_who_reads_the_output_may_go_away() -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        Output(file=Gone()).print("x")
