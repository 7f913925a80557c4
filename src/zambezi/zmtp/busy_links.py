"""Links whose bytes are much work. They take turns, so that other links never wait for all of them.

In each turn, the event loop reads from every link that can be read. A read is bounded, but many links that send what is
much work, such as commands by the thousand, would together keep the others waiting. So a link whose read took long is
not watched any more, and waits in this queue instead. In each turn of the loop, the links of the queue read for `TURN`
seconds together, and all other links read as usual. A link leaves the queue when its reads are quick again, or when it
has nothing to read.

Many links can become busy in the same turn, such as a wave of new ones. When the reads of those took `MUCH` seconds
together, every other link reads only little until the turn is over.

A thread that waits in a call of a blocking socket reads by itself (see `watch`): there, the queue is not used.
"""

from __future__ import annotations

from time import thread_time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zambezi.zmtp.reactor import Reactor
    from zambezi.zmtp.stream import StreamLink

TURN: Final = 0.002  # seconds of processor time
MUCH: Final = 0.01  # seconds of processor time


class BusyLinks:
    """The queue of a transport."""

    __slots__ = ("_is_scheduled", "_links", "_reactor", "spent")

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._links: dict[StreamLink, None] = {}  # in the order of their turns
        self._is_scheduled = False
        self.spent = 0.0  # seconds that links which became busy in this turn of the loop took

    def __contains__(self, link: StreamLink) -> bool:
        return link in self._links

    def add(self, link: StreamLink, took: float) -> None:
        """Put a link at the end of the queue, whose read took so many seconds."""
        self._links[link] = None
        self.spent += took
        self._schedule()

    def discard(self, link: StreamLink) -> None:
        """Remove a link that is over, or that is paused."""
        self._links.pop(link, None)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._reactor.call_soon(self._take_turns)

    def _take_turns(self) -> None:
        self._is_scheduled = False
        self.spent = 0.0  # another turn of the loop: the links of the queue read as much as they need
        end = thread_time() + TURN
        for _ in range(len(self._links)):
            link = next(iter(self._links), None)
            if link is None:
                break
            del self._links[link]
            link.read_in_turn()
            if thread_time() > end:
                break
        self.spent = 0.0
        if self._links:
            self._schedule()
