"""`zambezi mirror`: follow a stream of another server into one here, each message once."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zambezi.cli.client import ENDPOINT, endpoint_of
from zambezi.cli.completion import offer
from zambezi.cli.hints import with_hint
from zambezi.cli.quantity import endpoints
from zambezi.cli.security import add_security_options, curve, security_of
from zambezi.wire.text import printable
from zambezi.zeps.mirror import Mirror
from zambezi.zeps.sync import Client

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

LOOK: Final = 0.5  # seconds between looks at the mirror
TELL: Final = 10.0  # seconds between lines about its progress


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "mirror",
        description=(
            "Copy the messages of STREAM, of the server at SOURCE, to a stream of another server, and follow it live. "
            "Each message is copied once: a mirror that is started again goes on where it was. While a server is away, "
            "the mirror waits. Ctrl-C or SIGTERM ends it."
        ),
    )
    parser.add_argument(
        "source", metavar="SOURCE", type=endpoints, help="the endpoint of the server to copy from (tcp://HOST:PORT)"
    )
    parser.add_argument("stream", metavar="STREAM", help="the name of the stream")
    parser.add_argument(
        "--to",
        dest="endpoint",
        metavar="ENDPOINT",
        type=endpoints,
        help=f"the endpoint of the server to copy to (default: $ZAMBEZI_ENDPOINT, or that of the context, "
        f"or {ENDPOINT})",
    )
    parser.add_argument("--as", dest="target", metavar="NAME", help="the name of the stream there (default: the same)")
    parser.add_argument(
        "--pattern",
        default="",
        help="the keys to copy: a prefix, exact:KEY, glob:PATTERN or regex:PATTERN (default: all)",
    )
    offer(
        parser.add_argument(
            "--since",
            metavar="WHERE",
            type=_since,
            help="where a new mirror begins: earliest, latest or a sequence (messages after it); needed if the stream "
            "there has messages (default: earliest)",
        ),
        lambda: ("earliest", "latest"),
    )
    parser.add_argument(
        "--until", choices=["now"], help="end when all messages that exist now are copied (default: follow the stream)"
    )
    parser.add_argument(
        "--name", help="the name of this mirror, if several fill the same stream (default: the name of the source)"
    )
    parser.add_argument(
        "--begin-again",
        action="store_true",
        help="if the source was deleted and created again, copy it from its first message on (default: an error)",
    )
    options = parser.add_argument_group("keys of the source")
    options.add_argument(
        "--source-server-key", metavar="FILE", type=Path, help="encrypt with CURVE: the public key of the source"
    )
    options.add_argument(
        "--source-key", metavar="FILE", type=Path, help="your own key pair, if the source admits only known keys"
    )
    add_security_options(parser.add_argument_group("keys of the target"), "the target")
    parser.set_defaults(run=run)


def _since(text: str) -> int | str:
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a position: write earliest, latest or a sequence (1042)")


def run(arguments: argparse.Namespace) -> int:
    source_keys = curve(arguments.source_server_key, arguments.source_key, "--source-key", "--source-server-key")
    target = arguments.target or arguments.stream
    to = endpoint_of(arguments)
    with (
        Client.connect(arguments.source, security=source_keys) as source,
        Client.connect(to, security=security_of(arguments)) as there,
        Mirror(
            source.stream(arguments.stream),
            there.stream(target),
            pattern=arguments.pattern,
            since=arguments.since,
            until=arguments.until,
            name=arguments.name,
            begin_again=arguments.begin_again,
        ) as mirror,
    ):
        _tell(f"mirroring {arguments.stream} of {arguments.source} to {target} at {to}")
        try:
            _follow(mirror)
            mirror.close()
            _tell(f"done: {_standing(mirror)}")
        except KeyboardInterrupt:
            mirror.close()
            _tell(f"ended: {_standing(mirror)}")
    return 0


def _follow(mirror: Mirror) -> None:
    """Run the mirror, and tell where it stands: at the beginning, when it waits, and now and then."""
    told, position, due = "", -1, 0.0
    while not mirror.run(LOOK):
        waits = f"waiting for {mirror.waits_for}" if mirror.waits_for else ""
        now = time.monotonic()
        if waits:
            if waits != told:
                _tell(with_hint(waits))
        elif told or (mirror.position != position and now >= due):
            _tell(_standing(mirror))
            position, due = mirror.position, now + TELL
        told = waits


def _standing(mirror: Mirror) -> str:
    counters = mirror.counters
    text = f"at sequence {mirror.position}, {mirror.lag} behind; {counters.mirrored} copied"
    if counters.missed:
        text += f"; {counters.missed} were removed from the source first"
    if mirror.refused:
        text += f"; {mirror.refused} refused by the target"
    return text


def _tell(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
