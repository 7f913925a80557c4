"""The plain values that the readers of Ruby's formats return, their bounds, and their error.

The readers never make an object of a class that a message names. An attacker can choose every byte of a message, so
each reader has a bound for its depth and for the number of values.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from zambezi.mcollective.errors import McollectiveError

Value: TypeAlias = "bool | int | float | str | bytes | list[Value] | dict[Key, Value] | None"
Key: TypeAlias = bool | int | float | str | bytes | None

MAX_DEPTH: Final = 64  # of lists and hashes within each other
MAX_VALUES: Final = 250_000  # in one message
MAX_DIGITS: Final = 1000  # of an integer: Python needs quadratic time to print one


class Unreadable(McollectiveError):
    """Bytes are not in the format that is read, or exceed a bound. The text says what was wrong, and where."""


class Pairs:
    """The pairs of a Ruby hash.

    A hash in Ruby can have the symbol `:agent` and the string "agent" as keys. Here both are the same key. The value of
    the symbol is kept, as MCollective looks for symbols first. Otherwise the last value of a key is kept, as in Ruby.
    """

    __slots__ = ("_symbols", "values")

    def __init__(self) -> None:
        self.values: dict[Key, Value] = {}
        self._symbols: set[Key] = set()

    def add(self, key: Value, value: Value, *, is_symbol: bool) -> None:
        """Add a pair. A pair whose key is a list or a hash is left out, because Python has no such keys."""
        if isinstance(key, list | dict):
            return
        if is_symbol:
            self._symbols.add(key)
        elif key in self._symbols:
            return
        self.values[key] = value
