"""The tuples of zgossip, without I/O: which links are told of which nodes. `take` returns what to do.

A node is a hub, a client of hubs, or both, with one table of tuples, like Zyre's. It tells every tuple that is new to
it to all its hubs and clients. A *link* is a connection, with a hub or with a client.

The table is bounded, and any program that reaches a hub can write into it. So there are rules that Zyre does not have:

- A tuple is that of a node: its key is a UUID, its value a contact. Others are refused.
- While the link that told a tuple is up, no other link changes that tuple. No link changes our own.
- A tuple stays while its link is up. When the link is lost, or the node is no peer of ours any more, it stays for the
  `grace`, and is then forgotten unless the node is a peer again. Zyre forgets it at the end of the peer, or never.
- A full table makes room for a new tuple: the oldest one goes whose node is not a peer of ours.
- A link that tells too many tuples, asks for all of them too often, or says too much else is cut off, and so is one
  that says what is not zgossip.

A hub of Zyre forgets a client that is silent for a second. It does not say so, and tells it no more news. So a client
of ours sends PINGs. Clients of Zyre do not, and a hub of ours remembers them for as long as they are connected.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from zambezi.wire import WireError
from zambezi.zre import zgossip
from zambezi.zre.agenda import NEVER
from zambezi.zre.contact import key_of
from zambezi.zre.counters import Counters

Link: TypeAlias = Hashable

PING: Final = 0.4  # seconds between PINGs to a hub
_PATIENCE: Final = 1.0  # seconds between two HELLOs on one link, or two requests for all tuples
_LONGEST: Final = 512  # characters of a value
_OTHERS: Final = 1_000  # messages of a link besides the tuples of nodes, in a grace
_TRIES: Final = 8  # tuples of peers that are looked at to find one that can go

_HELLO: Final = zgossip.Hello().encode()[0]
_PING: Final = zgossip.Ping().encode()[0]
_PONG: Final = zgossip.Pong().encode()[0]
_INVALID: Final = zgossip.Invalid().encode()[0]


class Send(NamedTuple):
    """Send a message on a link."""

    link: Link
    octets: bytes


class CutOff(NamedTuple):
    """Close a link that exceeds a bound."""

    link: Link
    reason: str


class Found(NamedTuple):
    """A link told of a node."""

    link: Link
    uuid: UUID
    contact: str


Output: TypeAlias = Send | CutOff | Found


@dataclass(slots=True)
class _Tuple:
    """The tuple of a node. `teller` is the link that told it; None if it is our own."""

    uuid: UUID
    contact: str
    teller: Link | None
    expires: float = NEVER

    def encode(self, now: float) -> bytes:
        ttl = 0 if self.expires == NEVER else max(1, min(int((self.expires - now) * 1000), 0xFFFFFFFF))
        return zgossip.Publish(zgossip.key_of(self.uuid), self.contact, ttl).encode()[0]


@dataclass(slots=True)
class _LinkState:
    """The state of a link. A client is `greeted` after its HELLO, a hub after ours."""

    is_hub: bool
    greeted: bool = False
    tuples: int = 0  # of nodes that it told in this period,
    others: int = 0  # and its other messages,
    period_end: float = 0.0  # which ends at this time
    next_snapshot: float = 0.0  # when a client may ask for all tuples again, or we may say HELLO to a hub again
    again: bool = False  # whether we must say HELLO again at that time
    is_cut_off: bool = False
    told: set[UUID] = field(default_factory=set)  # the nodes whose tuples it told, and some that others told since


class Tuples:
    """The table of a node, and its links. `is_peer` returns whether a node is a peer of ours, which has greeted us."""

    def __init__(
        self, us: UUID, counters: Counters, *, most: int, grace: float, is_peer: Callable[[UUID], bool]
    ) -> None:
        self._us = us
        self._counters = counters
        self._most = most
        self._grace = grace
        self._is_peer = is_peer
        self._tuples: dict[UUID, _Tuple] = {}
        self._owners: dict[str, UUID] = {}  # the node whose contact it is, of those told last
        self._expiring: dict[UUID, None] = {}
        self._links: dict[Link, _LinkState] = {}
        self._next_ping = NEVER
        self._next_expiry = NEVER
        self._out: list[Output] = []

    def __len__(self) -> int:
        return len(self._tuples)

    def __iter__(self) -> Iterator[tuple[UUID, str]]:
        return iter([(one.uuid, one.contact) for one in self._tuples.values()])

    def take(self) -> list[Output]:
        """Return what to do, in order, and forget it."""
        taken, self._out = self._out, []
        return taken

    def publish(self, contact: str, now: float) -> None:
        """Tell all links of our own tuple, at the start and whenever our contact changes."""
        own = self._tuples.get(self._us)
        if own is None or own.contact != contact:
            self.forget(self._us)
            self._store(_Tuple(self._us, contact, None), now)

    # Links

    def attached(self, link: Link, now: float, *, is_hub: bool) -> None:
        """Note a new connection. Greet a hub, and tell it all that we know."""
        state = self._links[link] = _LinkState(is_hub)
        if is_hub:
            self._greet(link, state, now)
            self._next_ping = min(self._next_ping, now + PING)

    def lost(self, link: Link, now: float) -> None:
        """Note that a connection is over: its tuples stay for the grace."""
        state = self._links.pop(link, None)
        if state is None:
            return
        for uuid in state.told:
            one = self._tuples.get(uuid)
            if one is not None and one.teller == link:
                self._expire(one, now + self._grace)
        if state.is_hub and not any(other.is_hub for other in self._links.values()):
            self._next_ping = NEVER

    def _greet(self, hub: Link, state: _LinkState, now: float) -> None:
        state.greeted, state.again = True, False
        state.next_snapshot = now + _PATIENCE
        self._out.append(Send(hub, _HELLO))
        self._tell_all(hub, now)

    def _tell_all(self, link: Link, now: float) -> None:
        for one in self._tuples.values():
            if one.teller is None or one.teller != link:
                self._out.append(Send(link, one.encode(now)))

    # Messages in

    def receive(self, link: Link, frames: list[bytes], now: float) -> None:
        """Receive a message of a hub or a client."""
        state = self._links.get(link)
        if state is None or state.is_cut_off:
            return
        if now >= state.period_end:
            state.period_end = now + self._grace
            state.tuples = state.others = 0
        try:
            message = zgossip.Zgossip.decode(frames)
        except WireError:
            self._counters.bad_tuples += 1
            self._cut_off(link, state, "it said what is not zgossip")
            return
        state.others += 1
        if state.others > _OTHERS:
            self._cut_off(link, state, f"it said more than {_OTHERS} things in {self._grace:g} s")
            return
        if state.is_hub:
            self._hub_says(link, state, message, now)
        else:
            self._client_says(link, state, message, now)

    def _hub_says(self, hub: Link, state: _LinkState, message: zgossip.Zgossip, now: float) -> None:
        match message:
            case zgossip.Publish():
                self._accept(hub, state, message, now)
            case zgossip.Invalid():
                # The hub forgot us, or lost our tuple with an error of its own. At most one HELLO in a time: two
                # programs that answer each other's answers would never end.
                state.greeted = False
                if now >= state.next_snapshot:
                    self._greet(hub, state, now)
                else:
                    state.again = True

    def _client_says(self, client: Link, state: _LinkState, message: zgossip.Zgossip, now: float) -> None:
        match message:
            case zgossip.Ping():
                self._out.append(Send(client, _PONG))
            case zgossip.Hello() if not state.greeted:
                if now < state.next_snapshot:
                    self._cut_off(client, state, "it asks for all tuples again and again")
                    return
                state.greeted = True
                state.next_snapshot = now + _PATIENCE
                self._tell_all(client, now)
            case zgossip.Publish() if state.greeted:
                self._accept(client, state, message, now)
            case _:
                state.greeted = False
                self._out.append(Send(client, _INVALID))

    def _accept(self, link: Link, state: _LinkState, message: zgossip.Publish, now: float) -> None:
        uuid = zgossip.uuid_of(message.key)
        contact = message.value
        if uuid is None or not _is_contact(contact):
            self._counters.bad_tuples += 1
            return
        if not self._may_tell(link, state) or uuid == self._us:
            return
        before = self._tuples.get(uuid)
        if before is not None and before.contact == contact:
            if before.teller not in self._links:
                before.teller = link
                state.told.add(uuid)
            if before.teller == link:
                self._expire(before, now + message.ttl / 1000 if message.ttl else NEVER)
            self._out.append(Found(link, uuid, contact))  # it may have been our peer, and be one again
            return
        if before is not None and before.teller != link and before.teller in self._links:
            self._counters.refused_tuples += 1
            return
        if before is None and not self._has_room(link, contact):
            return
        self.forget(uuid)
        state.told.add(uuid)
        expires = now + message.ttl / 1000 if message.ttl else NEVER
        self._store(_Tuple(uuid, contact, link, expires), now)
        self._out.append(Found(link, uuid, contact))

    def _may_tell(self, link: Link, state: _LinkState) -> bool:
        state.others -= 1
        state.tuples += 1
        if state.tuples > 2 * self._most:
            self._cut_off(link, state, f"it told more than {2 * self._most} tuples in {self._grace:g} s")
            return False
        return True

    def _has_room(self, link: Link, contact: str) -> bool:
        """Return whether the table has room for the new tuple of a node; an old one may have to go."""
        other = self._tuples.get(self._owners.get(contact, self._us))
        if other is not None and self._is_stale(other, link):
            self.forget(other.uuid)
        if len(self._tuples) < self._most:
            return True
        for uuid in list(islice(self._tuples, _TRIES)):
            if uuid != self._us and not self._is_peer(uuid):
                self.forget(uuid)
                return True
            self._tuples[uuid] = self._tuples.pop(uuid)  # to the end
        self._counters.refused_tuples += 1
        return False

    def _is_stale(self, one: _Tuple, link: Link) -> bool:
        """Return whether a tuple goes if a link tells of another node with its contact: a node that started again."""
        if one.teller is None or self._is_peer(one.uuid):
            return False
        return one.teller == link or one.teller not in self._links

    def _store(self, one: _Tuple, now: float) -> None:
        self._tuples[one.uuid] = one
        self._owners[one.contact] = one.uuid
        self._expire(one, one.expires)
        octets = one.encode(now)
        for link, state in self._links.items():
            if state.greeted and link != one.teller:
                self._out.append(Send(link, octets))

    def forget(self, uuid: UUID) -> None:
        one = self._tuples.pop(uuid, None)
        if one is not None:
            self._expiring.pop(uuid, None)
            if self._owners.get(one.contact) == uuid:
                del self._owners[one.contact]

    def _cut_off(self, link: Link, state: _LinkState, reason: str) -> None:
        state.is_cut_off = True
        self._out.append(CutOff(link, reason))

    # Peers of ours

    def entered(self, uuid: UUID) -> None:
        """Note that a node is a peer of ours now."""
        one = self._tuples.get(uuid)
        if one is not None:
            self._expire(one, NEVER)

    def ended(self, uuid: UUID, now: float) -> None:
        """Note that a node is no peer of ours any more."""
        one = self._tuples.get(uuid)
        if one is not None:
            self._expire(one, min(one.expires, now + self._grace))

    # Time

    @property
    def deadline(self) -> float:
        """The time at which `tick` must be called."""
        return min(self._next_ping, self._next_expiry)

    def tick(self, now: float) -> None:
        """Send the PINGs that are due, and forget the tuples whose time is over."""
        if now >= self._next_ping:
            self._next_ping = now + PING
            for link, state in self._links.items():
                if state.is_hub and state.again and now >= state.next_snapshot:
                    self._greet(link, state, now)
                elif state.is_hub:
                    self._out.append(Send(link, _PING))
        if now >= self._next_expiry:
            self._next_expiry = NEVER
            for uuid in list(self._expiring):
                one = self._tuples[uuid]
                if one.expires > now:
                    self._next_expiry = min(self._next_expiry, one.expires)
                elif self._is_peer(uuid):
                    self._expire(one, NEVER)
                else:
                    self.forget(uuid)

    def _expire(self, one: _Tuple, when: float) -> None:
        one.expires = when
        if when == NEVER:
            self._expiring.pop(one.uuid, None)
        else:
            self._expiring[one.uuid] = None
            self._next_expiry = min(self._next_expiry, when)


def _is_contact(text: str) -> bool:
    return len(text) <= _LONGEST and text.isprintable() and "://" in text and key_of(text) is not None
