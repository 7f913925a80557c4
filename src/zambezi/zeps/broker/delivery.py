"""The delivery to a client: its subscriptions to a stream, or to a report, and the credit that pays for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from zambezi.zeps.block import Block
from zambezi.zeps.broker.cursor import Cursor, Outgoing, Outlet
from zambezi.zeps.broker.group_member import Member
from zambezi.zeps.broker.portions import framed
from zambezi.zeps.broker.reports import Report
from zambezi.zeps.broker.stream import BrokerStream, where_to_start
from zambezi.zeps.broker.timed_cursor import TimedCursor
from zambezi.zeps.errors import BrokerError, OutOfRange
from zambezi.zeps.filters import Filter
from zambezi.zeps.journal.reader import missing_reason
from zambezi.zeps.messages import Times

if TYPE_CHECKING:
    from zambezi.zeps.broker.engine import Engine

_MOST_CREDIT: Final = 1 << 62


class Delivery:
    """The messages that a session delivers. `cursor` exists from the first SUBSCRIBE or CREDIT on."""

    def __init__(self, engine: Engine, outlet: Outlet, on_fell_behind: Callable[[int, int], bool]) -> None:
        self._engine = engine
        self._outlet = outlet
        self._on_fell_behind = on_fell_behind
        self.stream: BrokerStream | None = None
        self.cursor: Cursor | None = None
        self.member: Member | None = None  # of a group
        self.is_held = False  # whether the member gets nothing yet
        self.report: Report | None = None  # of a reserved stream
        self._wants_times = False
        self.goes_on_at_oldest = engine.options.behind == "oldest"  # if retention has removed the next message

    @property
    def subscriptions(self) -> int:
        """The number of subscriptions to the stream."""
        if self.member is not None:
            return 1
        return len(self.cursor.selections) if self.cursor is not None else 0

    def add_times(self, request: Times) -> str:
        """Tell the times of all messages, from the first one on; return the reason if that is not possible."""
        if request.times:
            return "only servers send times: the list of a client is empty"
        if self.stream is None:
            return "the messages of a reserved stream have no times"
        if self.cursor is not None or self.member is not None:
            return "TIMES is not allowed here: it comes before JOIN, and before the first SUBSCRIBE and CREDIT"
        self._wants_times = True
        return ""

    def report_changes(self) -> None:
        """Send the changes of a reserved stream."""
        if self.report is not None:
            self.report.report_changes()

    def subscribe_report(self, pattern: str, latest: int) -> None:
        """Add a subscription to the report."""
        assert self.report is not None
        self.report.subscribe(Filter([pattern], self._engine.matchers), latest)

    def subscribe(self, pattern: str, latest: int) -> None:
        """Add a subscription to the stream; raise `ZepsError` if it cannot begin at `latest`."""
        engine = self._engine
        stream = self.stream
        assert stream is not None
        if self.member is not None:
            raise BrokerError("SUBSCRIBE is not allowed here: this connection is a member of a group")
        after, due = where_to_start(stream.journal, latest)
        oldest = stream.journal.first
        skipped = max(0, oldest - 1 - after)
        if skipped:
            engine.counters.fell_behind += 1
            if not self.goes_on_at_oldest:
                raise OutOfRange(fell_behind_reason(after + 1, oldest), oldest)
            after = oldest - 1
        cursor = self._existing_cursor()
        cursor.skipped += skipped
        cursor.subscribe(pattern, after, due)

    def _existing_cursor(self) -> Cursor:
        if self.cursor is None:
            assert self.stream is not None
            kind = TimedCursor if self._wants_times else Cursor
            self.cursor = kind(self.stream, self._outlet, self._on_fell_behind)
        return self.cursor

    def add_credit(self, credit: int) -> None:
        """Add credit, up to a bound."""
        if self.report is not None:
            self.report.add_credit(min(credit, _MOST_CREDIT - self.report.credit))
        elif self.member is not None:
            assert self.stream is not None
            more = min(credit, _MOST_CREDIT - self.member.credit)
            self.member.group.add_credit(self.member, more, self.stream.clock())
        else:
            cursor = self._existing_cursor()
            cursor.add_credit(min(credit, _MOST_CREDIT - cursor.credit))

    def pull(self) -> Outgoing | None:
        """Return the next messages for the client, or None."""
        if self.cursor is not None:
            return self.cursor.pull()
        if self.is_held:
            return None
        if self.member is not None and self.stream is not None:
            portion = self.stream.groups.pull(self.member)
            if portion is not None:
                self._count(portion.block.count, portion.block.credit)
            return framed(portion, self.stream.journal if self._wants_times else None) if portion is not None else None
        return self.report.pull() if self.report is not None else None

    def stop(self) -> None:
        """End all subscriptions, but keep the credit."""
        if self.cursor is not None:
            credit = self.cursor.credit
            self.close()
            self._existing_cursor().credit = credit
        elif self.member is not None:
            self.leave_group()
        elif self.report is not None:
            self.report.stop()

    def close(self) -> None:
        """End all subscriptions to the stream."""
        if self.cursor is not None:
            self._count(self.cursor.delivered, self.cursor.octets)
            self.cursor.close()
            self.cursor = None
        if self.member is not None:
            self.member.credit = -_MOST_CREDIT  # it gets nothing more, but what it has done still counts

    def _count(self, messages: int, octets: int) -> None:
        assert self.stream is not None
        self.stream.deliveries.add(messages, octets)
        self._engine.deliveries.add(messages, octets)

    def leave_group(self) -> None:
        """Give back what the client has not acknowledged."""
        member, self.member = self.member, None
        if member is not None and self.stream is not None:
            self.stream.groups.leave(member)

    def wake(self) -> None:
        """Let the connection ask for messages soon."""
        self._outlet.wake()

    def offer(self, block: Block) -> bool:
        """Send messages of the group now, or return False; then the connection must ask for them."""
        if self._wants_times or not self._outlet.offer(block):
            return False
        self._count(block.count, block.credit)
        return True

    def send(self) -> None:
        """Let the connection ask for messages now, unless it will do so by itself."""
        if self._outlet.busy:
            self._outlet.wake()
        else:
            self._outlet.flush()


def fell_behind_reason(wanted: int, oldest: int, stream: BrokerStream | None = None) -> str:
    """Return the reason of an INVALID to a subscriber whose next message retention has removed, or damage."""
    if stream is not None and wanted >= stream.journal.first:
        return missing_reason(wanted, oldest)
    return (
        f"messages {wanted} to {oldest - 1} are not kept any more; the oldest is {oldest}: "
        f"subscribe from 0 or {oldest - 1}"
    )
