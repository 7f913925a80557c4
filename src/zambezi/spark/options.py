"""Every option of the source and of the sink, declared once: its name, what it may be, what it is if nobody says.

The table in docs/spark.md is this list, and a test holds them equal. Names are compared as Spark does, without regard
to case. An option that is not here is an error and not a typing mistake that nobody notices; so is a value that is not
allowed, or two options that contradict each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from zambezi.errors import ZambeziError
from zambezi.spark.errors import OptionError
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

Where: TypeAlias = int | str  # a sequence, earliest or latest
_BIGGEST: Final = (1 << 63) - 2
_UNITS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# What Spark itself puts among the options of a query.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "outputmode", "mergeschema"})


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `parse` takes the text, and raises ValueError for what is not allowed."""

    name: str
    uses: frozenset[Use]
    parse: Callable[[str], Any]
    allowed: str
    default: Any
    shown: str  # the default, as the documentation has it
    text: str


def _whole(least: int) -> Callable[[str], int]:
    def parse_number(value: str) -> int:
        number = int(value.strip())
        if not least <= number <= _BIGGEST:
            raise ValueError
        return number

    return parse_number


def _octets(value: str) -> int:
    found = re.fullmatch(r"\s*(\d+)\s*([kmg]?)(?:i?b)?\s*", value.lower())
    if found is None or not 0 < int(found[1]) * _SIZES[found[2]] <= _BIGGEST:
        raise ValueError
    return int(found[1]) * _SIZES[found[2]]


def _seconds(value: str) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)\s*", value.lower())
    if found is None:
        raise ValueError
    return float(found[1]) * _UNITS[found[2]]


def _truth(value: str) -> bool:
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise ValueError
    return word == "true"


def _one_word(*words: str) -> Callable[[str], str]:
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
        raise ValueError("inproc:// stays within one process")
    return value


def _where(*words: str) -> Callable[[str], Where]:
    def parse_place(value: str) -> Where:
        word = value.strip().lower()
        return word if word in words else _whole(0)(word)

    return parse_place


def _time(value: str) -> int:
    """A time in microseconds since 1970."""
    if re.fullmatch(r"\s*\d+\s*", value):
        return int(value) * 1000
    when = datetime.fromisoformat(value.strip())
    return microseconds_of(when if when.tzinfo is not None else when.replace(tzinfo=UTC))


def _per_stream(parse_one: Callable[[str], Any]) -> Callable[[str], Any]:
    """One for all, or JSON with one for each stream."""

    def parse_either(value: str) -> Any:
        if not value.lstrip().startswith("{"):
            return parse_one(value)
        told = json.loads(value)
        for place in told.values():
            if isinstance(place, bool) or not isinstance(place, str | int):
                raise ValueError
        return {name: parse_one(str(place)) for name, place in told.items()}

    return parse_either


_READ: Final = frozenset({BATCH, STREAM})
_ALL: Final = frozenset({BATCH, STREAM, SINK})
_ENDPOINT: Final = "tcp://HOST:PORT or ipc://PATH"
_WHOLE: Final = "a whole number from 1 on"
_SWITCH: Final = "true or false"
_START: Final = 'earliest, latest, a sequence, or JSON such as {"readings": 17, "alarms": "earliest"}'
_END: Final = 'latest, a sequence, or JSON such as {"readings": 17, "alarms": "latest"}'
_TIME: Final = (
    "a time such as 2026-01-31T12:00:00Z (UTC if no zone is given), milliseconds since 1970, or JSON with one for each "
    "stream"
)
_KEY: Final = "a key of 40 characters (Z85), or the path of a key file that every executor can read"
_PATTERN: Final = "a prefix, exact:KEY, glob:PATTERN or regex:PATTERN"

OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        "path", _READ, _text, "a directory", None, "", "the data directory of a broker, read as files: the fast way"
    ),
    Option("endpoint", _ALL, _endpoint, _ENDPOINT, None, "", "the broker: works from every machine that can reach it"),
    Option("stream", _ALL, _text, "the name of a stream", None, "", "the stream to read, or to publish to"),
    Option("streams", _READ, _names, "names with commas between", None, "", "several streams to read"),
    Option("streamPattern", _READ, _pattern, _PATTERN, None, "", "all streams with such names, also those yet to come"),
    Option("pattern", _READ, _pattern, _PATTERN, "", "all", "read only messages with such routing keys"),
    Option(
        "startingSequence",
        _READ,
        _per_stream(_where(EARLIEST, LATEST)),
        _START,
        None,
        "earliest for a batch, latest for a stream",
        "the first message to read; a query that has a checkpoint goes on from there",
    ),
    Option(
        "startingTimestamp",
        _READ,
        _per_stream(_time),
        _TIME,
        None,
        "",
        "begin with the first message at or after this time",
    ),
    Option(
        "endingSequence",
        frozenset({BATCH}),
        _per_stream(_where(LATEST)),
        _END,
        None,
        "latest",
        "the last message to read",
    ),
    Option(
        "endingTimestamp",
        frozenset({BATCH}),
        _per_stream(_time),
        _TIME,
        None,
        "",
        "end before the first message after it",
    ),
    Option(
        "maxMessagesPerTrigger",
        frozenset({STREAM}),
        _whole(1),
        _WHOLE,
        None,
        "no limit",
        "of all streams together, in proportion to what waits in each",
    ),
    Option(
        "maxBytesPerTrigger",
        frozenset({STREAM}),
        _octets,
        "a size such as 64m",
        None,
        "no limit",
        "the same in octets of the journal, to within a batch of the index",
    ),
    Option(
        "minMessagesPerTrigger",
        frozenset({STREAM}),
        _whole(1),
        _WHOLE,
        None,
        "1",
        "wait until so many are there, but not longer than `maxTriggerDelay`",
    ),
    Option(
        "maxTriggerDelay",
        frozenset({STREAM}),
        _seconds,
        "a time such as 500ms, 30s or 15m",
        900.0,
        "15m",
        "how long `minMessagesPerTrigger` may wait",
    ),
    Option(
        "minPartitions",
        _READ,
        _whole(1),
        _WHOLE,
        None,
        "by size, and the cores of the driver",
        "cut the work into so many pieces at least",
    ),
    Option("maxMessagesPerPartition", _READ, _whole(1), _WHOLE, None, "no limit", "cut pieces that would be larger"),
    Option(
        "failOnDataLoss",
        _READ,
        _truth,
        _SWITCH,
        True,
        "true",
        "fail if messages are gone before they were read; false: warn, and go on with what there is",
    ),
    Option(
        "filterAt",
        _READ,
        _one_word("executor", "broker"),
        "executor or broker",
        "executor",
        "executor",
        "who leaves out what `pattern` does not match; a broker does it one message at a time, and saves the network",
    ),
    Option("verify", _READ, _truth, _SWITCH, False, "false", "check the CRC of every batch that is read (`path` only)"),
    Option("serverKey", _ALL, _text, _KEY, None, "", "CURVE: the public key of the broker; encrypts"),
    Option("secretKey", _ALL, _text, _KEY, None, "", "CURVE: our own secret key, where the broker lets in only some"),
    Option(
        "timeout",
        _ALL,
        _seconds,
        "a time such as 500ms, 30s or 15m",
        60.0,
        "60s",
        "how long to try to reach a broker that is not there, or went away",
    ),
    Option(
        "dedup",
        frozenset({SINK}),
        _truth,
        _SWITCH,
        False,
        "false",
        "leave each row once, though a task is tried again",
    ),
    Option(
        "ledger",
        frozenset({SINK}),
        _text,
        "the name of a stream",
        "spark-ledger",
        "spark-ledger",
        "the stream in which tasks note what they do, with `dedup`",
    ),
)

_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}


class Options:
    """The options of one query, checked. An option is an attribute by its name in lower case with underscores."""

    def __init__(self, given: Mapping[str, str], use: Use) -> None:
        self.use = use
        self._values: dict[str, Any] = {}
        for name, value in given.items():
            if name.lower() in _SPARKS_OWN:
                continue
            option = _BY_NAME.get(name.lower())
            if option is None:
                raise OptionError(f"there is no option {name!r}: there are {', '.join(names(use))}")
            if use not in option.uses:
                raise OptionError(f"option {option.name!r} is not for {_USE[use]}: there are {', '.join(names(use))}")
            self._values[option.name] = _parsed(option, str(value))
        _check(self)

    def __getitem__(self, name: str) -> Any:
        """The value of an option, or its default."""
        option = _BY_NAME[name.lower()]
        return self._values.get(option.name, option.default)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def security(self) -> Security:
        """How the connection to the broker is protected."""
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
    """The options that there are for a use."""
    return [option.name for option in OPTIONS if use in option.uses]


def _parsed(option: Option, value: str) -> Any:
    try:
        return option.parse(value)
    except (PatternError, EndpointError) as error:
        raise OptionError(f"option {option.name!r} is {value!r}: it must be {option.allowed} ({error})") from None
    except (ValueError, TypeError, AttributeError, OverflowError):
        shown = "what was given" if option.name == "secretKey" else repr(value)
        raise OptionError(f"option {option.name!r} is {shown}: it must be {option.allowed}") from None


def _check(options: Options) -> None:
    """What no single option can tell."""
    if options.use == SINK:
        if "endpoint" not in options:
            raise OptionError(f"option 'endpoint' is missing: the sink publishes to a broker at {_ENDPOINT}")
    else:
        _one_of(options, "path", "endpoint")
        _one_of(options, "stream", "streams", "streamPattern")
        _not_both(options, "startingSequence", "startingTimestamp")
        _not_both(options, "endingSequence", "endingTimestamp")
        starting = options["startingSequence"]
        places = starting.values() if isinstance(starting, dict) else [starting]
        if options.use == BATCH and LATEST in places:
            raise OptionError(
                "option 'startingSequence' cannot be latest in a batch query: there would be nothing to read; it must "
                "be earliest, a sequence, or JSON with one of them for each stream"
            )
    if "secretKey" in options and "serverKey" not in options:
        raise OptionError("option 'secretKey' is of use with 'serverKey' only: the public key of the broker")
    if "filterAt" in options and "endpoint" not in options:
        raise OptionError("option 'filterAt' is of use with 'endpoint' only: files are looked through by executors")
    if "verify" in options and "path" not in options:
        raise OptionError("option 'verify' is of use with 'path' only: what comes from a broker has no CRC")


def _one_of(options: Options, *choices: str) -> None:
    given = [name for name in choices if name in options]
    if len(given) != 1:
        told = f"{' and '.join(given)} were given" if given else "none was given"
        raise OptionError(f"exactly one of the options {', '.join(choices)} says what to read: {told}")


def _not_both(options: Options, one: str, other: str) -> None:
    if one in options and other in options:
        raise OptionError(f"options {one!r} and {other!r} contradict each other: give one of them")


def table() -> str:
    """The options as a Markdown table, for the documentation."""
    rows = ["| option | for | may be | default | what it does |", "| --- | --- | --- | --- | --- |"]
    order: tuple[Use, ...] = (BATCH, STREAM, SINK)
    rows += [
        f"| `{option.name}` | {', '.join(use for use in order if use in option.uses)} | {option.allowed} | "
        f"{option.shown} | {option.text} |"
        for option in OPTIONS
    ]
    return "\n".join(rows)
