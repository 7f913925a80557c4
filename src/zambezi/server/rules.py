"""The permissions of clients: rules for streams and topics, by the name of a client's key.

Without rules, every client that can connect can do everything. With rules, a client can do what at least one rule
allows. A pattern must match the whole name: `*` is any number of characters, `?` is one character, and `{user}`, in
the name of a stream or a topic, is the client's own name.

The server's own streams contain what clients sent to topics and to the log service. A pattern for streams that happens
to match their names must not grant access to all topics: only a rule that has the exact name lets a client read one.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from zambezi import mcollective
from zambezi.server.config import Rule


class Rules:
    """The rules of a server.

    >>> rules = Rules([Rule(keys=["sensor-*"], publish=["telemetry-{user}"]), Rule(subscribe=["*"])])
    >>> rules.allow("sensor-7", "publish", "telemetry-sensor-7"), rules.allow("sensor-7", "publish", "telemetry-ann")
    (True, False)
    >>> rules.allow("ann", "subscribe", "telemetry-sensor-7")
    True
    >>> Rules([Rule(subscribe=["*"])], own=["zrelog"]).allow("ann", "subscribe", "zrelog")
    False
    """

    def __init__(self, rules: Iterable[Rule] = (), own: Collection[str] = ()) -> None:
        self._rules = list(rules)
        self.own = frozenset(own)  # the server's own streams

    def replace(self, rules: Iterable[Rule]) -> None:
        """Replace all rules."""
        self._rules = list(rules)

    def allow(self, user: str, action: str, stream: str) -> bool:
        """Return whether a user may `publish` to, `subscribe` to, `serve`, `create`, `edit` or `delete` a stream."""
        return not self._rules or any(
            _matches(rule.keys, user, "") and self._names(getattr(rule, action), stream, user) for rule in self._rules
        )

    def _names(self, patterns: Collection[str], stream: str, user: str) -> bool:
        return stream in patterns if stream in self.own else _matches(patterns, stream, user)

    @property
    def topics(self) -> list[mcollective.Rule]:
        """The rules for topics, in the form that the middleware needs.

        The first one allows nothing. The middleware needs it if the rules name no key: without rules it allows all.
        """
        if not self._rules:
            return []
        made = [
            mcollective.Rule(user=key, put=tuple(rule.put), sub=tuple(rule.sub))
            for rule in self._rules
            for key in rule.keys
        ]
        return [mcollective.Rule(), *made]


def _matches(patterns: Iterable[str], name: str, user: str) -> bool:
    return any(_compiled(pattern.replace("{user}", _literal(user))).fullmatch(name) for pattern in patterns)


def _literal(text: str) -> str:
    """Return a pattern that matches the text itself and nothing else."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))
