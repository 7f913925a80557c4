"""`zambezi peer chat`: two terminals talk, each through a PEER socket.

A PEER that leaves takes what its peers have not received yet with it (P2P-06), and the last line of a chat is typed
just before that. So a chat that ends says goodbye: an empty message, which its peers answer with an empty message when
they have shown all that came before. Who does not know the custom is not waited for longer than `PARTING`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zambezi.p2p import NoSuchPeer, PeerConnected, PeerDisconnected, PeerSocket
from zambezi.wire.text import printable
from zambezi.zmtp import (
    Authenticator,
    CurveClient,
    CurveServer,
    HandshakeFailed,
    KeyPair,
    Keyring,
    Listening,
    Null,
    Refused,
    Retrying,
    SocketEvent,
    TimedOut,
    ZmtpError,
    read_pair,
    read_public,
)

if TYPE_CHECKING:
    import argparse

    from zambezi.zmtp.security import Security

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

GOODBYE: Final = b""
# Seconds: how long the end waits for goodbyes, and how long a line waits for a peer that does not read.
PARTING: Final = 2.0
PATIENCE: Final = 1.0


def add_parser(subparsers: Subparsers) -> None:
    peer = subparsers.add_parser("peer", help="talk through a PEER socket (51/P2P)")
    commands = peer.add_subparsers(title="commands", metavar="COMMAND", required=True)
    chat = commands.add_parser(
        "chat",
        help="talk to those who do the same",
        description=(
            "Each line that you type goes to every peer that is there, and theirs are shown. One side binds, the "
            "others connect: zambezi peer chat --bind tcp://127.0.0.1:5680, and in another terminal --connect "
            "tcp://127.0.0.1:5680. The end of the input (Ctrl-D) ends it."
        ),
    )
    chat.add_argument("--bind", metavar="ENDPOINT", action="append", default=[], help="where others can connect")
    chat.add_argument("--connect", metavar="ENDPOINT", action="append", default=[], help="whom to connect to")
    chat.add_argument("--name", metavar="NAME", default="", help="shown in front of what you say")
    chat.add_argument("--key", metavar="FILE", type=Path, help="your CURVE keys (NAME.key): encrypt")
    chat.add_argument(
        "--server-key", metavar="FILE", type=Path, help="the public key (NAME.pub) of whom you connect to"
    )
    chat.add_argument("--allow", metavar="DIR", type=Path, help="with --key: only the public keys in DIR may connect")
    chat.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if not arguments.bind and not arguments.connect:
        raise ZmtpError("say where to meet: --bind tcp://127.0.0.1:5680 here, --connect tcp://127.0.0.1:5680 there")
    authenticator = Authenticator(keys=Keyring(arguments.allow)) if arguments.allow else None
    with PeerSocket(security=_security(arguments), authenticator=authenticator, linger=PATIENCE) as socket:
        for endpoint in arguments.bind:
            socket.bind(endpoint)
        for endpoint in arguments.connect:
            socket.connect(endpoint)
        Chat(socket, arguments.name.encode()).run(sys.stdin.buffer)
    return 0


def _security(arguments: argparse.Namespace) -> Security:
    if arguments.key is None and arguments.server_key is None:
        if arguments.allow:
            raise ZmtpError("--allow is about keys: say --key FILE too")
        return Null()
    keys = read_pair(arguments.key) if arguments.key else KeyPair.generate()
    if arguments.server_key is not None:
        return CurveClient(read_public(arguments.server_key), keys)
    return CurveServer(keys)


class Chat:
    """One side of a chat: the main thread speaks, one listens, and one tells what happens to the peers."""

    def __init__(self, socket: PeerSocket, name: bytes = b"") -> None:
        self._socket = socket
        self._name = name
        self._output = threading.Lock()
        self._parting = threading.Condition()
        self._leaving = False
        self._waited_for: set[int] = set()  # peers whose goodbye is still to come
        self._answered: set[int] = set()  # peers that have had ours: an echo must not go on for ever
        self._failures: dict[str, str] = {}  # by endpoint, the last one told
        self._unheard = False  # whether the reader of our output went away

    def run(self, lines: Iterable[bytes]) -> None:
        """Speak until the lines end, and close the socket."""
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._listen, self._tell)]
        for thread in threads:
            thread.start()
        try:
            self._speak(lines)
            self._part()
            self._socket.close()
        except KeyboardInterrupt:
            if self._unheard:
                raise BrokenPipeError from None
            raise
        finally:
            self._leaving = True
            self._socket.close(0)
            for thread in threads:
                thread.join()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError:
            # Nobody reads what we print any more. The main thread waits for input, and only a signal gets through.
            self._unheard = True
            if not self._leaving:
                os.kill(os.getpid(), signal.SIGINT)

    def _print(self, text: str) -> None:
        encoding = sys.stdout.encoding
        with self._output:
            sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            sys.stdout.flush()

    # Speaking

    def _speak(self, lines: Iterable[bytes]) -> None:
        """Each line to everybody who is there."""
        for line in lines:
            text = line.rstrip(b"\r\n")
            if not text:
                continue
            peers = self._socket.peers
            if not peers:
                self._print("* nobody is here yet: that went to nobody")
            for peer in peers:
                self._send(peer, self._name + b": " + text if self._name else text)

    def _send(self, peer: int, data: bytes) -> None:
        try:
            self._socket.send(peer, data, timeout=PATIENCE)
        except NoSuchPeer:
            pass  # it left between the look and the word
        except TimedOut:
            self._print(f"* peer {peer} does not read: it missed that")

    def _part(self) -> None:
        """Say goodbye, and wait until the others have said it too, or are gone, or `PARTING` is over."""
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
        for peer in sorted(silent):
            self._print(f"* no goodbye from peer {peer}: what it has not received by now may be lost")

    def _all_parted(self) -> bool:
        return not self._waited_for & set(self._socket.peers)

    # Listening

    def _listen(self) -> None:
        for peer, data in self._socket:
            if data == GOODBYE:
                self._goodbye(peer)
            else:
                self._print(f"[{peer}] {printable(data)}")

    def _goodbye(self, peer: int) -> None:
        with self._parting:
            self._waited_for.discard(peer)
            self._parting.notify_all()
            if self._leaving or peer in self._answered:
                return
            self._answered.add(peer)
        self._send(peer, GOODBYE)

    # What happens

    def _tell(self) -> None:
        for event in self._socket.events():
            if isinstance(event, PeerDisconnected):
                with self._parting:
                    self._answered.discard(event.routing_id)
                    self._waited_for.discard(event.routing_id)
                    self._parting.notify_all()
                if self._leaving:
                    continue
            text = self._told(event)
            if text:
                self._print(f"* {text}")

    def _told(self, event: SocketEvent) -> str:
        match event:
            case Listening(endpoint):
                return f"listening on {endpoint}"
            case PeerConnected(endpoint, peer, _, user):
                self._failures.pop(endpoint, None)
                return f"peer {peer} is here ({endpoint}{', ' + user if user else ''})"
            case PeerDisconnected(_, peer, _, reason):
                return f"peer {peer} is gone: {reason}"
            case HandshakeFailed(endpoint, _, reason) | Refused(endpoint, _, reason):
                return self._once(endpoint, f"no handshake at {endpoint}: {reason}")
            case Retrying(endpoint, attempt, _, reason) if attempt == 1:
                return f"{endpoint}: {reason}; trying again until it works"
        return ""

    def _once(self, endpoint: str, text: str) -> str:
        """What went wrong, unless it went wrong in the same way before: attempts go on for ever."""
        before = self._failures.get(endpoint)
        self._failures[endpoint] = text
        return "" if text == before else text
