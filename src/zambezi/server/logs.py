"""The journal of the mesh's log service: the logs of all nodes go to the stream `zrelog`.

The routing key is `LEVEL.EVENT.NODE`, with the node's hash in four hex digits; the body is the LOG message as received.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from zambezi.zeps.broker.stream import BrokerStream
from zambezi.zeps.errors import JournalError
from zambezi.zeps.messages import Publish
from zambezi.zre.asyncio import LogService
from zambezi.zre.log import Record, What

RECENT: Final = 1000  # logs kept in memory for the console
PAIRS: Final = 10_000  # pairs of sender and receiver whose messages are counted


def key_of(record: Record) -> str:
    """Return the routing key of a log."""
    log = record.log
    return f"{log.level.name}.{log.event.name}.{log.node:04x}"


class LogJournal:
    """A task that copies logs from the log service to a stream."""

    def __init__(self, service: LogService, stream: BrokerStream) -> None:
        self._service = service
        self._stream = stream
        self.journalled = 0
        self.lost = 0  # the journal had no room, and the nodes do not wait for it
        self.recent: deque[Record] = deque(maxlen=RECENT)
        self.talk: Counter[tuple[int, int]] = Counter()  # recent messages by the hashes of sender and receiver

    @property
    def discarded(self) -> int:
        """The number of received messages that were not valid logs."""
        return self._service.discarded

    async def run(self) -> None:
        """Copy logs until the service ends."""
        async for record in self._service:
            self._note(record)
            try:
                self._stream.append(list(Publish(key_of(record), record.octets).encode()))
            except JournalError:
                self.lost += 1
            else:
                self.journalled += 1

    def _note(self, record: Record) -> None:
        self.recent.append(record)
        log = record.log
        if log.event is What.SEND:
            self.talk[log.node, log.peer] += 1
        elif log.event is What.RECV:
            self.talk[log.peer, log.node] += 1
        if len(self.talk) > PAIRS:
            self.fade()

    def fade(self) -> None:
        """Halve all counts, and remove those that become zero, so that old messages count less."""
        self.talk = Counter({pair: count // 2 for pair, count in self.talk.items() if count > 1})
