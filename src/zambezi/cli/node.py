"""The options of every command that joins a mesh, the node that they describe, and waiting for its peers."""

from __future__ import annotations

import argparse
import logging
import math
import socket
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from zambezi.cli.completion import interfaces, offer
from zambezi.cli.errors import InputError, OptionsError
from zambezi.cli.notices import warn
from zambezi.cli.quantity import bound_endpoint, endpoint
from zambezi.server.config.caution import is_outside
from zambezi.wire.text import printable
from zambezi.zmtp.errors import TimedOut
from zambezi.zmtp.keys import read_pair
from zambezi.zre.contact import endpoint_of, key_of
from zambezi.zre.discovery import PORT
from zambezi.zre.errors import ZreError
from zambezi.zre.events import Event
from zambezi.zre.interfaces import choose
from zambezi.zre.peer_info import PeerInfo
from zambezi.zre.security import ANY, allowed_keys
from zambezi.zre.sync import Node

T = TypeVar("T")

LOOPBACK: Final = "lo"
GLANCE: Final = 0.05  # seconds between two looks at the node's unsent messages
QUIET: Final = 2.0  # seconds after which a command says for what it waits
SETTLED: Final = 0.5  # seconds without an event: all nodes answer a first beacon at once, so the mesh is complete


def port(text: str) -> int:
    """Parse the number of a UDP port."""
    value = int(text)
    if not 0 < value < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: write 1 to 65535")
    return value


def contact(text: str) -> str:
    """Check the endpoint of another node, which can have the key of that node behind it: ENDPOINT|KEY."""
    endpoint(endpoint_of(text))
    return text


def header(text: str) -> tuple[str, str]:
    """Parse a header as KEY=VALUE."""
    key, found, value = text.partition("=")
    if not found or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not a header: write KEY=VALUE, such as X-ROLE=test")
    return key, value


def group(text: str) -> str:
    """Parse the name of a group."""
    if not text:
        raise argparse.ArgumentTypeError("the name of a group cannot be empty")
    return text


