"""Who may PUT to which topics, and SUB to which.

A client is known by its user: the name of its CURVE key among those that are allowed, or its PLAIN name; empty where it
proved nothing. Without rules everybody may do everything. With the first rule nobody may do anything that no rule
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

A pattern is compared with the whole topic, or user. `*` is any number of any characters, `?` is one, and `{user}`, in
a topic, is the client's own name: so a node can be kept to its own mailbox.
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
    """Users that match `user` may PUT to topics that match one of `put`, and SUB to those that match one of `sub`."""

    user: str = "*"
    put: tuple[str, ...] = ()
    sub: tuple[str, ...] = ()


class Rules:
    """All the rules of a middleware. What was decided once is remembered, up to a bound."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._rules = tuple(rules)
        self._decided: dict[tuple[str, str, bytes], bool] = {}
        self._by_user: dict[str, dict[str, re.Pattern[str] | None]] = {}

    @classmethod
    def of(cls, configuration: Iterable[Mapping[str, object]]) -> Rules:
        """Rules as a configuration file has them: a list of tables with `user`, `put` and `sub`."""
        return cls([_rule(number, table) for number, table in enumerate(configuration, 1)])

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self._rules

    def allow(self, user: str, deed: Deed, topic: bytes) -> bool:
        """Whether a user may do this."""
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
    """Possessive: a star takes the first place where what follows fits, so that no topic costs more than its length
    times that of the pattern."""
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
            raise RuleError(f"{where} has {key!r}, which no rule has: there are user, put and sub")
    user = table.get("user", "*")
    if not isinstance(user, str) or not user:
        raise RuleError(f"{where}: user is a name or a pattern, not {user!r}; '*' is everybody")
    return Rule(user, _topics(where, "put", table.get("put", ())), _topics(where, "sub", table.get("sub", ())))


def _topics(where: str, key: str, given: object) -> tuple[str, ...]:
    if isinstance(given, list | tuple) and all(isinstance(pattern, str) and pattern for pattern in given):
        return tuple(given)
    raise RuleError(f"{where}: {key} is a list of topics or patterns, not {given!r}")
