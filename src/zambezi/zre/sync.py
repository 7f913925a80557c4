# Generated from asyncio.py by `make generate`. Change that file, and generate this one anew.
"""ZRE nodes for threads, in calls that block.

Names, arguments and meaning are those of `zambezi.zre.asyncio`.

>>> def main() -> list[str]:
...     network = MemoryNetwork()
...     with Node("ann", network=network) as ann, Node("bob", network=network, groups=["CHAT"]) as bob:
...         story = []
...         for event in ann:
...             story.append(f"{type(event).__name__} {event.name}")
...             if isinstance(event, Join):
...                 ann.shout("CHAT", b"hello all")
...                 break
...         for event in bob:
...             if isinstance(event, Shout):
...                 story.append(event.data.decode())
...                 return story
>>> main()
['Enter bob', 'Join bob', 'hello all']
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self, Unpack
from uuid import UUID

from zambezi.zmtp.face import Sendable
from zambezi.zmtp.thread_waiter import Waiter
from zambezi.zre.counters import Counters
from zambezi.zre.description import describe
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.errors import NodeStopped
from zambezi.zre.events import Event, Join, Shout
from zambezi.zre.face import NodeArguments, frames_of
from zambezi.zre.log import SERVICE, Record
from zambezi.zre.logservice import LogShell
from zambezi.zre.node import NodeShell
from zambezi.zre.options import NodeOptions
from zambezi.zre.peer_info import PeerInfo

__all__ = ["Join", "LogService", "MemoryNetwork", "Node", "Shout"]

_AT_ONCE: Final = 64  # messages that a program sends in a row before the event loop runs


class Node:
    """A node of a mesh. `with` or `start()` starts it; it says goodbye to its peers when it stops.

    Peers see the node under its `name`. `interface` (a name or an address, several of them, or `"*"`) selects the
    interfaces that beacons go out on; `seeds` are mailboxes to begin with, for networks without broadcast; `keys` is
    the key pair of a mesh that only its holders can join. docs/mesh.md lists all options.
    """

    def __init__(self, name: str = "", **options: Unpack[NodeArguments]) -> None:
        self._waiter = Waiter()
        self._stopped = self._waiter.sibling()
        self._room = self._waiter.sibling()
        self._shell = shell = NodeShell(self._waiter.reactor, name, NodeOptions(**options))
        shell.on_event = self._waiter.wake
        shell.on_stopped = self._stopped.wake
        shell.on_room = self._room.wake
        self._sent = 0

    # The life of a node

    def start(self) -> None:
        """Open the mailbox, and begin to look for peers. On a node that runs already, do nothing.

        Raises `NodeStopped` on a node that was stopped.
        """
        self._waiter.call(self._shell.start)

    def stop(self, linger: float | None = None) -> None:
        """Let the peers read the last messages, then say goodbye to them. The node cannot start again.

        This takes at most `linger` seconds (by default those of the option of that name), even if some peers do not
        read; with 0, messages that have not gone out are lost.
        """
        self._waiter.call(self._begin_to_stop, linger)
        self._stopped.until(lambda: self._shell.stopped or None, None, "")

    def _begin_to_stop(self, linger: float | None) -> None:
        self._shell.stop(linger)
        self._waiter.wake()
        self._room.wake()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(0 if kind is not None else None)

    # This node, and its peers

    @property
    def uuid(self) -> UUID:
        """The UUID of this node."""
        return self._shell.engine.uuid

    @property
    def name(self) -> str:
        """The name of this node."""
        return self._shell.engine.profile.name

    @property
    def endpoint(self) -> str:
        """The endpoint of the mailbox."""
        return self._shell.endpoint

    @property
    def gossip_endpoint(self) -> str:
        """The endpoint at which this node is a hub of zgossip; empty if it is none."""
        return self._shell.gossip_endpoint

    @property
    def missing_hubs(self) -> list[str]:
        """The hubs of zgossip to which there is no connection now: they are down, or their endpoint or key is wrong."""
        return self._waiter.call(lambda: self._shell.missing_hubs)

    @property
    def missing_seeds(self) -> list[str]:
        """The seeds that have not answered yet: no node is there, or the endpoint or the key is wrong."""
        return self._waiter.call(lambda: self._shell.missing_seeds)

    @property
    def peers(self) -> list[PeerInfo]:
        """All peers that are in the mesh now."""
        return self._waiter.call(lambda: self._shell.peers)

    def peer(self, uuid: UUID) -> PeerInfo | None:
        """Return a peer: its name, endpoint, headers and groups; None if it is not in the mesh now."""
        return self._waiter.call(self._shell.peer, uuid)

    def peers_in(self, group: str) -> list[PeerInfo]:
        """Return the peers that are in a group."""
        return [peer for peer in self.peers if group in peer.groups]

    @property
    def peer_groups(self) -> frozenset[str]:
        """All groups that peers are in."""
        return frozenset(group for peer in self.peers for group in peer.groups)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of this node."""
        return self._waiter.call(dict, self._shell.engine.profile.headers)

    @property
    def groups(self) -> frozenset[str]:
        """The groups that this node is in."""
        return self._waiter.call(frozenset, self._shell.engine.profile.groups)

    def leader(self, group: str) -> UUID | None:
        """Return the leader of a group, which can be this node; None if there is none, or this node is not in it."""
        return self._waiter.call(self._shell.engine.elections.leader, group)

    def services(self, service: str) -> dict[UUID, str]:
        """Return the peers that offer a service, and their endpoints for it."""
        return self._waiter.call(self._shell.engine.services, service)

    @property
    def strangers(self) -> int:
        """The number of nodes that were found, and that have not greeted this node."""
        return self._shell.engine.peers.strangers

    @property
    def is_encrypted(self) -> bool:
        """Whether the node has keys, of the mesh or its own."""
        return self._shell.security.is_encrypted

    @property
    def unsent(self) -> list[UUID]:
        """The peers whose queue is not empty."""
        return self._waiter.call(lambda: self._shell.unsent)

    @property
    def counters(self) -> Counters:
        """Counters of discarded beacons and messages and of refused peers, by reason."""
        return self._shell.engine.counters

    @property
    def queues(self) -> list[tuple[str, int, int]]:
        """The queues of the node: name, length and bound of each. Of queues that every peer has, the longest counts."""
        return self._waiter.call(self._shell.queues)

    # Groups and messages

    def join(self, group: str, *, contest: bool = False) -> None:
        """Join a group, and tell all peers. With `contest`, claim its lead, also in a group that was joined before."""
        self._waiter.call(self._shell.join, group, contest)

    def leave(self, group: str) -> None:
        """Leave a group, and tell all peers."""
        self._waiter.call(self._shell.leave, group)

    def whisper(self, peer: UUID, data: Sendable | str, timeout: float | None = None) -> bool:
        """Send a message to one peer: one frame as `bytes`, or several. Raise `NoSuchPeer` if it is gone.

        Waits while the queue to the peer is full, and raises `TimedOut` after `timeout` seconds; or does what `on_full`
        says. Returns False if the message was dropped.
        """
        content = frames_of(data)
        sent = self._waiter.call(self._shell.whisper, peer, content)
        if sent is None:
            what = f"the queue to peer {peer} had no room"
            sent = self._room.until(lambda: self._shell.whisper(peer, content), timeout, what)
        self._breathe()
        return sent

    def shout(self, group: str, data: Sendable | str, timeout: float | None = None) -> int:
        """Send a message to all peers in a group; return the number of peers that it was sent to.

        The message goes at once to the peers whose queues have room. The call waits for the others, and raises
        `TimedOut` after `timeout` seconds, when those with room have the message; or it does what `on_full` says.
        """
        shouting = self._waiter.call(self._shell.shout, group, frames_of(data))
        if shouting.waiting:
            self._room.until(lambda: self._shell.go_on(shouting), timeout, shouting.problem)
        self._breathe()
        return shouting.count

    def _breathe(self) -> None:
        self._sent += 1
        if self._sent % _AT_ONCE == 0:
            self._waiter.breathe()

    def announce(self, service: str, endpoint: str) -> None:
        """Offer a service, such as `X-NAME`, at an endpoint. Peers that know this node already are greeted again."""
        self.set_header(service, endpoint)

    # Changes at run time

    def set_name(self, name: str) -> None:
        """Change the name of this node. Peers that know it already are greeted again."""
        self._waiter.call(self._shell.change, self._shell.engine.set_name, name)

    def set_header(self, name: str, value: str | None) -> None:
        """Set a header, or remove it with None. Peers that know this node already are greeted again."""
        self._waiter.call(self._shell.change, self._shell.engine.set_header, name, value)

    def set_timeouts(
        self, *, interval: float | None = None, evasive: float | None = None, expired: float | None = None
    ) -> None:
        """Change the times, in seconds, that are given; they have the meaning of the options."""
        self._waiter.call(self._shell.set_timing, interval, evasive, expired)

    def add_seed(self, endpoint: str) -> None:
        """Add a seed: meet the node with this mailbox, and the peers that it tells of."""
        self._waiter.call(self._shell.add_seed, endpoint)

    def require_peer(self, uuid: UUID, endpoint: str) -> None:
        """Meet a node by its UUID and the endpoint of its mailbox; `Enter` comes when it has answered.

        If the node is lost, this node looks for it again every `expired` seconds, until `forget`.
        """
        self._waiter.call(self._shell.require_peer, uuid, endpoint)

    def forget(self, uuid: UUID) -> None:
        """Forget the contact of a node that is gone: do not look for it, and do not name it in gossip."""
        self._waiter.call(self._shell.forget, uuid)

    def set_trace(self, on: bool) -> None:
        """Begin or end to write each message and event to the logger `zambezi.zre.trace`."""
        self._waiter.call(self._shell.set_trace, on)

    def describe(self) -> str:
        """Return a description of this node, its peers and groups, to print."""
        return self._waiter.call(lambda: describe(self._shell.engine, self._shell.endpoint))

    # Events

    def recv(self, timeout: float | None = None) -> Event:
        """Return the next event; raise `TimedOut` after `timeout` seconds, or `NodeStopped`."""
        return self._waiter.until(self._next_event, timeout, "no event came")

    def _next_event(self) -> Event | None:
        event = self._shell.next_event()
        if event is None and self._shell.stopping:
            raise NodeStopped("the node is stopped")
        return event

    def fileno(self) -> int:
        """Return a file descriptor to poll: it is readable while `recv` has an event, and when the node is stopped."""
        return self._waiter.call(self._shell.fileno)

    def __iter__(self) -> Iterator[Event]:
        try:
            while True:
                yield self.recv()
        except NodeStopped:
            return

    def __repr__(self) -> str:
        return f"<Node {self.name} {self.uuid.hex[:6]} with {len(self.peers)} peers>"


