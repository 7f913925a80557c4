"""Rules: which users can PUT to which topics, and SUB to which.

The user of a client is the name of its CURVE key among the allowed keys, or its PLAIN name; it is empty for an
anonymous client. Without rules every client can do everything. With at least one rule, a client can only do what a rule
allows.

>>> rules = Rules.of([
...     {"user": "*", "sub": ["mcollective *"]},
...     {"user": "node-*", "put": ["mcollective reply *"], "sub": ["mcollective nodes {user}"]},
...     {"user": "admin", "put": ["*"], "sub": ["*"]},
... ])
>>> rules.allow("node-7", "PUT", b"mcollective reply laptop 4711")
True
>>> rules.allow("node-7", "PUT", b"mcollective package")
False

A pattern must match the whole topic, or user. `*` matches any number of any characters, `?` one, and `{user}`, in a
topic, the client's own name: so a rule can restrict each node to its own topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from zambezi.mcollective.errors import RuleError
from zambezi.wire.text import as_text

Deed: TypeAlias = Literal["PUT", "SUB"]

_REMEMBERED: Final = 65_536
_SELF: Final = "{user}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: users that match `user` can PUT to topics that match one of `put`, and SUB to those that match `sub`."""

    user: str = "*"
    put: tuple[str, ...] = ()
    sub: tuple[str, ...] = ()


class Rules:
    """All the rules of a middleware. Decisions are cached, up to a bound."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._rules = tuple(rules)
        self._decided: dict[tuple[str, str, bytes], bool] = {}
        self._by_user: dict[str, dict[str, re.Pattern[str] | None]] = {}

    @classmethod
    def of(cls, configuration: Iterable[Mapping[str, object]]) -> Rules:
        """Return rules from a configuration: a list of tables with `user`, `put` and `sub`."""
        return cls([_rule(number, table) for number, table in enumerate(configuration, 1)])

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules."""
        return self._rules

    def allow(self, user: str, deed: Deed, topic: bytes) -> bool:
        """Return whether a user can PUT or SUB to a topic."""
        if not self._rules:
            return True
        asked = (user, deed, topic)
        answer = self._decided.get(asked)
        if answer is None:
            pattern = self._patterns(user)[deed]
            answer = pattern is not None and pattern.fullmatch(as_text(topic)) is not None
            if len(self._decided) >= _REMEMBERED:
                self._decided.clear()
            self._decided[asked] = answer
        return answer

    def _patterns(self, user: str) -> dict[str, re.Pattern[str] | None]:
        known = self._by_user.get(user)
        if known is None:
            rules = [rule for rule in self._rules if _compile([rule.user]).fullmatch(user)]
            put = [pattern for rule in rules for pattern in rule.put]
            sub = [pattern for rule in rules for pattern in rule.sub]
            known = {
                "PUT": _compile(put, user) if put else None,
                "SUB": _compile(sub, user) if sub else None,
            }
            if len(self._by_user) >= _REMEMBERED:
                self._by_user.clear()
            self._by_user[user] = known
        return known


def _compile(patterns: Iterable[str], user: str = "") -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{_translate(pattern, user)})" for pattern in patterns), re.DOTALL)


def _translate(pattern: str, user: str) -> str:
    """Return a pattern as a regular expression without backtracking.

    A star ends at the first match of the text after it, so no topic costs more than its length times the pattern's.
    """
    pieces = [
        "".join("." if char == "?" else re.escape(char) for char in piece)
        for piece in (pattern.replace(_SELF, "\0") if user else pattern).split("*")
    ]
    pieces = [piece.replace(re.escape("\0"), re.escape(user)) for piece in pieces]
    first, *rest = pieces
    if not rest:
        return first
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    return f"{first}{middle}.*{rest[-1]}"


def _rule(number: int, table: Mapping[str, object]) -> Rule:
    where = f"rule {number}"
    for key in table:
        if key not in ("user", "put", "sub"):
            raise RuleError(f"{where} has an unknown key {key!r}: the keys are user, put and sub")
    user = table.get("user", "*")
    if not isinstance(user, str) or not user:
        raise RuleError(f"{where}: user must be a name or a pattern, not {user!r}; '*' matches every user")
    return Rule(user, _topics(where, "put", table.get("put", ())), _topics(where, "sub", table.get("sub", ())))


def _topics(where: str, key: str, given: object) -> tuple[str, ...]:
    if isinstance(given, list | tuple) and all(isinstance(pattern, str) and pattern for pattern in given):
        return tuple(given)
    raise RuleError(f"{where}: {key} must be a list of topics or patterns, not {given!r}")
