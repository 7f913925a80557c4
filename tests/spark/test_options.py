"""zambezi.spark.options: the values that each option accepts and refuses, and the errors."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from zambezi.spark.errors import OptionError
from zambezi.spark.options import BATCH, OPTIONS, SINK, STREAM, Options, Use, names, table
from zambezi.zmtp.keys import KeyPair, write_pair
from zambezi.zmtp.security import CurveClient, Null

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
TCP = "tcp://127.0.0.1:5555"
KEYS = KeyPair.generate(bytes(32))

GOOD: list[tuple[str, str, Any]] = [
    ("path", "data", "data"),
    ("storeOptions", '{"region": "r"}', {"region": "r"}),
    ("archive", "s3://bucket/archive", "s3://bucket/archive"),
    ("archive", "file:///archive", "/archive"),
    ("startingOffsets", '{"a": {"sequence": 7}}', {"a": {"sequence": 7}}),
    ("reader", "pipeline-archive", "pipeline-archive"),
    ("endpoint", TCP, TCP),
    ("endpoint", "ipc:///run/zeps", "ipc:///run/zeps"),
    ("path", "file:///data/my%20broker", "/data/my broker"),
    ("path", "file:/data", "/data"),
    ("stream", "readings", "readings"),
    ("stream", "with, comma", "with, comma"),
    ("streams", "a, b,a", ("a", "b")),
    ("streamPattern", "glob:site-*", "glob:site-*"),
    ("streamPattern", "", ""),
    ("pattern", "regex:^k[0-9]$", "regex:^k[0-9]$"),
    ("startingSequence", "earliest", "earliest"),
    ("startingSequence", "Latest", "latest"),
    ("startingSequence", "17", 17),
    ("startingSequence", '{"a": 17, "b": "earliest"}', {"a": 17, "b": "earliest"}),
    ("startingTimestamp", "2026-01-31T12:00:00Z", 1769860800_000000),
    ("startingTimestamp", "2026-01-31T12:00:00", 1769860800_000000),
    ("startingTimestamp", "2026-01-31T14:00:00+02:00", 1769860800_000000),
    ("startingTimestamp", "1769860800000", 1769860800_000000),
    ("startingTimestamp", '{"a": "2026-01-31", "b": 1}', {"a": 1769817600_000000, "b": 1000}),
    ("endingSequence", "latest", "latest"),
    ("endingSequence", "99", 99),
    ("endingSequence", '{"a": 1}', {"a": 1}),
    ("endingTimestamp", "1", 1000),
    ("maxMessagesPerTrigger", "1000", 1000),
    ("maxBytesPerTrigger", "64m", 64 << 20),
    ("maxBytesPerTrigger", "1 GiB", 1 << 30),
    ("maxBytesPerTrigger", "10", 10),
    ("maxBytesPerTrigger", "None", None),
    ("cores", "24", 24),
    ("minMessagesPerTrigger", "5", 5),
    ("maxTriggerDelay", "500ms", 0.5),
    ("maxTriggerDelay", "15m", 900.0),
    ("maxTriggerDelay", "3", 3.0),
    ("minPartitions", "8", 8),
    ("maxMessagesPerPartition", "100", 100),
    ("failOnDataLoss", "false", False),
    ("failOnDataLoss", "TRUE", True),
    ("filterAt", "broker", "broker"),
    ("filterAt", "Executor", "executor"),
    ("pushFilters", "TRUE", True),
    ("verify", "true", True),
    ("serverKey", KEYS.public_z85, KEYS.public_z85),
    ("secretKey", "keys/me.key", "keys/me.key"),
    ("timeout", "2.5s", 2.5),
    ("publisher", "export", "export"),
    ("failOnRefusal", "false", False),
]

BAD = [
    ("path", ""),
    ("path", "file://host/data"),
    ("archive", ""),
    ("startingOffsets", "[]"),
    ("reader", ""),
    ("startingOffsets", "earliest"),
    ("cores", "0"),
    ("storeOptions", "[]"),
    ("storeOptions", '{"timeout": 1}'),
    ("endpoint", "127.0.0.1:5555"),
    ("endpoint", "inproc://here"),
    ("endpoint", "tcp://*:5555"),
    ("stream", ""),
    ("streams", "a,,b"),
    ("streams", ""),
    ("streamPattern", "regex:("),
    ("pattern", "regex:[a"),
    ("startingSequence", "first"),
    ("startingSequence", "-1"),
    ("startingSequence", "1.5"),
    ("startingSequence", '{"a": true}'),
    ("startingSequence", '{"a": "soon"}'),
    ("startingSequence", '{"a": 1'),
    ("startingTimestamp", "yesterday"),
    ("startingTimestamp", '{"a": []}'),
    ("endingSequence", "earliest"),
    ("endingSequence", "-7"),
    ("endingTimestamp", "31.1.2026"),
    ("maxMessagesPerTrigger", "0"),
    ("maxMessagesPerTrigger", "many"),
    ("maxBytesPerTrigger", "0"),
    ("maxBytesPerTrigger", "64 pounds"),
    ("minMessagesPerTrigger", "0"),
    ("maxTriggerDelay", "soon"),
    ("maxTriggerDelay", "-1s"),
    ("minPartitions", "0"),
    ("minPartitions", "2.5"),
    ("maxMessagesPerPartition", "0"),
    ("failOnDataLoss", "yes"),
    ("filterAt", "home"),
    ("pushFilters", "maybe"),
    ("verify", "1"),
    ("serverKey", ""),
    ("secretKey", ""),
    ("timeout", "60 years"),
    ("publisher", ""),
    ("failOnRefusal", "maybe"),
]


def use_of(name: str) -> Use:
    [uses] = [option.uses for option in OPTIONS if option.name == name]
    return next(use for use in (BATCH, STREAM, SINK) if use in uses)


def other_options(name: str) -> dict[str, str]:
    """Return the options that a query needs beside this one."""
    use = use_of(name)
    given = {"endpoint": TCP}
    if name in ("path", "storeOptions", "verify"):
        given = {"path": "data"}
    if use != SINK and name not in ("streams", "streamPattern"):
        given["stream"] = "s"
    if name == "secretKey":
        given["serverKey"] = KEYS.public_z85
    if name in ("publisher", "failOnRefusal"):
        given["stream"] = "s"
    return given


def test_every_option_is_tried() -> None:
    every = {option.name for option in OPTIONS}
    assert {name for name, _, _ in GOOD} == every
    assert {name for name, _ in BAD} == every


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_a_valid_value_is_parsed(name: str, text: str, value: Any) -> None:
    use = STREAM if (name, value) == ("startingSequence", "latest") else use_of(name)
    options = Options({**other_options(name), name: text}, use)
    assert options[name] == value
    assert pickle.loads(pickle.dumps(options))[name] == value


@pytest.mark.parametrize(("name", "text"), BAD)
def test_an_invalid_value_is_an_error_that_says_what_is_allowed(name: str, text: str) -> None:
    [option] = [option for option in OPTIONS if option.name == name]
    with pytest.raises(OptionError) as caught:
        Options({**other_options(name), name: text}, use_of(name))
    assert f"option {name!r}" in str(caught.value)
    assert f"it must be {option.allowed}" in str(caught.value)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_has_its_default(option: Any) -> None:
    given = {"endpoint": TCP, "stream": "s"}
    if option.name not in given:
        assert Options(given, use_of(option.name))[option.name] == option.default


def test_names_are_compared_without_case() -> None:
    assert Options({"ENDPOINT": TCP, "Stream": "s", "MINPARTITIONS": "3"}, BATCH)["minPartitions"] == 3


def test_options_of_spark_are_ignored() -> None:
    Options({"endpoint": TCP, "stream": "s", "checkpointLocation": "/tmp/x"}, SINK)


@pytest.mark.parametrize("use", [BATCH, STREAM, SINK])
def test_an_unknown_option_is_named(use: Use) -> None:
    with pytest.raises(OptionError, match=f"no option 'strem': the options are {', '.join(names(use))}"):
        Options({"endpoint": TCP, "stream": "s", "strem": "x"}, use)


@pytest.mark.parametrize(
    ("use", "name"),
    [(STREAM, "endingSequence"), (BATCH, "maxMessagesPerTrigger"), (SINK, "path"), (BATCH, "publisher")],
)
def test_an_option_for_another_use_is_named(use: Use, name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name!r} is not for"):
        Options({"endpoint": TCP, "stream": "s", name: "1"}, use)


@pytest.mark.parametrize(
    ("use", "given", "message"),
    [
        (BATCH, {"stream": "s"}, "exactly one of the options path, endpoint must be given: none was given"),
        (BATCH, {"stream": "s", "path": "d", "endpoint": TCP}, "path and endpoint were given"),
        (BATCH, {"path": "d"}, "exactly one of the options stream, streams, streamPattern"),
        (BATCH, {"path": "d", "stream": "a", "streams": "a,b"}, "stream and streams were given"),
        (STREAM, {"path": "d", "stream": "a", "startingSequence": "1", "startingTimestamp": "1"}, "contradict"),
        (BATCH, {"path": "d", "stream": "a", "endingSequence": "1", "endingTimestamp": "1"}, "contradict"),
        (BATCH, {"path": "d", "stream": "a", "startingSequence": "latest"}, "cannot be latest in a batch query"),
        (BATCH, {"path": "d", "stream": "a", "startingSequence": '{"a": "latest"}'}, "cannot be latest"),
        (BATCH, {"endpoint": TCP, "stream": "a", "secretKey": "x"}, "option 'secretKey' needs option 'serverKey'"),
        (BATCH, {"endpoint": TCP, "stream": "a", "verify": "true"}, "option 'verify' needs option 'path'"),
        (STREAM, {"path": "d", "stream": "a", "reader": "r"}, "option 'reader' needs option 'endpoint'"),
        (BATCH, {"path": "d", "stream": "a", "filterAt": "broker"}, "option 'filterAt' needs option 'endpoint'"),
        (SINK, {"stream": "a"}, "option 'endpoint' is missing"),
    ],
)
def test_options_that_do_not_go_together(use: Use, given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        Options(given, use)


def test_keys_are_text_or_files(tmp_path: Path) -> None:
    public, secret = write_pair(tmp_path, "me", KEYS)
    plain = {"endpoint": TCP, "stream": "s"}
    assert isinstance(Options(plain, BATCH).security(), Null)
    for server in (KEYS.public_z85, str(public)):
        for own in (KEYS.secret_z85, str(secret)):
            made = Options({**plain, "serverKey": server, "secretKey": own}, BATCH).security()
            assert isinstance(made, CurveClient)
            assert (made.server_key, made.keys) == (KEYS.public, KEYS)
    anonymous = Options({**plain, "serverKey": str(public)}, BATCH).security()
    assert isinstance(anonymous, CurveClient)
    with pytest.raises(OptionError, match="'serverKey' and 'secretKey' must be a key of 40 characters"):
        Options({**plain, "serverKey": str(tmp_path / "nobody.pub")}, BATCH).security()


def test_an_error_does_not_show_a_secret() -> None:
    with pytest.raises(OptionError) as caught:
        Options({"endpoint": TCP, "stream": "s", "serverKey": KEYS.public_z85, "secretKey": "~" * 40}, BATCH).security()
    assert "~~~~" not in str(caught.value)


def test_the_table_is_in_the_documentation() -> None:
    assert table() in PAGE.read_text()
