"""`zambezi pipeline`: the command line."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import os
import shutil
import socket
import socketserver
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from rich.console import Console

from demo import analysis
from tests.spark.delta import DeltaReader
from tests.spark.journal import numbered, write
from tests.spark.kills import PATIENCE
from tests.spark.lake.archiving import archive
from tests.spark.lake.tables import SCHEMA
from tests.spark.started import use_for_commands
from tests.zeps.serving import serving
from tests.zmtp.waiting import wait_until
from zambezi.cli import main, pipeline, terminal
from zambezi.cli import spark as spark_command
from zambezi.cli.errors import InputError, OptionsError
from zambezi.cli.pipeline_arguments import source_options
from zambezi.cli.pipeline_settings import settings_of
from zambezi.cli.results import result_view
from zambezi.cli.spark import spark_session
from zambezi.spark import base_reader
from zambezi.spark.errors import ConnectionLost
from zambezi.spark.lake import frames
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.problems import TableError
from zambezi.spark.lake.table import LakeTable
from zambezi.spark.options import Options
from zambezi.spark.pipelines import PIPELINES, Progress, batches
from zambezi.spark.pipelines.body_profile import Declaration
from zambezi.spark.pipelines.pipeline import Rows
from zambezi.spark.pipelines.results import Result
from zambezi.spark.pipelines.running import PipelineError
from zambezi.zeps.store.problems import reason_of
from zambezi.zeps.sync import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = ["pipeline", "run"]


@pytest.fixture
def shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands use the session of the tests, and leave it running."""
    use_for_commands(spark, monkeypatch)
    monkeypatch.setenv("COLUMNS", "160")


def test_the_list_has_every_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "list"]) == 0
    shown = capsys.readouterr().out
    assert pipeline.NAMES.keys() == PIPELINES.keys() | {"restore"}
    for name, one in PIPELINES.items():
        assert pipeline.NAMES[name] == one.summary
        assert name in shown


def test_the_list_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "list", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["pipeline"]: row["result"] for row in told} == pipeline.NAMES


