"""Sending the messages of a program: to queues that have room, or as `on_full` says if they have none."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from zambezi.zmtp.errors import QueueFull
from zambezi.zmtp.frames import FRAME_COST
from zambezi.zre.dialect import Frames
from zambezi.zre.engine import Engine
from zambezi.zre.errors import ZreError
from zambezi.zre.options import NodeOptions
from zambezi.zre.peer import Peer


class Shouting:
    """A SHOUT to a group. `count` is the number of peers that it was sent to; `waiting` are those without room.

    It goes at once to the peers whose queues have room, and waits for the others: a slow peer delays no other peer.
    """

    __slots__ = ("_content", "_engine", "_group", "_has_room", "count", "waiting")

    def __init__(self, engine: Engine, group: str, content: Frames, has_room: Callable[[bytes], bool]) -> None:
        self._engine = engine
        self._group = group
        self._content = content
        self._has_room = has_room
        self.count = 0
        self.waiting = engine.members(group)

    def send(self) -> None:
        """Send the message to those members of the group that have room for it, and have not got it yet."""
        has_room = self._has_room
        ready: list[Peer] = []
        waiting: list[Peer] = []
        for peer in self.waiting:
            (ready if has_room(peer.key) else waiting).append(peer)
        self.waiting = waiting
        if ready:
            self._engine.shout_to(ready, self._group, self._content)
            self.count += len(ready)

    def forget_those_gone(self) -> None:
        """Wait no more for peers that have left the mesh or the group."""
        self.waiting = [peer for peer in self.waiting if self._is_member(peer)]

    def _is_member(self, peer: Peer) -> bool:
        return self._engine.peers.get(peer.key) is peer and peer.ready and self._group in peer.groups

    @property
    def problem(self) -> str:
        """The peers that have no room, for an error."""
        return f"the queues to {_names(self.waiting)} had no room"


class Sender:
    """Sends the messages of a program by an engine. `has_room` returns whether the queue to a peer has room."""

    def __init__(self, engine: Engine, options: NodeOptions, has_room: Callable[[bytes], bool]) -> None:
        self._engine = engine
        self._options = options
        self._has_room = has_room

    def whisper(self, uuid: UUID, content: Frames) -> bool | None:
        """Send a message to one peer; return None if it must wait for room, and False if it was dropped."""
        content = self._checked(content)
        peer = self._engine.ready_peer(uuid)
        if not self._has_room(peer.key):
            return None if self._must_wait([peer]) else False
        self._engine.whisper(uuid, content)
        return True

    def shout(self, group: str, content: Frames) -> Shouting:
        """Send a message to the peers in a group that have room; if a full queue is an error, to all or to none."""
        shouting = Shouting(self._engine, group, self._checked(content), self._has_room)
        if self._options.on_full == "error":
            full = [peer for peer in shouting.waiting if not self._has_room(peer.key)]
            if full:
                self._must_wait(full)
        shouting.send()
        if shouting.waiting and not self._must_wait(shouting.waiting):
            shouting.waiting = []
        return shouting

    def _must_wait(self, full: list[Peer]) -> bool:
        """Return whether a message waits for room in the queues to peers; count it if it is dropped instead."""
        if self._options.on_full == "error":
            bound = self._options.bound
            raise QueueFull(
                f"the queues to {_names(full)} are full; their bound is {bound.messages} messages or {bound.octets} "
                "bytes. The message was sent to no peer: try again later, or use on_full='block'"
            )
        if self._options.on_full == "drop":
            self._engine.counters.dropped += len(full)
            return False
        return True

    def _checked(self, content: Frames) -> Frames:
        """Return the content of a message; raise `ZreError` if peers with our own bound would not take it."""
        size = sum(map(len, content)) + FRAME_COST * len(content)
        if size > self._options.max_message:
            raise ZreError(
                f"a message of {size} bytes (with {FRAME_COST} for each frame) is above max_message, which is "
                f"{self._options.max_message}: send it in parts, or raise max_message of all nodes"
            )
        return content


def _names(peers: list[Peer]) -> str:
    """Return the names of some peers, and how many more there are."""
    names = ", ".join(peer.name for peer in peers[:10])
    return f"{names} and {len(peers) - 10} more" if len(peers) > 10 else names
