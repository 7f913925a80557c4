"""The configuration of a server: `zambezi.toml`, checked before any service starts.

Every setting is declared once, as a field of a dataclass: the field has the default value, its `note` says what the
setting is for, and its type says how the value is read. `zambezi config show` prints all settings in the same format.

Every mistake is reported, not only the first, each with the line of the file and what to write instead. `environment`
checks whether the files, keys and networks that the configuration names exist on this machine.
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
from zambezi.server.config.quantity import QuantityError, in_bytes, in_seconds, octets, seconds
from zambezi.server.errors import ConfigError
from zambezi.spark.limits import Limits
from zambezi.zeps.journal.policy import AGES, COUNTS, SIZES


def _note(text: str, default: Any, kind: str = "", bounds: tuple[int, int] | None = None) -> Any:
    """Declare a setting. The bounds of a number are inclusive."""
    metadata = {"note": text, "kind": kind, "bounds": bounds}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


# Bounds of counts, and of bytes.
_MANY: Final = (1, 10_000_000)
_LARGE: Final = (64 << 10, 1 << 50)

TOPICS_STREAM: Final = "mcollective"  # the stream that keeps the journalled topics of the middleware


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """[zeps.journal], [zeps.streams.NAME]: the storage and the retention of streams."""

    sync: Literal["always", "interval", "never", "store"] = _note(
        "fsync before each confirmation (always), every second (interval) or never; or confirm what is in [zeps.store]",
        "always",
    )
    keep: float | None = _note("remove messages older than this, such as 7d; unset: never", None, "seconds", AGES)
    keep_bytes: int | None = _note(
        "keep this size of messages, such as 10G, and remove older ones; unset: never", None, "octets", SIZES
    )
    segment: int = _note("the largest size of a journal file; retention removes files", 256 << 20, "octets", SIZES)
    compact: bool = _note("whether of the messages that would be removed the last one of each key stays", False)
    keep_tombstones: float = _note(
        "with compact: remove a key this long after a message without a body", 86400.0, "seconds", AGES
    )
    publishers: int = _note(
        "the maximum number of publishers whose messages are counted; above it, the most silent one is forgotten",
        100_000,
        bounds=COUNTS,
    )
    keep_publishers: float = _note("forget a publisher that was silent for this time", 7 * 86400.0, "seconds", AGES)
    readers: int = _note("the maximum number of named readers of a stream; others are refused", 10_000, bounds=COUNTS)
    multicast: str = _note("the multicast group of live messages, such as udp://239.77.1.1:5680", "")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """[server]: the settings that all services share."""

    data: str = _note("the directory of the journals, and of the sessions of MCollective clients", "zambezi-data")
    keys: str = _note("the key directory (server.key, allowed/); if set, every service uses CURVE", "")
    log: Literal["auto", "text", "json"] = _note("the log format; auto: text on a terminal, else JSON lines", "auto")
    level: Literal["debug", "info", "warning", "error"] = _note("the lowest level that is logged", "info")
    min_free: int = _note(
        "the free space of the disk with data below which the server is not ready; 0: no limit",
        256 << 20,
        "octets",
        (0, 1 << 50),
    )
    max_unfinished: int = _note(
        "the maximum size of all messages together that have arrived in part only", 128 << 20, "octets", _LARGE
    )


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """[zeps.store]: the object store of the streams with sync = "store"."""

    url: str = _note("s3://BUCKET/PREFIX, gs://..., az://... or a directory; empty: none", "")
    options: dict[str, str] = _note("options of obstore, such as endpoint; the environment has credentials", {})
    endpoint: str = _note(
        "the endpoint that other servers of the store name to clients, such as tcp://berlin:5671; empty: as in [zeps]",
        "",
    )
    commit: float = _note("the time between two puts of a stream, at least", 0.05, "seconds", (0, 60))
    heartbeat: float = _note(
        "the time between two heartbeats of a server; it counts as dead when its last one is 3 1/3 times as old",
        3.0,
        "seconds",
        (1, 60),
    )
    chunk: int = _note("the size of messages that one put has at most", 8 << 20, "octets", (64 << 10, 1 << 30))
    grace: float = _note(
        "how long messages that were removed from a stream can still be read without a server, by whoever has begun",
        3600.0,
        "seconds",
        (0, 30 * 24 * 3600),
    )
    copies: str = _note(
        "the name under which streams with another sync are copied; auto: the machine and the port; off: no copies",
        "auto",
    )
    cache: int | None = _note(
        "the size that streams of the store have on the disk at most, such as 20G; unset: no limit",
        None,
        "octets",
        (64 << 20, 1 << 50),
    )


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """[[zeps.mirrors]]: a stream of another server that this one follows."""

    source: str = _note("the endpoint of the other server, such as tcp://berlin:5671", "")
    stream: str = _note("the name of the stream there", "")
    target: str = _note("the name of the stream here; empty: the same", "")
    pattern: str = _note("the keys to copy: a prefix, exact:KEY, glob:PATTERN or regex:PATTERN; empty: all", "")
    since: Literal["", "earliest", "latest"] = _note(
        "where a new mirror begins; needed if the stream here has messages", ""
    )
    name: str = _note("the name of the mirror, if several fill one stream; empty: the name of the stream there", "")
    begin_again: bool = _note("whether a source that was deleted and created again is copied from its beginning", False)
    server_key: str = _note("the file with the public key of the other server, for CURVE", "")
    key: str = _note("the file with the key pair of this server, if the other one admits only known keys", "")


@dataclass(frozen=True, slots=True)
class ZepsConfig:
    """[zeps]: the broker of streams. A stream's own table has the same keys as [zeps.journal]."""

    enabled: bool = _note("whether this service runs", True)
    endpoint: str = _note("the address to listen on", "tcp://127.0.0.1:5671")
    create: bool = _note("whether a client that attaches to a missing stream creates it", True)
    behind: Literal["invalid", "oldest"] = _note(
        "a subscriber that asks for removed messages gets an error (invalid) or starts at the oldest", "invalid"
    )
    journal: JournalConfig = field(default_factory=JournalConfig, metadata={"note": "the default for all streams"})
    streams: dict[str, JournalConfig] = _note("settings of single streams, which the server creates at its start", {})
    store: StoreConfig = field(default_factory=StoreConfig, metadata={"note": "the object store"})
    mirrors: list[MirrorConfig] = _note("streams of other servers that this one follows", [])
    max_streams: int = _note("the maximum number of streams", 10_000, bounds=_MANY)
    max_user_streams: int = _note("the maximum number of streams that a user creates in an hour", 1000, bounds=_MANY)
    max_address_streams: int = _note(
        "the maximum number of streams that an address creates in an hour", 1000, bounds=_MANY
    )
    max_connections: int = _note("the maximum number of connections", 10_000, bounds=_MANY)
    max_subscriptions: int = _note("the maximum number of subscriptions of a connection", 100, bounds=_MANY)
    max_message: int = _note("the maximum size of a message", 16 << 20, "octets", (1024, 1 << 30))
    scrub: int = _note(
        "bytes per second of closed segments that are checked; 0: none", 10 << 20, "octets", (0, 1 << 34)
    )


