"""All options of the source and the sink, each declared once: its name, the allowed values, and the default.

The table in docs/spark.md is made from this list, and a test checks that they are equal. Names of options are compared
without regard to case, as Spark does it. An unknown option is an error, because it is probably a typing mistake. So is
a value that is not allowed, and two options that contradict each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote

from zambezi.errors import ZambeziError
from zambezi.spark.errors import OptionError
from zambezi.zeps.client.arguments import check_reader_name
from zambezi.zeps.directory import microseconds_of
from zambezi.zeps.errors import PatternError
from zambezi.zeps.matchers import Matchers
from zambezi.zmtp import z85
from zambezi.zmtp.endpoint import Inproc, parse
from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.keys import KEY_CHARACTERS, KeyPair, read_pair, read_public
from zambezi.zmtp.security import CurveClient, Null, Security

Use: TypeAlias = Literal["batch", "stream", "sink"]

BATCH: Final[Use] = "batch"
STREAM: Final[Use] = "stream"
SINK: Final[Use] = "sink"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

SequenceOption: TypeAlias = int | str  # a sequence, earliest or latest
_MAX_NUMBER: Final = (1 << 63) - 2
DEFAULT_BATCH: Final = 4 << 30  # bytes: a first run over terabytes is not one batch
_TIME_UNITS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# Options that Spark itself adds to the options of a query.
_SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "queryname", "outputmode", "mergeschema"})


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `parse` converts the text of a value, and raises ValueError if the value is not allowed."""

    name: str
    uses: frozenset[Use]
    parse: Callable[[str], Any]
    allowed: str
    default: Any
    shown: str  # the default, in the documentation
    text: str  # the description


def _reader_name(text: str) -> str:
    try:
        return check_reader_name(text)
    except ZambeziError as error:
        raise ValueError(str(error)) from None


def _whole_number(least: int) -> Callable[[str], int]:
    def parse_number(value: str) -> int:
        number = int(value.strip())
        if not least <= number <= _MAX_NUMBER:
            raise ValueError
        return number

    return parse_number


def _size(value: str) -> int:
    found = re.fullmatch(r"\s*(\d+)\s*([kmg]?)(?:i?b)?\s*", value.lower())
    if found is None or not 0 < int(found[1]) * _SIZE_UNITS[found[2]] <= _MAX_NUMBER:
        raise ValueError
    return int(found[1]) * _SIZE_UNITS[found[2]]


def _size_or_none(value: str) -> int | None:
    return None if value.strip().lower() == "none" else _size(value)


def _place(value: str) -> str:
    path = local_path(value)
    if not path or path.startswith("file:"):
        raise ValueError
    return path


def local_path(value: str) -> str:
    """Return the path that a `file:` URI names; any other text unchanged.

    >>> local_path("file:///data/a%20b"), local_path("file:/data"), local_path("data"), local_path("s3://bucket")
    ('/data/a b', '/data', 'data', 's3://bucket')
    """
    found = re.fullmatch(r"file:(?://(?:localhost)?(?=/))?(/(?!/).*)", value.strip())
    return unquote(found[1]) if found is not None else value


def _seconds(value: str) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)\s*", value.lower())
    if found is None:
        raise ValueError
    return float(found[1]) * _TIME_UNITS[found[2]]


def _boolean(value: str) -> bool:
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise ValueError
    return word == "true"


def _choice(*words: str) -> Callable[[str], str]:
    def parse_word(value: str) -> str:
        word = value.strip().lower()
        if word not in words:
            raise ValueError
        return word

    return parse_word


def _text(value: str) -> str:
    if not value:
        raise ValueError
    return value


def _names(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",")))
    if "" in names:
        raise ValueError
    return names


def _pattern(value: str) -> str:
    Matchers().parse(value)
    return value


def _endpoint(value: str) -> str:
    if isinstance(parse(value), Inproc):
        raise ValueError("inproc:// works only within one process")
    return value


def _sequence(*words: str) -> Callable[[str], SequenceOption]:
    def parse_sequence(value: str) -> SequenceOption:
        word = value.strip().lower()
        return word if word in words else _whole_number(0)(word)

    return parse_sequence


def parse_time(value: str) -> int:
    """Parse a time. Return microseconds since 1970."""
    if re.fullmatch(r"\s*\d+\s*", value):
        return int(value) * 1000
    when = datetime.fromisoformat(value.strip())
    return microseconds_of(when if when.tzinfo is not None else when.replace(tzinfo=UTC))


