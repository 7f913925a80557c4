"""`zambezi peer chat`: a chat between terminals, each with a PEER socket.

When a PEER socket closes, messages that its peers have not received yet are lost (P2P-06), and people often leave a
chat right after their last line. So a chat that ends sends a goodbye, an empty message. Its peers answer with an empty
message after they have shown everything before it. The chat waits at most `PARTING` for peers that do not answer.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zambezi.cli.errors import OptionsError
from zambezi.cli.notices import warn
from zambezi.cli.quantity import bound_endpoint, endpoint
from zambezi.cli.security import security_of
from zambezi.cli.terminal import say
from zambezi.p2p import NoSuchPeer, PeerConnected, PeerDisconnected, PeerSocket
from zambezi.server.config.caution import is_outside
from zambezi.wire.text import printable
from zambezi.zmtp import (
    Authenticator,
    CurveServer,
    HandshakeFailed,
    Keyring,
    Listening,
    Null,
    Refused,
    Retrying,
    SocketEvent,
    TimedOut,
    ZmtpError,
    read_pair,
)

if TYPE_CHECKING:
    import argparse

    from zambezi.zmtp.security import Security

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

GOODBYE: Final = b""
# Seconds: how long a chat waits for goodbyes at its end, and how long a line waits for a peer that does not read.
PARTING: Final = 2.0
PATIENCE: Final = 1.0
QUIET: Final = 2.0  # seconds after which endpoints are shown that do not answer


def add_parser(subparsers: Subparsers) -> None:
    peer = subparsers.add_parser("peer")
    commands = peer.add_subparsers(title="commands", metavar="COMMAND", required=True)
    chat = commands.add_parser(
        "chat",
        help="chat with other terminals",
        description=(
            "Send each line that you type to every connected peer, and show the lines of the peers. One side binds and "
            "the others connect: zambezi peer chat --bind tcp://127.0.0.1:5680, and in another terminal zambezi peer "
            "chat --connect tcp://127.0.0.1:5680. The end of the input (Ctrl-D) ends it."
        ),
    )
    chat.add_argument(
        "--bind",
        metavar="ENDPOINT",
        type=bound_endpoint,
        action="append",
        default=[],
        help="an endpoint to listen on (can be repeated)",
    )
    chat.add_argument(
        "--connect",
        metavar="ENDPOINT",
        type=endpoint,
        action="append",
        default=[],
        help="an endpoint to connect to (can be repeated)",
    )
    chat.add_argument("--name", metavar="NAME", default="", help="your name, shown before your lines")
    chat.add_argument(
        "--key", metavar="FILE", dest="own_key", type=Path, help="encrypt with CURVE: your own key pair (NAME.key)"
    )
    chat.add_argument(
        "--server-key",
        metavar="FILE",
        type=Path,
        help="encrypt with CURVE: the public key (NAME.pub) of the peer that you connect to",
    )
    chat.add_argument("--allow", metavar="DIR", type=Path, help="with --key, admit only the public keys in DIR")
    chat.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if not arguments.bind and not arguments.connect:
        raise OptionsError(
            "give an endpoint: --bind tcp://127.0.0.1:5680 on one side, --connect tcp://127.0.0.1:5680 on the other"
        )
    authenticator = Authenticator(keys=Keyring(arguments.allow)) if arguments.allow else None
    security = _security(arguments)
    with PeerSocket(security=security, authenticator=authenticator, linger=PATIENCE) as socket:
        for endpoint in arguments.bind:
            if isinstance(security, Null) and is_outside(endpoint):
                warn(f"every machine that reaches {endpoint} can join this chat, and nothing is encrypted: add --key")
            socket.bind(endpoint)
        chat = Chat(
            socket, arguments.name.encode(), {socket.connect(endpoint): endpoint for endpoint in arguments.connect}
        )
        chat.run(sys.stdin.buffer)
    if chat.unreached:
        raise ZmtpError(f"nobody was reached at {' or '.join(chat.unreached)}: no line was sent there")
    return 0


def _security(arguments: argparse.Namespace) -> Security:
    if arguments.own_key is not None and arguments.server_key is None:
        return CurveServer(read_pair(arguments.own_key))
    if arguments.allow and arguments.server_key is None:
        raise OptionsError("--allow works only with --key: add --key FILE, your own key pair")
    return security_of(arguments)


class Chat:
    """One side of a chat: the main thread sends, one thread receives, and one shows the events of the socket.

    `connecting` are the endpoints to which it connects, by routing id.
    """

    def __init__(self, socket: PeerSocket, name: bytes = b"", connecting: Mapping[int, str] | None = None) -> None:
        self._socket = socket
        self._name = name
        self._unreached = dict(connecting or {})
        self._parting = threading.Condition()
        self._leaving = False
        self._waited_for: set[int] = set()  # peers whose goodbye has not arrived yet
        self._answered: set[int] = set()  # peers that got a goodbye: two programs that echo must not loop
        self._announced: set[int] = set()  # peers whose arrival was shown
        self._failures: dict[str, str] = {}  # by endpoint, the last one shown
        self._told: set[str] = set()  # endpoints that were shown to be retried
        self._output_closed = False  # whether the reader of standard output has closed it

    @property
    def unreached(self) -> list[str]:
        """The endpoints at which no peer has been yet."""
        return list(self._unreached.values())

    def run(self, lines: Iterable[bytes]) -> None:
        """Send lines until they end, then close the socket."""
        try:
            self._run(lines)
        except KeyboardInterrupt:
            if self._output_closed:
                raise BrokenPipeError from None
            raise

    def _run(self, lines: Iterable[bytes]) -> None:
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._receive, self._show_events)]
        notice = threading.Timer(QUIET, self._guarded, (self._tell_unreached,))
        for thread in (notice, *threads):
            thread.start()
        try:
            self._send_lines(lines)
            self._part()
            self._socket.close()
        finally:
            self._leaving = True
            self._socket.close(0)
            notice.cancel()
            for thread in (notice, *threads):
                thread.join()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError:
            # Standard output is closed. The main thread waits for input, and only a signal can interrupt that.
            self._output_closed = True
            if not self._leaving:
                os.kill(os.getpid(), signal.SIGINT)

    # Sending

    def _send_lines(self, lines: Iterable[bytes]) -> None:
        """Send each line to every connected peer."""
        for line in lines:
            text = line.rstrip(b"\r\n")
            if not text:
                continue
            peers = self._socket.peers
            if not peers:
                say("* no peer is connected: this line was not sent")
            for peer in peers:
                self._send(peer, self._name + b": " + text if self._name else text)

    def _send(self, peer: int, data: bytes) -> None:
        try:
            self._socket.send(peer, data, timeout=PATIENCE)
        except NoSuchPeer:
            pass  # it has left in the meantime
        except TimedOut:
            say(f"* peer {peer} does not read: it did not get this line")

    def _part(self) -> None:
        """Send a goodbye, and wait at most `PARTING` until every peer has answered or left."""
        peers = self._socket.peers
        deadline = time.monotonic() + PARTING
        with self._parting:
            self._leaving = True
            self._waited_for = set(peers)
        for peer in peers:
            self._send(peer, GOODBYE)
        with self._parting:
            self._parting.wait_for(self._all_parted, deadline - time.monotonic())
            silent = self._waited_for & set(self._socket.peers)
        for peer in sorted(silent - self._unreached.keys()):
            say(f"* no goodbye from peer {peer}: it may have missed the last lines")

    def _all_parted(self) -> bool:
        return not self._waited_for & set(self._socket.peers)

    def _tell_unreached(self) -> None:
        for one in self.unreached:
            if one not in self._told:
                say(f"* {one} does not answer yet; waiting until it does")

    # Receiving

    def _receive(self) -> None:
        for peer, data in self._socket:
            if data == GOODBYE:
                self._goodbye(peer)
                continue
            self._wait_until_announced(peer)
            say(f"[{peer}] {printable(data)}")

    def _wait_until_announced(self, peer: int) -> None:
        """Let the other thread show the arrival of a peer before its first message."""

        def is_known() -> bool:
            return peer in self._announced or peer not in self._socket.peers

        with self._parting:
            self._parting.wait_for(is_known, PATIENCE)

    def _goodbye(self, peer: int) -> None:
        with self._parting:
            self._waited_for.discard(peer)
            self._parting.notify_all()
            if self._leaving or peer in self._answered:
                return
            self._answered.add(peer)
        self._send(peer, GOODBYE)

    # Events

    def _show_events(self) -> None:
        for event in self._socket.events():
            if isinstance(event, PeerDisconnected):
                with self._parting:
                    self._announced.discard(event.routing_id)
                    self._answered.discard(event.routing_id)
                    self._waited_for.discard(event.routing_id)
                    self._parting.notify_all()
                if self._leaving:
                    continue
            text = self._text_of(event)
            if text:
                say(f"* {text}")
            if isinstance(event, PeerConnected):
                with self._parting:
                    self._announced.add(event.routing_id)
                    self._parting.notify_all()

    def _text_of(self, event: SocketEvent) -> str:
        match event:
            case Listening(endpoint):
                return f"listening on {endpoint}"
            case PeerConnected(endpoint, peer, _, user):
                self._failures.pop(endpoint, None)
                self._unreached.pop(peer, None)
                return f"peer {peer} is here ({endpoint}{', ' + user if user else ''})"
            case PeerDisconnected(_, peer, _, reason):
                return f"peer {peer} is gone: {reason}"
            case HandshakeFailed(endpoint, _, reason) | Refused(endpoint, _, reason):
                return self._once(endpoint, f"no handshake at {endpoint}: {reason}")
            case Retrying(endpoint, attempt, _, reason) if attempt == 1:
                self._told.add(endpoint)
                return f"{endpoint}: {reason}; retrying until it works"
        return ""

    def _once(self, endpoint: str, text: str) -> str:
        """Return the text of a failure, or "" if the endpoint's last failure was the same: retries never stop."""
        before = self._failures.get(endpoint)
        self._failures[endpoint] = text
        return "" if text == before else text
