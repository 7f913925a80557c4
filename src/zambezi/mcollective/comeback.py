"""The comeback of absent clients: their sessions go on, and they get the messages that came while they were absent.

See `register` for the ways in which a client comes back. A session that goes on begins with a NOOP: the client may
have heard nothing for most of its TTL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zambezi.mcollective import messages
from zambezi.mcollective.bounds import Counters
from zambezi.mcollective.errors import ArchiveError, Malformed
from zambezi.mcollective.events import ClientReturned
from zambezi.mcollective.keeper import Keeper
from zambezi.mcollective.outbox import Outbox
from zambezi.mcollective.outputs import Happened, Play, Send
from zambezi.mcollective.register import Record, Register
from zambezi.mcollective.rules import Rules
from zambezi.mcollective.session import Session, State
from zambezi.mcollective.topics import Topics
from zambezi.wire.text import quoted
from zambezi.zmtp.frames import Shared

# Of a TTL: a client that comes back has so much time to say CONNECT, before its session goes on without.
PAUSE: Final = 0.02


class Comeback:
    """The part of the engine that brings sessions back."""

    def __init__(self, register: Register, topics: Topics, keeper: Keeper, outbox: Outbox, counters: Counters) -> None:
        self.register = register
        self._topics = topics
        self._keeper = keeper
        self._outbox = outbox
        self._counters = counters

    def opened(self, session: Session, now: float) -> float | None:
        """Note that a client has connected; return the time at which `resume` must be called, or None."""
        session.returning = self.register.find(session.user, session.identity, now)
        return now + PAUSE * session.returning.ttl if session.returning is not None else None

    def resume(self, session: Session, rules: Rules, now: float) -> None:
        """Go on with the session of a client that was absent, as far as the rules allow its topics."""
        record, session.returning = session.returning, None
        if record is None or self.register.find(session.user, session.identity, now) is not record:
            return  # its time is over, or another connection has it
        names = [name for name in record.topics if rules.allow(session.user, "SUB", name)]
        if self._topics.refusal(session, names):
            names = []
        held, missed = self._read_backlog(record, names)
        self.register.revive(record, session)
        session.state = State.CONNECTED
        session.present = True
        session.ttl = record.ttl
        session.delimited = record.delimited
        session.heard = session.said = now
        session.sequence = record.position
        self._counters.resumed += 1
        self._outbox.add(Send(session, messages.noop(session.delimited)))
        self._unsubscribe_others(session, record, set(names))
        self._counters.missed += missed
        session.missed += missed
        for message in held:
            self._outbox.redeliver(session, message)
        kept = {name: max(record.position, record.topics[name]) for name in names if self._keeper.keeps(name)}
        for name in names:
            if name not in kept:
                self._topics.join(session, name)
        self.catch_up(session, kept)
        self._outbox.add(Happened(session, ClientReturned("", session.identity, session.user, record.ttl, len(names))))

    def _read_backlog(self, record: Record, names: list[bytes]) -> tuple[list[Shared], int]:
        """Return the messages that came while a client was absent, and the number of those that had to go."""
        return self.register.backlog.read(record.absentee, names) if record.absentee is not None else ([], 0)

    def _unsubscribe_others(self, session: Session, record: Record, names: set[bytes]) -> None:
        """Tell a client which of its topics it cannot have any more."""
        lost = [name for name in record.topics if name not in names]
        if lost:
            self.register.unsubscribed(session, lost)
            which = quoted(lost[0]) + (f" and {len(lost) - 1} more" if len(lost) > 1 else "")
            text = f"your session goes on, but you are no longer subscribed to {which}: it is not allowed, or no room"
            self._counters.errors += 1
            self._outbox.answer(session, messages.error(text, None, session.delimited), None)

    def connected(self, session: Session, now: float) -> None:
        """Note that a client said CONNECT: it subscribes itself, and gets the kept messages that it missed."""
        session.predecessor = self.register.find_predecessor(session, now)
        session.returning = None
        if session.predecessor is not None:
            self.register.drop_backlog(session.predecessor)

    def take_over(self, session: Session, names: tuple[bytes, ...]) -> dict[bytes, int]:
        """Return the kept topics of a SUB that the client had before, each with the last sequence that it got."""
        record = session.predecessor
        if record is None:
            return {}
        found = self.register.take_over(record, names)
        if not record.topics:
            session.predecessor = None
        return {name: since for name, since in found.items() if self._keeper.keeps(name)}

    def catch_up(self, session: Session, missed: Mapping[bytes, int]) -> None:
        """Subscribe a client to kept topics, beginning with the messages that it missed."""
        for since in sorted(set(missed.values())):
            names = [name for name in missed if missed[name] == since]
            try:
                replay = self._keeper.replay(names, b"%d" % self._keeper.nearest(since))
            except (Malformed, ArchiveError):
                for name in names:  # another archive than before
                    self._topics.join(session, name)
                continue
            for name in names:
                self._topics.leave(session, name)
                self._topics.join_after(session, name, replay)
        if session.replays:
            self._outbox.add(Play(session))
