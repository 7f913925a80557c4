"""The options of every command that takes part in a mesh, and the node that they describe."""

from __future__ import annotations

import argparse
import math
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from zambezi.wire.text import printable
from zambezi.zmtp.errors import TimedOut
from zambezi.zmtp.keys import read_pair
from zambezi.zre.discovery import PORT
from zambezi.zre.errors import ZreError
from zambezi.zre.events import Event
from zambezi.zre.node import PeerInfo
from zambezi.zre.sync import Node

T = TypeVar("T")

# Seconds: how long a wait for one thing lasts before we look at all others again.
GLANCE: Final = 0.05


def seconds(text: str) -> float:
    """A time of the command line: above zero, and finite."""
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds above zero")
    return value


def port(text: str) -> int:
    value = int(text)
    if not 0 < value < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 1 to 65535")
    return value


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """Who we are in the mesh, and where it is."""
    options = parser.add_argument_group("the mesh")
    options.add_argument(
        "--interface",
        metavar="NAME",
        action="append",
        help="the network interface to find peers on, by name or address; may be repeated; '*' for all "
        "(default: the first that is not the loopback)",
    )
    options.add_argument(
        "--beacon-port", metavar="PORT", type=port, default=PORT, help=f"UDP port of the beacons (default: {PORT})"
    )
    options.add_argument("--name", metavar="NAME", default="", help="what others call us (default: the host's name)")
    options.add_argument(
        "--seed",
        metavar="ENDPOINT",
        action="append",
        default=[],
        help="the mailbox of a peer, where there is no broadcast, as tcp://10.0.0.7:49152; may be repeated",
    )
    options.add_argument("--key", metavar="FILE", type=Path, help="the keys of the mesh (from zambezi keygen): encrypt")


def node_of(arguments: argparse.Namespace, groups: Iterable[str] = ()) -> Node:
    """The node that a command line asks for."""
    interface: list[str] | None = arguments.interface
    return Node(
        arguments.name or socket.gethostname(),
        groups=groups,
        interface="*" if interface == ["*"] else interface,
        beacon_port=arguments.beacon_port,
        seeds=arguments.seed,
        keys=read_pair(arguments.key) if arguments.key is not None else None,
    )


def next_event(node: Node, deadline: float) -> Event | None:
    """The next event, or None if none comes before the deadline (of the monotonic clock)."""
    try:
        return node.recv(timeout=max(0.0, deadline - time.monotonic()))
    except TimedOut:
        return None


def called(peer: PeerInfo) -> str:
    """A peer as people are told of it."""
    return f"{printable(peer.name)} ({peer.uuid.hex[:8]})"


def those_present(peers: Iterable[PeerInfo]) -> str:
    """For the end of an error: who is there."""
    names = sorted(map(called, peers))
    return f"there are: {', '.join(names)}" if names else "nobody else was found at all"


class Patience:
    """How long a command waits for others, from the moment when it is made."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.began = time.monotonic()
        self.deadline = self.began + timeout

    def wait_for(self, node: Node, look: Callable[[], Sequence[T]], whom: str) -> Sequence[T]:
        """What is found as soon as anything is; if nothing is in time, an error that says who is there instead."""
        while not (found := look()):
            if next_event(node, self.deadline) is None:
                raise ZreError(f"{whom} came within {self.timeout:g} s; {those_present(node.peers)}")
        return found

    def send_off(self, node: Node) -> None:
        """Wait until all that was said has left this side; if it has not in time, an error that says for whom."""
        while unsent := set(node.unsent):
            if time.monotonic() >= self.deadline:
                names = sorted(called(peer) for peer in node.peers if peer.uuid in unsent)
                if not names:
                    return  # they are gone by now
                raise ZreError(f"the message has not gone out in time to {', '.join(names)}")
            next_event(node, min(self.deadline, time.monotonic() + GLANCE))
