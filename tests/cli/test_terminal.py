"""Text from the network on a terminal: it never becomes a style, a picture or a command to the terminal."""

import io
import re
from pathlib import Path

import pytest
from rich.progress import Progress

from tests.cli.test_streams import Served, run
from zambezi import cli
from zambezi.cli import fleet, log, stream_tables, terminal, top, topics
from zambezi.cli.notices import warn
from zambezi.cli.terminal import Console
from zambezi.wire.text import as_text, printable
from zambezi.zeps.directory import ClientInfo, StreamInfo
from zambezi.zeps.sync import Client
from zambezi.zre.log import Level, Log, Record, What

NAME = as_text(b"\xff[bold red]\x1b[2J[/nope]:boom:")
SHOWN = r"\\xff\[bold red\]\\x1b\[2J\[/nope\]:boom:"


def printed(what: object) -> str:
    """Return what a wide terminal with colours would get."""
    output = Console(file=io.StringIO(), width=400, force_terminal=True, color_system="truecolor")
    output.print(what)
    assert isinstance(output.file, io.StringIO)
    return output.file.getvalue()


def test_a_console_shows_text_as_it_is() -> None:
    assert re.search(SHOWN, printed(printable(NAME)))
    with pytest.raises(BrokenPipeError):
        Console().on_broken_pipe()


def test_tables_of_streams_and_clients() -> None:
    stream = StreamInfo(stream=NAME, held=NAME, multicast=NAME, feed={})
    client = ClientInfo(client=1, address=NAME, user=NAME, stream=NAME, gear=NAME, patterns=(NAME,))
    for table, cells in ((stream_tables.stream_table([stream]), 4), (stream_tables.client_table([client]), 5)):
        text = printed(table)
        assert len(re.findall(SHOWN, text)) == cells
        assert "\x1b[2J" not in text


def test_a_table_of_topics() -> None:
    topic = {"topic": NAME, "subscribers": 1, "messages": 1, "deliveries": 1, "kept": False, "clients": [(NAME, NAME)]}
    report = {"clients": 1, "counters": {"puts": 0, "deliveries": 0, "missed": 0, "denied": 0}}
    assert len(re.findall(SHOWN, printed(topics._table([topic], report, clients=True)))) == 3


def test_a_table_of_a_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    fleet._print_table(NAME, ("node", "ms"), [(printable(NAME), "1.0")])
    assert len(re.findall(SHOWN, capsys.readouterr().out)) == 2


def test_the_screen_of_top() -> None:
    stream = {
        "stream": NAME,
        "first": 1,
        "last": 0,
        "octets": 0,
        "rate": 0.0,
        "subscribers": 0,
        "held": "",
        "sync": NAME,
    }
    client = {"client": 1, "user": NAME, "address": "", "stream": NAME, "patterns": [NAME], "gear": NAME, "lag": 0}
    peer = {"name": NAME, "uuid": "00", "groups": [NAME], "endpoint": NAME}
    topic = {"topic": NAME, "subscribers": 0, "messages": 0, "deliveries": 0}
    state = {
        "time": 1.0,
        "started": 0.0,
        "process": {"memory": 1, "descriptors": 1, "loop_lag": 0.0},
        "endpoints": {NAME: ""},
        "problems": [NAME],
        "zeps": {"streams": [stream | {"sync": NAME}], "clients": [client | {"delivered": 0}]},
        "zre": {"peers": [peer]},
        "mcollective": {"topics": [topic]},
    }
    text = printed(top.Screen().draw(state))
    assert len(re.findall(SHOWN, text)) == 2 + 2 + 4 + 3 + 1
    assert "\x1b[2J" not in text


def test_a_line_of_a_log() -> None:
    entry = Log(Level.INFO, What.ENTER, 1, 2, 0, NAME)
    assert len(re.findall(SHOWN, log.line_of(Record(entry, b""), {1: NAME, 2: NAME}))) == 3


def test_a_progress_bar() -> None:
    with Progress(terminal.description_column(), console=Console(file=io.StringIO())) as progress:
        progress.add_task(printable(NAME))
        assert re.search(SHOWN, printed(progress.get_renderable()))


def test_only_this_console_is_used() -> None:
    """A console or a column of Rich itself would interpret names as markup."""
    for file in Path(terminal.__file__).parent.glob("*.py"):
        if file.name != "terminal.py":
            text = file.read_text()
            assert not re.search(r"from rich.console import .*\bConsole\b|rich.print|from_markup", text), file
            assert "{task.description}" not in text, file


def test_an_error_of_a_peer_is_one_printable_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._fail(NAME) == 1
    assert re.fullmatch(f"zambezi: {SHOWN}\n", capsys.readouterr().err)


def test_a_name_that_an_error_quotes_has_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    name, text = as_text(b"\xff\xfe"), r"\udcff"
    assert cli._fail(f"no {name!r}") == 1
    warn(f"no {name!a}, {text!r}")
    first, second = capsys.readouterr().err.splitlines()
    assert first == r"zambezi: no '\xff\xfe'"
    assert second == r"zambezi: warning: no '\xff\xfe', '\\udcff'"


def test_a_broker_with_such_a_stream_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    server = Served(tmp_path / "data")
    try:
        with Client.connect(server.endpoint) as client:
            stream = client.stream(NAME)
            stream.publish(NAME, b"x")
            stream.flush()
            assert re.search(SHOWN, run(capsys, "stream", "list", "--endpoint", server.endpoint))
            assert re.search(SHOWN, run(capsys, "journal", "info", "--data", str(tmp_path / "data")))
    finally:
        assert server.stop()[0] == 0
