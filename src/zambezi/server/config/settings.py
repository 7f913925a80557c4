"""The configuration of a server: `zambezi.toml`, checked before anything is started.

What there is to configure is declared once, as dataclasses: a field's default is the default, its `note` says what it
is for, and its type says how it is read. `zambezi config show` prints all of it, and reads back what it printed.

Whatever is wrong is told with the line of the file and what to write instead; all mistakes are told, not the first.
Whether the files, keys and networks that it names exist on this machine is checked in `environment`.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from zambezi.server.config.consistency import contradictions
from zambezi.server.config.lines import KeyLines, KeyPath
from zambezi.server.config.quantity import QuantityError, in_octets, in_seconds, octets, seconds
from zambezi.server.errors import ConfigError


def _note(text: str, default: Any, kind: str = "", bounds: tuple[int, int] | None = None) -> Any:
    """A field of the configuration; numbers may have bounds, both of them included."""
    metadata = {"note": text, "kind": kind, "bounds": bounds}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


# Bounds of numbers: of what is counted, of octets, of seconds.
_MANY: Final = (1, 10_000_000)
_LARGE: Final = (64 << 10, 1 << 50)
_LONG: Final = (1, 100 * 366 * 86400)


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """How a stream is kept."""

    sync: Literal["always", "interval", "never"] = _note("when the disk confirms what was written", "interval")
    keep: float | None = _note("keep messages for so long, as in 7d; for ever if not set", None, "seconds", _LONG)
    keep_octets: int | None = _note("keep about so much, as in 10G; all if not set", None, "octets", _LARGE)
    segment: int = _note("the size of a journal's files; whole files are removed", 256 << 20, "octets", _LARGE)
    multicast: str = _note("a group for live messages, as in udp://239.77.1.1:5680", "")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """[server]: what all services share."""

    data: str = _note("the directory of the journals", "zambezi-data")
    keys: str = _note("a key directory (server.key, allowed/): CURVE for every service", "")
    log: Literal["auto", "text", "json"] = _note("how to log: auto is text on a terminal, else JSON lines", "auto")
    level: Literal["debug", "info", "warning", "error"] = _note("what to log", "info")


@dataclass(frozen=True, slots=True)
class ZepsConfig:
    """[zeps]: the broker of streams. The keys of a stream's own table are those of the journal."""

    enabled: bool = _note("whether it runs", True)
    endpoint: str = _note("where it is served", "tcp://127.0.0.1:5671")
    create: bool = _note("whether clients make streams by attaching to them", True)
    behind: Literal["invalid", "oldest"] = _note("what a reader that retention has passed gets", "invalid")
    journal: JournalConfig = field(default_factory=JournalConfig, metadata={"note": "for all streams"})
    streams: dict[str, JournalConfig] = _note("for single streams, which are there from the start", {})
    max_streams: int = _note("how many streams there may be", 10_000, bounds=_MANY)
    max_connections: int = _note("how many clients", 10_000, bounds=_MANY)
    max_subscriptions: int = _note("how many subscriptions a connection may have", 100, bounds=_MANY)
    max_message: int = _note("the largest message", 16 << 20, "octets", (1024, 1 << 30))


@dataclass(frozen=True, slots=True)
class MCollectiveConfig:
    """[mcollective]: the middleware of fleets."""

    enabled: bool = _note("whether it runs", True)
    endpoint: str = _note("where it is served", "tcp://127.0.0.1:61616")
    journal: list[str] = _note("topics (glob patterns) that are journalled to the stream `mcollective`", [])


@dataclass(frozen=True, slots=True)
class ZreConfig:
    """[zre]: the server's node in the mesh, which announces the services."""

    enabled: bool = _note("whether it runs", True)
    name: str = _note("what others call it; the host's name if not set", "")
    interface: str = _note("the network to find peers on, by name or address", "lo")
    seeds: list[str] = _note("mailboxes of peers, where there is no broadcast", [])
    beacon_port: int = _note("the UDP port of the beacons", 5670, bounds=(1, 65535))
    key: str = _note("the key file of the mesh: encrypt; mesh.key of [server] keys, if it is there", "")
    clear: bool = _note("with [server] keys, and none for the mesh: let it speak in clear on other networks too", False)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """[log]: the log service of the mesh (ZRE/LOG)."""

    enabled: bool = _note("whether it runs; it needs [zre]", True)
    stream: str = _note("the stream that logs are journalled to", "zrelog")