def test_every_option_of_the_source_can_be_given() -> None:
    parser = argparse.ArgumentParser()
    pipeline.add_parser(parser.add_subparsers())
    given = [
        "archive",
        "--path",
        "p",
        "--out",
        "o",
        "--min-partitions",
        "7",
        "--option",
        "timeout=5s",
        "--option",
        "a=b=c",
    ]
    assert source_options(parser.parse_args([*RUN, *given])) == {
        "path": "p",
        "minPartitions": "7",
        "timeout": "5s",
        "a": "b=c",
    }
    broker = ["--endpoint", "tcp://127.0.0.1:1", "--out", "o"]
    for arguments, reader in (
        (["archive", *broker], "pipeline-archive"),
        (["traffic", *broker, "--follow", "--reader", "mine"], "mine"),
        (["archive", *broker, "--reader", ""], None),
        (["traffic", *broker], None),
    ):
        assert source_options(parser.parse_args([*RUN, *arguments])).get("reader") == reader
    with pytest.raises(OptionsError, match="--option timeout: write NAME=VALUE"):
        source_options(parser.parse_args([*RUN, *given, "--option", "timeout"]))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["traffic", "--out", "o"],
            "give the source of the streams: --endpoint of a broker, $ZAMBEZI_ENDPOINT or a context; or --path",
        ),
        (["traffic", "--path", "p", "--endpoint", "tcp://127.0.0.1:1", "--out", "o"], "contradict each other"),
        (["traffic", "--path", "p"], "traffic needs --out"),
        (["traffic", "--path", "p", "--out", "o", "--archive", "a"], "--archive does not work with traffic"),
        (["traffic", "--path", "p", "--out", "o", "--publish", "s"], "--publish needs --endpoint"),
        (["archive", "--path", "p", "--out", "o", "--reader", "r"], "--reader needs --endpoint, and --incremental or"),
        (
            ["traffic", "--path", "p", "--out", "o", "--follow", "--until", "2026-01-01"],
            "--until does not work with an incremental run",
        ),
        (
            ["archive", "--path", "p", "--out", "o", "--until", "2026-01-01"],
            "archive is always incremental, and --until does not work with an incremental run",
        ),
        (
            ["traffic", "--path", "p", "--out", "o", "--since", "2026-01-02", "--until", "2026-01-01"],
            "--since 2026-01-02T00:00:00+00:00 is after --until 2026-01-01T00:00:00+00:00",
        ),
        (["traffic", "--path", "p", "--out", "o", "--max-per-batch", "9"], "--max-per-batch needs --incremental"),
        (["traffic", "--path", "p", "--out", "o", "--streams", "a", "--stream-pattern", "b"], "contradict each other"),
        (["join", "--path", "p", "--out", "o", "--left", "a"], "join needs --left and --right"),
        (["join", "--path", "p", "--out", "o", "--left", "a", "--right", "a"], "a join needs two streams"),
        (["quality", "--path", "p", "--out", "o", "--declare", "a"], "--declare a: write STREAM=json"),
        (["quality", "--path", "p", "--out", "o", "--declare", "a=xml"], "--declare a=xml: write STREAM=json"),
        (["quality", "--path", "p", "--out", "o", "--declare", "a=avro"], "--declare a=avro: write STREAM=json"),
        (["quality", "--path", "p", "--out", "o", "--declare", "a=text:b"], "text has no schema"),
        (["restore", "--archive", "a", "--endpoint", "tcp://127.0.0.1:1", "--report", "f"], "--report does not work"),
        (["restore", "--archive", "a"], "restore needs --endpoint"),
        (["restore", "--archive", "a", "--endpoint", "tcp://127.0.0.1:1", "--window", "1m"], "--window does not work"),
        (
            ["archive", "--path", "p", "--out", "o", "--depth", "1"],
            "--depth does not work with archive: it is for traff",
        ),
        (["join", "--path", "p", "--out", "o", "--gap", "9s"], "--gap does not work with join: it is for sessions"),
        (["traffic", "--path", "p", "--out", "o", "--by", "key"], "it is for sessions and join"),
        (
            ["restore", "--archive", "a", "--endpoint", "tcp://127.0.0.1:1", "--follow"],
            "--follow does not work with restore",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN, *arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command fails if it starts Spark."""

    def started(_arguments: Any, _name: str) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(pipeline, "spark_session", started)


BROKER = ["--endpoint", "tcp://127.0.0.1:1"]


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (
            ["traffic", "--path", "missing", "--out", "out"],
            1,
            "missing is no data directory: there is no such directory",
        ),
        (["traffic", "--path", "empty", "--out", "out"], 1, "--path empty has no streams: name the data directory"),
        (["archive", "--path", "empty", "--out", "out"], 1, "--path empty has no streams: name the data directory"),
        (["archive", "--path", "data", "--out", "file"], 1, "file is a file, not a directory"),
        (["archive", "--path", "data", "--out", "file/out"], 1, "a part of the path is a file"),
        (["archive", "--path", "data", "--out", "out", "--csv", "file"], 1, "file is a file, not a directory"),
        (["archive", "--path", "data", "--out", "out", "--results", "file/x"], 1, "a part of the path is a file"),
        (
            ["archive", "--path", "data", "--out", "out", "--report", "empty"],
            1,
            "empty is a directory: give the name of",
        ),
        (["archive", "--path", "data", "--out", "out", "--option", "verfy=true"], 2, "there is no option 'verfy'"),
        (["quality", "--path", "data", "--out", "out", "--declare", "a=avro:missing"], 1, "missing cannot be read"),
        (
            ["restore", "--archive", "missing", *BROKER],
            1,
            "missing: there is no archive; `zambezi pipeline run archive`",
        ),
        (["restore", "--archive", "empty", "--endpoint", "nonsense"], 2, "argument --endpoint: 'nonsense' is no"),
        (["restore", "--archive", "empty", "--endpoint", "inproc://x"], 2, "option 'endpoint' is 'inproc://x'"),
        (["archive", "--endpoint", "inproc://x", "--out", "out"], 2, "option 'endpoint' is 'inproc://x'"),
        (
            ["archive", "--path", "data", "--out", "out", "--streams", "x", "--option", "stream=y"],
            2,
            "exactly one of the options",
        ),
        (["traffic", "--path", "data", "--out", "out", "--limit", "missing=-1"], 2, "--limit missing=-1: missing must"),
        (["traffic", "--path", "data", "--out", "out", "--config", "missing"], 1, "missing: No such file"),
        (["traffic", "--path", "data", "--out", "out", "--store-option", "region=x"], 2, "--store-option works only"),
        (
            ["quality", "--path", "data", "--out", "file", "--declare", "reading=json", "--declare", "read*=text"],
            1,
            "zambezi: warning: --declare reading: no stream of this run has such a name\nzambezi: ",
        ),
    ],
)
def test_mistakes_are_told_before_spark_starts(
    arguments: list[str],
    status: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "data", "readings", numbered(1))
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    assert main([*RUN, *arguments]) == status
    assert told in capsys.readouterr().err
    assert not list(tmp_path.rglob(".zambezi-*"))


@pytest.fixture
def nobody() -> str:
    """Return an endpoint where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    "options", [["traffic"], ["archive"], ["traffic", "--streams", "a,b"], ["traffic", "--follow"]]
)
def test_a_broker_that_is_not_there_is_told_before_spark_starts(
    options: list[str], nobody: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main([*RUN, *options, "--endpoint", nobody, "--out", str(out), "--option", "timeout=100ms"]) == 1
    error = capsys.readouterr().err
    told = f"zambezi: {nobody}: Connection refused (tried for 0.1 seconds: option 'timeout')"
    assert error == f"{told} (nothing listens there: is zambezi serve running?)\n"

    assert not out.exists()


@pytest.mark.usefixtures("no_spark")
def test_a_restore_asks_its_broker_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def lose(options: Options) -> None:
        asked.append(options["endpoint"])
        raise ConnectionLost("nobody is there")

    write(tmp_path / "data", "readings", numbered(1))
    archive(tmp_path / "data", tmp_path / "archive")
    monkeypatch.setattr(base_reader, "open_backend", lose)
    assert main([*RUN, "restore", "--archive", str(tmp_path / "archive"), *BROKER]) == 1
    assert capsys.readouterr().err == "zambezi: nobody is there\n"
    assert asked == ["tcp://127.0.0.1:1"]


@pytest.mark.usefixtures("shared")
def test_a_restore_fills_the_streams_of_a_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "data", "readings", numbered(30))
    archive(tmp_path / "data", tmp_path / "archive")
    with serving(tmp_path / "new") as (_, endpoint):
        assert main([*RUN, "restore", "--archive", str(tmp_path / "archive"), "--endpoint", endpoint]) == 0
        assert "readings" in capsys.readouterr().out
        with Client.connect(endpoint) as client, client.stream("readings").subscribe("", since=0, until="now") as found:
            assert [(one.key, one.body) for one in found] == numbered(30)


