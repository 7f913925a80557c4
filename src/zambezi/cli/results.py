"""Results of pipelines on a terminal, as narrow tables.

If all times are on one day, the title has the date and the times have none. An id is shortened. The files have
everything in full.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from zambezi.cli.fitting import FittingTable
from zambezi.spark.report.page import shown
from zambezi.wire.text import printable

if TYPE_CHECKING:
    from zambezi.spark.pipelines.results import Result
    from zambezi.spark.pipelines.verdict import Verdict

_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d) \d\d:\d\d:\d\d(\.\d+)?")
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def result_view(result: Result, most: int, place: str) -> RenderableType:
    """Return a result with its title, at most `most` of its rows, its notes, and the file that has more rows."""
    found = result.found
    rows = found.rows[:most]
    left = len(found.rows) - len(rows)
    notes = [*result.notes]
    if left or found.more:
        rows_left = f"{left:,} more {'row' if left == 1 else 'rows'} in {place}/{result.name}.json"
        notes.append(f"{rows_left}, which has only the first {len(found.rows):,}" if found.more else rows_left)
    day = _day(rows)
    title = Text(printable(result.title), "bold")
    if day:
        title.append(f"  {day}", "not bold dim")
    cells = [[_cell(cell, day) for cell in row] for row in rows]
    columns = [name.replace("_", " ") for name in found.columns]
    numbers = {index for index, name in enumerate(found.columns) if name in found.numbers}
    table = FittingTable(columns, numbers, cells, f"{place}/{result.name}.json has all columns")
    parts: list[RenderableType] = [table if rows else Text("none", "dim")]
    if notes:
        parts.append(Text(printable("; ".join(notes)), "dim"))
    return Group(title, Padding(Group(*parts), (0, 0, 1, 2), expand=False))


def verdict_view(verdict: Verdict, place: str) -> RenderableType:
    """Return a verdict for a terminal: a line for each reason, and where the others are."""
    first, *others = [printable(line) for line in verdict.lines()]
    if verdict.more or len(verdict.reasons) > len(others) + 1:
        others[-1] += f": see {place}/{verdict.pipeline}-verdict.json"
    head = Text(first, "bold green" if verdict.is_healthy else "bold red", overflow="fold")
    return Group(head, *(Text(line, "red", overflow="fold") for line in others))


def as_json(results: Sequence[Result], verdict: Verdict, places: Mapping[str, str]) -> str:
    """Return a verdict and results as JSON for programs."""
    reports = {
        one.name: {
            "title": one.title,
            "rows": one.found.records(),
            "more": one.found.more,
            "notes": list(one.notes),
        }
        for one in results
    }
    return json.dumps({**verdict.document(), **places, "reports": reports}, indent=2, default=str)


def _day(rows: Sequence[Sequence[Any]]) -> str:
    """Return the day of all times, or "" if they are on several days."""
    days = {found[1] for row in rows for cell in row if isinstance(cell, str) and (found := _TIME.fullmatch(cell))}
    return days.pop() if len(days) == 1 else ""


def _cell(value: Any, day: str) -> str:
    text = shown(value)
    if day and _TIME.fullmatch(text):
        return text.removeprefix(f"{day} ")
    return text[:8] if _UUID.fullmatch(text) else printable(text)
