"""Messages that have arrived and wait to be received: bounded for each peer, and received from the peers in turn.

Batches wait as they were read. When the messages of a peer reach the bound, the inbox pauses the peer, and TCP slows
the sender down; the inbox resumes the peer when half of the messages have been received.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from zambezi.zmtp.frames import Batch
from zambezi.zmtp.options import Bound
from zambezi.zmtp.peer import Peer

T = TypeVar("T")


class _Queue(Generic[T]):
    """The batches of one peer."""

    __slots__ = ("batches", "current", "messages", "octets", "peer")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.batches: list[Batch] = []
        self.current: Iterator[T] | None = None  # the rest of the first batch, if a part of it was received
        self.messages = 0
        self.octets = 0


class FairInbox(Generic[T]):
    """Batches from many peers, received one message, or one batch, from each in turn.

    `unpack` turns a batch into messages in the form that the socket returns. `emptied` is called when the last message
    of a peer has been received.
    """

    def __init__(
        self,
        bound: Bound,
        unpack: Callable[[Peer, Batch], Iterator[T]],
        emptied: Callable[[Peer], object] | None = None,
    ) -> None:
        self._bound = bound
        self._unpack = unpack
        self._emptied = emptied
        self._queues: dict[Peer, _Queue[T]] = {}  # only of peers whose messages wait
        self._turn: deque[_Queue[T]] = deque()

    def __bool__(self) -> bool:
        return bool(self._turn)

    def add(self, peer: Peer, batch: Batch) -> None:
        """Queue a batch, and pause the peer if its queue has reached the bound."""
        queue = self._queues.get(peer)
        if queue is None:
            queue = self._queues[peer] = _Queue(peer)
            self._turn.append(queue)
        queue.batches.append(batch)
        queue.messages += len(batch)
        queue.octets += batch.octets
        if queue.messages >= self._bound.messages or queue.octets >= self._bound.octets:
            peer.pause()

    def next(self) -> T | None:
        """Return the next message, one from each peer in turn."""
        turn = self._turn
        while turn:
            queue = turn[0]
            current = queue.current
            if current is not None:
                for message in current:
                    if len(turn) > 1:
                        turn.rotate(-1)
                    return message
                queue.current = None
                self._done(queue, queue.batches.pop(0))
            if queue.batches:
                queue.current = self._unpack(queue.peer, queue.batches[0])
            else:
                self._drop(queue)
        return None

    def next_batch(self) -> Batch | None:
        """Return the next batch, or the rest of one that was received in part; one from each peer in turn."""
        turn = self._turn
        while turn:
            queue = turn[0]
            batch = self._pop(queue)
            if not queue.batches:
                self._drop(queue)
            elif len(turn) > 1:
                turn.rotate(-1)
            if batch is not None:
                return batch
        return None

    def discard(self, peer: Peer) -> int:
        """Discard the messages of a peer that wait; return how many there were."""
        queue = self._queues.get(peer)
        if queue is None:
            return 0
        count = queue.messages
        if queue.current is not None:
            count += sum(1 for _ in queue.current) - len(queue.batches[0])
        self._turn.remove(queue)
        del self._queues[peer]
        peer.resume()
        return count

    def take(self, peer: Peer) -> list[Batch]:
        """Remove and return the batches of a peer that wait."""
        queue = self._queues.get(peer)
        batches = []
        while queue is not None and queue.batches:
            batch = self._pop(queue)
            if batch is not None:
                batches.append(batch)
        if queue is not None:
            self._turn.remove(queue)
            del self._queues[peer]
        return batches

    def waiting(self, peer: Peer) -> int:
        """Return how many messages of a peer are in batches that have not been received whole."""
        queue = self._queues.get(peer)
        return queue.messages if queue is not None else 0

    def octets_of(self, peer: Peer) -> int:
        """Return how many bytes of a peer are in batches that have not been received whole."""
        queue = self._queues.get(peer)
        return queue.octets if queue is not None else 0

    @property
    def octets(self) -> int:
        """The number of bytes that wait to be received."""
        return sum(queue.octets for queue in self._turn)

    @property
    def peers(self) -> list[Peer]:
        """The peers whose messages wait."""
        return list(self._queues)

    def _pop(self, queue: _Queue[T]) -> Batch | None:
        """Remove and return the first batch, or its rest; return None if all of it was received."""
        batch = queue.batches.pop(0)
        current, queue.current = queue.current, None
        self._done(queue, batch)
        if current is None:
            return batch
        left = sum(1 for _ in current)
        return batch.tail(left) if left else None

    def _drop(self, queue: _Queue[T]) -> None:
        self._turn.popleft()
        del self._queues[queue.peer]
        if self._emptied is not None:
            self._emptied(queue.peer)

    def _done(self, queue: _Queue[T], batch: Batch) -> None:
        queue.messages -= len(batch)
        queue.octets -= batch.octets
        if (
            queue.peer.paused
            and queue.messages <= self._bound.messages // 2
            and queue.octets <= self._bound.octets // 2
        ):
            queue.peer.resume()