class LogService:
    """A collector of the logs of a mesh (ZRE/LOG): announced by a node, found by the nodes that log."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiter = Waiter()
        self._closed = self._waiter.sibling()
        self._shell = shell = self._waiter.call(LogShell, self._waiter.reactor, node._shell)
        shell.on_record = self._waiter.wake
        shell.on_closed = self._closed.wake

    def __enter__(self) -> Self:
        self._node.announce(SERVICE, self._shell.endpoint)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def endpoint(self) -> str:
        """The endpoint that the nodes connect to."""
        return self._shell.endpoint

    @property
    def discarded(self) -> int:
        """The number of messages that were not logs."""
        return self._shell.discarded

    def recv(self, timeout: float | None = None) -> Record:
        """Return the next log; raise `TimedOut` after `timeout` seconds, or `NodeStopped` if the service is closed."""
        return self._waiter.until(self._next_record, timeout, "no log came")

    def _next_record(self) -> Record | None:
        record = self._shell.next_record()
        if record is None and self._shell.closing:
            raise NodeStopped("the log service is closed")
        return record

    def __iter__(self) -> Iterator[Record]:
        try:
            while True:
                yield self.recv()
        except NodeStopped:
            return

    def close(self) -> None:
        """Stop collecting logs."""
        self._waiter.call(self._begin_to_close)
        self._closed.until(lambda: self._shell.closed or None, None, "")

    def _begin_to_close(self) -> None:
        self._shell.close()
        self._waiter.wake()
