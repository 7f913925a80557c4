"""zambezi.cli.surroundings: what a command takes from the environment and from contexts."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from zambezi import cli
from zambezi.cli import sql
from zambezi.cli.client import ENDPOINT, add_client_options, endpoint_of
from zambezi.cli.errors import InputError
from zambezi.cli.middleware import add_middleware_options, middleware_of
from zambezi.cli.security import security_of
from zambezi.cli.surroundings import Contexts, contexts_file
from zambezi.zmtp.keys import KeyPair, write_pair
from zambezi.zmtp.security import CurveClient, Null

LAB = "tcp://lab:5671"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_client_options(parser)
    return parser.parse_args(words)


def save(current: str = "", **contexts: dict[str, str]) -> None:
    Contexts(contexts_file(), contexts, current).save()


def test_without_anything_the_usual_endpoint_counts() -> None:
    assert endpoint_of(parse()) == ENDPOINT


def test_an_option_counts_before_the_environment_and_that_before_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    save("lab", lab={"endpoint": LAB})
    assert endpoint_of(parse()) == LAB
    monkeypatch.setenv("ZAMBEZI_ENDPOINT", "tcp://variable:1")
    assert endpoint_of(parse()) == "tcp://variable:1"
    assert endpoint_of(parse("--context", "lab")) == LAB
    assert endpoint_of(parse("--endpoint", "tcp://option:1")) == "tcp://option:1"


def test_a_variable_chooses_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    save("lab", lab={"endpoint": LAB}, other={"endpoint": "tcp://other:1"})
    monkeypatch.setenv("ZAMBEZI_CONTEXT", "other")
    assert endpoint_of(parse()) == "tcp://other:1"


def test_a_fleet_has_an_endpoint_of_its_own() -> None:
    save("lab", lab={"middleware": "tcp://lab:61616"})
    parser = argparse.ArgumentParser()
    add_middleware_options(parser)
    assert middleware_of(parser.parse_args([])) == "tcp://lab:61616"


def test_keys_come_from_the_context_unless_another_server_is_named(home: Path) -> None:
    server, _ = write_pair(home, "server", KeyPair.generate())
    save("lab", lab={"endpoint": LAB, "server_key": str(server)})
    assert isinstance(security_of(parse()), CurveClient)
    assert isinstance(security_of(parse("--endpoint", "tcp://other:1")), Null)
    assert isinstance(security_of(parse("--endpoint", "tcp://other:1", "--context", "lab")), CurveClient)


def test_keys_come_from_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, _ = write_pair(home, "server", KeyPair.generate())
    own = KeyPair.generate()
    _, secret = write_pair(home, "own", own)
    monkeypatch.setenv("ZAMBEZI_SERVER_KEY", str(server))
    monkeypatch.setenv("ZAMBEZI_KEY", str(secret))
    security = security_of(parse("--endpoint", "tcp://other:1"))
    assert isinstance(security, CurveClient)
    assert security.keys == own


def spark_options(*words: str) -> dict[str, str]:
    return sql.source_options(cli.command_parser(["sql"]).parse_args(["sql", *words]))


def test_commands_of_spark_take_the_broker_and_its_keys_from_the_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    save("lab", lab={"endpoint": LAB, "server_key": "server.pub", "key": "own.key"})
    lab = {"endpoint": LAB, "serverKey": "server.pub", "secretKey": "own.key"}
    assert spark_options() == lab
    assert spark_options("--endpoint", "tcp://other:1") == {"endpoint": "tcp://other:1"}
    assert spark_options("--path", "data") == {"path": "data"}
    assert spark_options("--archive", "table") == {"archive": "table"}
    assert spark_options("--archive", "table", "--context", "lab") == {**lab, "archive": "table"}
    monkeypatch.setenv("ZAMBEZI_ENDPOINT", "tcp://variable:1")
    assert spark_options()["endpoint"] == "tcp://variable:1"


def test_pipelines_take_the_broker_from_the_surroundings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pipeline", "run", "traffic"]) == 2
    assert "give the source of the streams" in capsys.readouterr().err
    save("lab", lab={"endpoint": LAB})
    assert cli.main(["pipeline", "run", "traffic"]) == 2
    assert "traffic needs --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("contexts = 1", "must be tables"),
        ("[contexts]\nlab = 1", "contexts.lab must be a table"),
        ("[contexts.lab]\nport = 1", "no setting 'port'"),
        ("[contexts.lab]\nendpoint = 1", "contexts.lab.endpoint must be a text"),
        ("current = 1", "current must be a text"),
        ("current", "not valid TOML"),
        ("current = 'gone'", "no context 'gone'"),
    ],
)
def test_a_file_that_is_wrong_is_named(text: str, problem: str) -> None:
    contexts_file().parent.mkdir()
    contexts_file().write_text(text)
    with pytest.raises(InputError, match=problem) as error:
        endpoint_of(parse())
    assert str(contexts_file()) in str(error.value)


def test_an_endpoint_of_the_surroundings_that_is_wrong_is_no_wrong_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZAMBEZI_ENDPOINT", "nowhere")
    assert cli.main(["stream", "list"]) == 1
    assert capsys.readouterr().err.startswith("zambezi: 'nowhere' is no endpoint")
    assert cli.main(["stream", "list", "--context", "gone"]) == 1
    assert "there is no context 'gone'" in capsys.readouterr().err


def test_help_needs_no_valid_file(capsys: pytest.CaptureFixture[str]) -> None:
    contexts_file().parent.mkdir()
    contexts_file().write_text("nonsense")
    assert cli.main(["stream", "list", "--help"]) == 0
    assert "--context NAME" in capsys.readouterr().out