@dataclass(frozen=True, slots=True)
class ConsoleConfig:
    """[console]: the page, the metrics and the health of the server."""

    enabled: bool = _note("whether it runs", True)
    host: str = _note("the address; other than loopback only with a token", "127.0.0.1")
    port: int = _note("the port; 0 for any", 8470, bounds=(0, 65535))
    token: str = _note("who does not know it sees nothing", "")
    results: str = _note("the directory of the pipelines' results, to show them", "")


@dataclass(frozen=True, slots=True)
class Rule:
    """[[rules]]: what the holders of some keys may do. Without rules, everything; with rules, what some rule allows."""

    keys: list[str] = _note("names of keys in allowed/ (glob patterns); * is everybody", ["*"])
    publish: list[str] = _note("streams (glob patterns)", [])
    subscribe: list[str] = _note("streams", [])
    create: list[str] = _note("streams", [])
    put: list[str] = _note("MCollective topics", [])
    sub: list[str] = _note("MCollective topics", [])


@dataclass(frozen=True, slots=True)
class Config:
    """All of it."""

    server: ServerConfig = field(default_factory=ServerConfig)
    zeps: ZepsConfig = field(default_factory=ZepsConfig)
    mcollective: MCollectiveConfig = field(default_factory=MCollectiveConfig)
    zre: ZreConfig = field(default_factory=ZreConfig)
    log: LogConfig = field(default_factory=LogConfig)
    console: ConsoleConfig = field(default_factory=ConsoleConfig)
    rules: list[Rule] = field(default_factory=list)


def read(path: Path) -> Config:
    """The configuration in a file; `ConfigError` with every mistake in it."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: octet {error.start} is not UTF-8; save the file as UTF-8"]) from None
    return parse(text, str(path))


def parse(text: str, name: str = "zambezi.toml") -> Config:
    """The configuration in a text."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_no_toml(str(error), text, name)]) from None
    except RecursionError:
        raise ConfigError([f"{name}: tables and lists stand in each other too deep to be read"]) from None
    reader = _Reader(text.replace("\r\n", "\n"), name)
    config = reader.table(Config, table, ())
    assert isinstance(config, Config)
    for path, problem in contradictions(config):
        reader.mistake(path, problem)
    if reader.mistakes:
        raise ConfigError(reader.mistakes)
    return config