@pytest.mark.usefixtures("shared")
def test_an_archive_of_a_stream_that_was_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*RUN, "archive", "--path", str(tmp_path / "data"), "--out", str(tmp_path / "archive")]
    write(tmp_path / "data", "readings", numbered(30))
    assert main(command) == 0
    shutil.rmtree(tmp_path / "data" / "readings")
    write(tmp_path / "data", "readings", numbered(10))
    capsys.readouterr()
    assert main(command) == 1
    told = capsys.readouterr().err
    assert "use --accept-loss to continue with the messages that remain, or another --out" in told
    assert "checkpoint" not in told
    assert main([*command, "--accept-loss"]) == 0
    assert main([*RUN, "traffic", *command[3:]]) == 2
    assert "is a table itself: choose a directory for tables" in capsys.readouterr().err


class Following:
    """A run whose store goes away as often as `losses` says, and is back at the second look."""

    def __init__(self, losses: list[Exception], local: Path | None = None) -> None:
        self.losses = losses
        self.starts = self.looks = 0
        self.place = SimpleNamespace(local=local, check_writable=self._look)
        self.pipeline = SimpleNamespace(live=False)

    def start(self, *, follow: bool, every: float) -> int:
        self.starts += 1
        return self.starts

    def wait(self, query: int, _timeout: float) -> bool:
        if query <= len(self.losses):
            raise self.losses[query - 1]
        return True

    def _look(self) -> None:
        self.looks += 1
        if self.looks % 2:
            raise TableError("still away")


