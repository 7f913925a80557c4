"""Tables of thousands of rows, of which a page shows a few: filtered, sorted, and cut into pages by the server.

A browser that gets all rows of a large server every second can do nothing else. So each page asks for the rows that it
shows. The order of a table is made at most twice per second for each column, however many pages look at it, and only
the rows that a page shows are described.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from zambezi.errors import ZambeziError

PAGE: Final = 50  # rows
FRESH: Final = 0.5  # seconds for which an order is used
LONGEST: Final = 200  # characters of a filter
WORDS: Final = 10  # words of a filter
FURTHEST: Final = 1_000_000  # the number of a page

T = TypeVar("T")


class LookError(ZambeziError):
    """A page asks for something that does not exist."""


@dataclass(frozen=True, slots=True)
class Look:
    """The rows that a page wants to see: those with all words of the filter, in the order of a column."""

    words: tuple[str, ...] = ()
    sort: str = ""  # the name of a column; with a minus, the greatest value is first
    page: int = 0

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Look:
        """Return the look of a query. Raise `LookError` if it is not valid.

        >>> Look.parse({"filter": "Lamp door", "sort": "-rate", "page": "2"})
        Look(words=('lamp', 'door'), sort='-rate', page=2)
        """
        text, page = query.get("filter", ""), query.get("page", "0")
        if len(text) > LONGEST:
            raise LookError(f"the filter has more than {LONGEST} characters")
        if not (page.isascii() and page.isdecimal()) or len(page) > len(str(FURTHEST)):
            raise LookError("page must be a number")
        return cls(tuple(text.casefold().split()[:WORDS]), query.get("sort", ""), int(page))


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of rows: how to list them, and how to name, search, sort and describe one."""

    things: Callable[[], list[T]]
    identity: Callable[[T], str]
    text: Callable[[T], str]
    describe: Callable[[T], dict[str, Any]]
    columns: Mapping[str, Callable[[T], Any]]


class Table(Generic[T]):
    """The rows of one kind, for all pages that look at them.

    >>> letters = Kind(lambda: ["b", "a", "c"], str, str, lambda one: {"letter": one}, {"letter": str})
    >>> Table(letters).page(Look(sort="-letter", words=("a",)))
    {'all': 3, 'found': 1, 'page': 0, 'order': ['a'], 'rows': {'a': {'letter': 'a'}}}
    """

    def __init__(self, kind: Kind[T], clock: Callable[[], float] = time.monotonic) -> None:
        self._kind = kind
        self._clock = clock
        self._orders: dict[str, tuple[float, list[tuple[str, T]]]] = {}  # by column: when it is stale, texts and things

    def find(self, look: Look) -> tuple[int, list[T]]:
        """Return the number of all things, and those that a look finds, in order."""
        order = self._ordered(look.sort)
        if not look.words:
            return len(order), [thing for _, thing in order]
        return len(order), [thing for text, thing in order if all(word in text for word in look.words)]

    def page(self, look: Look) -> dict[str, Any]:
        """Return the page of a look, or the last one if there are fewer."""
        total, found = self.find(look)
        number = min(look.page, max(0, (len(found) - 1) // PAGE))
        shown = found[number * PAGE : (number + 1) * PAGE]
        rows = {self._kind.identity(thing): self._kind.describe(thing) for thing in shown}
        return {"all": total, "found": len(found), "page": number, "order": [*rows], "rows": rows}

    def _ordered(self, sort: str) -> list[tuple[str, T]]:
        column = sort.removeprefix("-")
        if column and column not in self._kind.columns:
            raise LookError(f"there is no column {column[:LONGEST]!a}; the columns are {', '.join(self._kind.columns)}")
        stale_at, order = self._orders.get(sort, (0.0, []))
        now = self._clock()
        if now >= stale_at:
            things = self._kind.things()
            if column:
                things = sorted(things, key=self._kind.columns[column], reverse=sort.startswith("-"))
            order = [(self._kind.text(thing).casefold(), thing) for thing in things]
            self._orders = {key: one for key, one in self._orders.items() if one[0] > now}
            self._orders[sort] = (now + FRESH, order)
        return order
