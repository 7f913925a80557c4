"""The log service of the mesh, journalled: what nodes report goes to the stream `zrelog`.

The routing key is `LEVEL.EVENT.NODE`, with the node's hash in four hex digits; the body is the LOG message as it came.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from zambezi.zeps.broker.stream import BrokerStream
from zambezi.zeps.errors import JournalError
from zambezi.zeps.messages import Publish
from zambezi.zre.asyncio import LogService
from zambezi.zre.log import Record, What

RECENT: Final = 1000  # logs that are kept to be shown
PAIRS: Final = 10_000  # of those who talk


def key_of(record: Record) -> str:
    """The routing key of a log."""
    log = record.log
    return f"{log.level.name}.{log.event.name}.{log.node:04x}"


class LogJournal:
    """Carries logs from a service to a stream."""

    def __init__(self, service: LogService, stream: BrokerStream) -> None:
        self._service = service
        self._stream = stream
        self.journalled = 0
        self.lost = 0  # there was no room in the journal; those who log do not wait
        self.recent: deque[Record] = deque(maxlen=RECENT)
        self.talk: Counter[tuple[int, int]] = Counter()  # who sent to whom, by hashes, of late

    @property
    def discarded(self) -> int:
        """What came and was no log."""
        return self._service.discarded

    async def run(self) -> None:
        """Until the service ends."""
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
        """Let what was long ago count less, and then nothing."""
        self.talk = Counter({pair: count // 2 for pair, count in self.talk.items() if count > 1})