LOST = PipelineError(f"s3://b/t: {reason_of(OSError('Connection refused'))}")


@pytest.mark.parametrize(
    ("losses", "local", "starts"),
    [
        ([], None, 1),
        ([LOST, LOST], None, 3),
        ([LOST, PipelineError("something else")], None, 2),
        ([LOST], Path("out"), 1),
    ],
)
def test_a_run_that_follows_waits_for_an_object_store(
    losses: list[Exception], local: Path | None, starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "LOOK", 0.0)
    monkeypatch.setattr(pipeline, "showing", lambda *_, **__: contextlib.nullcontext())
    reported: list[bool] = []
    session = object.__new__(pipeline._Session)
    session._work = work = cast("Any", Following(losses, local))
    session._arguments = argparse.Namespace(every=1.0, verbose=False)
    session._interrupted = threading.Event()
    session._progress = cast("Any", None)
    monkeypatch.setattr(session, "_report", lambda *, final: reported.append(final))
    if starts > len(losses):
        assert session._follow() == 0
        assert reported == [True]
        assert work.looks == 2 * len(losses)
    else:
        with pytest.raises(PipelineError):
            session._follow()
        assert reported == []
    assert work.starts == starts


def test_a_store_that_stays_away_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    session = object.__new__(pipeline._Session)
    session._work = cast("Any", Following([]))
    session._interrupted = threading.Event()
    monkeypatch.setattr(pipeline, "AWAY", 0.0)
    assert not session._store_is_back(str(LOST))
    monkeypatch.setattr(pipeline, "AWAY", 60.0)
    session._interrupted.set()
    assert not session._store_is_back(str(LOST))


def test_a_trace_of_py4j_is_not_shown(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    use_for_commands(spark, monkeypatch)
    parser = argparse.ArgumentParser()
    pipeline.add_parser(parser.add_subparsers())
    shown: list[str] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: shown.append(record.getMessage()))
    logging.getLogger().addHandler(handler)
    try:
        with spark_session(parser.parse_args([*RUN, "archive", "--path", "p", "--out", "o"]), "archive"):
            of_py4j = logging.LogRecord("root", logging.ERROR, "py4j/java_gateway.py", 1, "Exception", None, None)
            logging.getLogger().handle(of_py4j)
            logging.getLogger().error("another one")
    finally:
        logging.getLogger().removeHandler(handler)
    assert shown == ["another one"]


@pytest.mark.usefixtures("no_spark")
def test_a_server_of_spark_connect_has_brokers_of_its_own(
    nobody: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--endpoint", nobody, "--out", str(tmp_path / "out"), "--master", "sc://host"]
    assert main([*RUN, "traffic", *given]) == 1
    assert "Spark was started" in capsys.readouterr().err


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("is_served", [True, False])
def test_a_stream_that_does_not_exist_is_told_before_spark_starts(
    is_served: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    write(data, "readings", numbered(3))
    write(data, "alarms", numbered(3))
    missing = "there is no stream 'redings': similar names are 'readings' (of 2 streams)"
    with serving(data) if is_served else contextlib.nullcontext((None, "")) as (_, endpoint):
        source = ["--endpoint", endpoint] if is_served else ["--path", str(data)]

        def told(*options: str) -> list[str]:
            given = [*source, "--out", str(tmp_path / "out"), "--streams", "readings,redings", *options]
            assert main([*RUN, "traffic", *given]) == 1
            return capsys.readouterr().err.splitlines()

        assert told() == [f"zambezi: {missing}"]
        warning, started = told("--follow")
        assert warning == f"zambezi: warning: {missing}; the run begins with it when somebody has published to it"
        assert "Spark was started" in started
        (started,) = told("--incremental")  # it says at its end that the stream was missing
        assert "Spark was started" in started
        assert main([*RUN, "traffic", *source, "--out", str(tmp_path / "out"), "--streams", "readings"]) == 1
        (started,) = capsys.readouterr().err.splitlines()
        assert "Spark was started" in started


def test_without_spark_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name))
    assert main([*RUN, "traffic", "--path", "p", "--out", "o"]) == 1
    assert capsys.readouterr().err == "zambezi: pipelines need Spark: pip install 'zambezi[spark]' (pyspark missing)\n"


