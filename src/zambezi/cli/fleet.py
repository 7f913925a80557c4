"""`zambezi fleet`: run a node with agents, list the nodes, and call actions on many nodes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import json
import logging
import math
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from zambezi import __version__
from zambezi.cli.counts import so_many
from zambezi.cli.fitting import JSON, FittingTable
from zambezi.cli.middleware import add_middleware_options, middleware_of
from zambezi.cli.notices import show_warnings, telling
from zambezi.cli.quantity import seconds
from zambezi.cli.security import security_of
from zambezi.cli.terminal import Console, description_column, say, table_console
from zambezi.mcollective import agents
from zambezi.mcollective.agents import action, agent
from zambezi.mcollective.asyncio import Connector as AsyncConnector
from zambezi.mcollective.errors import AgentError, McollectiveError
from zambezi.mcollective.events import Complaint, SessionLost, SessionReady
from zambezi.mcollective.fleet import COLLECTIVE, Call, Outcome, Reply, Request, agents_of
from zambezi.mcollective.host import AgentHost
from zambezi.mcollective.sync import Connector, Fleet
from zambezi.wire.text import printable
from zambezi.zmtp.events import SocketEvent

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

FOREVER: Final = math.inf
FAILURE: Final = 1


def add_parser(subparsers: Subparsers) -> None:
    fleet = subparsers.add_parser("fleet")
    commands = fleet.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_agent(commands)
    _add_ping(commands)
    _add_call(commands)


def _add_fleet_options(parser: argparse.ArgumentParser) -> None:
    add_middleware_options(parser)
    parser.add_argument(
        "--collective",
        metavar="NAME",
        default=COLLECTIVE,
        help=f"the first word of all topics of the fleet (default: {COLLECTIVE})",
    )


# agent


@agent("node")
class NodeAgent:
    """The agent that every node has. It describes the node."""

    @action
    def info(self) -> dict[str, object]:
        """Return the host, its system, and its load."""
        return {
            "host": socket.gethostname(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "zambezi": __version__,
            "cores": os.cpu_count(),
            "load": [round(each, 2) for each in os.getloadavg()],
            "up": round(time.clock_gettime(time.CLOCK_BOOTTIME)),
        }

    @action
    def echo(self, text: str) -> str:
        """Return the text."""
        return text


def _add_agent(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "agent",
        help="run a node that serves agents",
        description=(
            "Serve the agent `node`, and every class with @agent in the given files and modules. Ctrl-C ends it."
        ),
    )
    parser.add_argument("--name", metavar="NAME", default="", help="the name of the node (default: the host name)")
    parser.add_argument(
        "--load",
        metavar="FILE",
        action="append",
        default=[],
        help="a Python file or module with agents (can be repeated)",
    )
    parser.add_argument("--seconds", metavar="TIME", type=seconds, default=FOREVER, help="stop after this time")
    _add_fleet_options(parser)
    parser.set_defaults(run=run_agent)


def run_agent(arguments: argparse.Namespace) -> int:
    show_warnings()
    of_agents = logging.StreamHandler()
    of_agents.addFilter(lambda record: not record.name.startswith("zambezi."))
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING, handlers=[of_agents])
    served = [NodeAgent(), *(each for source in arguments.load for each in load(source))]
    with contextlib.suppress(KeyboardInterrupt):  # the usual end of the command
        asyncio.run(_serve(arguments, served))
    return 0


async def _serve(arguments: argparse.Namespace, served: list[object]) -> None:
    connector = AsyncConnector(middleware_of(arguments), security=security_of(arguments))
    host = AgentHost(connector, served, node=arguments.name, collective=arguments.collective, on_request=_show_request)
    showing = asyncio.create_task(_show_events(connector))
    try:
        say(f"* {printable(host.node)} serves {', '.join(host.agents)}; connecting to {middleware_of(arguments)}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(arguments.seconds) else arguments.seconds):
                await host.serve()
    finally:
        await host.close()
        showing.cancel()


async def _show_events(connector: AsyncConnector) -> None:
    async for event in connector.events():
        text = _text_of(event)
        if text:
            say(f"* {text}")


def _text_of(event: SocketEvent) -> str:
    match event:
        case SessionReady(endpoint, again):
            return f"{'reconnected' if again else 'connected'} to {endpoint}"
        case SessionLost(_, reason):
            return f"the middleware is gone: {printable(reason)}; retrying until it is back"
        case Complaint(_, text):
            return f"the middleware reports: {printable(text)}"
    return ""


def _show_request(request: Request, reply: Reply) -> None:
    called = f"{printable(request.agent)}.{printable(request.action)}"
    error = f": {printable(reply.error)}" if reply.error else ""
    say(f"{printable(request.caller)} called {called}: {reply.status}{error} ({reply.took * 1000:.1f} ms)")


def load(source: str) -> Iterator[object]:
    """Yield an instance of each agent in a Python file, or in a module."""
    module = _module(source)
    found = [
        each
        for _, each in inspect.getmembers(module, inspect.isclass)
        if agents.is_agent(each) and each.__module__ == module.__name__
    ]
    if not found:
        raise AgentError(f"{source} has no agents: write @agent('name') above a class")
    for each in found:
        yield each()


def _module(source: str) -> ModuleType:
    path = Path(source)
    if not (source.endswith(".py") or path.exists()):
        try:
            return importlib.import_module(source)
        except ImportError as error:
            raise AgentError(f"{source} is not a file, and cannot be imported: {error}") from error
    spec = importlib.util.spec_from_file_location(f"zambezi_agents_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise AgentError(f"{source} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise AgentError(f"{source} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


# ping


def _add_ping(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "ping",
        help="list the nodes that answer, and their agents",
        description="List the nodes that answer within the timeout, and their agents.",
    )
    parser.add_argument("--node", metavar="NAME", action="append", help="ask only this node (can be repeated)")
    parser.add_argument(
        "--timeout", metavar="TIME", type=seconds, default=2.0, help="how long to wait for answers (default: 2s)"
    )
    parser.add_argument("--json", action="store_true", help="print the answers as JSON")
    _add_fleet_options(parser)
    parser.set_defaults(run=run_ping)


def run_ping(arguments: argparse.Namespace) -> int:
    with _fleet(arguments) as fleet, _bar("ping") as heard:
        began = time.monotonic()
        times: dict[str, float] = {}

        def note(reply: Reply, call: Call) -> None:
            times[reply.node] = time.monotonic() - began
            heard(reply, call)

        outcome = fleet.call(
            "discovery", "ping", nodes=arguments.node, timeout=arguments.timeout, discover=0, on_reply=note
        )
    if arguments.json:
        say(json.dumps(_as_json(outcome), indent=2))
    elif sys.stdout.isatty():
        rows = [
            (printable(node), f"{times[node] * 1000:.1f}", printable(", ".join(agents_of(reply))))
            for node, reply in outcome.replies.items()
        ]
        rows += [(printable(node), "-", "no answer in time") for node in outcome.silent]
        _print_table(so_many(len(outcome.replies), "node"), ("node", "ms", "agents"), rows)
    else:
        for node, reply in outcome.replies.items():
            say(f"{printable(node)}\t{times[node] * 1000:.1f} ms\t{printable(', '.join(agents_of(reply)))}")
        for node in outcome.silent:
            say(f"{printable(node)}\tsilent\tno answer in time")
    if not outcome.replies and not outcome.silent:
        raise McollectiveError(
            f"no node of {printable(arguments.collective)} answered within {arguments.timeout:g} s; "
            "zambezi fleet agent runs one"
        )
    return _verdict(outcome)


# call


def _add_call(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "call",
        help="call an action on many nodes",
        description=(
            "Call an action on all nodes that have the agent, or on the given nodes, and show the answer of each node. "
            "The exit status is 1 if the action failed on a node, or a node did not answer."
        ),
    )
    parser.add_argument("agent", metavar="AGENT", help="the name of the agent")
    parser.add_argument("action", metavar="ACTION", help="the action to call")
    parser.add_argument(
        "arguments",
        metavar="KEY=VALUE",
        nargs="*",
        default=[],
        type=_argument,
        help="an argument of the action: VALUE is a text, or JSON if it is written KEY:=VALUE",
    )
    parser.add_argument("--node", metavar="NAME", action="append", help="call only this node (can be repeated)")
    parser.add_argument(
        "--timeout", metavar="TIME", type=seconds, default=10.0, help="how long to wait for replies (default: 10s)"
    )
    parser.add_argument(
        "--discover", metavar="TIME", type=seconds, default=1.0, help="how long to look for nodes first (default: 1s)"
    )
    parser.add_argument("--json", action="store_true", help="print the replies as JSON")
    _add_fleet_options(parser)
    parser.set_defaults(run=run_call)


def _argument(text: str) -> tuple[str, object]:
    key, equals, value = text.partition("=")
    if not equals or not key.rstrip(":"):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    if not key.endswith(":"):
        return key, value
    try:
        return key[:-1], json.loads(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is not JSON; for a text, write KEY=VALUE") from None


def run_call(arguments: argparse.Namespace) -> int:
    with _fleet(arguments) as fleet, _bar(f"{arguments.agent}.{arguments.action}") as heard:
        outcome = fleet.call(
            arguments.agent,
            arguments.action,
            dict(arguments.arguments),
            nodes=arguments.node,
            timeout=arguments.timeout,
            discover=arguments.discover,
            on_reply=heard,
        )
    if arguments.json:
        say(json.dumps(_as_json(outcome), indent=2))
    elif sys.stdout.isatty():
        rows: list[Sequence[str]] = [
            (printable(node), reply.status, f"{reply.took * 1000:.1f}", printable(_answer(reply)))
            for node, reply in outcome.replies.items()
        ]
        rows += [(printable(node), "silent", "-", "no answer in time") for node in outcome.silent]
        _print_table(f"{arguments.agent}.{arguments.action}", ("node", "status", "ms", "answer"), rows)
    else:
        for node, reply in outcome.replies.items():
            say(f"{printable(node)}\t{reply.status}\t{printable(_answer(reply))}")
        for node in outcome.silent:
            say(f"{printable(node)}\tsilent\tno answer in time")
    if not outcome.replies and not outcome.silent:
        raise McollectiveError(
            f"no node has the agent {printable(arguments.agent)!r}; zambezi fleet ping lists the agents of all nodes"
        )
    return _verdict(outcome)


def _verdict(outcome: Outcome) -> int:
    return 0 if outcome.ok else FAILURE


def _answer(reply: Reply) -> str:
    if not reply.ok:
        return reply.error
    return reply.result if isinstance(reply.result, str) else json.dumps(reply.result, ensure_ascii=False)


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "replies": {
            node: {
                "status": reply.status,
                "result": reply.result,
                "error": reply.error,
                "took": reply.took,
                "user": reply.user,
            }
            for node, reply in outcome.replies.items()
        },
        "silent": list(outcome.silent),
    }


@contextlib.contextmanager
def _fleet(arguments: argparse.Namespace) -> Iterator[Fleet]:
    show_warnings()
    with Connector(middleware_of(arguments), security=security_of(arguments)) as connector:
        connector.connect(timeout=arguments.timeout)
        yield Fleet(connector, collective=arguments.collective)


@contextlib.contextmanager
def _bar(title: str) -> Iterator[Callable[[Reply, Call], None]]:
    """Show the number of replies as a progress bar, if standard error is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        with telling(f"waiting for the replies to {title}"):
            yield lambda *_: None
        return
    columns = (description_column(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(printable(title), total=None)
        yield lambda _, call: progress.update(task, completed=len(call.replies), total=len(call.expected) or None)


def _print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the rows of nodes as a table. Without nodes, there is only an error."""
    if rows:
        numbers = {columns.index("ms")}
        table_console().print(FittingTable(columns, numbers, rows, JSON, title=printable(title)))