def _store_options(value: str) -> dict[str, str]:
    options = json.loads(value)
    if not isinstance(options, dict) or not all(isinstance(one, str) for one in options.values()):
        raise ValueError
    return options


def _json_object(value: str) -> dict[str, Any]:
    found = json.loads(value)
    if not isinstance(found, dict):
        raise ValueError
    return found


def _per_stream(parse_one: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser for one value for all streams, or JSON with one value for each stream."""

    def parse_either(value: str) -> Any:
        if not value.lstrip().startswith("{"):
            return parse_one(value)
        by_stream = json.loads(value)
        for one in by_stream.values():
            if isinstance(one, bool) or not isinstance(one, str | int):
                raise ValueError
        return {name: parse_one(str(one)) for name, one in by_stream.items()}

    return parse_either


_READ: Final = frozenset({BATCH, STREAM})
_ALL: Final = frozenset({BATCH, STREAM, SINK})
_ENDPOINT: Final = "tcp://HOST:PORT or ipc://PATH"
_WHOLE: Final = "a whole number of at least 1"
_BOOLEAN: Final = "true or false"
_START: Final = 'earliest, latest, a sequence, or JSON such as {"readings": 17, "alarms": "earliest"}'
_END: Final = 'latest, a sequence, or JSON such as {"readings": 17, "alarms": "latest"}'
_TIME: Final = (
    "a time such as 2026-01-31T12:00:00Z (without a time zone: UTC), milliseconds since 1970, or JSON with a time for "
    "each stream"
)
_KEY: Final = "a key of 40 characters (Z85), or the path of a key file that every executor can read"
_PATTERN: Final = "a prefix, exact:KEY, glob:PATTERN or regex:PATTERN"

OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "path",
        _READ,
        _place,
        "a directory, or a URL such as file:///data or s3://bucket/prefix",
        None,
        "",
        "the data directory of a broker, read as files: the fastest way; or an object store, read without a broker",
    ),
    Option(
        "storeOptions",
        _READ,
        _store_options,
        'JSON such as {"endpoint": "http://host:8333", "region": "r"}',
        None,
        "the environment",
        "options of the object store that `path` or `archive` names",
    ),
    Option("endpoint", _ALL, _endpoint, _ENDPOINT, None, "", "the broker: works from every machine that can reach it"),
    Option("stream", _ALL, _text, "the name of a stream", None, "", "the stream to read, or to publish to"),
    Option("streams", _READ, _names, "names, separated by commas", None, "", "several streams to read"),
    Option(
        "streamPattern",
        _READ,
        _pattern,
        _PATTERN,
        None,
        "",
        "all streams whose names match, including those made later",
    ),
    Option(
        "archive",
        frozenset({BATCH}),
        _place,
        "a directory, or a URL such as s3://bucket/prefix",
        None,
        "",
        "an archive that `zambezi pipeline run archive` has made: its messages, and those of `endpoint` or `path` that "
        "it does not have, each once",
    ),
    Option("pattern", _READ, _pattern, _PATTERN, "", "all", "read only messages whose routing keys match"),
    Option(
        "startingSequence",
        _READ,
        _per_stream(_sequence(EARLIEST, LATEST)),
        _START,
        None,
        "earliest for a batch query, latest for a streaming query",
        "the first message to read; a query that has a checkpoint continues from there",
    ),
    Option(
        "startingTimestamp",
        _READ,
        _per_stream(parse_time),
        _TIME,
        None,
        "",
        "begin with the first message at or after this time",
    ),
    Option(
        "startingOffsets",
        frozenset({STREAM}),
        _json_object,
        "the JSON of an offset, such as `endOffset` in the progress of a query",
        None,
        "",
        "begin after these positions, as a query that has a checkpoint does",
    ),
    Option(
        "reader",
        frozenset({STREAM}),
        _reader_name,
        "a name",
        None,
        "",
        "show at the broker how far the query is behind, as a named reader of each stream",
    ),
    Option(
        "endingSequence",
        frozenset({BATCH}),
        _per_stream(_sequence(LATEST)),
        _END,
        None,
        "latest",
        "the last message to read",
    ),
    Option(
        "endingTimestamp",
        frozenset({BATCH}),
        _per_stream(parse_time),
        _TIME,
        None,
        "",
        "end before the first message after this time",
    ),
    Option(
        "maxMessagesPerTrigger",
        frozenset({STREAM}),
        _whole_number(1),
        _WHOLE,
        None,
        "no limit",
        "the most messages in a batch, divided among the streams in proportion to their unread messages",
    ),
    Option(
        "maxBytesPerTrigger",
        frozenset({STREAM}),
        _size_or_none,
        "a size such as 64m, or none",
        DEFAULT_BATCH,
        "4g if `maxMessagesPerTrigger` is not given, else none",
        "the most bytes of the journal in a batch, to within one batch of the index",
    ),
    Option(
        "minMessagesPerTrigger",
        frozenset({STREAM}),
        _whole_number(1),
        _WHOLE,
        None,
        "1",
        "wait for this many messages, but not longer than `maxTriggerDelay`",
    ),
    Option(
        "maxTriggerDelay",
        frozenset({STREAM}),
        _seconds,
        "a time such as 500ms, 30s or 15m",
        900.0,
        "15m",
        "the longest wait for `minMessagesPerTrigger`",
    ),
    Option(
        "minPartitions",
        _READ,
        _whole_number(1),
        _WHOLE,
        None,
        "depends on the size and on `cores`",
        "read with at least this many partitions",
    ),
    Option(
        "cores",
        _READ,
        _whole_number(1),
        _WHOLE,
        None,
        "those of the cluster as `session()` knows them, or of the driver's machine",
        "the cores that read: the number of partitions is a multiple, if possible",
    ),
    Option(
        "maxMessagesPerPartition",
        _READ,
        _whole_number(1),
        _WHOLE,
        None,
        "no limit",
        "split partitions that would have more messages",
    ),
    Option(
        "failOnDataLoss",
        _READ,
        _boolean,
        _BOOLEAN,
        True,
        "true",
        "fail if messages are lost before they were read; false: log a warning, and continue with the others",
    ),
    Option(
        "filterAt",
        _READ,
        _choice("executor", "broker"),
        "executor or broker",
        "executor",
        "executor",
        "where messages that do not match `pattern` are left out; a broker filters slowly, but saves network traffic",
    ),
    Option(
        "pushFilters",
        frozenset({BATCH}),
        _boolean,
        _BOOLEAN,
        False,
        "false",
        "let the source apply filters of the query; only for a table that is used once, see above",
    ),
    Option(
        "verify",
        _READ,
        _boolean,
        _BOOLEAN,
        False,
        "false",
        "check the CRC of every batch of the journal that is read (`path` only)",
    ),
    Option(
        "serverKey", _ALL, _text, _KEY, None, "", "CURVE: the public key of the broker; the connection is encrypted"
    ),
    Option(
        "secretKey",
        _ALL,
        _text,
        _KEY,
        None,
        "",
        "CURVE: the secret key of this client, if the broker admits only known keys",
    ),
    Option(
        "timeout",
        _ALL,
        _seconds,
        "a time such as 500ms, 30s or 15m",
        60.0,
        "60s",
        "how long to try to reach a broker that is down or unreachable",
    ),
    Option(
        "failOnRefusal",
        frozenset({SINK}),
        _boolean,
        _BOOLEAN,
        True,
        "true",
        "fail if the broker refuses a row, in every attempt; false: log a warning, and publish the others",
    ),
    Option(
        "publisher",
        frozenset({SINK}),
        _text,
        "any text",
        None,
        "the query's id; for a batch write a new one",
        "the name under which rows are counted: a batch write that is started again with the same name goes on",
    ),
)

_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}


class Options:
    """The validated options of one query, by name."""

    def __init__(self, given: Mapping[str, str], use: Use) -> None:
        self.use = use
        self._values: dict[str, Any] = {}
        for name, value in given.items():
            if name.lower() in _SPARK_OPTIONS:
                continue
            option = _BY_NAME.get(name.lower())
            if option is None:
                raise OptionError(f"there is no option {name!r}: the options are {', '.join(names(use))}")
            if use not in option.uses:
                raise OptionError(
                    f"option {option.name!r} is not for {_USE[use]}: the options are {', '.join(names(use))}"
                )
            self._values[option.name] = _parse(option, str(value))
        _check(self)

    def __getitem__(self, name: str) -> Any:
        """Return the value of an option, or its default."""
        option = _BY_NAME[name.lower()]
        return self._values.get(option.name, option.default)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def security(self) -> Security:
        """Return the security mechanism for connections to the broker."""
        server = self["serverKey"]
        if server is None:
            return Null()
        try:
            public = z85.decode(server) if len(server) == KEY_CHARACTERS else read_public(Path(server))
            secret = self["secretKey"]
            if secret is None:
                return CurveClient(public)
            if len(secret) == KEY_CHARACTERS:
                return CurveClient(public, KeyPair.from_secret(z85.decode(secret)))
            return CurveClient(public, read_pair(Path(secret)))
        except ZambeziError as error:
            raise OptionError(f"options 'serverKey' and 'secretKey' must be {_KEY}: {error}") from None


_USE: Final = {BATCH: "a batch query", STREAM: "a streaming query", SINK: "the sink"}


def names(use: Use) -> list[str]:
    """Return the names of the options for a use."""
    return [option.name for option in OPTIONS if use in option.uses]


def _parse(option: Option, value: str) -> Any:
    try:
        return option.parse(value)
    except (PatternError, EndpointError) as error:
        raise OptionError(f"option {option.name!r} is {value!r}: it must be {option.allowed} ({error})") from None
    except (ValueError, TypeError, AttributeError, OverflowError):
        # Neither a secret key nor the credentials of a store may be in a log.
        shown = {"secretKey": "not a key", "storeOptions": "not JSON"}.get(option.name, repr(value))
        raise OptionError(f"option {option.name!r} is {shown}: it must be {option.allowed}") from None


def _check(options: Options) -> None:
    """Check rules that concern several options."""
    if not options:
        raise OptionError(
            "no options were given: Spark does not hand on those of CREATE TABLE; use CREATE TEMPORARY VIEW name USING "
            "zeps OPTIONS (endpoint '...', stream '...')"
        )
    if options.use == SINK:
        if "endpoint" not in options:
            raise OptionError(f"option 'endpoint' is missing: the sink needs the address of a broker, {_ENDPOINT}")
    else:
        if "archive" in options:
            _not_both(options, "path", "endpoint")
        else:
            _one_of(options, "path", "endpoint")
        _one_of(options, "stream", "streams", "streamPattern")
        _not_both(options, "startingSequence", "startingTimestamp")
        _not_both(options, "startingSequence", "startingOffsets")
        _not_both(options, "startingTimestamp", "startingOffsets")
        _not_both(options, "endingSequence", "endingTimestamp")
        starting = options["startingSequence"]
        starts = starting.values() if isinstance(starting, dict) else [starting]
        if options.use == BATCH and LATEST in starts:
            raise OptionError(
                "option 'startingSequence' cannot be latest in a batch query: the query would read nothing; it must be "
                "earliest, a sequence, or JSON with one of them for each stream"
            )
    if "secretKey" in options and "serverKey" not in options:
        raise OptionError("option 'secretKey' needs option 'serverKey', the public key of the broker")
    if "filterAt" in options and "endpoint" not in options:
        raise OptionError("option 'filterAt' needs option 'endpoint': with 'path', executors filter")
    if "reader" in options and "endpoint" not in options:
        raise OptionError("option 'reader' needs option 'endpoint': a directory has no broker that could show it")
    if "storeOptions" in options and "path" not in options and "archive" not in options:
        raise OptionError("option 'storeOptions' needs option 'path' or 'archive', the URL of the object store")
    if "verify" in options and "path" not in options:
        raise OptionError("option 'verify' needs option 'path': messages from a broker have no CRC")


def _one_of(options: Options, *choices: str) -> None:
    given = [name for name in choices if name in options]
    if len(given) != 1:
        problem = f"{' and '.join(given)} were given" if given else "none was given"
        raise OptionError(f"exactly one of the options {', '.join(choices)} must be given: {problem}")


def _not_both(options: Options, one: str, other: str) -> None:
    if one in options and other in options:
        raise OptionError(f"options {one!r} and {other!r} contradict each other: give one of them")


def table() -> str:
    """Return the options as a Markdown table, for the documentation."""
    rows = ["| option | for | values | default | meaning |", "| --- | --- | --- | --- | --- |"]
    order: tuple[Use, ...] = (BATCH, STREAM, SINK)
    rows += [
        f"| `{option.name}` | {', '.join(use for use in order if use in option.uses)} | {option.allowed} | "
        f"{option.shown} | {option.text} |"
        for option in OPTIONS
    ]
    return "\n".join(rows)
