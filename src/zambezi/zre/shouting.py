"""A SHOUT that is under way. It goes at once to the peers whose queues have room, and waits for the others."""

from __future__ import annotations

from collections.abc import Callable

from zambezi.zre.dialect import Frames
from zambezi.zre.engine import Engine
from zambezi.zre.peer import Peer


class Shouting:
    """A SHOUT to a group. `count` is the number of peers that it was sent to; `waiting` are those without room."""

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
        names = ", ".join(peer.name for peer in self.waiting[:10])
        return f"{len(self.waiting)} peers of {self._group} had no room for the message: {names}"
