"""Sizes, times, positions in a stream, endpoints and URLs, as arguments of commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from zambezi.cli.completion import offer
from zambezi.server.config import quantity
from zambezi.server.config.quantity import QuantityError, TooLong
from zambezi.zmtp.endpoint import parse
from zambezi.zmtp.errors import EndpointError

T = TypeVar("T")

_CONSOLE: Final = "http://127.0.0.1:8470"


def _argument(read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except (QuantityError, EndpointError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def octets(text: str) -> int:
    """Parse a size: `512`, `512K`, `10M`, `1.5G`."""
    return _argument(quantity.octets, text)


def seconds(text: str) -> float:
    """Parse a time: `90`, `90s`, `10m`, `12h`, `7d`."""
    return _argument(quantity.seconds, text)


def count(text: str) -> int:
    """Parse a number of messages or commands, which is at least 1."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number: write 1 or more")
    return int(text)


def sequence(text: str) -> int:
    """Parse a sequence; 0 is before the first one."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a sequence: write 0 or more")
    return int(text)


def start(text: str) -> int | str | datetime | timedelta:
    """Parse a position in a stream: `earliest`, `latest`, a sequence, an age (`10m`) or a time (ISO 8601)."""
    if text in ("earliest", "latest"):
        return text
    if text.isdecimal():
        return int(text)
    try:
        return timedelta(seconds=quantity.seconds(text))
    except TooLong as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    except QuantityError:
        pass
    try:
        return moment(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a position: write earliest, latest, a sequence (1042), an age (10m) or a time "
            f"({datetime.now(UTC).isoformat(timespec='seconds')})"
        ) from None


def moment(text: str) -> datetime:
    """Parse a date and time in ISO 8601. Without a time zone it is local time."""
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo else found.astimezone()
    except (ValueError, OverflowError):  # the latter: a time zone is added to the year 1 or 9999
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time in ISO 8601, such as {datetime.now(UTC).isoformat(timespec='seconds')}"
        ) from None


def endpoint(text: str) -> str:
    """Check an endpoint to connect to."""
    _argument(parse, text)
    return text


def endpoints(text: str) -> str:
    """Check endpoints to connect to, with commas between them."""
    from zambezi.zeps.client.arguments import endpoints_of  # noqa: PLC0415 - needed only for clients of brokers

    return ",".join(endpoint(one) for one in endpoints_of(text))


def bound_endpoint(text: str) -> str:
    """Check an endpoint to listen on."""
    _argument(partial(parse, binding=True), text)
    return text


def console_url(text: str) -> str:
    """Check the URL of a console."""
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!a} is not the URL of a console: write one such as {_CONSOLE}")
    return text


def add_since(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the option for the position at which messages begin."""
    option = parser.add_argument(
        "--since",
        metavar="WHEN",
        type=start,
        default=default,
        help="the position to start at: earliest, latest, a sequence (messages after it), an age (10m) or a time "
        f"(2026-01-31T12:00) (default: {default})",
    )
    offer(option, lambda: ("earliest", "latest"))
