"""Amounts and times as people write them on a command line: 10G, 512K, 90s, 10m, 7d."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

_OCTETS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS: Final = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def octets(text: str) -> int:
    """A size: `512`, `512K`, `10M`, `1.5G`."""
    return int(_scaled(text, _OCTETS, "a size such as 512K, 10M or 1.5G"))


def seconds(text: str) -> float:
    """A time: `90`, `90s`, `10m`, `12h`, `7d`."""
    return _scaled(text, _SECONDS, "a time such as 90s, 10m, 12h or 7d")


def start(text: str) -> int | str | datetime | timedelta:
    """Where to start in a stream: `earliest`, `latest`, a sequence, a time ago (`10m`) or a moment (ISO 8601)."""
    if text in ("earliest", "latest"):
        return text
    if text.isdecimal():
        return int(text)
    try:
        return timedelta(seconds=seconds(text))
    except argparse.ArgumentTypeError:
        pass
    return moment(text)


def moment(text: str) -> datetime:
    """A date and time in ISO 8601; without a zone, that of this machine."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no start: write earliest, latest, a sequence (1042), a time ago (10m) or a moment "
            f"({datetime.now(UTC).isoformat(timespec='seconds')})"
        ) from None
    return found if found.tzinfo else found.astimezone()


def _scaled(text: str, units: Mapping[str, float], wanted: str) -> float:
    number = text.rstrip("".join(units))
    unit = text[len(number) :]
    try:
        value = float(number) * units[unit]
    except (ValueError, KeyError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
    return value
