"""The output of the benchmarks: tables, the machine, and one common form of a row with a bar.

A benchmark makes one `Bars`, and gives it each promise as soon as its result is known:

    bars = Bars("zeps")
    bars.at_most("1 to 1, 100 B, broker", 0.41, 0.25, " us", beside="bare send 0.026 us", processor="0.41 us")
    bars.at_least("1 to 1, 1 KiB, Python clients", ours / theirs, 5, result="290 k/s", beside="Redis 95 k/s")
    bars.show()  # at the end: the table of this benchmark

The second argument is the number that is compared with the third one, the bar; both have the unit, which is "x" for a
ratio. A result that is not a number means "not measured", and a bar that is none means that there is no promise.
`result` and `beside` are the figures of a ratio, as text.
`processor` is the processor time of a result that is a time or a rate: on a busy machine it stays as it is.

`python -m bench` (`make bench`) names a file in ZAMBEZI_BENCH_ROWS, to which each row is added. It prints one table of
all rows at its end.
"""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self, TypedDict, Unpack

FILE: Final = "ZAMBEZI_BENCH_ROWS"
HEADS: Final = ("measurement", "result", "beside", "ratio", "bar", "processor", "verdict")
HOLDS: Final = "holds"
MISSED: Final = "DOES NOT HOLD"
NOT_MEASURED: Final = "not measured"
NO_BAR: Final = "no bar"
_STAT: Final = Path("/proc/stat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A promise with a bar, and the result of its measurement."""

    bench: str
    name: str
    found: float  # compared with the bar
    bar: float
    is_at_most: bool
    unit: str = "x"
    result: str = ""
    beside: str = ""
    processor: str = ""

    @property
    def verdict(self) -> str:
        if math.isnan(self.found):
            return NOT_MEASURED
        if math.isnan(self.bar):
            return NO_BAR
        return HOLDS if (self.found <= self.bar if self.is_at_most else self.found >= self.bar) else MISSED

    def cells(self) -> list[str]:
        """Return the cells of the row, in the order of `HEADS`."""
        found = "" if math.isnan(self.found) else f"{_short(self.found)}{self.unit}"
        is_ratio = self.unit == "x"
        return [
            f"{self.bench}: {self.name}",
            self.result or ("" if is_ratio else found),
            self.beside,
            found if is_ratio else "",
            "" if math.isnan(self.bar) else f"{'<=' if self.is_at_most else '>='} {_short(self.bar)}{self.unit}",
            self.processor,
            self.verdict,
        ]


class Usage(NamedTuple):
    """Seconds since some moment: of the clock, of this process with its ended children, and of all processors."""

    wall: float
    processor: float
    machine: float  # not a number where the kernel does not say it

    @classmethod
    def now(cls) -> Self:
        used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return cls(time.perf_counter(), sum(one.ru_utime + one.ru_stime for one in used), _machine())

    def since(self, began: Usage) -> Usage:
        return Usage(self.wall - began.wall, self.processor - began.processor, self.machine - began.machine)

    @property
    def others(self) -> float:
        """The processors that other programs and other guests of the same hardware used, on average."""
        return max(0.0, self.machine - self.processor) / self.wall

    def __str__(self) -> str:
        others = "" if math.isnan(self.machine) else f", other programs {self.others:.1f} of {os.cpu_count()} cores"
        return f"{self.wall:.0f} s, {self.processor:.0f} s of processor, load {os.getloadavg()[0]:.1f}{others}"


class Texts(TypedDict, total=False):
    """The cells of a row that are text."""

    result: str
    beside: str
    processor: str


class Bars:
    """The promises of one benchmark, and their results so far."""

    def __init__(self, bench: str) -> None:
        self.rows: list[Row] = []
        self._bench = bench
        self._began = Usage.now()

    def at_most(self, name: str, found: float, bar: float, unit: str = "x", **texts: Unpack[Texts]) -> None:
        """Add a row whose result must be at most the bar."""
        self._add(Row(bench=self._bench, name=name, found=found, bar=bar, is_at_most=True, unit=unit, **texts))

    def at_least(self, name: str, found: float, bar: float, unit: str = "x", **texts: Unpack[Texts]) -> None:
        """Add a row whose result must be at least the bar."""
        self._add(Row(bench=self._bench, name=name, found=found, bar=bar, is_at_most=False, unit=unit, **texts))

    def show(self) -> None:
        """Print the table of the rows, and how busy the machine was."""
        print(f"\n### Bars\n\n{Usage.now().since(self._began)}\n\n{verdicts(self.rows)}", flush=True)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        if path := os.environ.get(FILE):
            with Path(path).open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")


def read_rows(path: Path) -> list[Row]:
    """Return the rows that benchmarks have added to a file."""
    return [Row(**json.loads(line)) for line in path.read_text().splitlines()]


def verdicts(rows: Sequence[Row]) -> str:
    """Return the table of the rows: first the ones that do not hold."""
    order = [MISSED, NOT_MEASURED, HOLDS, NO_BAR]
    return table(HEADS, [row.cells() for row in sorted(rows, key=lambda row: order.index(row.verdict))])


def environment(versions: Mapping[str, str]) -> str:
    """Return one line: the processor, the cores, the kernel, and the given versions."""
    cpu = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        cpu = next((line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line), cpu)
    found = {"Python": platform.python_version(), **versions}
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release()}; " + ", ".join(
        f"{name} {version}" for name, version in found.items()
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join([first, *rest]) + " |"

    rule = "| " + " | ".join(["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]) + " |"
    return "\n".join([line(heads), rule, *map(line, rows)])


def _short(figure: float) -> str:
    """Return a figure with three digits that count."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def _machine() -> float:
    """Return the seconds that all processors were busy with any program, or with other guests of the hardware."""
    if not _STAT.exists():
        return math.nan
    user, nice, system, _, _, irq, softirq, steal = map(int, _STAT.read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