def test_without_java_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from zambezi.spark import sessions
    from zambezi.spark.errors import JavaMissing
    from zambezi.spark.java import ADVICE

    def missing() -> str:
        raise JavaMissing(ADVICE)

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(sessions, "find_java", missing)
    write(tmp_path / "data", "readings", numbered(1))
    assert main([*RUN, "traffic", "--path", str(tmp_path / "data"), "--out", str(tmp_path / "out")]) == 1
    assert "Spark needs Java 17 or newer: install one" in capsys.readouterr().err


def session_of(server: Any, stop: Callable[[], None] = lambda: None) -> Any:
    return SimpleNamespace(stop=stop, sparkContext=SimpleNamespace(_accumulatorServer=server))


def test_java_that_ends_before_the_command_leaves_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A service manager sends SIGTERM to all processes, and Java is the first one that ends."""

    class Ended(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            raise EOFError

    def stop() -> None:
        warnings.warn("Unable to cleanly shutdown Spark JVM process.", RuntimeWarning, stacklevel=1)
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    parser = argparse.ArgumentParser()
    pipeline.add_parser(parser.add_subparsers())
    arguments = parser.parse_args([*RUN, "archive", "--path", "p", "--out", "o"])
    with socketserver.TCPServer(("127.0.0.1", 0), Ended) as server:
        monkeypatch.setattr("zambezi.spark.session", lambda *_, **__: session_of(server, stop))
        monkeypatch.setattr(spark_command, "use_session", lambda _: None)
        with spark_session(arguments, "archive"), socket.create_connection(("127.0.0.1", server.server_address[1])):
            server.handle_request()
    assert capsys.readouterr().err == ""
    assert list(tmp_path.iterdir()) == []  # the log of Spark


def test_the_temporary_checkpoints_of_a_command_have_no_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, str] = {}

    def started(master: str, name: str, settings: dict[str, str]) -> Any:
        found.update(settings)
        return session_of(SimpleNamespace())

    monkeypatch.setattr("zambezi.spark.session", started)
    monkeypatch.setattr(spark_command, "use_session", lambda _: None)
    parser = argparse.ArgumentParser()
    pipeline.add_parser(parser.add_subparsers())
    given = ["archive", "--path", "p", "--out", "o", "--conf", "spark.log.level=INFO"]
    with spark_session(parser.parse_args([*RUN, *given]), "archive"):
        pass
    assert found["spark.hadoop.fs.AbstractFileSystem.file.impl"] == "org.apache.hadoop.fs.local.RawLocalFs"
    assert found["spark.log.level"] == "INFO"
    found.clear()
    with spark_session(parser.parse_args([*RUN, *given[:-2], "--master", "sc://host"]), "archive"):
        pass
    assert found == {}  # they are settings of the server


@pytest.mark.usefixtures("shared")
def test_a_run_shows_tables_and_leaves_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "data", "readings", numbered(30))
    out = tmp_path / "out"
    options = ["--path", f"file://{tmp_path}/data", "--out", f"file://{out}", "--window", "1s"]
    options += ["--report", str(tmp_path / "report.html"), "--csv", str(tmp_path / "csv")]
    options += ["--since", "2020-01-01T00:00:00Z", "--min-partitions", "2", "--option", "maxMessagesPerPartition=7"]
    assert main([*RUN, "traffic", *options]) == 0
    shown = capsys.readouterr()
    assert "Traffic: streams" in shown.out
    assert "readings" in shown.out
    assert "traffic: 30 messages" in shown.err
    table = json.loads((out / "results" / "traffic-streams.json").read_text())
    assert table["rows"][0][:2] == ["readings", 30]
    assert DeltaReader(str(out / "traffic")).active
    report = (tmp_path / "report.html").read_text()
    assert report.index("healthy: yes") < report.index("<svg") < report.index("Traffic: streams")
    assert (tmp_path / "csv" / "traffic-streams.csv").read_text().splitlines()[1].startswith("readings,30,")
    assert "the report: " in shown.err
    # The console shows it.
    from zambezi.console.results import Results

    found = Results(str(out / "results"))
    found.read()
    told = found.describe()
    assert (told["problems"], told["pipelines"][0]["healthy"]) == ([], True)
    assert [one["data"]["kind"] for one in told["results"][1]["plots"]] == ["strips", "timeline"]
    assert {one["name"] for one in told["results"]} == {
        "traffic-verdict",
        "traffic-plots",
        "traffic-keys",
        "traffic-prefixes",
        "traffic-streams",
        "traffic-windows",
        "traffic-heavy",
        "traffic-gaps",
    }


@pytest.mark.usefixtures("shared")
def test_a_run_that_is_not_healthy_ends_with_3_and_publishes_alarms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path / "data") as (_, endpoint), Client.connect(endpoint) as client:
        client.stream("readings").publish_many(numbered(30))
        client.stream("readings").flush()
        options = ["--streams", "readings", "--limit", "missing=-1", "--publish", "alarms", "--json"]
        assert main([*RUN, "archive", "--endpoint", endpoint, "--out", str(tmp_path / "out"), *options]) == 2
        assert "--limit missing=-1: missing must be 0 to" in capsys.readouterr().err
        options[3] = "messages=31"
        assert main([*RUN, "traffic", "--endpoint", endpoint, "--out", str(tmp_path / "out"), *options]) == 3
        told = json.loads(capsys.readouterr().out)
        alarms = list(client.stream("alarms").subscribe(since="earliest", until="now"))
    assert told["verdict"] == "healthy: no, because 30 messages were found, and at least 31 expected"
    assert told["reports"]["traffic-streams"]["rows"][0]["messages"] == 30
    assert [json.loads(one.body)["kind"] for one in alarms] == ["few"]


@pytest.mark.usefixtures("shared")
def test_a_run_that_another_one_overtakes_ends_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write(data, "readings", numbered(30))
    real = frames.added_files

    def slowly(*arguments: Any) -> Any:
        added = real(*arguments)
        archive(data, out)
        return added

    monkeypatch.setattr(batches, "added_files", slowly)
    assert main([*RUN, "archive", "--path", str(data), "--out", str(out)]) == 1
    told = capsys.readouterr().err
    assert (
        f"{out}: process {os.getpid()} on {socket.gethostname()} has added a batch meanwhile, so this run ends" in told
    )
    assert "Traceback" not in told
    assert DeltaReader(str(out)).sequences() == {"readings": Counter(range(1, 31))}


@pytest.mark.usefixtures("shared")
def test_a_stream_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "data", "readings", numbered(3))
    command = [*RUN, "archive", "--path", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    assert main([*command, "--streams", "readings,redings"]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(told) == 1
    assert told[0].startswith("zambezi: warning: stream 'redings' does not exist: correct its name")


@pytest.mark.usefixtures("shared")
def test_a_place_that_cannot_be_used_is_refused_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "data", "readings", numbered(3))
    (tmp_path / "file").write_text("")
    LakeTable(Place(str(tmp_path / "odd")), "archive").create(SCHEMA)
    (tmp_path / "odd" / "date=2023-11-14").write_text("")  # executors notice
    for name, cause in (
        ("file", "is a file, not a directory"),
        ("file/below", "a part of the path is a file, not a directory"),
        ("odd", "a file is where a directory must be: choose another place (File exists: "),
    ):
        command = [*RUN, "archive", "--path", str(tmp_path / "data"), "--out", str(tmp_path / name)]
        assert main(command) == 1
        told = capsys.readouterr().err.strip().splitlines()[-1]
        assert told.startswith(f"zambezi: {tmp_path / name}")
        assert cause in told


@pytest.mark.usefixtures("shared")
def test_restoring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "data", "readings", numbered(30))
    archive(tmp_path / "data", tmp_path / "archive")
    times = ("--since", "2023-11-14T22:13:21Z", "--until", "2023-11-14T22:13:21Z")
    with serving(tmp_path / "other") as (_, endpoint), Client.connect(endpoint) as client:
        options = ["--archive", str(tmp_path / "archive"), "--endpoint", endpoint, "--into", "again", *times]
        status = main([*RUN, "restore", *options])
        found = [one.body for one in client.stream("again").subscribe(since="earliest", until="now")]
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert "again" in shown.out
    assert found == [str(number).encode() for number in range(11, 21)]


def test_the_settings_of_the_command_line(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    pipeline.add_parser(parser.add_subparsers())
    schema = tmp_path / "schema.avsc"
    schema.write_text('"long"')
    given = ["--path", "p", "--out", "o", "--left", "a", "--right", "b", "--within", "250ms", "--by", "upper(key)"]
    given += ["--declare", "x=json:n long", "--declare", f"y*=avro-confluent:{schema}", "--declare", "z=text"]
    arguments = parser.parse_args([*RUN, "join", *given])
    settings = settings_of(arguments)
    assert (settings.left, settings.right, settings.within, settings.by) == ("a", "b", 0.25, "upper(key)")
    assert settings.declared == (
        Declaration("x", "json", "n long"),
        Declaration("y*", "avro", '"long"', "confluent"),
        Declaration("z", "text"),
    )
    assert source_options(arguments)["streams"] == "a,b"
    arguments.declare = ["y=avro:nowhere.avsc"]
    with pytest.raises(InputError, match=r"nowhere\.avsc cannot be read"):
        settings_of(arguments)


def test_a_slow_start_of_spark_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_command, "QUIET", 0.0)
    told, standard_error = os.pipe()
    kept = os.dup(2)
    os.dup2(standard_error, 2)
    try:
        with spark_command._announced(), spark_command._aside(is_wanted=True):
            assert os.read(told, 100) == b"zambezi: Spark starts; this takes some seconds\n"
    finally:
        os.dup2(kept, 2)
        for descriptor in (kept, told, standard_error):
            os.close(descriptor)


def test_a_quick_start_is_not_told(capfd: pytest.CaptureFixture[str]) -> None:
    with spark_command._announced():
        pass
    assert capfd.readouterr().err == ""


def test_compacting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "archive"
    for _ in range(3):
        write(tmp_path / "data", "readings", numbered(10))
        archive(tmp_path / "data", out)
    assert main(["pipeline", "compact", str(out)]) == 0
    assert capsys.readouterr().out.replace("\n", "").endswith("3 files became 1; 0 old files removed")
    assert main(["pipeline", "compact", str(out)]) == 0
    assert "nothing to do: no day has small files" in capsys.readouterr().out
    assert DeltaReader(str(out)).sequences() == {"readings": Counter(range(1, 31))}
    assert main(["pipeline", "compact", str(out), "--json"]) == 0
    counts = {"merged": 0, "written": 0, "removed": 0}
    assert json.loads(capsys.readouterr().out) == {"table": str(out), **counts}
    assert main(["pipeline", "compact", str(tmp_path / "nothing")]) == 1
    assert "there is no Delta table in" in capsys.readouterr().err
    assert main(["pipeline", "compact", str(out), "--keep", "1h"]) == 2
    assert "--keep must be at least 1d" in capsys.readouterr().err


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("shared")
def test_following_writes_results_until_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results" / "traffic-streams.json"
    options = ["--follow", "--every", "100ms", "--streams", "readings", "--results", str(results.parent)]

    def rows() -> object:
        return json.loads(results.read_text())["rows"]

    def publish(client: Client) -> None:
        client.stream("readings").publish_many(numbered(30))
        client.stream("readings").flush()

    def run_until_results_change(work: Callable[[threading.Event], int], _cancel: Callable[[], None]) -> int:
        interrupted = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(work, interrupted)
            try:
                wait_until(lambda: results.exists() or running.done(), PATIENCE)
                before = rows()
                publish(client)
                wait_until(lambda: rows() != before or running.done(), PATIENCE)
            finally:
                interrupted.set()
            return running.result()

    monkeypatch.setattr(pipeline, "away_from_signals", run_until_results_change)
    with serving(tmp_path / "data") as (_, endpoint), Client.connect(endpoint) as client:
        publish(client)
        assert main([*RUN, "traffic", "--endpoint", endpoint, "--out", str(tmp_path / "out"), *options]) == 0
    shown = capsys.readouterr()
    assert "healthy: yes (1 stream, 60 messages)" in shown.out
    assert "Traceback" not in shown.err


@pytest.mark.usefixtures("shared")
def test_the_pipelines_of_the_demo_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path / "data") as (_, endpoint), Client.connect(endpoint) as client:
        for stream in ("telemetry", "zrelog", "mcollective"):
            client.stream(stream).publish("a.b", b"1")
            client.stream(stream).flush()
        assert analysis.main(endpoint, tmp_path) == 0
    assert capsys.readouterr().out.count("healthy: ") == len(analysis.PIPELINES)


def drawn(found: Rows, most: int, *notes: str) -> list[str]:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(result_view(Result("r", "A title", found, notes), most, "out"))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_table_for_a_terminal() -> None:
    rows = [["a\x1b[31m", 1234567, 0.5, None, True], ["b", 2, 10.0, "x", False]]
    found = Rows(["name", "count", "of_all", "nothing", "sure"], rows, True, frozenset({"count", "of_all"}))
    assert drawn(found, 1, "a note") == [
        "A title",
        "  name           count  of all  nothing  sure",
        "  a\\x1b[31m  1,234,567     0.5  -        yes",
        "  a note; 1 more row in out/r.json, which has only the first 2",
        "",
    ]


def test_a_date_that_all_rows_share_is_shown_once() -> None:
    one, other = "2026-01-31 12:00:00", "2026-01-31 12:00:01.5"
    found = Rows(["at", "id"], [[one, "0b2f1c7e-0000-4000-8000-00000000002a"], [other, None]], False, frozenset())
    assert drawn(found, 9)[:4] == [
        "A title  2026-01-31",
        "  at          id",
        "  12:00:00    0b2f1c7e",
        "  12:00:01.5  -",
    ]
    found = Rows(["at"], [[one], ["2026-02-01 00:00:00"]], False, frozenset())
    assert drawn(found, 9)[:4] == ["A title", "  at", "  2026-01-31 12:00:00", "  2026-02-01 00:00:00"]


def test_a_table_without_rows() -> None:
    assert drawn(Rows(["at"], [], False, frozenset()), 9) == ["A title", "  none", ""]


def test_a_line_of_progress() -> None:
    progress = Progress(7, 1000, 250.4, 3, 5000, 1_700_000_000_000_000, 8, 3, 12.3)
    line = pipeline.progress_line("traffic", progress).plain
    assert line == "traffic: 1,000 messages, batch 7 at 250 messages/s, watermark 22:13:20, 3 late, 3/8 tasks, 12 s"


def test_a_line_of_progress_is_one_line_in_a_file() -> None:
    progress = Progress(7, 1000, 250.4, 3, 5000, 1_700_000_000_000_000, 8, 3, 12.3)
    work: Any = SimpleNamespace(pipeline=PIPELINES["network-health"], progress=lambda: progress)
    said = io.StringIO()
    with pipeline.showing(work, terminal.Console(file=said, width=80)):
        pass
    assert said.getvalue().count("\n") == 1
