"""A worker in one line of shell: `zambezi sub --shared NAME --exec COMMAND`, or with `--name`.

A command can take as long as it needs: the worker tells the broker now and then that it still works on the message.
A message is acknowledged if its command exits with 0. Otherwise a member of a group gives it back, and gets it again
after a while, or another member does. A reader with a name cannot give back: it stops at the message.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from zambezi.cli.errors import InputError, OptionsError
from zambezi.cli.exec import NOT_STARTED, POLL, Commands, Ended, add_exec_options
from zambezi.cli.notices import warn
from zambezi.cli.quantity import count, seconds
from zambezi.wire.text import printable
from zambezi.zeps.errors import TimedOut

if TYPE_CHECKING:
    import argparse

    from zambezi.zeps.client.batch import Message
    from zambezi.zeps.client.sharing import SharedArguments
    from zambezi.zeps.sync import Subscription


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of members of a group, and of commands that handle messages."""
    options = parser.add_argument_group("several programs share the messages")
    options.add_argument(
        "--shared", metavar="GROUP", help="be a member of this group: each message goes to one of its members"
    )
    options.add_argument(
        "--wait", metavar="TIME", type=seconds, help="how long a member has to handle a message (default: 30s)"
    )
    options.add_argument(
        "--limit", metavar="N", type=count, help="how often a message is delivered at most (default: no limit)"
    )
    options.add_argument(
        "--dead", metavar="STREAM", help="the stream for messages that were delivered as often as --limit says"
    )
    options = parser.add_argument_group("a command handles the messages")
    add_exec_options(options)
    options.add_argument(
        "--retry",
        metavar="TIME",
        type=seconds,
        default=1.0,
        help="how long a message waits that a command of a group could not handle (default: 1s)",
    )


def check_options(arguments: argparse.Namespace) -> None:
    """Raise `OptionsError` if options contradict each other."""
    if arguments.shared is None and (arguments.wait or arguments.limit or arguments.dead):
        raise OptionsError("--wait, --limit and --dead are for members of a group: give --shared, too")
    refused = {"--name": arguments.name, "--until": arguments.until, "--multicast": arguments.multicast or None}
    for option, value in refused.items():
        if arguments.shared is not None and value is not None:
            raise OptionsError(f"{option} does not work with --shared: leave one of them out")
    if arguments.name is not None and arguments.multicast:
        raise OptionsError("--multicast does not work with --name: a multicast group keeps no positions")
    if arguments.exec is None:
        return
    if arguments.shared is None and arguments.name is None:
        raise OptionsError("--exec acknowledges messages: give --shared or --name, too")
    if arguments.shared is None and arguments.parallel > 1:
        raise OptionsError("a reader with a name handles its messages in order: --parallel is for --shared")


def sharing_of(arguments: argparse.Namespace) -> SharedArguments:
    """Return the arguments of a subscription that the options describe."""
    if arguments.shared is None:
        return {}
    found: SharedArguments = {"shared": arguments.shared}
    if arguments.exec is not None:
        found["in_flight"] = 2 * max(1, arguments.parallel)
    if arguments.wait:
        found["wait"] = arguments.wait
    if arguments.limit:
        found["limit"] = arguments.limit
    if arguments.dead:
        found["dead"] = arguments.dead
    return found


def work(subscription: Subscription, arguments: argparse.Namespace) -> int:
    """Handle messages with commands, until a signal comes or `--count` messages are handled."""
    return _Worker(subscription, arguments).run(arguments.count)


class _Worker:
    """The subscription, and the commands that handle its messages."""

    def __init__(self, subscription: Subscription, arguments: argparse.Namespace) -> None:
        self._subscription = subscription
        self._is_shared = arguments.shared is not None
        self._retry = arguments.retry
        self._commands = Commands(arguments.exec, arguments.parallel, self._finished, on_wait=self._keep)
        self._failed = ""
        self._kept = time.monotonic()

    def run(self, most: int) -> int:
        handled = 0
        try:
            while not self._failed and (not most or handled < most):
                self._commands.check()
                self._keep()
                with suppress(TimedOut):
                    message = self._subscription.recv(POLL)
                    handled += 1
                    self._handle(message)
            self._commands.wait()
        finally:
            self._end()
        self._commands.check()
        if self._failed:
            raise InputError(self._failed)
        return 0

    def _keep(self) -> None:
        """Tell the broker which messages are being handled: a command can take as long as it needs."""
        now = time.monotonic()
        if self._is_shared and now >= self._kept + POLL:
            self._kept = now
            for message in self._commands.running:
                self._subscription.keep(message)

    def _handle(self, message: Message) -> None:
        try:
            self._commands.handle(message)
        except BaseException:  # a signal, or a command that cannot be started: the message was not begun
            self._give_back(message)
            raise
        if not self._is_shared:
            self._commands.wait()

    def _give_back(self, message: Message) -> None:
        """Give back a message that no command was started for."""
        if self._is_shared:
            self._subscription.nack(message, seen=False)

    def _end(self) -> None:
        """Give back what was not begun, and wait for the commands that run."""
        for message in self._commands.end():
            self._give_back(message)
        self._commands.wait()

    def _finished(self, message: Message, ended: Ended) -> None:
        status = ended.status
        place = f"message {message.sequence} of {printable(message.stream)}"
        if status == 0:
            self._subscription.ack(message)
        elif not self._is_shared:
            self._failed = f"{place} is not acknowledged: its command has ended with status {status}"
        elif status in NOT_STARTED:
            self._give_back(message)
        else:
            self._subscription.nack(message, self._retry)
            warn(f"{place} is given back: its command has ended with status {status}")
