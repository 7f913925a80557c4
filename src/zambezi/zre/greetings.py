"""Greetings: what a HELLO means, which begins a session of a peer with a node.

A HELLO does not say whether it begins a session or answers ours. The state of its sender decides, see `_Situation`.

If the sender is ready, the answer is sometimes not certain. A node that waits too long for an answer greets again, and
then gets two answers, or one. A node to which a peer sends a second HELLO begins a new session, and its own HELLO looks
like the beginning of a session to that peer. If both took such a HELLO for a beginning, they would greet each other for
ever; on a busy machine each HELLO comes late, so no short time limit ends that. So a HELLO is `expected` for some time
after we greeted a peer again. An expected HELLO that says nothing new counts as an answer, and we do not greet back.
But the peer can have lost its session with us, and need our HELLO. So we send a PING, which only a peer that has our
HELLO answers. If no answer comes, we greet the peer again, see `Engine`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from zambezi.wire import TooMany, WireError
from zambezi.zre import dialect as dialects
from zambezi.zre import events
from zambezi.zre.agenda import NEVER
from zambezi.zre.contact import PUBLIC_KEY, endpoint_of, host_of
from zambezi.zre.counters import Counters
from zambezi.zre.dialect import DRAFT, Dialect, Greeting
from zambezi.zre.meetings import Meetings
from zambezi.zre.outbox import Outbox
from zambezi.zre.peer import Peer, Voting, together
from zambezi.zre.timing import Timing

# If two nodes answer each other's answers, they stop after so many new sessions in quick succession.
_RENEWALS: Final = 2


class _Situation(Enum):
    """The situation in which a HELLO comes, by what we know of its sender."""

    NEWCOMER = auto()  # we do not know the sender
    ANSWER = auto()  # the sender answers our HELLO
    RENEWAL = auto()  # the sender is ready, and begins a new session
    OTHER_DIALECT = auto()  # the sender speaks the stable protocol, and we speak the draft alone
    TOO_MANY = auto()  # no further peer can become ready


# The situations in which we connect to the endpoint in HELLO.
_BEGINNINGS: Final = (_Situation.NEWCOMER, _Situation.RENEWAL, _Situation.OTHER_DIALECT)


class Greetings:
    """Receives HELLOs for an engine, which speaks `dialect`. `source_of` and `proves` are the engine's."""

    def __init__(
        self,
        dialect: Dialect,
        meetings: Meetings,
        out: Outbox,
        counters: Counters,
        *,
        source_of: Callable[[bytes], str],
        proves: Callable[[bytes], bool] | None,
        timing: Timing,
        all_elect: bool,
    ) -> None:
        self._dialect = dialect
        self._meetings = meetings
        self._peers = meetings.peers
        self._out = out
        self._counters = counters
        self._source_of = source_of
        self._proves = proves
        self._timing = timing
        self._all_elect = all_elect

    def receive(self, key: bytes, frames: list[bytes], now: float) -> None:
        """Receive a HELLO from the peer with a key."""
        try:
            dialect, greeting = dialects.read_hello(frames, key)
        except WireError as error:
            self._counters.refused_hellos += isinstance(error, TooMany)
            self._counters.bad_messages += not isinstance(error, TooMany)
            return
        source = self._source_of(key)
        contact = self._meetings.locate_greeter(key, greeting, source)
        if not contact:
            return
        if contact != greeting.endpoint:
            greeting = replace(greeting, endpoint=contact)
        peer = self._peers.get(key)
        situation = self._situation(peer, dialect, greeting, now)
        by_hello = self._meetings.claims.by_hello
        if situation in _BEGINNINGS and not by_hello(key, greeting.endpoint, source, frames, now):
            return
        match situation, peer:
            case _Situation.NEWCOMER, _:
                self._enter(self._meet_greeter(key, greeting, dialect, source, now), greeting, source, now)
            case _Situation.ANSWER, Peer():
                self._receive_answer(peer, greeting, dialect, source, now)
            case _Situation.RENEWAL, Peer():
                self._meetings.end(peer, "it greeted us again")
                again = self._meet_greeter(key, greeting, dialect, source, now)
                again.renewals = self._renewals(peer, now)
                again.expected = now + self._timing.expired
                self._enter(again, greeting, source, now)
            case _Situation.OTHER_DIALECT, _:
                self._receive_other_dialect(key, peer, greeting.endpoint, now)
            case _Situation.TOO_MANY, _:
                self._counters.refused_peers += 1
                if peer is not None:
                    self._meetings.end(peer, "there are too many peers")

    def _situation(self, peer: Peer | None, dialect: Dialect, greeting: Greeting, now: float) -> _Situation:
        if self._dialect is DRAFT and dialect is not DRAFT:
            return _Situation.OTHER_DIALECT
        if not self._peers.has_room_for(peer, greeting.cost):
            return _Situation.TOO_MANY
        if peer is not None and peer.ready:
            answers = peer.waiting or self._is_expected(peer, greeting, now)
            return _Situation.ANSWER if answers else _Situation.RENEWAL
        if self._peers.full:
            return _Situation.TOO_MANY
        return _Situation.NEWCOMER if peer is None else _Situation.ANSWER

    def _is_expected(self, peer: Peer, greeting: Greeting, now: float) -> bool:
        """Return whether a HELLO can be an answer, although each of our HELLOs has one."""
        known = greeting.endpoint, greeting.name, greeting.headers
        if now < peer.expected and known == (peer.endpoint, peer.name, peer.headers):
            return True
        return self._renewals(peer, now) > _RENEWALS

    def _renewals(self, peer: Peer, now: float) -> int:
        """Return how often a peer has begun a new session in quick succession, if it begins another one now."""
        return peer.renewals + 1 if now - peer.greeted < self._timing.interval else 0

    def _meet_greeter(self, key: bytes, greeting: Greeting, dialect: Dialect, source: str, now: float) -> Peer:
        """Meet the unknown sender of a HELLO: a new peer, or a seed that answers. (MBX-06, HEL-03)"""
        seed = self._meetings.rendezvous.adopt(key, greeting.endpoint, source, now)
        if seed is None:
            return self._meetings.meet(key, greeting.endpoint, now, dialect)
        self._peers.add(seed)
        self._meetings.schedule(seed, now)
        self._use_dialect(seed, dialect, now)
        return seed

    def _receive_answer(self, peer: Peer, greeting: Greeting, dialect: Dialect, source: str, now: float) -> None:
        """Receive the HELLO of a peer that we greeted."""
        self._meetings.rendezvous.met_otherwise(peer, greeting.endpoint, source)
        if peer.ready and peer.headers != greeting.headers:
            # Both sides began a new session at once. The program learns of headers by Enter.
            self._out.append(events.Exit(peer.uuid, peer.name, "it greeted us again"))
            self._peers.make_stranger(peer)
            self._meetings.elections.ended(peer)
        is_elsewhere = not peer.ready and greeting.endpoint != peer.endpoint
        if is_elsewhere and self._proves is not None and not self._proves(peer.key):
            # We connected where a beacon said, which can have been forged. HELLO came by an encrypted connection.
            self._meetings.greet_afresh(peer, greeting.endpoint, now)
        is_certain = not peer.ready or peer.waiting > 0
        self._use_dialect(peer, dialect, now)
        self._enter(peer, greeting, source, now)
        if not is_certain:
            self._doubt(peer, now)

    def _doubt(self, peer: Peer, now: float) -> None:
        """Ask a peer whether it has our HELLO: we took its HELLO for an answer, but that is not certain."""
        peer.expected = 0.0
        if not peer.doubtful:
            peer.doubtful = True
            peer.overdue = now + self._timing.expired
            self._out.ping(peer)
            self._meetings.schedule(peer, now)

    def _receive_other_dialect(self, key: bytes, peer: Peer | None, endpoint: str, now: float) -> None:
        """Greet the sender of a HELLO that we do not speak: it will answer in the draft. (DIA-01)"""
        if peer is not None and peer.ready:
            self._meetings.end(peer, "it greeted us again")
            peer = None
        if peer is None:
            self._meetings.meet_stranger(key, endpoint, now)

    def _use_dialect(self, peer: Peer, dialect: Dialect, now: float) -> None:
        """Speak the dialect of a peer; it did not understand a HELLO in another one, so greet it again. (DIA-01)"""
        if peer.dialect is not dialect:
            peer.dialect = dialect
            peer.waiting = 0
            self._meetings.greet(peer, now)

    def _enter(self, peer: Peer, greeting: Greeting, source: str, now: float) -> None:
        """Make a peer ready, with the contents of its HELLO from an address, and tell the program what is new."""
        peer.waiting = max(peer.waiting - 1, 0)
        peer.attempts = 0
        if not peer.waiting:
            peer.overdue = NEVER
        peer.received = 1
        peer.hear(now)
        peer.pings = 0
        self._meetings.departures.forget(peer)
        peer.near = source == host_of(greeting.endpoint)
        if self._meetings.claims.tests:
            self._meetings.claims.passed(peer)
        if not peer.ready and peer.sent > 1:
            # No gap would show that a message after our HELLO was lost, see `connection_lost`.
            self._out.ping(peer)
        if greeting.elects:
            peer.voting = Voting.DIRECT
        elif PUBLIC_KEY in greeting.headers or self._all_elect:
            peer.voting = Voting.RELAYING
        peer.name = greeting.name
        peer.headers = greeting.headers
        peer.status = greeting.status  # HEL-04
        before, peer.groups = peer.groups, together(tuple(greeting.groups))
        self._peers.set_cost(peer, greeting.cost)
        is_new = not peer.ready
        if is_new:
            self._peers.make_ready(peer)
            self._out.append(events.Enter(peer.uuid, peer.name, endpoint_of(peer.endpoint), dict(peer.headers)))
            self._meetings.schedule(peer, now)
        if peer.groups is not before:  # mostly both are the one empty set
            for group in sorted(peer.groups - before):
                self._out.append(events.Join(peer.uuid, peer.name, group))
            for group in sorted(before - peer.groups):
                self._out.append(events.Leave(peer.uuid, peer.name, group))
                self._meetings.elections.left(peer, group)
        self._meetings.elections.greeted(peer)
        if is_new:
            self._meetings.rendezvous.introduce(peer, now)
