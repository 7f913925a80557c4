"""Scales: the marks of an axis, the order of names, and numbers and times as short texts."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400
_STEPS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(_MINUTE * count for count in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * count for count in (1, 2, 3, 6, 12)),
    *(_DAY * count for count in (1, 2, 7, 14, 30, 91, 182, 365, 1826, 3652)),
)
_UNITS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))
_DECADES: Final = {-6: "1 µs", -5: "10 µs", -4: "100 µs", -3: "1 ms", -2: "10 ms", -1: "100 ms"}
_DECADES_UP: Final = {0: "1 s", 1: "10 s", 2: "100 s", 3: "1,000 s", 4: "10,000 s", 5: "100,000 s"}


def by_number(name: str) -> list[tuple[int, str]]:
    """Return a key to sort names by, so that the numbers in them count as numbers.

    >>> sorted(["node-10", "node-9", "hub"], key=by_number)
    ['hub', 'node-9', 'node-10']
    """
    # A longer number without leading zeros is a larger one; the length of other parts does not count.
    return [(len(part), part) if part.isdecimal() else (0, part) for part in re.split(r"0*(\d+)", name)]


def nice_top(most: float) -> float:
    """Return the end of a scale from zero: the next round number.

    >>> nice_top(0), nice_top(7.2), nice_top(123)
    (1.0, 8.0, 150.0)
    """
    if not math.isfinite(most) or most <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(most))
    return next(unit * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if unit * step >= most * (1 - 1e-9))


def short(number: float) -> str:
    """Return a number in at most five characters or so.

    >>> short(0), short(9999), short(12_345), short(2_500_000), short(0.1234), short(99.5)
    ('0', '9,999', '12.3k', '2.5M', '0.123', '99.5')
    """
    for size, unit in _UNITS:
        if abs(number) >= size:
            scale = size if unit != "k" else 1e3
            return f"{number / scale:,.1f}".removesuffix(".0") + unit
    if number == int(number):
        return f"{int(number):,}"
    return f"{number:,.3g}" if abs(number) < 100 else f"{number:,.0f}"


def span(seconds: float) -> str:
    """Return a length of time in one unit.

    >>> span(0.000_25), span(0.25), span(6), span(90), span(5400), span(200_000)
    ('250 µs', '250 ms', '6 s', '90 s', '90 min', '55.6 h')
    """
    for unit, size, top in (("µs", 1e-6, 1e-3), ("ms", 1e-3, 1.0), ("s", 1.0, 120.0), ("min", 60.0, 7200.0)):
        if seconds < top:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / _HOUR:.3g} h" if seconds < 4 * _DAY else f"{seconds / _DAY:.3g} days"


def decade(exponent: int) -> str:
    """Return ten to a power, in seconds, as a label.

    >>> decade(-3), decade(0), decade(7)
    ('1 ms', '1 s', '1e7 s')
    """
    return _DECADES.get(exponent) or _DECADES_UP.get(exponent) or f"1e{exponent} s"


def moment(seconds: float) -> str:
    """Return a time since 1970 in UTC.

    >>> moment(1_700_000_000), moment(1_700_000_000.25)
    ('2023-11-14 22:13:20', '2023-11-14 22:13:20.250')
    """
    when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return f"{when:%Y-%m-%d %H:%M:%S}" + (f".{when.microsecond // 1000:03}" if when.microsecond else "")


def time_marks(begin: float, end: float, most: int = 8) -> list[tuple[float, str]]:
    """Return the marks of an axis of time: round times in UTC and their labels, which have the date if it matters.

    >>> [label for _, label in time_marks(1_700_000_000, 1_700_000_060, 4)]
    ['22:13:30', '22:14:00']
    """
    length = max(end - begin, 1e-3)
    step = next((one for one in _STEPS if length / one < most), length / most)
    first = math.ceil(begin / step - 1e-9)
    times = [number * step for number in range(first, math.floor(end / step + 1e-9) + 1)]
    spans_days = moment(begin)[:10] != moment(end)[:10]
    return [(one, _label(one, step, spans_days=spans_days)) for one in times]


def _label(seconds: float, step: float, *, spans_days: bool) -> str:
    text = moment(seconds)
    if step >= _DAY:
        return text[:10]
    clock = text[11:16] if step >= _MINUTE else text[11:19] if step >= 1 else f"{text[11:19]}{text[19:] or '.000'}"
    return f"{text[5:10]} {clock}" if spans_days else clock