@dataclass(frozen=True, slots=True)
class MCollectiveConfig:
    """[mcollective]: the middleware of fleets."""

    enabled: bool = _note("whether this service runs", True)
    endpoint: str = _note("the address to listen on", "tcp://127.0.0.1:61616")
    journal: list[str] = _note("topics (glob patterns) to journal in the stream `mcollective`", [])
    sessions: bool = _note("whether sessions of clients survive a restart, in the data directory", True)
    max_queue: int = _note("the size of the messages that can wait for a client", 4 << 20, "octets", _LARGE)
    reading_time: float = _note(
        "the time that senders wait for a client with a full queue, in 12 times that time, before it misses messages",
        5.0,
        "seconds",
        (0, 3600),
    )
    max_reserve: int = _note(
        "the maximum size of messages above the full queues of all clients", 64 << 20, "octets", _LARGE
    )
    max_topics: int = _note("the maximum number of topics with subscribers", 100_000, bounds=_MANY)
    max_topics_per_client: int = _note("the maximum number of topics that a client subscribes to", 1_000, bounds=_MANY)
    max_topics_per_user: int = _note(
        "the maximum number of topics that the clients of a user make", 10_000, bounds=_MANY
    )
    max_topics_per_address: int = _note(
        "the maximum number of topics that the clients at an address make", 10_000, bounds=_MANY
    )


