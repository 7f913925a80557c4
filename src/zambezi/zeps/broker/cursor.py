"""A cursor: a subscriber's place in a stream, its credit, and what it wants. (ZEP-10, ZEP-11)

A cursor has two gears. In high gear it is at the end of the stream and is handed each new block as it is appended. In
low gear it stands somewhere before the end, and whenever its connection takes more it is fed from the journal:

                     the end is reached, and there is credit
             low  ------------------------------------------->  high
           (pull)  <-------------------------------------------  (offer)
                  a block comes that the credit does not cover,
                       or that the connection does not take

Both happen on one thread between two blocks, so that nothing is missed and nothing comes twice; and what is held for a
subscriber is one block, however far it lags.

A connection can subscribe several times. Each subscription is due the messages after its own starting point, and each
message goes out once. A new subscription that starts before the place where the cursor stands makes a stretch of its
own: from its starting point to that place, what it is due and no earlier subscription was. The flow goes on from there
when all such stretches are done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from zambezi.zeps.block import Block
from zambezi.zeps.errors import OutOfRange
from zambezi.zeps.filters import Filter
from zambezi.zeps.journal import Reader, Span

if TYPE_CHECKING:
    from zambezi.zeps.broker.stream import Audience, BrokerStream

Gear: TypeAlias = Literal["live", "history", "idle"]

WHOLE: Final = 1 << 20  # how much of the journal goes out at a time as it is,
FILTERED: Final = 1 << 17  # and how much is looked through at a time
SCANS: Final = 2  # how often that may find nothing before others get their turn


class Outlet(Protocol):
    """The connection to a subscriber, as its cursor sees it."""

    def offer(self, messages: Block) -> bool:
        """Take messages now, or return False; then `pull` is called when there is room."""

    def wake(self) -> None:
        """Call `pull` soon."""


class Selection:
    """One SUBSCRIBE: a pattern, and the sequence after which messages are due to it."""

    __slots__ = ("after", "due", "filter")

    def __init__(self, wanted: Filter, after: int, due: int) -> None:
        self.filter = wanted
        self.after = after
        self.due = due  # microseconds: not before this time, if that is still to come; `after` is not known then


class _Stretch:
    """A part of the journal that is to be read: what stands after `reader`, up to and including `until`."""

    __slots__ = ("earlier", "reader", "selection", "until")

    def __init__(self, reader: Reader, until: int, selection: Selection, earlier: list[Selection]) -> None:
        self.reader = reader
        self.until = until
        self.selection = selection
        self.earlier = earlier

    def wants(self, sequence: int, key: bytes) -> bool:
        return (
            sequence <= self.until
            and self.selection.filter(key)
            and not any(sequence > one.after and one.filter(key) for one in self.earlier)
        )


class Cursor:
    """A subscriber's place in one stream."""

    __slots__ = (
        "_stretches",
        "_warm",
        "_warming",
        "audience",
        "credit",
        "delivered",
        "live",
        "octets",
        "on_behind",
        "outlet",
        "reader",
        "selections",
        "skipped",
        "stream",
    )

    def __init__(self, stream: BrokerStream, outlet: Outlet, on_behind: Callable[[int, int], bool]) -> None:
        self.stream = stream
        self.outlet = outlet
        # Retention has passed the cursor: called with the sequence it wanted and the oldest; True to go on there.
        self.on_behind = on_behind
        self.credit = 0
        self.selections: list[Selection] = []
        self.audience: Audience | None = None
        self.live = False
        self.reader = stream.journal.reader(stream.journal.last)
        self.delivered = 0
        self.octets = 0
        self.skipped = 0
        self._stretches: deque[_Stretch] = deque()
        self._warming = False
        self._warm = False  # what comes next was brought into memory

    # What can be seen of it

    @property
    def position(self) -> int:
        """The last sequence that is behind it."""
        return self.stream.journal.last if self.live else self.reader.position

    @property
    def lag(self) -> int:
        return self.stream.journal.last - self.position

    @property
    def gear(self) -> Gear:
        return "idle" if not self.selections else "live" if self.live else "history"

    # What the client asks for

    def subscribe(self, pattern: str, after: int, due: int = 0) -> None:
        """Want the messages after a sequence that match a pattern (and are not older than `due`)."""
        new = Selection(self.stream.filter([pattern]), after, due)
        if not self.selections:
            self.reader.seek(min(after, self.stream.journal.last))
        else:
            here = self.position
            self._leave_high_gear(here)
            if after < here:
                reader = self.stream.journal.reader(after)
                self._stretches.append(_Stretch(reader, here, new, list(self.selections)))
        self.selections.append(new)
        if due:
            self.stream.dated.add(new)
        self._join({pattern} | (self.audience.filter.patterns if self.audience else set()))
        self.outlet.wake()

    def add_credit(self, octets: int) -> None:
        """Allow so many octets more. (ZEP-03)"""
        starved = self.credit <= 0
        self.credit += octets
        if starved and not self.live:
            self.outlet.wake()

    def close(self) -> None:
        """Take no more part in the stream."""
        if self.audience is not None:
            self.stream.leave(self.audience, self)
            self.audience = None
        self.live = False
        for one in self.selections:
            if one.due:
                self.stream.dated.discard(one)
        self.selections = []
        self._stretches.clear()
        self.reader.release_window()
        self.stream.waiting.discard(self)

    # High gear

    def offer(self, block: Block) -> None:
        """Take a block that was just appended, or what of it the filter leaves."""
        if self.credit >= block.credit and self.outlet.offer(block):
            self._spend(block.credit, block.count)
        elif self.live:  # the connection may have ended over it
            self._leave_high_gear(block.first - 1)
            self.outlet.wake()

    def _leave_high_gear(self, position: int) -> None:
        if self.live:
            self.live = False
            assert self.audience is not None
            self.audience.live.pop(self, None)
            self.reader.seek(position)

    # Low gear

    def pull(self) -> Block | Span | None:
        """What comes next, as far as the credit goes; None if there is nothing to send now."""
        if self.live or self._warming or not self.selections:
            return None
        for _ in range(SCANS):
            if self.credit <= 0:
                return None
            stretch = self._stretches[0] if self._stretches else None
            reader = stretch.reader if stretch else self.reader
            whole = stretch is None and self._wants_all
            try:
                span = reader.peek(WHOLE, self.credit) if whole else reader.peek(FILTERED)
            except OutOfRange as error:
                if not self._fall_behind(reader, error):
                    return None
                continue
            if stretch is not None and (span is None or span.first > stretch.until):
                self._stretches.popleft()
            elif span is None:
                self._reach_the_end()
                return None
            elif not (self._warm or span.is_resident()):
                # To wait for the disk here would stall everybody. Once is enough: then it is there, or the read fails.
                self._warming = True
                self.stream.warm(span, self._warmed)
                return None
            elif whole:
                self._warm = False
                reader.skip(span)
                self._spend(span.credit, span.count)
                return span
            else:
                self._warm = False
                block = self._choose(span.read(), reader, stretch)
                if block is not None:
                    return block
        self.outlet.wake()  # nothing was found, and others wait for their turn
        return None

    @property
    def _wants_all(self) -> bool:
        audience = self.audience
        return audience is not None and audience.filter.everything and self._ripe

    @property
    def _ripe(self) -> bool:
        """Whether all subscriptions have begun, so that their filters can be taken as one."""
        position = self.reader.position
        return all(one.after <= position for one in self.selections)

    def _reach_the_end(self) -> None:
        if self._ripe:
            self.live = True
            assert self.audience is not None
            self.audience.live[self] = None
            self.reader.release_window()
        else:
            self.stream.waiting.add(self)

    def _warmed(self) -> None:
        self._warming = False
        self._warm = True
        self.outlet.wake()

    def _fall_behind(self, reader: Reader, error: OutOfRange) -> bool:
        wanted = reader.position + 1
        if not self.on_behind(wanted, error.oldest):
            return False
        self.skipped += error.oldest - wanted
        reader.seek(error.oldest - 1)
        return True

    def _choose(self, block: Block, reader: Reader, stretch: _Stretch | None) -> Block | None:
        """What of a block is due, as far as the credit goes; the reader is left behind the last that was looked at."""
        first = block.first
        if stretch is not None:
            indices = [i for i, key in enumerate(block.keys) if stretch.wants(first + i, key)]
        elif self._ripe:
            assert self.audience is not None
            wanted = self.audience.filter
            indices = [i for i, key in enumerate(block.keys) if wanted(key)]
        else:
            selections = self.selections
            indices = [
                i
                for i, key in enumerate(block.keys)
                if any(first + i > one.after and one.filter(key) for one in selections)
            ]
        chosen = block.select(indices) if len(indices) < block.count else block
        last = block.last
        if chosen.credit > self.credit:
            kept = self._affordable(chosen)
            if kept < chosen.count:
                last = first + indices[kept] - 1
                chosen = block.select(indices[:kept])
        reader.seek(last)
        if not chosen.count:
            return None
        self._spend(chosen.credit, chosen.count)
        return chosen

    def _affordable(self, block: Block) -> int:
        """How many messages may go: each while there is credit left, so that the last may overdraw it."""
        credit = self.credit
        for index, body in enumerate(block.bodies):
            if credit <= 0:
                return index
            credit -= len(body)
        return block.count

    def _spend(self, credit: int, messages: int) -> None:
        self.credit -= credit
        self.delivered += messages
        self.octets += credit

    def _join(self, patterns: set[str]) -> None:
        audience = self.stream.join(patterns)
        if self.audience is not None:
            self.stream.leave(self.audience, self)
        self.audience = audience
