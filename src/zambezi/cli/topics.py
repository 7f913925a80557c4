"""`zambezi topics`: list the topics of a middleware, and their subscribers.

The middleware itself answers: it replies to a PUT on the topic `$topics`, with X-REPLY-TO, by MESSAGEs with JSON, which
only this client gets.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from zambezi.cli.counts import so_many
from zambezi.cli.fitting import JSON, NARROW, FittingTable
from zambezi.cli.middleware import add_middleware_options, middleware_of
from zambezi.cli.notices import show_warnings, telling
from zambezi.cli.quantity import seconds
from zambezi.cli.security import security_of
from zambezi.cli.terminal import Console, say
from zambezi.mcollective.errors import McollectiveError
from zambezi.mcollective.sync import Connector
from zambezi.wire.text import printable
from zambezi.zmtp.errors import TimedOut

if TYPE_CHECKING:
    import argparse

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

TOPICS: Final = "$topics"


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "topics",
        description=(
            "List the topics that have subscribers: the number of subscribers, and of messages and deliveries since "
            "the first subscriber came. If the output is not a terminal, each topic is a line with tabs."
        ),
    )
    parser.add_argument("--clients", action="store_true", help="name the subscribers (up to a hundred of each topic)")
    parser.add_argument("--json", action="store_true", help="print the whole answer of the middleware as JSON")
    parser.add_argument(
        "--timeout", metavar="TIME", type=seconds, default=5.0, help="how long to wait for an answer (default: 5s)"
    )
    add_middleware_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    show_warnings()
    with (
        Connector(middleware_of(arguments), security=security_of(arguments)) as connector,
        telling(f"waiting for the answer of the middleware, for up to {arguments.timeout:g} s"),
    ):
        report = ask(connector, arguments.timeout)
    topics: list[dict[str, Any]] = report["topics"]
    if arguments.json:
        say(json.dumps(report, indent=2))
    elif sys.stdout.isatty():
        Console().print(_table(topics, report, arguments.clients))
    else:
        if not topics:
            print("zambezi: no client subscribes to a topic", file=sys.stderr)
        for topic in topics:
            named = [", ".join(_clients(topic))] if arguments.clients else []
            figures = [str(topic[key]) for key in ("subscribers", "messages", "deliveries")]
            say("\t".join([printable(str(topic["topic"])), *figures, *named]))
    return 0


def ask(connector: Connector, timeout: float) -> dict[str, Any]:
    """Return the middleware's report, joined from its parts."""
    deadline = time.monotonic() + timeout
    reply_to = f"zambezi topics {os.getpid()}"
    topics: list[dict[str, Any]] = []
    connector.connect(timeout)
    try:
        connector.put(TOPICS, b"", reply_to=reply_to, confirm=True, timeout=timeout)
        while True:
            part = json.loads(connector.recv(timeout=max(0.0, deadline - time.monotonic())).body)
            topics += part["topics"]
            if part["part"] == part["parts"]:
                return {"clients": part["clients"], "counters": part["counters"], "topics": topics}
    except TimedOut:
        raise McollectiveError(
            f"no answer within {timeout:g} s: is the middleware running, and is it Zambezi's?"
        ) from None


def _table(topics: list[dict[str, Any]], report: dict[str, Any], clients: bool) -> FittingTable:
    counters = report["counters"]
    counted = (
        f"{counters['puts']:,} put, {counters['deliveries']:,} delivered, {counters['missed']:,} missed by slow "
        f"subscribers, {counters['denied']:,} denied"
    )
    rows = [
        (
            printable(str(topic["topic"])),
            f"{topic['subscribers']:,}",
            f"{topic['messages']:,}",
            f"{topic['deliveries']:,}",
            *(["\n".join(_clients(topic))] if clients else []),
            "yes" if topic["kept"] else "",
        )
        for topic in topics
    ]
    return FittingTable(
        ("topic", "subscribers", "messages", "deliveries", *(["clients"] if clients else []), "kept"),
        {1, 2, 3},
        rows,
        JSON,
        title=f"{so_many(len(topics), 'topic')}, {so_many(report['clients'], 'client')}",
        notes=[counted],
        folded=NARROW,
    )


def _clients(topic: dict[str, Any]) -> list[str]:
    names = [printable(f"{identity} ({user})" if user else identity) for identity, user in topic["clients"]]
    more = int(topic["subscribers"]) - len(names)
    return [*names, f"and {more} more"] if more > 0 else names