@dataclass(frozen=True, slots=True)
class ZreConfig:
    """[zre]: the server's node in the mesh, which announces the services."""

    enabled: bool = _note("whether this service runs", True)
    name: str = _note("the name of the node; empty: the host name", "")
    interface: str = _note("the network interface to find peers on: its name or its address", "lo")
    ipv6: bool = _note("whether to use the IPv6 addresses of the interface", False)
    seeds: list[str] = _note("mailbox endpoints of peers, for networks without broadcast", [])
    gossip_bind: str = _note("the endpoint of a zgossip hub for nodes of Zyre and Zambezi; empty: none", "")
    gossip_connect: list[str] = _note("endpoints of zgossip hubs; with node_key as ENDPOINT|KEY", [])
    beacon_port: int = _note("the UDP port of the beacons", 5670, bounds=(1, 65535))
    key: str = _note("the key file that encrypts the mesh; empty: mesh.key of [server] keys, if it exists", "")
    node_key: str = _note("the key file of this node alone, as Zyre has them; in place of key", "")
    allowed: str = _note("with node_key: the directory of the public keys that may join, or any", "")
    clear: bool = _note("allow a mesh without encryption although [server] has keys", False)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """[log]: the log service of the mesh (ZRE/LOG)."""

    enabled: bool = _note("whether this service runs; it needs [zre]", True)
    stream: str = _note("the stream that keeps the logs", "zrelog")


@dataclass(frozen=True, slots=True)
class ConsoleConfig:
    """[console]: the web page, the metrics and the health checks of the server."""

    enabled: bool = _note("whether this service runs", True)
    host: str = _note("the address to listen on; a token is required unless it is loopback", "127.0.0.1")
    port: int = _note("the port to listen on; 0: any free port", 8470, bounds=(0, 65535))
    token: str = _note("the secret of browsers and clients, 16 characters or more; needed with [server] keys", "")
    results: str = _note("the directory of pipeline results to show", "")


@dataclass(frozen=True, slots=True)
class Rule:
    """[[rules]]: the permissions of the holders of some keys.

    Without rules every client can do everything; with rules a client can do what at least one rule allows.
    """

    keys: list[str] = _note("names of keys in allowed/ (glob patterns); * is every client", ["*"])
    publish: list[str] = _note("streams that they can publish to (glob patterns)", [])
    subscribe: list[str] = _note("streams that they can subscribe to", [])
    serve: list[str] = _note("streams whose requests they can answer, besides subscribe", [])
    create: list[str] = _note("streams that they can create", [])
    edit: list[str] = _note("streams whose settings they can change", [])
    delete: list[str] = _note("streams that they can delete, truncate and trim", [])
    put: list[str] = _note("MCollective topics that they can send to", [])
    sub: list[str] = _note("MCollective topics that they can subscribe to", [])


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of a server; each field is a table of `zambezi.toml`."""

    server: ServerConfig = field(default_factory=ServerConfig)
    zeps: ZepsConfig = field(default_factory=ZepsConfig)
    mcollective: MCollectiveConfig = field(default_factory=MCollectiveConfig)
    zre: ZreConfig = field(default_factory=ZreConfig)
    log: LogConfig = field(default_factory=LogConfig)
    console: ConsoleConfig = field(default_factory=ConsoleConfig)
    rules: list[Rule] = field(default_factory=list)
    pipelines: Limits = field(default_factory=Limits)

    @property
    def own_streams(self) -> frozenset[str]:
        """The streams that only the server writes: the journalled topics, and the logs of the mesh."""
        return frozenset((TOPICS_STREAM, self.log.stream))


def read(path: Path) -> Config:
    """Read a configuration file. Raise `ConfigError` with every mistake in it."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: byte {error.start} is not UTF-8; save the file as UTF-8"]) from None
    return parse(text, str(path))


