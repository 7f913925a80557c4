"""Settings that work but are not safe: warnings of `zambezi config check`, which the server logs at every start."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from zambezi.errors import ZambeziError
from zambezi.server.config.consistency import is_loopback
from zambezi.server.config.lines import KeyPath
from zambezi.zmtp import endpoint

if TYPE_CHECKING:
    from zambezi.server.config.settings import Config, Rule


def cautions(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Yield every warning about a valid configuration: its key, and a text that says what to do."""
    yield from _listening(config)
    yield from _console(config)
    yield from _rules(config)


def is_outside(address: str) -> bool:
    """Return whether programs on other machines can reach an endpoint; False for an invalid one, which no socket binds.

    >>> is_outside("tcp://*:5671"), is_outside("tcp://[::1]:5671"), is_outside("ipc:///run/zambezi")
    (True, False, False)
    """
    try:
        where = endpoint.parse(address, binding=True)
    except ZambeziError:
        return False
    return isinstance(where, endpoint.Tcp) and not is_loopback(where.host)


def _listening(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Yield the services that other machines can reach without keys."""
    if config.server.keys:
        return
    for name, service in (("zeps", config.zeps), ("mcollective", config.mcollective)):
        if service.enabled and is_outside(service.endpoint):
            yield (
                (name, "endpoint"),
                (
                    f"every machine that reaches {service.endpoint} has full access, and nothing is encrypted, because "
                    '[server] has no keys: set keys = "DIRECTORY" in [server], or listen on 127.0.0.1'
                ),
            )


def _console(config: Config) -> Iterator[tuple[KeyPath, str]]:
    console = config.console
    if not console.enabled:
        return
    if config.server.keys and not console.token:
        yield (
            ("console", "token"),
            (
                "the console is off except for /healthz and /readyz, because [server] has keys and the console has no "
                'token: set token = "..." in [console] (`openssl rand -hex 16` makes one), or enabled = false'
            ),
        )
    if console.token and not is_loopback(console.host):
        yield (
            ("console", "host"),
            (
                f"the console on {console.host} sends its token in clear: let it listen on 127.0.0.1, behind a "
                "proxy with TLS"
            ),
        )


def _rules(config: Config) -> Iterator[tuple[KeyPath, str]]:
    for index, rule in enumerate(config.rules):
        for action in ("publish", "create"):
            for name in config.own_streams & set(getattr(rule, action)):
                problem = f"no rule lets a client {action} {name}: only the server writes its own streams"
                yield ("rules", index, action), problem
        for name in _missing_streams(config, rule):
            yield (
                ("rules", index, "publish"),
                (
                    f"no client may create {name}, so nobody can publish to it unless it exists already: add "
                    f"[zeps.streams.{name}], or create = [{name!a}] to a rule"
                ).replace("'", '"'),
            )


def _missing_streams(config: Config, rule: Rule) -> Iterator[str]:
    """Yield the streams to which a rule lets clients publish, and which neither the server nor a client creates."""
    if not config.zeps.enabled:
        return
    can_create = [pattern for one in config.rules for pattern in one.create] if config.zeps.create else []
    for name in rule.publish:
        is_pattern = any(character in name for character in "*?[{")
        is_made = name in config.zeps.streams or name in config.own_streams
        if not (is_pattern or is_made or any(fnmatchcase(name, pattern) for pattern in can_create)):
            yield name
