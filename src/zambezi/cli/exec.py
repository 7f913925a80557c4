"""Commands of the shell that handle messages: each message is the standard input of one command.

The environment of a command says where its message is from (ZAMBEZI_STREAM, ZAMBEZI_KEY and ZAMBEZI_SEQUENCE), and how
often it was delivered (ZAMBEZI_DELIVERIES).

Several commands can run at once, but messages with the same key are handled one after another. A signal that ends
`zambezi` does not reach the commands: it waits until they have ended, and a second signal ends them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from zambezi.cli.capture import communicate
from zambezi.cli.errors import InputError, OptionsError
from zambezi.cli.quantity import count
from zambezi.zeps.client.batch import Message

if TYPE_CHECKING:
    import argparse

POLL: Final = 0.5  # seconds between looks at what else is to be done while commands run
NOT_STARTED: Final = frozenset({126, 127})  # the shell's status if a command cannot be executed, or is not found


class Ended(NamedTuple):
    """The end of a command: its status, and what it has written, if that was captured."""

    status: int
    output: bytes = b""
    errors: bytes = b""


Finished = Callable[[Message, Ended], object]  # told the message, and the end of its command


def add_exec_options(parser: argparse._ActionsContainer) -> None:
    """Add the options for commands that handle messages."""
    parser.add_argument(
        "--exec",
        metavar="COMMAND",
        help="run a command of the shell for each message, with the body as its standard input and the key, the "
        "sequence and the number of deliveries in its environment (ZAMBEZI_KEY, ZAMBEZI_SEQUENCE, ZAMBEZI_DELIVERIES)",
    )
    parser.add_argument(
        "--parallel",
        metavar="N",
        type=count,
        default=1,
        help="how many commands run at once, for messages with different keys (default: 1)",
    )


def environment_of(message: Message) -> Mapping[str, str]:
    """Return the environment of the command that handles a message."""
    about = {
        "ZAMBEZI_STREAM": message.stream,
        "ZAMBEZI_KEY": message.key,
        "ZAMBEZI_SEQUENCE": str(message.sequence),
        "ZAMBEZI_DELIVERIES": str(message.deliveries),
    }
    return os.environ | {name: value.replace("\0", "?") for name, value in about.items()}


class Commands:
    """The commands that run now, and the messages that wait because a message with their key is being handled."""

    def __init__(
        self,
        command: str,
        parallel: int,
        on_finished: Finished,
        *,
        is_ordered: bool = True,
        captures_output: bool = False,
        on_wait: Callable[[], object] = lambda: None,
    ) -> None:
        if not command.strip():
            raise OptionsError("--exec needs a command")
        self._command = command
        self._is_ordered = is_ordered  # whether messages with the same key are handled one after another
        self._captured = subprocess.PIPE if captures_output else None
        self._on_finished = on_finished  # called in the thread of the command
        self._on_wait = on_wait  # called now and then while the caller waits for commands
        self._room = threading.Semaphore(parallel)
        self._lock = threading.Condition()
        self._waiting: dict[str, deque[Message]] = {}  # by the key of a message that is being handled
        self._running: dict[subprocess.Popen[bytes], Message] = {}
        self._busy = 0  # threads that handle messages
        self._ending = False
        self._problem = ""

    def handle(self, message: Message) -> None:
        """Handle a message: wait for room, and start its command; or put it behind another one with its key."""
        self.check()
        with self._lock:
            if self._is_ordered and message.key and message.key in self._waiting:
                self._waiting[message.key].append(message)
                return
            if self._is_ordered and message.key:
                self._waiting[message.key] = deque()
        while not self._room.acquire(timeout=POLL):
            self._on_wait()
        self.check()
        with self._lock:
            self._busy += 1
        threading.Thread(target=self._run_all, args=(message,), daemon=True).start()

    def check(self) -> None:
        """Raise `InputError` if the command cannot be started."""
        if self._problem:
            raise InputError(self._problem)

    @property
    def running(self) -> list[Message]:
        """The messages whose commands run now."""
        return list(self._running.values())

    def _run_all(self, message: Message) -> None:
        """Handle a message, and then those with its key that came meanwhile."""
        following: Message | None = message
        while following is not None:
            self._run(following)
            with self._lock:
                queue = self._waiting.get(message.key)
                following = queue.popleft() if queue and not (self._problem or self._ending) else None
                if following is None and not queue:
                    self._waiting.pop(message.key, None)
        with self._lock:
            self._busy -= 1
            self._lock.notify_all()
        self._room.release()

    def end(self) -> list[Message]:
        """Start no more commands; return the messages that wait for one."""
        with self._lock:
            self._ending = True
            found = [message for messages in self._waiting.values() for message in messages]
            for messages in self._waiting.values():
                messages.clear()
            return found

    def _run(self, message: Message) -> None:
        try:
            ended = self._execute(message)
        except OSError as error:
            ended = Ended(next(iter(NOT_STARTED)))
            self._problem = f"the command cannot be started: {error.strerror or error}"
        if ended.status in NOT_STARTED and not self._problem:
            self._problem = f"the command cannot be started: the shell has ended with status {ended.status}"
        self._on_finished(message, ended)

    def _execute(self, message: Message) -> Ended:
        process = subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", self._command],
            stdin=subprocess.PIPE,
            stdout=self._captured,
            stderr=self._captured,
            env=environment_of(message),
            process_group=0,  # the signals of a terminal do not reach it
        )
        with self._lock:
            self._running[process] = message
        try:
            if self._captured is None:
                process.communicate(message.body)  # a command need not read its input
                return Ended(process.returncode)
            output, errors = communicate(process, message.body)
            return Ended(process.returncode, output, errors)
        finally:
            with self._lock:
                del self._running[process]

    def wait(self) -> None:
        """Wait until all running commands have ended, and their messages are answered. A signal ends the commands."""
        try:
            self._wait()
        except KeyboardInterrupt:
            self._stop()
            self._wait()
            raise

    def _wait(self) -> None:
        with self._lock:
            while self._busy:
                if not self._lock.wait(POLL):
                    self._on_wait()

    def _stop(self) -> None:
        with self._lock:
            for process in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
