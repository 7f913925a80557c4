"""The end of a node, in three steps: its peers read its last messages (see `farewell`), it says goodbye, it closes.

All three together have the `linger` time. A peer that does not read, or is gone, delays the end no longer than that.
"""

from __future__ import annotations

from collections.abc import Callable

from zambezi.zmtp.reactor import Reactor, Timer
from zambezi.zre import outputs
from zambezi.zre.engine import Engine
from zambezi.zre.farewell import Farewell
from zambezi.zre.mailbox import Dealers


class Ending:
    """The end of one node. `close` closes its sockets, which have some seconds to send what is queued."""

    def __init__(self, reactor: Reactor, engine: Engine, dealers: Dealers, close: Callable[[float], None]) -> None:
        self.begun = False  # the program can do nothing more
        self.closing = False  # and nothing more is read from the network
        self.goodbyes: list[bytes] = []  # beacons to send when the sockets are closed
        self._reactor = reactor
        self._engine = engine
        self._dealers = dealers
        self._close = close
        self._latest = 0.0  # the time at which the sockets are closed, whatever is queued
        self._farewell: Farewell | None = None
        self._patience: Timer | None = None
        self._satisfied: set[bytes] = set()  # the peers that have read our last messages

    def begin(self, linger: float) -> None:
        """Ask the peers to read our last messages; without time for that, say goodbye at once."""
        self.begun = True
        self._latest = self._reactor.time() + linger
        if linger > 0:
            self._farewell = self._engine.farewell(self._dealers.is_lost)
            # If some peers do not read, a part of the time is left for the goodbye to the others.
            self._patience = self._reactor.call_at(self._latest - linger / 5, self._say_goodbye)
        else:
            self._say_goodbye()

    def go_on(self) -> None:
        """Say goodbye if the peers have read everything now."""
        if self._farewell is not None and self._farewell.is_over:
            self._say_goodbye()

    def crash(self) -> None:
        """End without a goodbye, and discard all that is queued."""
        self.begun = self.closing = True
        self._engine.stop()
        self._engine.take()
        self._close(0)

    def lost(self, key: bytes) -> None:
        """Note that the connection to a peer was lost; if the peer has read everything, do not wait for it."""
        if key in self._satisfied:
            self._dealers.give_up(key)

    def _say_goodbye(self) -> None:
        if self.closing:
            return
        self.closing = True
        if self._patience is not None:
            self._patience.cancel()
        # Do not wait for a peer that never answered our HELLO, or that has read everything and closed its mailbox.
        self._satisfied = {peer.key for peer in self._engine.peers.values() if not peer.pings}
        for peer in self._engine.peers.values():
            if not peer.ready or (peer.key in self._satisfied and not self._dealers.is_connected(peer.key)):
                self._dealers.shut(peer.key)
        for seed in self._engine.rendezvous.seeds:
            if seed.greeting is not None:
                self._dealers.shut(seed.dealer)
        # The engine forgets its peers now, while the sockets close and their queues drain. The goodbye must come last,
        # because a peer ignores everything after it. A beacon overtakes the queues, so it waits until they are empty.
        self._engine.stop()
        for output in self._engine.take():
            if isinstance(output, outputs.Broadcast):
                self.goodbyes.append(output.octets)
            elif isinstance(output, outputs.Send):
                self._dealers.send(output.peer, output.frames)
        self._close(max(self._latest - self._reactor.time(), 0.0))
