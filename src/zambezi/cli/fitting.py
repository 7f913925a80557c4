"""A table that fits into the terminal: what has no room is named below it, and no word is broken to make room."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.measure import Measurement, measure_renderables
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich import console as rich_console
    from rich.console import ConsoleOptions, JustifyMethod, RenderableType, RenderResult

_FOLDED: Final = 24  # characters: a column of longer texts can be as narrow as this, and its texts are folded
NARROW: Final = 16  # characters: the same for tables with many such columns
_CUT: Final = 16  # characters: a column whose texts can be cut can be as narrow as this
_GAP: Final = 2  # characters between columns
JSON: Final = "--json shows all columns"  # the usual `elsewhere`
NOTHING: Final = frozenset({"", "-"})  # cells that say nothing


@dataclass(frozen=True, slots=True)
class FittingTable:
    """A table whose columns are shown as far as there is room.

    Columns that say nothing give way first, then those to the right. `elsewhere` says where all columns are.
    """

    columns: Sequence[str]
    numbers: Collection[int]  # the indexes of the columns to align to the right
    rows: Sequence[Sequence[str]]
    elsewhere: str
    title: str = ""
    notes: Sequence[str] = ()  # lines below the table
    cut: Collection[int] = ()  # the indexes of the columns whose texts are cut rather than folded, such as long names
    folded: int = _FOLDED  # characters: the least width of a column of longer texts

    def __rich_console__(self, console: rich_console.Console, options: ConsoleOptions) -> RenderResult:
        yield from self._parts(options.max_width)

    def __rich_measure__(self, console: rich_console.Console, options: ConsoleOptions) -> Measurement:
        return measure_renderables(console, options, self._parts(options.max_width))

    def _parts(self, room: int) -> list[RenderableType]:
        widths = self._widths(room)
        parts: list[RenderableType] = [Text(self.title, "bold", overflow="fold")] if self.title else []
        if widths:
            parts.append(self._table(widths))
        if len(widths) < len(self.columns):
            left_out = ", ".join(name for index, name in enumerate(self.columns) if index not in widths)
            parts.append(Text(f"no room for: {left_out} ({self.elsewhere})", "dim"))
        return [*parts, *[Text(note, overflow="fold") for note in self.notes]]

    def _table(self, widths: Mapping[int, int]) -> Table:
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="cyan")
        for index, width in widths.items():
            justify: JustifyMethod = "right" if index in self.numbers else "left"
            table.add_column(self.columns[index], justify=justify, overflow="fold", width=width)
        for row in self.rows:
            table.add_row(*[self._cell(row[index], index) for index in widths])
        return table

    def _cell(self, cell: str, index: int) -> Text:
        """Return a cell as it is, without markup of Rich."""
        can_be_cut = index in self.cut
        return Text(cell, no_wrap=can_be_cut, overflow="ellipsis" if can_be_cut else "fold")

    def _widths(self, room: int) -> dict[int, int]:
        """Return the widths of the columns to show, by their indexes."""
        count = len(self.columns)
        longest = [self._longest(index) for index in range(count)]
        least = [self._least(index, longest[index]) for index in range(count)]
        most = [max(1, cell_len(name), cells) for name, cells in zip(self.columns, longest, strict=True)]
        # The first column names what a row is about: it is shown even where it has no room.
        chosen, left = set(range(count)[:1]), room - sum(least[:1])
        for index in sorted(range(1, count), key=lambda index: (self._says_nothing(index), index)):
            if least[index] + _GAP <= left:
                chosen.add(index)
                left -= least[index] + _GAP
        widths = {index: least[index] for index in sorted(chosen)}
        for index in sorted(chosen, key=lambda index: (index in self.cut, index)):
            wider = min(most[index] - least[index], max(left, 0))
            if longest[index] <= least[index] and least[index] + wider < most[index]:
                wider = 0  # a heading is on one line, or as narrow as its words
            widths[index] += wider
            left -= wider
        return widths

    def _says_nothing(self, index: int) -> bool:
        return all(row[index] in NOTHING for row in self.rows)

    def _least(self, index: int, longest: int) -> int:
        """Return the width below which the words of the heading or short cells would be broken."""
        heading = max(map(cell_len, self.columns[index].split()), default=0)
        return max(1, heading, min(longest, _CUT if index in self.cut else self.folded))

    def _longest(self, index: int) -> int:
        """Return the width of the longest line in a column."""
        lines = (line for row in self.rows for line in row[index].splitlines())
        return max(map(cell_len, lines), default=0)
