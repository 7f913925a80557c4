"""The settings of pipelines on the command line: windows, gaps, keys, and the declared formats of bodies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from zambezi.cli.errors import InputError, OptionsError
from zambezi.cli.limits import limits_of
from zambezi.cli.quantity import count, seconds

if TYPE_CHECKING:
    import argparse

    from zambezi.spark.pipelines import Settings
    from zambezi.spark.pipelines.body_profile import Declaration

_AVRO: Final = {"avro": "none", "avro-confluent": "confluent", "avro-single-object": "single-object"}
_NAMES: Final = ("window", "depth", "top", "delay", "flapping", "patience", "gap", "by", "left", "right", "within")
_ONLY: Final = {  # the settings that only some pipelines have
    "depth": ("traffic",),
    "top": ("traffic",),
    "flapping": ("network-health",),
    "patience": ("fleet-audit",),
    "declare": ("quality",),
    "gap": ("sessions",),
    "by": ("sessions", "join"),
    "left": ("join",),
    "right": ("join",),
    "within": ("join",),
}
_HOW: Final = "write STREAM=json, STREAM=json:COLUMNS, STREAM=avro:FILE or STREAM=text"


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options for settings."""
    options = parser.add_argument_group("parameters")
    options.add_argument("--window", metavar="TIME", type=seconds, help="the length of a window (default: 1m)")
    options.add_argument(
        "--depth", metavar="COUNT", type=count, help="the number of parts in a key prefix (default: 1)"
    )
    options.add_argument(
        "--top", metavar="COUNT", type=count, help="the number of busiest keys to report (default: 20)"
    )
    options.add_argument("--delay", metavar="TIME", type=seconds, help="how late an event can arrive (default: 10m)")
    options.add_argument(
        "--flapping",
        metavar="TIME",
        type=seconds,
        help="the time in which a flapping peer comes back several times (default: 10m)",
    )
    options.add_argument(
        "--patience", metavar="TIME", type=seconds, help="how long a node may take to reply (default: 1m)"
    )
    options.add_argument(
        "--declare",
        metavar="STREAM=FORMAT",
        action="append",
        default=[],
        help="quality: the format of the bodies of a stream: json, 'json:celsius double, room string', avro:FILE, "
        "avro-confluent:FILE, avro-single-object:FILE or text; a * at the end of STREAM stands for any end (can be "
        "repeated; the first one counts)",
    )
    options.add_argument(
        "--gap",
        metavar="TIME",
        type=seconds,
        help="sessions: a longer silence ends a session (default: 30s)",
    )
    options.add_argument(
        "--by",
        metavar="EXPRESSION",
        help='sessions and join: the key, an expression of Spark SQL such as "string(body):user" (default: key)',
    )
    options.add_argument("--left", metavar="STREAM", help="join: the stream with the first message")
    options.add_argument("--right", metavar="STREAM", help="join: the stream with the second message")
    options.add_argument(
        "--within",
        metavar="TIME",
        type=seconds,
        help="join: the second message comes within this time (default: 5s)",
    )


def check_settings(arguments: argparse.Namespace) -> None:
    """Raise an error for settings that are missing or wrong, or that another pipeline has."""
    for name, pipelines in _ONLY.items():
        if getattr(arguments, name) and arguments.name not in pipelines:
            raise OptionsError(f"--{name} does not work with {arguments.name}: it is for {' and '.join(pipelines)}")
    for one in arguments.declare:
        parts_of(one)
    if arguments.name != "join":
        return
    if not arguments.left or not arguments.right:
        raise OptionsError("join needs --left and --right: the names of two streams")
    if arguments.left == arguments.right:
        raise OptionsError(f"--left and --right are both {arguments.left}: a join needs two streams")


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Return the settings that the command line describes."""
    from zambezi.spark.pipelines import Settings  # noqa: PLC0415 - needs Spark

    given = {name: value for name in _NAMES if (value := getattr(arguments, name)) is not None}
    return Settings(
        **given, declared=tuple(_declaration(one) for one in arguments.declare), limits=limits_of(arguments)
    )


def parts_of(text: str) -> tuple[str, str, str]:
    """Return the stream, the format and its detail of a declaration.

    >>> parts_of("readings=json:celsius double"), parts_of("rooms.*=avro:room.avsc")
    (('readings', 'json', 'celsius double'), ('rooms.*', 'avro', 'room.avsc'))
    """
    stream, equals, declared = text.partition("=")
    kind, colon, detail = declared.partition(":")
    is_known = kind in ("json", "text") or kind in _AVRO
    if not stream or not equals or not is_known or (colon and not detail) or (kind in _AVRO and not detail):
        raise OptionsError(f"--declare {text}: {_HOW}")
    if kind == "text" and detail:
        raise OptionsError(f"--declare {text}: text has no schema")
    return stream, kind, detail


def _declaration(text: str) -> Declaration:
    from zambezi.spark.pipelines.body_profile import Declaration  # noqa: PLC0415 - needs Spark

    stream, kind, detail = parts_of(text)
    if kind not in _AVRO:
        return Declaration(stream, kind, detail)
    try:
        schema = Path(detail).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--declare {text}: {detail} cannot be read: {error}") from error
    return Declaration(stream, "avro", schema, _AVRO[kind])
