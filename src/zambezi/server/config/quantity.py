"""Sizes and times as people write them: 10G, 512K, 90s, 10m, 7d."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from zambezi.errors import ZambeziError

_OCTETS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS: Final = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}

_LONGEST: Final = 100 * 366 * 86400  # seconds


class QuantityError(ZambeziError):
    """A text that is not a size or a time."""


class TooLong(QuantityError):
    """A time above all bounds."""


def octets(text: str) -> int:
    """Parse a size and return it in bytes.

    >>> octets("512"), octets("512K"), octets("1.5M")
    (512, 524288, 1572864)
    """
    return int(_scaled(text, _OCTETS, "a size such as 512K, 10M or 1.5G"))


def seconds(text: str) -> float:
    """Parse a time and return it in seconds.

    >>> seconds("90"), seconds("250ms"), seconds("10m"), seconds("7d")
    (90.0, 0.25, 600.0, 604800.0)
    """
    found = _scaled(text, _SECONDS, "a time such as 90s, 10m, 12h or 7d")
    if found > _LONGEST:
        raise TooLong(f"{text!r} is more than 100 years")
    return found


def in_bytes(count: float) -> str:
    """Return a size as an operator would write it in the configuration.

    >>> in_bytes(65536), in_bytes(1500)
    ('"64K"', '1500')
    """
    return _written(count, {unit: size for unit, size in _OCTETS.items() if unit})


def in_seconds(count: float) -> str:
    """Return a time as an operator would write it in the configuration.

    >>> in_seconds(604800), in_seconds(0.5)
    ('"7d"', '0.5')
    """
    return _written(count, {unit: _SECONDS[unit] for unit in ("m", "h", "d")})


def _written(count: float, units: Mapping[str, float]) -> str:
    for unit, size in sorted(units.items(), key=lambda one: -one[1]):
        if count >= size and count % size == 0:
            return f'"{count / size:.0f}{unit}"'
    return f"{count:.0f}" if count == int(count) and count < 1e15 else f"{count:g}"


def _scaled(text: str, units: Mapping[str, float], wanted: str) -> float:
    number = text.rstrip("".join(units))
    try:
        value = float(number) * units[text[len(number) :]]
    except (ValueError, KeyError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise QuantityError(f"{text!r} is not {wanted}")
    return value