def _print_trace() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    trace = logging.getLogger("zambezi.zre.trace")
    trace.addHandler(handler)
    trace.setLevel(logging.INFO)
    trace.propagate = False


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe the node and its network."""
    options = parser.add_argument_group("the mesh")
    interface = options.add_argument(
        "--interface",
        metavar="NAME",
        action="append",
        help="the name or address of a network interface to find peers on, or '*' for all (can be repeated; default: "
        f"{LOOPBACK}, which keeps the mesh on this machine)",
    )
    offer(interface, interfaces)
    options.add_argument(
        "--beacon-port", metavar="PORT", type=port, default=PORT, help=f"the UDP port of the beacons (default: {PORT})"
    )
    options.add_argument("--name", metavar="NAME", default="", help="the name of this node (default: the host name)")
    options.add_argument(
        "--seed",
        metavar="ENDPOINT",
        type=contact,
        action="append",
        default=[],
        help="the mailbox of a peer, such as tcp://10.0.0.7:49152, if the network has no broadcast (can be repeated)",
    )
    options.add_argument("--ipv6", action="store_true", help="use the IPv6 addresses of the interfaces")
    options.add_argument(
        "--gossip-bind",
        metavar="ENDPOINT",
        type=bound_endpoint,
        help="be a hub of zgossip here, for nodes of Zyre and Zambezi",
    )
    options.add_argument(
        "--gossip-connect",
        metavar="ENDPOINT",
        type=contact,
        action="append",
        default=[],
        help="a hub of zgossip, such as tcp://10.0.0.7:5680; with --node-key as 'ENDPOINT|KEY' (can be repeated)",
    )
    options.add_argument(
        "--node-key", metavar="FILE", type=Path, help="encrypt with CURVE: the key pair of this node alone, as in Zyre"
    )
    options.add_argument(
        "--allowed",
        metavar="DIRECTORY",
        help="with --node-key: the directory of the public keys that may join (NAME.pub), or 'any'",
    )
    options.add_argument(
        "--header",
        metavar="KEY=VALUE",
        type=header,
        action="append",
        default=[],
        help="a header of this node that every peer is told, such as X-ROLE=test (can be repeated)",
    )
    options.add_argument(
        "--trace", action="store_true", help="print each message, beacon and event of this node to standard error"
    )
    options.add_argument(
        "--key", metavar="FILE", type=Path, help="encrypt with CURVE: the key pair of the mesh, from zambezi keygen"
    )


def node_of(arguments: argparse.Namespace, groups: Iterable[str] = (), contest: Collection[str] = ()) -> Node:
    """Return the node that the options describe."""
    _check_keys(arguments)
    if arguments.trace:
        _print_trace()
    interface: str | list[str] = "*" if arguments.interface == ["*"] else arguments.interface or LOOPBACK
    if arguments.key is None and arguments.node_key is None:
        for outside in [one for one in choose(interface, arguments.ipv6) if not one.where.is_loopback]:
            warn(f"every machine in the network of {outside} can join this mesh and read its messages: add --key FILE")
    return Node(
        arguments.name or socket.gethostname(),
        headers=dict(arguments.header),
        groups=groups,
        contest=contest,
        trace=arguments.trace,
        interface=interface,
        ipv6=arguments.ipv6,
        beacon_port=arguments.beacon_port,
        seeds=arguments.seed,
        gossip_bind=arguments.gossip_bind or "",
        gossip_connect=arguments.gossip_connect,
        node_keys=read_pair(arguments.node_key) if arguments.node_key is not None else None,
        allowed=allowed_keys(arguments.allowed) if arguments.allowed else None,
        keys=read_pair(arguments.key) if arguments.key is not None else None,
    )


def _check_keys(arguments: argparse.Namespace) -> None:
    """Raise an error if the options of keys contradict each other, or if one, or the directory of keys, is missing."""
    if arguments.node_key is None:
        if arguments.allowed is not None:
            raise OptionsError("--allowed works only with --node-key FILE, the key pair of this node")
        for contact in (*arguments.seed, *arguments.gossip_connect):
            if key_of(contact) != b"":
                raise OptionsError(
                    f"{contact!r} has the key of a node: add --node-key FILE, the key pair of this node, or leave the "
                    "key out"
                )
        return
    if arguments.key is not None:
        raise OptionsError(
            "give --key FILE (the key pair of the mesh) or --node-key FILE (that of this node), not both"
        )
    if arguments.allowed is None:
        raise OptionsError(
            "--node-key works only with --allowed: add --allowed DIRECTORY with the public keys of the nodes that may "
            "join (NAME.pub), or --allowed any"
        )
    if arguments.allowed != ANY and not Path(arguments.allowed).is_dir():
        raise InputError(
            f"--allowed {arguments.allowed}: there is no such directory; make it, with the public keys of the nodes "
            "that may join (NAME.pub), or write --allowed any"
        )
    for option, contacts in (("--seed", arguments.seed), ("--gossip-connect", arguments.gossip_connect)):
        for contact in contacts:
            if not key_of(contact):
                raise OptionsError(
                    f"{option} {contact!r} has no public key, or a malformed one: with --node-key write "
                    f"'{endpoint_of(contact)}|KEY', with the 40 characters of the key of the node there"
                )


def next_event(node: Node, deadline: float) -> Event | None:
    """Return the next event, or None if none comes before the deadline, a time of the monotonic clock."""
    try:
        return node.recv(timeout=max(0.0, deadline - time.monotonic()))
    except TimedOut:
        return None


def called(peer: PeerInfo) -> str:
    """Return the name of a peer, with the beginning of its UUID."""
    return f"{printable(peer.name)} ({peer.uuid.hex[:8]})"


def found_by(node: Node) -> str:
    """Return the peers of a node in words, and what can be the reason if some are missing."""
    names = sorted(map(called, node.peers))
    found = f"the mesh has {', '.join(names)}" if names else "the mesh has no other peers"
    if hubs := node.missing_hubs:
        found += f"; {' and '.join(hubs)} did not answer as a hub of zgossip"
    if seeds := node.missing_seeds:
        found += f"; {' and '.join(map(endpoint_of, seeds))} did not answer as a node"
    if not (strangers := node.strangers):
        is_local = not (names or hubs or seeds or is_outside(node.endpoint))
        return f"{found} on this machine; --interface NAME finds those of a network" if is_local else found
    one = strangers == 1
    who = "1 other node was found that does" if one else f"{strangers} other nodes were found that do"
    do = "does it" if one else "do they"
    return f"{found}; {who} not answer: {do} {'have the same key' if node.is_encrypted else 'need a key (--key FILE)'}?"


class Patience:
    """The time that a command waits for peers; it begins when the object is made.

    A command that waits for longer than `QUIET` says once on standard error for what.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.began = time.monotonic()
        self.deadline = self.began + timeout
        self._tells_at = self.began + QUIET

    def wait_for(
        self, node: Node, look: Callable[[], Sequence[T]], missing: str, note: Callable[[Event], object] | None = None
    ) -> Sequence[T]:
        """Call `look` until it finds something, and return that. `note` is called with each event meanwhile.

        Raise `ZreError` if it finds nothing in time. `missing` names it, as in "no peer 'ann'"; the error also names
        the peers that exist.
        """
        while not (found := look()):
            until = min(self.deadline, self._tells_at)
            event = next_event(node, until)
            if event is not None:
                if note is not None:
                    note(event)
            elif until == self.deadline:
                raise ZreError(f"{missing} was found within {self.timeout:g} s; {found_by(node)}")
            else:
                self._tell(f"{missing} was found yet; {found_by(node)}")
        return found

    def settle(self, node: Node, note: Callable[[Event], object] | None = None) -> None:
        """Wait until no event has come for a while: then the mesh is complete."""
        while (event := next_event(node, min(self.deadline, time.monotonic() + SETTLED))) is not None:
            if note is not None:
                note(event)

    def send_off(self, node: Node) -> None:
        """Wait until all messages have been sent. Raise `ZreError` with the slow peers if that takes too long."""
        while unsent := set(node.unsent):
            now = time.monotonic()
            if now >= min(self.deadline, self._tells_at):
                names = sorted(called(peer) for peer in node.peers if peer.uuid in unsent)
                if not names:
                    return  # these peers have left
                if now >= self.deadline:
                    raise ZreError(f"the message could not be sent in time to {', '.join(names)}")
                self._tell(f"the message is not sent yet to {', '.join(names)}")
            next_event(node, min(self.deadline, time.monotonic() + GLANCE))

    def _tell(self, text: str) -> None:
        warn(f"{text}; waiting for up to {self.timeout:g} s")
        self._tells_at = math.inf