def parse(text: str, name: str = "zambezi.toml") -> Config:
    """Parse a configuration. Raise `ConfigError` with every mistake in it; `name` stands for the file."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_syntax_mistake(str(error), text, name)]) from None
    except RecursionError:
        raise ConfigError([f"{name}: tables and lists are nested too deep"]) from None
    reader = _Reader(text.replace("\r\n", "\n"), name)
    config = reader.table(Config, table, ())
    assert isinstance(config, Config)
    for path, problem in contradictions(config):
        reader.mistake(path, problem)
    if reader.mistakes:
        raise ConfigError(reader.mistakes)
    return config


def value(table: type, key: str, text: str, name: str) -> Any:
    """Parse one setting of a table that is given as a text, such as on a command line. `name` stands for the file."""
    try:
        given: object = json.loads(text)
    except ValueError:
        given = text
    reader = _Reader("", name)
    read = reader.table(table, {key: given}, ())
    if reader.mistakes:
        raise ConfigError(reader.mistakes)
    return getattr(read, key)


def place(file: Path, path: KeyPath) -> str:
    """Return the file and the line of a key, or of the table that it belongs to: `zambezi.toml:7`."""
    try:
        line = KeyLines(file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")).line(path)
    except (OSError, ValueError):
        line = 0
    return f"{file}:{line}" if line else str(file)


# How the messages of the standard library's parser begin, and what to do about each.
_ADVICE: Final = {
    "Cannot declare": "a table has one header: move all its keys below the first one",
    "Cannot overwrite": "the key is set twice: keep one of the two",
    "Invalid value": 'a value is a number, true, false, a "text" in quotes or a ["list"]',
    "Expected '='": 'write = and a value after the key, as in data = "/var/lib/zambezi"',
    "Expected ']'": "end the header of the table with ], as in [zeps]",
    "Unclosed array": "end the list with ]",
    "Unterminated string": 'end the text with "',
    "Illegal character": 'a text must end on its line: end it with "',
    "Invalid statement": 'a line is a [table], key = "value", or a # comment',
    "Expected newline": "only a # comment can follow on the line",
}
_WHERE: Final = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


def _syntax_mistake(message: str, text: str, name: str) -> str:
    found = _WHERE.search(message)
    line = found.group(1) if found else None
    problem = message[: found.start()] if found else message
    advice = next((advice for begin, advice in _ADVICE.items() if problem.startswith(begin)), "see https://toml.io")
    return f"{name}:{line or max(1, len(text.splitlines()))}: {problem}; {advice}"


class _Reader:
    """A reader that turns tables into dataclasses, and collects mistakes with their lines."""

    def __init__(self, text: str, name: str) -> None:
        self._lines = KeyLines(text)
        self._name = name
        self.mistakes: list[str] = []

    def table(self, kind: type, given: object, path: KeyPath) -> Any:
        if not isinstance(given, Mapping):
            self.mistake(path, f"{_dotted(path)} must be a table: write [{_dotted(path)}] and its keys below it")
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
                return self.mistake(path, f"write one [[{_dotted(path)}]] table for each entry")
            return [self.table(get_args(hint)[0], one, (*path, index)) for index, one in enumerate(value)]
        if origin is dict and get_args(hint)[1] is str:
            if not isinstance(value, Mapping) or not all(isinstance(one, str) for one in value.values()):
                return self.mistake(path, f'write a table of texts, as in [{_dotted(path)}] and endpoint = "..."')
            return dict(value)
        if origin is dict:
            if not isinstance(value, Mapping):
                return self.mistake(path, f"write one [{_dotted(path)}.NAME] table for each entry")
            return {key: self.table(get_args(hint)[1], one, (*path, key)) for key, one in value.items()}
        if origin is list:
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                return self.mistake(path, f'write a list of texts, as in {path[-1]} = ["one", "two"]')
            return list(value)
        if origin is Literal:
            allowed = get_args(hint)
            if value not in allowed:
                choices = ", ".join(map(json.dumps, allowed))
                return self.mistake(path, f"{path[-1]} must be one of {choices}, not {_shown(value)}")
            return value
        if kind:
            return self._quantity(kind, value, path)
        return self._plain(hint, value, path)

    def _quantity(self, kind: str, value: object, path: KeyPath) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
            return int(value) if kind == "octets" else float(value)
        if isinstance(value, str):
            read: Callable[[str], float] = octets if kind == "octets" else seconds
            try:
                return read(value)
            except QuantityError as error:
                return self.mistake(path, str(error))
        wanted = 'a size such as "10G" or 4096' if kind == "octets" else 'a time such as "7d" or 90 (seconds)'
        return self.mistake(path, f"{path[-1]} must be {wanted}, not {_shown(value)}")

    def _plain(self, hint: Any, value: object, path: KeyPath) -> Any:
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
            return value
        wanted = {
            bool: "true or false",
            int: "a number",
            float: "a number",
            str: f'a text in quotes, as in {path[-1]} = "..."',
        }[hint]
        return self.mistake(path, f"{path[-1]} must be {wanted}, not {_shown(value)}")

    def _unknown(self, path: KeyPath, known: Mapping[str, object]) -> None:
        near = difflib.get_close_matches(str(path[-1]), known, 1, 0.7)
        hint = f"did you mean {near[0]}?" if near else f"the known keys are {', '.join(known)}"
        self.mistake(path, f"{_dotted(path)} is not a known key; {hint}")

    def _bounded(self, value: Any, metadata: Mapping[str, Any], path: KeyPath) -> Any:
        bounds = metadata.get("bounds")
        if bounds is None or value is _WRONG or bounds[0] <= value <= bounds[1]:
            return value
        shown = _AMOUNTS.get(metadata["kind"], str)
        return self.mistake(path, f"{path[-1]} must be {shown(bounds[0])} to {shown(bounds[1])}, not {shown(value)}")

    def mistake(self, path: KeyPath, problem: str) -> Any:
        line = self._lines.line(path)
        where = f"{self._name}:{line}" if line else self._name
        self.mistakes.append(f"{where}: {problem}")
        return _WRONG


_WRONG: Final = object()
_AMOUNTS: Final[Mapping[str, Callable[[float], str]]] = {"octets": in_bytes, "seconds": in_seconds}


def _dotted(path: KeyPath) -> str:
    return ".".join(part for part in path if isinstance(part, str))


def _shown(value: object) -> str:
    return json.dumps(value, default=str)


def show(config: Config) -> str:
    """Return the configuration as a TOML file that reads back the same, with a comment on every key."""
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
        elif isinstance(inner, dict) and all(isinstance(entry, str) for entry in inner.values()):
            if inner:
                yield from ("", f"[{'.'.join((*path, one.name))}]")
            yield from (f"{_quoted(name)} = {json.dumps(entry)}" for name, entry in inner.items())
        elif isinstance(inner, dict):
            for name, entry in inner.items():
                yield from _table_of((*path, one.name, name), entry)
        elif _is_tables(inner):
            for entry in inner:
                yield from ("", f"[[{'.'.join((*path, one.name))}]]", *_keys_of(entry))


def _keys_of(value: Any) -> Iterator[str]:
    for one in dataclasses.fields(value):
        inner = getattr(value, one.name)
        if dataclasses.is_dataclass(inner) or isinstance(inner, dict) or _is_tables(inner):
            continue
        note = one.metadata.get("note", "")
        text = f"# {one.name} =" if inner is None else f"{one.name} = {json.dumps(inner)}"
        yield f"{text:<40}  # {note}" if note else text


def _is_tables(value: object) -> bool:
    """Return whether a value is a list of tables, with at least one."""
    return isinstance(value, list) and any(map(dataclasses.is_dataclass, value))


def _quoted(part: str) -> str:
    plain = part.replace("-", "").replace("_", "")
    return part if plain.isascii() and plain.isalnum() else json.dumps(part)
