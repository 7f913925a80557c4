"""Settings that contradict each other, in a configuration in which each value alone is valid."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from zambezi.errors import ZambeziError
from zambezi.server.config.lines import KeyPath
from zambezi.zeps.errors import GroupError
from zambezi.zeps.journal.names import LONGEST
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.store.shell import SCHEMES
from zambezi.zmtp import endpoint
from zambezi.zre.contact import endpoint_of, key_of

if TYPE_CHECKING:
    from zambezi.server.config.settings import Config

Mistake: TypeAlias = tuple[KeyPath, str]

_TOKEN: Final = 16  # characters of a token, at least
_USUAL: Final = ("password", "secret", "token", "changeme", "zambezi", "console", "1234567", "abcdefg", "qwert")


def contradictions(config: Config) -> Iterator[Mistake]:
    """Yield every mistake: its key, and a text that says what to write instead."""
    yield from _paths(config)
    yield from _sizes(config)
    yield from _endpoints(config)
    yield from _streams(config)
    yield from _store(config)
    yield from _mirrors(config)
    yield from _needs(config)
    yield from _console(config)


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can reach a host.

    >>> is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _paths(config: Config) -> Iterator[Mistake]:
    paths = {
        ("server", "data"): config.server.data,
        ("server", "keys"): config.server.keys,
        ("zre", "key"): config.zre.key,
        ("zre", "node_key"): config.zre.node_key,
        ("zre", "allowed"): config.zre.allowed,
        ("console", "results"): config.console.results,
    }
    for path, text in paths.items():
        if "\0" in text:
            yield path, "a path cannot contain a zero byte"
    if not config.server.data.strip():
        yield ("server", "data"), 'name a directory, as in data = "/var/lib/zambezi"'


def _sizes(config: Config) -> Iterator[Mistake]:
    if config.server.max_unfinished < config.zeps.max_message:
        yield (
            ("server", "max_unfinished"),
            "one message can be larger than all unfinished messages together; write at least max_message of [zeps]",
        )


def _endpoints(config: Config) -> Iterator[Mistake]:
    taken: dict[str, str] = {}
    for name, service in (("zeps", config.zeps), ("mcollective", config.mcollective)):
        if not service.enabled:
            continue
        try:
            where = str(endpoint.parse(service.endpoint, binding=True))
        except ZambeziError as error:
            yield (name, "endpoint"), f'{error}, as in endpoint = "tcp://127.0.0.1:5671"'
            continue
        if where in taken and not service.endpoint.endswith((":*", ":0")):
            yield (name, "endpoint"), f"[{taken[where]}] already uses {service.endpoint}; choose another port"
        taken.setdefault(where, name)
    yield from _contacts(config)


def _contacts(config: Config) -> Iterator[Mistake]:
    """Yield the mistakes in the addresses and the keys of the mesh."""
    zre = config.zre
    for name, contacts in (("seeds", zre.seeds), ("gossip_connect", zre.gossip_connect)):
        for contact in contacts:
            try:
                endpoint.parse(endpoint_of(contact))
            except ZambeziError as error:
                yield ("zre", name), f'{error}, as in {name} = ["tcp://10.0.0.7:5670"]'
                continue
            if zre.node_key and not key_of(contact):
                yield ("zre", name), f'{contact} has no public key of 40 characters: write "{endpoint_of(contact)}|KEY"'
            elif not zre.node_key and key_of(contact) != b"":
                yield ("zre", name), f"{contact} has a key, and this node has none of its own: set node_key too"
    if zre.gossip_bind:
        try:
            endpoint.parse(zre.gossip_bind, binding=True)
        except ZambeziError as error:
            yield ("zre", "gossip_bind"), f'{error}, as in gossip_bind = "tcp://10.0.0.7:5680"'
    if zre.key and zre.node_key:
        yield ("zre", "node_key"), "a node has the key of its mesh or a key of its own: remove key or node_key"
    if zre.node_key and not zre.allowed:
        yield (
            ("zre", "node_key"),
            'set allowed = "DIRECTORY" with the public keys of the other nodes, or allowed = "any"',
        )
    if zre.allowed and not zre.node_key:
        yield ("zre", "allowed"), "this is for a node with a key of its own: set node_key too, or remove it"


def _streams(config: Config) -> Iterator[Mistake]:
    if config.zeps.journal.multicast:
        yield ("zeps", "journal", "multicast"), "a multicast group belongs to one stream: set it in [zeps.streams.NAME]"
    for name, stream in config.zeps.streams.items():
        yield from _named(("zeps", "streams", name), name)
        if stream.multicast:
            try:
                Group.parse(stream.multicast)
            except GroupError as error:
                yield ("zeps", "streams", name, "multicast"), str(error)
            if config.rules and name in config.own_streams:
                yield (
                    ("zeps", "streams", name, "multicast"),
                    f"every reader of the group could read {name}, and rules do not apply to groups: remove this key",
                )
    yield from _named(("log", "stream"), config.log.stream)
    if len(config.own_streams) < 2:
        yield ("log", "stream"), f"the middleware keeps its topics in {config.log.stream}; choose another name"


def _store(config: Config) -> Iterator[Mistake]:
    url = config.zeps.store.url
    if "://" in url and url.partition("://")[0] not in SCHEMES:
        yield ("zeps", "store", "url"), "url must be a directory, or begin with s3://, gs:// or az://"
    if not config.zeps.store.copies or "/" in config.zeps.store.copies:
        yield ("zeps", "store", "copies"), 'copies must be a name without slashes, "auto" or "off"'
    if config.zeps.store.endpoint:
        try:
            endpoint.parse(config.zeps.store.endpoint)
        except ZambeziError as error:
            yield ("zeps", "store", "endpoint"), f'{error}, as in endpoint = "tcp://berlin:5671"'
    for here, journal in (
        (("journal",), config.zeps.journal),
        *((("streams", name), one) for name, one in config.zeps.streams.items()),
    ):
        if journal.sync == "store" and journal.compact:
            yield ("zeps", *here, "compact"), 'a stream with sync = "store" cannot be compacted: remove one of the keys'
    if url:
        return
    need = 'sync = "store" needs an object store: set url in [zeps.store]'
    if config.zeps.journal.sync == "store":
        yield ("zeps", "journal", "sync"), need
    for name, stream in config.zeps.streams.items():
        if stream.sync == "store":
            yield ("zeps", "streams", name, "sync"), need


def _mirrors(config: Config) -> Iterator[Mistake]:
    targets: dict[tuple[str, str], int] = {}
    for index, mirror in enumerate(config.zeps.mirrors):
        here: KeyPath = ("zeps", "mirrors", index)
        try:
            endpoint.parse(mirror.source)
        except ZambeziError as error:
            yield (*here, "source"), f'{error}, as in source = "tcp://10.0.0.7:5671"'
        yield from _named((*here, "stream"), mirror.stream)
        target = mirror.target or mirror.stream
        if mirror.target:
            yield from _named((*here, "target"), mirror.target)
        if target in config.own_streams:
            yield (*here, "target"), f"only the server itself writes {target}: choose another name"
        if targets.setdefault((target, mirror.name or mirror.stream), index) != index:
            yield (*here, "name"), f"another mirror with this name fills {target}: choose another name"
        if mirror.key and not mirror.server_key:
            yield (*here, "key"), "key works only with server_key: set server_key, the public key of the other server"


def _named(path: KeyPath, name: str) -> Iterator[Mistake]:
    if not name or name.startswith("$"):
        yield path, "the name of a stream must not be empty or begin with $"
    elif len(os.fsencode(name)) > LONGEST:
        yield path, f"the name of a stream has at most {LONGEST} bytes; choose a shorter one"


def _needs(config: Config) -> Iterator[Mistake]:
    """Yield the services that cannot run because another service is off."""
    if config.zeps.enabled:
        return
    if config.zre.enabled and config.log.enabled:
        yield (
            ("zeps", "enabled"),
            "[log] needs a stream, and [zeps] is off: set enabled = true in [zeps], or enabled = false in [log]",
        )
    if config.mcollective.enabled and config.mcollective.journal:
        yield (
            ("mcollective", "journal"),
            "journalled topics need a stream, and [zeps] is off: set enabled = true in [zeps], or remove this key",
        )
    services = (config.mcollective, config.zre, config.console)
    if not any(service.enabled for service in services):
        yield ("zeps", "enabled"), "all services are off, so the server has nothing to run: set enabled = true in one"


def _console(config: Config) -> Iterator[Mistake]:
    console = config.console
    is_off = bool(config.server.keys) and not console.token  # it answers only health checks
    if console.enabled and not console.token and not is_off and not is_loopback(console.host):
        yield (
            ("console", "host"),
            'a console that other machines can reach needs a token: set token = "..." or host = "127.0.0.1"',
        )
    if console.token and not _is_typable(console.token):
        yield (
            ("console", "token"),
            "a token has printable characters and no spaces; `openssl rand -hex 16` makes a good one",
        )
    elif console.token and _is_guessable(console.token):
        yield (
            ("console", "token"),
            (
                f"this token can be guessed: use {_TOKEN} random characters or more; `openssl rand -hex 16` makes "
                "a good one"
            ),
        )


def _is_guessable(token: str) -> bool:
    """Return whether a token is short, repeats a few characters, or contains a usual word or row of characters."""
    few = len(token) < _TOKEN or len(set(token)) < _TOKEN // 2
    return few or any(usual in token.lower() for usual in _USUAL)


def _is_typable(token: Iterable[str]) -> bool:
    return all(char.isprintable() and not char.isspace() for char in token)
