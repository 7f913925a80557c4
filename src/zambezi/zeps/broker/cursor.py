"""A cursor: a subscriber's position in a stream, its credit, and its subscriptions. (ZEP-10, ZEP-11)

A cursor has two gears. In high gear it is at the end of the stream, and gets each new block when it is appended. In low
gear it is before the end, and reads from the journal whenever its connection can take more:

                    the cursor reaches the end, and has credit
             low  -------------------------------------------->  high
           (pull)  <--------------------------------------------  (send_live)
                 the credit does not cover a block,
                     or the connection does not take it

Both changes happen on one thread between two blocks, so no message is missed or repeated. The broker holds at most one
block in memory for a subscriber, however far it lags.

A connection can subscribe several times. Each subscription wants the messages after its own starting point, and each
message goes out once. If a new subscription starts before the cursor's position, it adds a stretch: from its starting
point to that position, the messages that it wants and no earlier subscription wanted. When all stretches are done, the
cursor continues from its position.

A cursor does no socket I/O and needs no clock. It reads the journal only if the pages are in memory; if not, it asks
the broker's shell to load them (`BrokerStream.warm`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from zambezi.zeps.block import Block
from zambezi.zeps.broker.turns import SLICE, keys_in_slice
from zambezi.zeps.errors import Absent, OutOfRange, ZepsError
from zambezi.zeps.filters import Filter
from zambezi.zeps.journal import Reader, Span
from zambezi.zmtp.source import Framed

if TYPE_CHECKING:
    from zambezi.zeps.broker.stream import Audience, BrokerStream

Gear: TypeAlias = Literal["live", "history", "idle"]
Outgoing: TypeAlias = Framed | Span  # messages for a client, in memory or in the journal

WHOLE: Final = 1 << 20  # bytes of the journal that go out at once, if nothing is filtered
# Bytes of the journal that are filtered at once: two batches of a quick publisher are less, or one of long messages.
FILTERED: Final = 9 << 16
FEW: Final = 1 << 17  # the same if a message is much work: for some patterns, and if subscriptions begin one by one
MESSAGES: Final = 5000  # messages that are filtered at once, about
SCANS: Final = 2  # how many times the filter may find nothing before other clients get their turn


class Outlet(Protocol):
    """The connection to a subscriber, as its cursor sees it."""

    def offer(self, messages: Framed) -> bool:
        """Send messages now, or return False; then the connection calls `pull` when it has room."""

    def wake(self) -> None:
        """Let the connection call `pull` soon."""

    def flush(self) -> None:
        """Let the connection write its queue and call `pull` now."""

    @property
    def busy(self) -> bool:
        """Whether the connection will call `pull` by itself, soon or when the client reads."""


class Selection:
    """One SUBSCRIBE: a pattern, and the sequence after which it wants messages."""

    __slots__ = ("after", "due", "filter")

    def __init__(self, wanted: Filter, after: int, due: int) -> None:
        self.filter = wanted
        self.after = after
        self.due = (
            due  # the future time when it begins, in microseconds; 0 if it has begun. Until then `after` is unknown
        )


class _Stretch:
    """A part of the journal to read for a new subscription: after `reader`, up to and including `until`."""

    __slots__ = ("earlier", "reader", "selection", "until")

    def __init__(self, reader: Reader, until: int, selection: Selection, earlier: list[Selection]) -> None:
        self.reader = reader
        self.until = until
        self.selection = selection
        self.earlier = earlier

    def wants(self, sequence: int, key: bytes) -> bool:
        """Return whether the new subscription wants a message that no earlier one has wanted."""
        return (
            sequence <= self.until
            and self.selection.filter(key)
            and not any(sequence > earlier.after and earlier.filter(key) for earlier in self.earlier)
        )


class Cursor:
    """A subscriber's position in one stream."""

    __slots__ = (
        "_in_line",
        "_my_turn",
        "_problem",
        "_stretches",
        "_warm",
        "_warming",
        "audience",
        "credit",
        "delivered",
        "live",
        "octets",
        "on_fell_behind",
        "outlet",
        "reader",
        "selections",
        "skipped",
        "stream",
    )

    def __init__(self, stream: BrokerStream, outlet: Outlet, on_fell_behind: Callable[[int, int], bool]) -> None:
        self.stream = stream
        self.outlet = outlet
        # Called with the wanted and the oldest sequence if retention has removed the wanted one. Returns True to go on
        # at the oldest.
        self.on_fell_behind = on_fell_behind
        self.credit = 0
        self.selections: list[Selection] = []
        self.audience: Audience | None = None
        self.live = False
        self.reader = stream.journal.reader(stream.journal.last)
        self.delivered = 0
        self.octets = 0
        self.skipped = 0
        self._stretches: deque[_Stretch] = deque()
        self._problem: ZepsError | None = None  # why the store cannot give the next messages
        self._warming = False
        self._warm = False  # whether the next span was loaded into memory
        self._in_line = False  # whether the cursor waits for its turn to filter
        self._my_turn = False

    # State

    @property
    def position(self) -> int:
        """The last sequence that the cursor has passed."""
        return self.stream.journal.last if self.live else self.reader.position

    @property
    def lag(self) -> int:
        """The number of messages between the position and the end of the stream."""
        return self.stream.journal.last - self.position

    @property
    def gear(self) -> Gear:
        """The gear: "live" is high, "history" is low, "idle" is a cursor without a subscription."""
        return "idle" if not self.selections else "live" if self.live else "history"

    # Requests of the client

    def subscribe(self, pattern: str, after: int, due: int = 0) -> None:
        """Subscribe to the messages that match a pattern, after a sequence or from the future time `due` on."""
        new = Selection(self.stream.filter_for([pattern]), after, due)
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
            self.stream.future_selections.add(new)
        self._join_audience({pattern} | (self.audience.filter.patterns if self.audience else set()))
        self.outlet.wake()

    def add_credit(self, octets: int) -> None:
        """Allow so many bytes more. (ZEP-03)"""
        starved = self.credit <= 0
        self.credit += octets
        if starved and not self.live:
            self.outlet.wake()

    def close(self) -> None:
        """End all subscriptions."""
        if self.audience is not None:
            self.stream.leave_audience(self.audience, self)
            self.audience = None
        self.live = False
        for selection in self.selections:
            if selection.due:
                self.stream.future_selections.discard(selection)
        self.selections = []
        self._stretches.clear()
        self.reader.release_window()
        self.stream.waiting_cursors.discard(self)

    # High gear

    def send_live(self, block: Block) -> None:
        """Send a block that was just appended, already filtered; or change to low gear if it cannot go out now."""
        if self.credit >= block.credit and self.outlet.offer(block):
            self._spend(block.credit, block.count)
        elif self.live:  # the connection may have ended in `offer`
            self._leave_high_gear(block.first - 1)
            self.outlet.wake()

    def fall_back(self, position: int) -> None:
        """Change to low gear after a sequence: the rest is filtered a slice at a time."""
        self._leave_high_gear(position)
        self.outlet.wake()

    def _leave_high_gear(self, position: int) -> None:
        if self.live:
            self.live = False
            assert self.audience is not None
            self.audience.live.pop(self, None)
            self.reader.seek(position)

    # Low gear

    def pull(self) -> Outgoing | None:
        """Return the next messages that the credit pays for; None if there is nothing to send now."""
        if self.live or self._warming or self._in_line or not self.selections:
            return None
        for _ in range(SCANS):
            if self.credit <= 0:
                return None
            stretch = self._stretches[0] if self._stretches else None
            reader = stretch.reader if stretch else self.reader
            whole = stretch is None and self._wants_all
            try:
                span = reader.peek(WHOLE, self.credit) if whole else self._peek_some(reader)
                if span is not None:
                    reader.check_gap(span)
            except OutOfRange as error:
                if not self._fall_behind(reader, error):
                    return None
                continue
            except Absent as absent:
                if self._problem is not None:
                    raise self._problem from None
                self._warming = True
                self.stream.fetch(absent, self._fetched)
                return None
            if stretch is not None and (span is None or span.first > stretch.until):
                self._stretches.popleft()
            elif span is None:
                self._reach_end()
                return None
            elif not (self._warm or span.is_resident()):
                # To wait for the disk here would stall all clients. It is loaded once; then the read works or fails.
                self._warming = True
                self.stream.warm(span, self._warmed)
                return None
            elif whole:
                self._warm = False
                reader.skip(span)
                self._spend(span.credit, span.count)
                return span
            elif self._weight and not self._my_turn:
                self._in_line = True
                self.stream.turns.wait(self._take_turn)
                return None
            else:
                self._warm = False
                self._my_turn = False
                block = self._select_due(self._slice(span.read()), reader, stretch)
                if block is not None:
                    return block
        self.outlet.wake()  # the filter found nothing, and other clients wait for their turn
        return None

    def _peek_some(self, reader: Reader) -> Span | None:
        """Return the next messages: as many as are filtered at once."""
        is_much_work = self._weight or self._stretches or not self._all_begun
        span = reader.peek(FEW if is_much_work else FILTERED)
        if span is None or span.count <= MESSAGES:
            return span
        return reader.peek(span.length * MESSAGES // span.count)

    @property
    def _weight(self) -> int:
        """The work that it can be to filter a message with a new key."""
        return self.audience.filter.weight if self.audience is not None else 0

    def _take_turn(self) -> int:
        self._in_line = False
        self._my_turn = True
        self.outlet.wake()
        return SLICE

    def _slice(self, block: Block) -> Block:
        """Return the first messages of a block: as many as it is little work to filter."""
        weight = self._weight
        if not weight:
            return block
        assert self.audience is not None
        knows = self.audience.filter.knows if self._all_begun and not self._stretches else _knows_nothing
        left = keys_in_slice(weight)
        for index, key in enumerate(block.keys):
            if not knows(key):
                if not left:
                    return block.head(index)
                left -= 1
        return block

    @property
    def _wants_all(self) -> bool:
        """Whether every message goes out, so that nothing is filtered."""
        audience = self.audience
        return audience is not None and audience.filter.everything and self._all_begun

    @property
    def _all_begun(self) -> bool:
        """Whether all subscriptions have begun, so that the filter of the audience applies."""
        position = self.reader.position
        return all(selection.after <= position for selection in self.selections)

    def _reach_end(self) -> None:
        """Change to high gear; or wait for the next block, if a subscription has not begun yet."""
        if self._all_begun:
            self.live = True
            assert self.audience is not None
            self.audience.live[self] = None
            self.reader.release_window()
        else:
            self.stream.waiting_cursors.add(self)

    def _warmed(self) -> None:
        self._warming = False
        self._warm = True
        self.outlet.wake()

    def _fetched(self, problem: ZepsError | None) -> None:
        self._warming = False
        self._problem = problem
        self.outlet.wake()

    def _fall_behind(self, reader: Reader, error: OutOfRange) -> bool:
        """Move the reader to the oldest message, or return False if the subscription has ended."""
        wanted = reader.position + 1
        if not self.on_fell_behind(wanted, error.oldest):
            return False
        self.skipped += error.oldest - wanted
        reader.seek(error.oldest - 1)
        return True

    def _select_due(self, block: Block, reader: Reader, stretch: _Stretch | None) -> Block | None:
        """Return the wanted messages of a block that the credit pays for, or None; move the reader past them."""
        mask = self._mask(block, stretch)
        chosen = block.pick(mask) if 0 in mask else block
        if chosen.credit > self.credit:
            kept = self._affordable(chosen)
            if kept < chosen.count:
                chosen = chosen.head(kept)
        reader.seek(chosen.last)
        if not chosen.count:
            return None
        self._spend(chosen.credit, chosen.count)
        return chosen

    def _mask(self, block: Block, stretch: _Stretch | None) -> bytes:
        """Return a byte for each message of a block: 1 if it is wanted, 0 if not."""
        if stretch is not None:
            return bytes(map(stretch.wants, block.sequences, block.keys))
        if self._all_begun:
            assert self.audience is not None
            return self.audience.filter.mask(block)
        return bytes(map(self._is_wanted, block.sequences, block.keys))

    def _is_wanted(self, sequence: int, key: bytes) -> bool:
        return any(sequence > selection.after and selection.filter(key) for selection in self.selections)

    def _affordable(self, block: Block) -> int:
        """Return how many messages may go: each while credit is above zero, so the last may overdraw it."""
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

    def _join_audience(self, patterns: set[str]) -> None:
        audience = self.stream.join_audience(patterns)
        if self.audience is not None:
            self.stream.leave_audience(self.audience, self)
        self.audience = audience


def _knows_nothing(_key: bytes) -> bool:
    """Stand for several filters, each of which may know a key or not."""
    return False
