"""`zambezi brokers`: list the brokers that share an object store."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from zambezi.cli.client import add_client_options, add_timeout_option, client_of
from zambezi.cli.fitting import JSON, FittingTable
from zambezi.cli.stream_tables import ago
from zambezi.cli.terminal import say, table_console
from zambezi.wire.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zambezi.zeps.directory import BrokerInfo

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "brokers",
        description="List the brokers that share an object store, and how many of its streams each of them has.",
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each broker")
    add_timeout_option(parser, only_looks=True)
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        found = client.brokers(arguments.timeout)
    if arguments.json:
        for one in found:
            say(json.dumps(describe(one)))
    else:
        table_console().print(broker_table(found))
    return 0


def describe(info: BrokerInfo) -> dict[str, Any]:
    """Return a broker as a dictionary, with a readable time."""
    return {
        "id": info.broker,
        "endpoint": info.endpoint,
        "endpoints": list(info.endpoints),
        "since": info.since_at.isoformat(),
        "heartbeat_age": info.heartbeat,
        "streams": info.streams,
        "answers": info.answers,
    }


def broker_table(brokers: Sequence[BrokerInfo]) -> FittingTable:
    """Return a table of brokers."""
    rows = [
        (
            printable(one.broker),
            printable(one.endpoint) or "-",
            ago(one.since_at),
            f"{one.heartbeat:.0f}s ago",
            f"{one.streams:,}",
        )
        for one in brokers
    ]
    columns = ("broker", "endpoint", "started", "heartbeat", "streams")
    return FittingTable(columns, {4}, rows, JSON, title="brokers", cut={0})
