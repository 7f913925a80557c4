"""`zambezi peer chat`: two terminals talk, each through a PEER socket."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from zambezi.p2p import NoSuchPeer, PeerConnected, PeerDisconnected, PeerSocket
from zambezi.zmtp import (
    Authenticator,
    CurveClient,
    CurveServer,
    HandshakeFailed,
    KeyPair,
    Keyring,
    Listening,
    Null,
    Retrying,
    SocketEvent,
    ZmtpError,
    read_pair,
    read_public,
)

if TYPE_CHECKING:
    import argparse

    from zambezi.zmtp.security import Security

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


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
    with PeerSocket(security=_security(arguments), authenticator=authenticator) as socket:
        for endpoint in arguments.bind:
            socket.bind(endpoint)
        for endpoint in arguments.connect:
            socket.connect(endpoint)
        threading.Thread(target=_tell, args=(socket,), daemon=True).start()
        threading.Thread(target=_listen, args=(socket,), daemon=True).start()
        _speak(socket, sys.stdin, arguments.name)
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


def _speak(socket: PeerSocket, source: TextIO, name: str) -> None:
    """Each line to everybody who is there."""
    for line in source:
        text = line.rstrip("\n")
        data = (f"{name}: {text}" if name else text).encode()
        for peer in socket.peers:
            try:
                socket.send(peer, data)
            except NoSuchPeer:
                continue  # it left between the look and the word


def _listen(socket: PeerSocket) -> None:
    for peer, data in socket:
        print(f"[{peer}] {data.decode('utf-8', 'replace')}", flush=True)


def _tell(socket: PeerSocket) -> None:
    for event in socket.events():
        text = _told(event)
        if text:
            print(f"* {text}", flush=True)


def _told(event: SocketEvent) -> str:
    match event:
        case Listening(endpoint):
            return f"listening on {endpoint}"
        case PeerConnected(endpoint, peer, _, user):
            return f"peer {peer} is here ({endpoint}{', ' + user if user else ''})"
        case PeerDisconnected(_, peer, _, reason):
            return f"peer {peer} is gone: {reason}"
        case HandshakeFailed(endpoint, _, reason):
            return f"no handshake at {endpoint}: {reason}"
        case Retrying(endpoint, attempt, _, reason) if attempt == 1:
            return f"{endpoint}: {reason}; trying again until it works"
    return ""
