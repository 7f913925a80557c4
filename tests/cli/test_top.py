"""`zambezi top` with a real console."""

import asyncio
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.test_server import config_for
from tests.zmtp.waiting import in_loop
from zambezi import cli
from zambezi.cli import top
from zambezi.cli.terminal import Console as Output
from zambezi.cli.top import VARIABLE, Look, Screen, TopError, ask, shares, sparkline
from zambezi.console import Console
from zambezi.server import Server
from zambezi.zeps.asyncio import Client


@in_loop
async def test_it_shows_the_streams_of_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert await asyncio.to_thread(cli.main, [*command, "--token", "secret", "--json"]) == 0
        state = json.loads(capsys.readouterr().out)
        assert [one["stream"] for one in state["zeps"]["streams"]] == ["prices"]
        assert await asyncio.to_thread(cli.main, command) == 1
        assert "give its token with --token" in capsys.readouterr().err
        monkeypatch.setenv(VARIABLE, "secret")
        assert await asyncio.to_thread(cli.main, command) == 0


def test_a_missing_console_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", "--once", "--console", "http://127.0.0.1:1"]) == 1
    assert "is zambezi serve running there?" in capsys.readouterr().err
    assert cli.main(["top", "--console", "ftp://x"]) == 2
    assert "argument --console: 'ftp://x' is not the URL of a console" in capsys.readouterr().err


def test_a_wrong_setting_is_no_wrong_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZAMBEZI_CONSOLE", "ftp://x")
    assert cli.main(["top", "--once"]) == 1
    assert "ftp://x is not the URL of a console" in capsys.readouterr().err


def test_states_as_json_while_a_server_goes_and_comes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[dict[str, Any] | Exception] = [{"at": 1}, TopError("away"), TopError("away"), {"at": 2}]

    def answer(_url: str, _token: str) -> dict[str, Any]:
        if not answers:
            raise KeyboardInterrupt
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(top, "ask", answer)
    assert cli.main(["top", "--json", "--interval", "0.001"]) == 0
    output, errors = capsys.readouterr()
    assert [json.loads(line)["at"] for line in output.splitlines()] == [1, 2]
    assert errors == "zambezi: warning: away\n"


def test_a_sparkline_has_bars_in_proportion_to_its_values() -> None:
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([1, 8]) == "▂█"


def busy(streams: int, subscribers: int) -> dict[str, Any]:
    """Return the state of a busy server."""
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


def test_it_fits_a_small_terminal_and_no_number_is_cut() -> None:
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


def test_a_pipe_gets_everything_and_no_text_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = busy(2, 1)
    state["problems"] = ["the disk is full: " + "x" * 500]
    state["zeps"]["streams"][0]["held"] = "no room: " + "y" * 500
    monkeypatch.setattr(top, "ask", lambda _url, _token: state)
    assert cli.main(["top", "--once"]) == 0
    output = capsys.readouterr().out
    assert "x" * 500 in output
    assert "y" * 500 in output
    assert "…" not in output


def test_problems_are_whole_in_a_small_terminal() -> None:
    reason = "no room on the disk of /var/lib/zambezi/data/streams: 1.0 MiB of 64.0 MiB are free; remove old messages"
    state = busy(40, 10)
    state["problems"] = ["the disk of /var/lib/zambezi is full", f"stream big: {reason}"]
    state["zeps"]["streams"][0].update(stream="big", held=f"stream 'big': {reason}")
    state["zeps"]["streams"][1].update(stream="failed", held="stream 'failed': the disk does not work")
    lines = drawn(state, 80, 30)
    assert len(lines) <= 30
    told = " ".join(lines[2:7])
    assert f"stream big: {reason}" in told
    assert told.count(reason) == 1
    assert "stream failed: the disk does not work" in told
    assert [line.split()[-1] for line in lines if line.startswith(("  big", "  failed"))] == ["held", "held"]


def test_problems_leave_room_for_the_tables() -> None:
    state = busy(40, 10)
    state["problems"] = [f"stream {number}: {'words ' * 15}" for number in range(20)]
    lines = drawn(state, 80, 24)
    assert len(lines) <= 24
    assert "and 16 more problems: see /readyz" in lines
    assert any(line.startswith("streams: ") for line in lines)


def test_a_huge_terminal_shows_all_rows() -> None:
    lines = drawn(busy(40, 10), 400, 100)
    assert len(lines) <= 100
    assert sum("rather long" in line for line in lines) == 50
    assert not any(" of " in line for line in lines)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (10, 3), (20, 8)])
def test_a_tiny_terminal_shows_only_the_head(width: int, height: int) -> None:
    uptime, services, blank = drawn(busy(3, 3), width, height)
    assert uptime == "up 16 m 40 s   memory 64.0 MiB"[: width - 1] + "…"
    assert services == "zeps"[:width].replace("z", "…" if width == 1 else "z")
    assert blank == ""


@pytest.mark.parametrize(
    ("height", "titles", "rows"),
    [
        (10, ["streams: 2 of 3"], 2),
        (16, ["streams: 2 of 3", "subscribers: 1 of 3"], 3),
        (20, ["streams", "subscribers"], 6),
    ],
)
def test_a_low_terminal_shows_the_busiest_rows(height: int, titles: list[str], rows: int) -> None:
    lines = drawn(busy(3, 3), 80, height)
    assert len(lines) <= height
    assert [line.strip() for line in lines if line.startswith(("streams", "subscribers"))] == titles
    assert sum("is a stream" in line for line in lines) == rows
    assert any(line.startswith("  2 is a stream") for line in lines), "the busiest is always shown"


def test_tables_share_the_rows() -> None:
    assert shares([100, 100], 32) == [11, 11]
    assert shares([100, 2], 32) == [20, 2]
    assert shares([], 32) == []
    assert shares([5], 3) == [0]


def test_it_waits_for_a_server_that_goes_away() -> None:
    answers: list[dict[str, Any] | TopError] = [busy(1, 0), TopError("there is no console"), busy(2, 0)]

    def answer() -> dict[str, Any]:
        one = answers.pop(0)
        if isinstance(one, TopError):
            raise one
        return one

    look = Look(answer)
    look.first()
    look.again()
    assert look.trouble == "there is no console"
    lines = drawn(look.state, 80, 24, look.trouble)
    assert any("there is no console" in line for line in lines)
    assert any("0 is a str" in line for line in lines), "the last state stays on the screen"
    look.again()
    assert look.trouble == ""
    assert len(look.state["zeps"]["streams"]) == 2


def test_states_are_printed_one_after_the_other_if_the_output_is_not_a_terminal(
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
def test_an_invalid_url_is_reported(url: str) -> None:
    with pytest.raises(TopError, match="no console answers at"):
        ask(url, "")


@in_loop
async def test_a_server_that_is_not_a_console_is_reported() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")  # else the end of the connection is an error, and not an answer
        writer.write(b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TopError, match="is no console, but perhaps the endpoint of another service"):
            await asyncio.to_thread(ask, f"http://127.0.0.1:{port}", "")


def test_a_closed_pipe_ends_the_command() -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        Output(file=Gone()).print("x")
