"""The publishers of a stream that count their messages, so that each message is in the stream once.

A publisher is an id of 16 bytes and an epoch. RESUME makes a session its holder, and every PUBLISH of the session
counts one, whether it is valid or not: so client and broker always agree on the number. The count goes to the journal
with the messages (see `zambezi.zeps.journal.counts`).

A publisher has one holder. A RESUME takes it away from the holder before; whatever that one has sent, and the broker
has not read, does not count. With a higher epoch the holder before is fenced: it is told so, and its own next RESUME is
refused, because its epoch is lower. With the same epoch it is the same program on a new connection.

The broker gives out the epochs. A new one is greater than every epoch of the publisher that the journal knows, and not
less than the time in seconds: so a program with an old epoch stays fenced, even if the publisher was forgotten
meanwhile. It is in the journal before the client is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from hashlib import blake2b
from typing import Final, Protocol

from zambezi.zeps.errors import BrokerError, ZepsError
from zambezi.zeps.journal.counts import Count, Counts
from zambezi.zeps.messages import PUBLISHER

_HIGHEST: Final = 0xFFFFFFFF  # the highest epoch, and number of refused messages
_count: Final = partial(tuple.__new__, Count)  # takes a third of the time of `Count(...)`


class Superseded(ZepsError):
    """The publisher has a newer epoch."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"the publisher has epoch {epoch} now")
        self.epoch = epoch


class Holder(Protocol):
    """The session that publishes as a publisher."""

    def lose_publisher(self, epoch: int) -> None:
        """End: another session has resumed the publisher, with this epoch."""


class Publisher:
    """A publisher that a session holds, or that has messages which are not in the journal yet."""

    __slots__ = ("count", "epoch", "has_messages", "holder", "id", "mark", "marked", "refused")

    def __init__(self, state: Count) -> None:
        self.id, self.epoch, self.count, self.marked, self.mark, self.refused = state
        self.holder: Holder | None = None
        self.has_messages = False  # whether some of its messages are not in the journal yet

    @property
    def state(self) -> Count:
        """Its state, for the journal."""
        return _count((self.id, self.epoch, self.count, self.marked, self.mark, self.refused))

    def count_refused(self) -> None:
        """Count a message that is refused: the client counts it, too. The journal knows it with the next message."""
        self.count += 1
        self.refused = min(self.refused + 1, _HIGHEST)

    def set_mark(self, mark: bytes) -> None:
        """Keep a mark at the present count."""
        self.marked, self.mark = self.count, mark


class Publishers:
    """The publishers of a stream."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._active: dict[bytes, Publisher] = {}
        counts.protected = self._active  # the silent ones among the others are forgotten first
        self.unwritten: dict[Publisher, None] = {}  # their state is not in the journal yet
        self._under_way: Counter[Publisher] = Counter()  # how many of their states are on their way to a store

    def resume(self, name: bytes, epoch: int, confirmed: int, holder: Holder, now: float) -> Publisher:
        """Make a session the holder of a publisher, and return it. Epoch 0 stands for the next one.

        The count is not less than `confirmed`: if the stream was truncated or the publisher forgotten, the client knows
        better. Raises `Superseded` if the publisher has a higher epoch.
        """
        publisher = self._active.get(name)
        if publisher is None:
            state = self._counts.get(name)
            publisher = Publisher(state or Count(name, 0, 0))
        if 0 < epoch < publisher.epoch:
            raise Superseded(publisher.epoch)
        if publisher.epoch == _HIGHEST and not epoch:
            raise BrokerError("the publisher has the highest epoch; use another id")
        granted = epoch or max(publisher.epoch + 1, min(int(now), _HIGHEST))
        self._take_away(publisher, granted)
        if granted != publisher.epoch:
            self.unwritten[publisher] = None  # the journal must know, or the old holder could come back
        publisher.epoch = granted
        publisher.count = max(publisher.count, confirmed)
        publisher.holder = holder
        self._active[name] = publisher
        return publisher

    def _take_away(self, publisher: Publisher, epoch: int) -> None:
        holder, publisher.holder = publisher.holder, None
        if holder is not None:
            holder.lose_publisher(epoch)

    def leave(self, publisher: Publisher, holder: Holder) -> None:
        """Note that a session has ended."""
        if publisher.holder is holder:
            publisher.holder = None
            if not publisher.has_messages:
                self.unwritten.pop(publisher, None)  # its client was not told the new epoch
            self._drop(publisher)

    def note(self, publisher: Publisher, count: int) -> None:
        """Count messages of a publisher that wait for the journal."""
        publisher.count += count
        publisher.has_messages = True
        self.unwritten[publisher] = None

    def note_mark(self, publisher: Publisher) -> None:
        """Note a mark that waits for the journal: a PING, or the next message, brings it there."""
        self.unwritten[publisher] = None

    def note_written(self) -> None:
        """Note that the journal has the state of all publishers."""
        written, self.unwritten = self.unwritten, {}
        for publisher in written:
            publisher.has_messages = False
            if publisher.holder is None:
                self._drop(publisher)

    def take_unwritten(self) -> list[Publisher]:
        """Return the publishers whose state goes to an object store now; `note_stored` follows."""
        taken, self.unwritten = list(self.unwritten), {}
        self._under_way.update(taken)
        for publisher in taken:
            publisher.has_messages = False
        return taken

    def note_stored(self, publishers: Iterable[Publisher]) -> None:
        """Note that the journal has a state of these publishers, which was taken before."""
        self._under_way.subtract(publishers)
        for publisher in publishers:
            if not self._under_way[publisher]:
                del self._under_way[publisher]
                self._drop(publisher)

    def _drop(self, publisher: Publisher) -> None:
        """Forget a publisher whose state the journal has, and that no session holds."""
        if publisher.holder is None and publisher not in self.unwritten and publisher not in self._under_way:
            self._active.pop(publisher.id, None)

    def __len__(self) -> int:
        return len(self._active)


def name_of(publisher: bytes, user: str) -> bytes:
    """Return the name under which the broker knows a publisher. No user can take away the publisher of another one."""
    if not user:
        return publisher
    secret = blake2b(user.encode(errors="surrogateescape")).digest()
    return blake2b(publisher, digest_size=PUBLISHER, key=secret).digest()