def place(file: Path, path: KeyPath) -> str:
    """Where a key stands in a file, or where it would: `zambezi.toml:7`."""
    try:
        line = KeyLines(file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")).line(path)
    except (OSError, ValueError):
        line = 0
    return f"{file}:{line}" if line else str(file)


# What the parser of the standard library says, and what to do about it.
_ADVICE: Final = {
    "Cannot declare": "a table has one header: put all its keys below the first",
    "Cannot overwrite": "it stands there already: keep one of the two",
    "Invalid value": 'a value is a number, true, false, a text in "quotes" or a ["list"]',
    "Expected '='": 'a key is followed by = and its value, as in data = "/var/lib/zambezi"',
    "Expected ']'": "the header of a table is closed by ], as in [zeps]",
    "Unclosed array": "close the list by ]",
    "Unterminated string": 'close the text by "',
    "Illegal character": 'a text ends in its line: close it by "',
    "Invalid statement": 'a line is a [table], key = "value", or a # comment',
    "Expected newline": "only a # comment may follow on the line",
}
_WHERE: Final = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


def _no_toml(said: str, text: str, name: str) -> str:
    found = _WHERE.search(said)
    line = found.group(1) if found else None
    what = said[: found.start()] if found else said
    advice = next((advice for begin, advice in _ADVICE.items() if what.startswith(begin)), "see https://toml.io")
    return f"{name}:{line or max(1, len(text.splitlines()))}: {what}; {advice}"


class _Reader:
    """Turns tables into dataclasses, and collects mistakes with their lines."""

    def __init__(self, text: str, name: str) -> None:
        self._lines = KeyLines(text)
        self._name = name
        self.mistakes: list[str] = []

    def table(self, kind: type, given: object, path: KeyPath) -> Any:
        if not isinstance(given, Mapping):
            self.mistake(path, f"{_dotted(path)} is a table: write [{_dotted(path)}] and its keys below")
            return kind()
        hints = get_type_hints(kind)
        known = {one.name: one for one in dataclasses.fields(kind)}
        values = {}
        for key, value in given.items():
            here = (*path, key)
            if key not in known:
                self._unknown(here, known)
                continue
            read = self._value(hints[key], known[key].metadata.get("kind", ""), value, here)
            values[key] = self._bounded(read, known[key].metadata, here)
        return kind(**{key: value for key, value in values.items() if value is not _WRONG})

    def _value(self, hint: Any, kind: str, value: object, path: KeyPath) -> Any:
        if dataclasses.is_dataclass(hint):
            return self.table(hint, value, path)  # type: ignore[arg-type]
        origin = get_origin(hint)
        if origin is list and dataclasses.is_dataclass(get_args(hint)[0]):
            if not isinstance(value, list):
                return self.mistake(path, f"write [[{_dotted(path)}]] for each of them")
            return [self.table(get_args(hint)[0], one, (*path, index)) for index, one in enumerate(value)]
        if origin is dict:
            if not isinstance(value, Mapping):
                return self.mistake(path, f"write [{_dotted(path)}.NAME] for each of them")
            return {key: self.table(get_args(hint)[1], one, (*path, key)) for key, one in value.items()}
        if origin is list:
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                return self.mistake(path, f'write a list of texts, as in {path[-1]} = ["one", "two"]')
            return list(value)
        if origin is Literal:
            allowed = get_args(hint)
            if value not in allowed:
                said = ", ".join(map(json.dumps, allowed))
                return self.mistake(path, f"{path[-1]} is one of {said}, not {_shown(value)}")
            return value
        if kind:
            return self._quantity(kind, value, path)
        return self._plain(hint, value, path)

    def _quantity(self, kind: str, value: object, path: KeyPath) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
            return int(value) if kind == "octets" else float(value)
        if isinstance(value, str):
            read: Callable[[str], float] = octets if kind == "octets" else seconds
            try:
                return read(value)
            except QuantityError as error:
                return self.mistake(path, str(error))
        wanted = '"10G" or a number of octets' if kind == "octets" else '"7d" or a number of seconds'
        return self.mistake(path, f"{path[-1]} is {wanted}, not {_shown(value)}")

    def _plain(self, hint: Any, value: object, path: KeyPath) -> Any:
        if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
            return value
        wanted = {bool: "true or false", int: "a number", str: f'a text in quotes, as in {path[-1]} = "..."'}[hint]
        return self.mistake(path, f"{path[-1]} is {wanted}, not {_shown(value)}")

    def _unknown(self, path: KeyPath, known: Mapping[str, object]) -> None:
        near = difflib.get_close_matches(str(path[-1]), known, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
        self.mistake(path, f"there is no {_dotted(path)}; {hint}")

    def _bounded(self, value: Any, metadata: Mapping[str, Any], path: KeyPath) -> Any:
        bounds = metadata.get("bounds")
        if bounds is None or value is _WRONG or bounds[0] <= value <= bounds[1]:
            return value
        shown = _AMOUNTS.get(metadata["kind"], "{:d}".format)
        return self.mistake(path, f"{path[-1]} is {shown(bounds[0])} to {shown(bounds[1])}, not {shown(value)}")

    def mistake(self, path: KeyPath, problem: str) -> Any:
        line = self._lines.line(path)
        where = f"{self._name}:{line}" if line else self._name
        self.mistakes.append(f"{where}: {problem}")
        return _WRONG


_WRONG: Final = object()
_AMOUNTS: Final[Mapping[str, Callable[[float], str]]] = {"octets": in_octets, "seconds": in_seconds}


def _dotted(path: KeyPath) -> str:
    return ".".join(part for part in path if isinstance(part, str))


def _shown(value: object) -> str:
    return json.dumps(value, default=str)


def show(config: Config) -> str:
    """The configuration as a file that says the same, with what each key is for."""
    lines: list[str] = []
    for one in dataclasses.fields(config):
        value = getattr(config, one.name)
        if isinstance(value, list):
            for entry in value:
                lines += ["", f"[[{one.name}]]", *_keys_of(entry)]
        else:
            lines += _table_of((one.name,), value)
    return "\n".join(lines).strip() + "\n"


def _table_of(path: tuple[str, ...], value: Any) -> Iterator[str]:
    yield ""
    yield f"[{'.'.join(_quoted(part) for part in path)}]"
    yield from _keys_of(value)
    for one in dataclasses.fields(value):
        inner = getattr(value, one.name)
        if dataclasses.is_dataclass(inner):
            yield from _table_of((*path, one.name), inner)
        elif isinstance(inner, dict):
            for name, entry in inner.items():
                yield from _table_of((*path, one.name, name), entry)


def _keys_of(value: Any) -> Iterator[str]:
    for one in dataclasses.fields(value):
        inner = getattr(value, one.name)
        if dataclasses.is_dataclass(inner) or isinstance(inner, dict):
            continue
        note = one.metadata.get("note", "")
        text = f"# {one.name} =" if inner is None else f"{one.name} = {json.dumps(inner)}"
        yield f"{text:<40}  # {note}" if note else text


def _quoted(part: str) -> str:
    plain = part.replace("-", "").replace("_", "")
    return part if plain.isascii() and plain.isalnum() else json.dumps(part)
