"""The rules of 36/ZRE, without I/O. Beacons, messages and the time go in; what is to be done comes out.

A node knows each of its peers in one of two states:

    greeted   we found it (by a beacon, a seed or its own HELLO), connected to its mailbox and sent HELLO
    ready     its HELLO has come too: the program has been told Enter, and can talk to it

How it gets from one to the other, and away, is in four places: `receive_beacon`, `_receive_hello`, `tick`, and the
check of the sequence in `receive`. Three rules make it heal by itself:

- A gap in a peer's sequence means that messages were lost, and with them perhaps the state of its groups. The peer
  ends (Exit), and begins anew with the next sign of it. (SEQ-02)
- A HELLO from a peer that is ready means that the peer began anew: it restarted, or it lost track of us. It ends and
  enters again, and is greeted again. Unless we had greeted it ourselves a moment ago: then it is the answer.
- A peer that does not answer a HELLO is greeted again on a fresh connection, every `evasive` seconds, for as long as
  it gives signs of life. A greeting that was lost with a connection is made up for so.

Where there are no beacons, three things are in their place: seeds (`seeds`), rounds of gossip, and PINGs of which the
program hears nothing as long as they are answered.

PING and PING-OK have their place in the sequence. So they also show that the last thing that was said before them is
missing, and one is sent whenever a connection was lost and made again.

Strangers can make up UUIDs without end. So it is bounded how many peers there are (`max_peers`), and how many more of
whom we know only by beacons or by gossip (`max_strangers`). Who is one too many is refused; nobody has to go for it.

What is to be done is returned by `take`; see `outputs`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from zambezi.wire import Message, WireError, string
from zambezi.wire.text import as_bytes
from zambezi.zre import dialect as dialects
from zambezi.zre import events, gossip, messages
from zambezi.zre.beacon import Beacon
from zambezi.zre.dialect import DIALECTS, Dialect, Frames, Greeting
from zambezi.zre.errors import NoSuchPeer, ZreError
from zambezi.zre.gossip import Lost
from zambezi.zre.outputs import Adopt, Broadcast, Connect, Disconnect, Output, Send
from zambezi.zre.peer import Peer, host_of, together
from zambezi.zre.seeds import Seed, Seeds

__all__ = ["Adopt", "Broadcast", "Connect", "Counters", "Disconnect", "Engine", "Output", "Send"]

# Commands that are not ZRE's, but a peer's dialect has in its sequence: ELECT, LEADER, GOODBYE of Zyre.
_LAST_COMMAND: Final = 7
_LONGEST_STRING: Final = 255
# HELLO does not tell a beginning from an answer. Should two nodes ever answer each other's answers, they stop here.
_RENEWALS: Final = 3
_WHISPER: Final = 2
_SHOUT: Final = 3
_NEVER: Final = float("inf")
# So many entries of peers that are gone may be left in the agenda before it is cleared of them.
_STALE: Final = 1000


@dataclass(slots=True)
class Counters:
    """What was discarded, and why."""

    bad_beacons: int = 0  # BCN-04
    bad_identities: int = 0  # MBX-08
    bad_messages: int = 0  # SIG-01, SIG-02, or malformed
    before_hello: int = 0  # HEL-02
    unknown_commands: int = 0
    gaps: int = 0  # SEQ-02
    status_mismatches: int = 0  # GRP-03
    not_members: int = 0  # a SHOUT to a group that we are not in (any more)
    refused_strangers: int = 0  # found, but too many are there already that have not greeted us
    refused_peers: int = 0  # greeted us, but too many are there already


class Engine:
    """One node, without its sockets.

    `endpoint_for` gives the endpoint of this node's mailbox that a peer at an address can reach; `mailbox_at` the
    endpoint of a mailbox by the address and the port of a beacon; `source_of` the address from which what a peer sends
    comes to our mailbox.
    """

    def __init__(
        self,
        uuid: UUID,
        name: str,
        endpoint_for: Callable[[str], str],
        now: float,
        *,
        mailbox_at: Callable[[str, int], str] | None = None,
        source_of: Callable[[bytes], str] = lambda _: "",
        headers: Mapping[str, str] | None = None,
        groups: Iterable[str] = (),
        dialect: str = "stable",
        interval: float = 1.0,
        evasive: float = 5.0,
        expired: float = 30.0,
        gossip: bool = False,
        max_peers: int = 10_000,
        max_strangers: int = 1_000,
    ) -> None:
        if dialect not in DIALECTS:
            raise ZreError(f"dialect is 'stable' or 'draft', not {dialect!r}")
        if not 0 < evasive < expired:
            raise ZreError(f"a peer is evasive before it is expired: {evasive} s and {expired} s are not in order")
        if not 0 < max_strangers <= max_peers:
            raise ZreError(f"max_strangers is 1 to max_peers, which is {max_peers}, and not {max_strangers}")
        self.uuid = uuid
        self.key = uuid.bytes
        self.name = _checked("the name of a node", name) or uuid.hex[:6]
        self.headers = {_checked("the name of a header", key): value for key, value in (headers or {}).items()}
        self.groups = {_checked("the name of a group", group) for group in groups}
        self.status = len(self.groups) & 0xFF
        self.dialect = DIALECTS[dialect]
        self.counters = Counters()
        self.peers: dict[bytes, Peer] = {}
        self._endpoint_for = endpoint_for
        self._mailbox_at = mailbox_at or "tcp://{}:{}".format
        self._source_of = source_of
        self._interval = interval
        self._evasive = evasive
        self._expired = expired
        self._max_peers = max_peers
        self._max_strangers = max_strangers
        self._strangers = 0  # how many of our peers have not greeted us
        self._gossip = gossip
        self._askers: dict[bytes, None] = {}  # the peers that want to be told whom we know, the next one first
        self._tellers: set[bytes] = set()  # the peers that have told us whom they know
        self._lost = Lost()
        self._port = 0
        self._quiet = False  # whether there are no beacons, so that a peer that says nothing may well be there
        self._next_beacon = _NEVER
        self._due: list[tuple[float, bytes]] = []  # when to look at which peer again; one entry for each
        self._pending: dict[bytes, float] = {}  # the time of the entry for a peer
        self._seeds = Seeds()
        self._next_round = _NEVER  # of gossip, and of greeting those who should be there
        self._addressed = {string.encode(group): group for group in self.groups}  # as they stand in a SHOUT
        self._greetings: dict[tuple[str, str], Frames] = {}  # our HELLOs by endpoint and dialect, until they change
        self._out: list[Output] = []

    def take(self) -> list[Output]:
        """What is to be done, in order."""
        out, self._out = self._out, []
        return out

    # Coming and going

    def start(self, port: int, now: float, beacons: bool = True) -> None:
        """Begin to say that we are there. (BCN-02)"""
        self._port = port
        self._quiet = not beacons
        if beacons:
            self._next_beacon = now
        if self._gossip:
            self._expect_round(now)
        self.tick(now)

    def stop(self) -> None:
        """Say that we are leaving, and part from all. (BCN-08)"""
        if self._next_beacon != _NEVER:
            self._out.append(Broadcast(Beacon(self.uuid, 0).encode()))
        self._next_beacon = self._next_round = _NEVER
        (goodbye,) = gossip.contents([gossip.Entry(self.key, "")])
        versed = [self.peers[key] for key in {**self._askers, **dict.fromkeys(self._tellers)}]
        self._send_all(versed, lambda dialect: dialect.whisper(0, goodbye))
        for peer in self._everybody():
            self._out.append(Disconnect(peer.key))
        self.peers.clear()
        self._strangers = 0
        self._askers.clear()
        self._tellers.clear()
        self._seeds.clear()

    def whereabouts(self) -> dict[bytes, str]:
        """Where our mailbox is for each of those whom we greeted, to be given to `move`."""
        return {peer.key: self._endpoint_for(host_of(peer.endpoint)) for peer in self._everybody()}

    def move(self, port: int, before: Mapping[bytes, str], now: float) -> None:
        """We have another address or port: say so, and begin anew with whoever would look for our mailbox in vain."""
        self._port = port
        self._greetings.clear()
        for peer in list(self._everybody()):
            if self._endpoint_for(host_of(peer.endpoint)) == before.get(peer.key):
                continue
            if peer.ready:
                # Its connections led to where we are no more, and what was under way is lost: the program should know.
                self._part(peer, "our address changed")
                self._meet(peer.key, peer.endpoint, now, peer.dialect)
            else:
                self._greet_afresh(peer, now)
        if self._next_beacon != _NEVER:
            self._next_beacon = now
        self.tick(now)

    # Seeds

    def seed(self, endpoint: str, now: float) -> None:
        """Greet whoever has its mailbox there, now and whenever it is not a peer. Its HELLO will tell who it is."""
        seed = self._seeds.add(endpoint)
        if seed is not None:
            self._expect_round(now)
            self._greet_seed(seed, now)

    def _greet_seed(self, seed: Seed, now: float) -> None:
        greeting = Peer(seed.dealer, seed.endpoint, self.dialect, now)
        seed.greet(greeting)
        self._out.append(Connect(seed.dealer, seed.endpoint))
        self._greet(greeting, now)

    def reached(self, endpoint: str, identity: bytes, address: str) -> None:
        """Our DEALER to a seed has found somebody: at which address, and who, if it said that in the handshake."""
        seed = self._seeds.get(endpoint)
        if seed is None or seed.greeting is None:
            return
        seed.address = address
        seed.answers = identity[1:] if len(identity) == 17 and identity[0] == 1 else b""
        if seed.answers == self.key or seed.answers in self.peers:
            self._settle(seed, seed.answers)

    def _settle(self, seed: Seed, key: bytes) -> None:
        """A seed turns out to be somebody whom we know already (ourselves, perhaps): it needs no DEALER of its own."""
        seed.settle(key)
        self._out.append(Disconnect(seed.dealer))

    # Time

    @property
    def deadline(self) -> float:
        """When `tick` wants to be called."""
        deadline = min(self._next_beacon, self._next_round)
        due = self._due
        return due[0][0] if due and due[0][0] < deadline else deadline

    def tick(self, now: float) -> None:
        """Send the beacon that is due, and look at peers that have been silent."""
        if now >= self._next_beacon:
            self._out.append(Broadcast(Beacon(self.uuid, self._port).encode()))
            # The beat is kept, but beats that were missed are not made up for.
            self._next_beacon = max(self._next_beacon + self._interval, now)
        if now >= self._next_round:
            self._begin_round(now)
        while self._due and self._due[0][0] <= now:
            due, key = heapq.heappop(self._due)
            if self._pending.get(key) != due:
                continue  # there was an earlier one
            del self._pending[key]
            peer = self.peers.get(key)
            if peer is None:
                continue
            if peer.due > now:
                self._wake_at(peer.due, key)
            else:
                self._look_at(peer, now)

    def _look_at(self, peer: Peer, now: float) -> None:
        silence = now - peer.heard
        if silence >= self._expired:
            self._part(peer, f"silent for {self._expired:g} s")  # PING-02
            return
        unanswered = not peer.ready or peer.waiting > 0
        if unanswered and silence < self._evasive and now - peer.greeted >= self._evasive:
            if peer.beacon and not peer.ready:
                # Perhaps its address is another one now: its beacons tell.
                peer.endpoint = self._mailbox_at(peer.address, int.from_bytes(peer.beacon[20:], "big"))
            self._greet_afresh(peer, now)
        if peer.ready and silence >= self._evasive * (peer.evasive + 1):
            peer.evasive += 1
            self._send(peer, peer.dialect.ping(0))  # PING-01
            # Where no beacons come, to say nothing is nothing unusual. Not to answer is.
            silent = self._quiet or (gossip.HEADER in peer.headers and not peer.beacon)
            missed = peer.evasive - 1 if silent else peer.evasive
            if missed == 1:
                self._out.append(events.Evasive(peer.uuid, peer.name))
            elif missed == 2:
                self._out.append(events.Silent(peer.uuid, peer.name))
        self._schedule(peer, now)

    def _schedule(self, peer: Peer, now: float) -> None:
        wanted = peer.heard + self._evasive * (peer.evasive + 1) if peer.ready else _NEVER
        if not peer.ready or peer.waiting:
            again = peer.greeted + self._evasive
            wanted = min(wanted, again if again > now else now + self._evasive)
        peer.due = max(min(wanted, peer.heard + self._expired), now + 1e-3)
        self._wake_at(peer.due, peer.key)

    def _wake_at(self, due: float, key: bytes) -> None:
        """One entry for each peer, however often it is put off: it is looked at again when the entry is due."""
        if due < self._pending.get(key, _NEVER):
            self._pending[key] = due
            heapq.heappush(self._due, (due, key))
            if len(self._due) > 2 * len(self.peers) + _STALE:
                self._pending = {key: due for key, due in self._pending.items() if key in self.peers}
                self._due = [(due, key) for key, due in self._pending.items()]
                heapq.heapify(self._due)

    def _hear(self, peer: Peer, now: float) -> None:
        peer.heard = now
        peer.evasive = 0

    # Beacons

    def receive_beacon(self, octets: bytes, address: str, now: float) -> None:
        """A datagram came from an address."""
        peer = self.peers.get(octets[4:20])
        if peer is not None and octets == peer.beacon and address == peer.address:
            self._hear(peer, now)  # nothing new: most beacons are of this kind
            return
        beacon = Beacon.decode(octets)
        if beacon is None:
            self.counters.bad_beacons += 1
            return
        key = beacon.uuid.bytes
        if key == self.key:  # BCN-05
            return
        if not beacon.port:
            if peer is not None:
                self._let_go(peer)
            return
        endpoint = self._mailbox_at(address, beacon.port)
        if peer is None:
            if self._has_room():
                self._meet(key, endpoint, now)  # BCN-06
        elif peer.port not in (None, beacon.port):
            # Another mailbox: it restarted. A beacon that was under way when it greeted us says nothing new.
            if now - peer.greeted >= self._interval:
                self._part(peer, "it restarted")
                self._meet(key, endpoint, now)
        elif endpoint == peer.endpoint:
            peer.beacon, peer.address = octets, address
            self._hear(peer, now)
        elif peer.waiting and now - peer.greeted >= self._evasive:
            # It does not answer where we greeted it, and is alive here: its address is another one now.
            self._part(peer, "it moved")
            self._meet(key, endpoint, now)
        elif not peer.address:
            peer.beacon, peer.address = octets, address
            self._hear(peer, now)  # it has us connect to where its beacons do not come from
        # Otherwise the peer is on another network of ours, too. That one works says nothing of the other, by which we
        # talk to it: if that is dead, the peer must expire, and be met again where it can be reached.

    def discover(self, uuid: UUID, endpoint: str, now: float) -> None:
        """A peer was found by other means than a beacon."""
        key = uuid.bytes
        if key in self.peers or key == self.key or self._seeds.greeted(key, endpoint):
            return
        if self._has_room():
            self._meet(key, endpoint, now)

    def _has_room(self) -> bool:
        """Whether one more may be met who has not greeted us."""
        if self._strangers < self._max_strangers and len(self.peers) - self._strangers < self._max_peers:
            return True
        self.counters.refused_strangers += 1
        return False

    def _meet(self, key: bytes, endpoint: str, now: float, dialect: Dialect | None = None) -> Peer:
        """A new peer: connect to it and greet it."""
        peer = self.peers[key] = Peer(key, endpoint, dialect or self.dialect, now)
        self._strangers += 1
        self._out.append(Connect(key, endpoint))
        self._greet(peer, now)
        self._schedule(peer, now)
        return peer

    def _greet(self, peer: Peer, now: float) -> None:
        peer.sent = 1
        peer.waiting += 1
        peer.greeted = now
        self._out.append(Send(peer.key, self._hello(peer.endpoint, peer.dialect)))

    def _greet_afresh(self, peer: Peer, now: float) -> None:
        self._out.append(Disconnect(peer.key))
        self._out.append(Connect(peer.key, peer.endpoint))
        peer.waiting = 0
        self._greet(peer, now)

    def _hello(self, endpoint: str, dialect: Dialect) -> Frames:
        ours = self._endpoint_for(host_of(endpoint))
        frames = self._greetings.get((ours, dialect.name))
        if frames is None:
            headers = {**self.headers, gossip.HEADER: ours} if self._gossip else self.headers
            greeting = Greeting(ours, sorted(self.groups), self.status, self.name, headers)
            frames = self._greetings[ours, dialect.name] = dialect.greet(greeting).encode()
        return frames

    def _part(self, peer: Peer, reason: str) -> None:
        """End a peer. The program hears of it only if it had heard of the peer at all."""
        del self.peers[peer.key]
        self._askers.pop(peer.key, None)
        self._tellers.discard(peer.key)
        self._out.append(Disconnect(peer.key))
        if not peer.ready:
            self._strangers -= 1
            return
        if self._gossip:
            self._lost.add(peer.key, peer.endpoint)
        self._out.append(events.Exit(peer.uuid, peer.name, reason))

    def _let_go(self, peer: Peer) -> None:
        """A peer says goodbye. (BCN-07)"""
        self._part(peer, "it left")
        self._lost.forget(peer.key)

    def unresponsive(self, key: bytes) -> None:
        """The queue of a peer's DEALER is full. (MBX-05)"""
        peer = self.peers.get(key)
        if peer is not None:
            self._part(peer, "it does not respond: its queue is full")

    def disturbed(self, key: bytes) -> None:
        """The connection to a peer's mailbox was lost, and perhaps something that was under way.

        If that was our last word, nothing would show it. A PING does: it goes out when the connection is there again.
        """
        peer = self.peers.get(key)
        if peer is not None and peer.ready:
            self._send(peer, peer.dialect.ping(0))  # SEQ-02

    def unreachable(self, key: bytes) -> None:
        """The endpoint that a peer gave of itself is none."""
        self.counters.bad_messages += 1
        peer = self.peers.get(key)
        if peer is not None:
            self._part(peer, f"its endpoint {peer.endpoint!r} is none that we can connect to")

    # Messages in

    def receive(self, identity: bytes, frames: list[bytes], now: float) -> None:
        """A message came to the mailbox, from a DEALER with this identity."""
        if len(identity) != 17 or identity[0] != 1:
            self.counters.bad_identities += 1  # MBX-08
            return
        key = identity[1:]
        if key == self.key:
            return
        octets = frames[0]
        if not dialects.is_signed(octets):
            self.counters.bad_messages += 1  # SIG-01
            return
        if dialects.is_hello(octets):
            self._receive_hello(key, frames, now)
            return
        peer = self.peers.get(key)
        if peer is None or not peer.ready:
            self.counters.before_hello += 1  # HEL-02
            return
        dialect = peer.dialect
        if dialect is dialects.STABLE and octets[3] != 2:
            self.counters.bad_messages += 1  # SIG-02
            return
        peer.received = (peer.received + 1) & 0xFFFF  # SEQ-01
        if dialect.sequence_of(octets) != peer.received:
            self.counters.gaps += 1
            got, wanted = dialect.sequence_of(octets), peer.received
            self._part(peer, f"a gap in its sequence: {got} came where {wanted} was due")  # SEQ-02
            self._meet(key, peer.endpoint, now, dialect)  # it is there, and may begin anew
            return
        self._hear(peer, now)
        if octets[2] > _LAST_COMMAND:
            self.counters.unknown_commands += 1  # in the sequence, and otherwise ignored
            return
        if octets[2] in (_WHISPER, _SHOUT) and self._receive_content(peer, octets, frames):
            return
        try:
            message = dialect.family.decode(frames)
        except WireError:
            self.counters.bad_messages += 1
            return
        self._receive_command(peer, message)

    def _receive_content(self, peer: Peer, octets: bytes, frames: list[bytes]) -> bool:
        """The shorter way for most messages, a WHISPER or a SHOUT to a group of ours; False if it is neither."""
        rest = octets[peer.dialect.sequence_at + 2 :]
        if octets[2] == _SHOUT:
            group = self._addressed.get(rest)
            if group is None:
                return False
            self._out.append(events.Shout(peer.uuid, peer.name, group, tuple(frames[1:])))
            return True
        if rest or len(frames) < 2 or frames[1] == gossip.MARK:
            return False
        self._out.append(events.Whisper(peer.uuid, peer.name, tuple(frames[1:])))
        return True

    def _receive_command(self, peer: Peer, message: Message) -> None:
        match message:
            case messages.Whisper() | messages.DraftWhisper():
                content = tuple(message.content)
                if content and content[0] == gossip.MARK and (self._gossip or gossip.HEADER in peer.headers):
                    self._receive_gossip(peer, content[1:], peer.heard)
                else:
                    self._out.append(events.Whisper(peer.uuid, peer.name, content))  # MSG-01
            case messages.Shout() | messages.DraftShout():
                if message.group in self.groups:
                    self._out.append(events.Shout(peer.uuid, peer.name, message.group, tuple(message.content)))
                else:
                    self.counters.not_members += 1
            case messages.Join() | messages.DraftJoin():
                self._count_status(peer, message.status)
                if message.group not in peer.groups:
                    peer.groups = together((*peer.groups, message.group))
                    self._out.append(events.Join(peer.uuid, peer.name, message.group))
            case messages.Leave() | messages.DraftLeave():
                self._count_status(peer, message.status)
                if message.group in peer.groups:
                    peer.groups = together(tuple(peer.groups - {message.group}))
                    self._out.append(events.Leave(peer.uuid, peer.name, message.group))
            case messages.Ping() | messages.DraftPing():
                self._send(peer, peer.dialect.ping_ok(0))  # PING-03

    def _count_status(self, peer: Peer, status: int) -> None:
        peer.status = (peer.status + 1) & 0xFF  # GRP-03
        if peer.status != status:
            self.counters.status_mismatches += 1
            peer.status = status

    def _receive_hello(self, key: bytes, frames: list[bytes], now: float) -> None:
        dialect = dialects.dialect_of_hello(frames[0])
        try:
            message = dialect.family.decode(frames) if dialect else None
        except WireError:
            message = None
        if dialect is None or message is None or dialect.sequence_of(frames[0]) != 1:
            self.counters.bad_messages += 1
            return
        greeting = dialects.greeting_of(message, key)
        peer = self.peers.get(key)
        if self.dialect is dialects.DRAFT and dialect is not self.dialect:
            # We speak draft alone, and the peer will greet anew when it hears how we speak. If it had, it began anew.
            if peer is not None and peer.ready:
                self._part(peer, "it greeted anew")
                peer = None
            if peer is None and self._has_room():
                self._meet(key, greeting.endpoint, now)
            return
        renewals = 0
        if peer is not None and peer.ready and not (peer.waiting and now - peer.greeted < self._evasive):
            renewals = peer.renewals + 1 if now - peer.greeted < self._interval else 0
            if renewals <= _RENEWALS:
                self._part(peer, "it greeted anew")
                peer = None
        if (peer is None or not peer.ready) and len(self.peers) - self._strangers >= self._max_peers:
            self.counters.refused_peers += 1
            if peer is not None:
                self._part(peer, "there are too many peers")
            return
        if peer is None:
            peer = self._meet_greeter(key, greeting, dialect, now)  # MBX-06, HEL-03
            peer.renewals = renewals
        else:
            for seed in self._seeds.unmet:
                if seed.answers == key or seed.endpoint in (peer.endpoint, greeting.endpoint):
                    self._settle(seed, key)
            if peer.ready and peer.headers != greeting.headers:
                # Both began anew at once. The program learns of headers by Enter.
                self._out.append(events.Exit(peer.uuid, peer.name, "it greeted anew"))
                peer.ready, peer.groups = False, together(())
                self._strangers += 1
            if peer.dialect is not dialect:
                self._switch(peer, dialect, now)
        peer.waiting = max(peer.waiting - 1, 0)
        peer.received = 1
        self._hear(peer, now)
        if not peer.ready and peer.sent > 1:
            # We said something after our HELLO, and nothing would show that it was lost, see `disturbed`.
            self._send(peer, peer.dialect.ping(0))
        self._enter(peer, greeting, now)

    def _meet_greeter(self, key: bytes, greeting: Greeting, dialect: Dialect, now: float) -> Peer:
        """A HELLO from somebody unknown: a new peer, or the answer of a seed."""
        seed = self._seeds.answered(key, greeting.endpoint, self._source_of(key)) if self._seeds.unmet else None
        if seed is None or seed.greeting is None:
            return self._meet(key, greeting.endpoint, now, dialect)
        self._out.append(Adopt(seed.dealer, key))
        peer = self.peers[key] = Peer(key, seed.endpoint, self.dialect, now)
        self._strangers += 1
        peer.sent, peer.waiting = seed.greeting.sent, seed.greeting.waiting
        seed.settle(key)
        self._schedule(peer, now)
        if peer.dialect is not dialect:
            self._switch(peer, dialect, now)
        return peer

    def _switch(self, peer: Peer, dialect: Dialect, now: float) -> None:
        """Greet anew in the dialect of the peer; what we said before it did not understand. (DIA-01)"""
        peer.dialect = dialect
        peer.waiting = 0
        self._greet(peer, now)

    def _enter(self, peer: Peer, greeting: Greeting, now: float) -> None:
        peer.name = greeting.name
        peer.headers = greeting.headers
        peer.status = greeting.status  # HEL-04
        before, peer.groups = peer.groups, together(tuple(greeting.groups))
        if not peer.ready:
            peer.ready = True
            self._strangers -= 1
            self._lost.forget(peer.key)
            self._out.append(events.Enter(peer.uuid, peer.name, peer.endpoint, dict(peer.headers)))
            self._schedule(peer, now)
        for group in sorted(peer.groups - before):
            self._out.append(events.Join(peer.uuid, peer.name, group))
        for group in sorted(before - peer.groups):
            self._out.append(events.Leave(peer.uuid, peer.name, group))
        self._introduce(peer, now)

    # Messages out

    def _send(self, peer: Peer, message: Message) -> None:
        self._send_frames(peer, message.encode())

    def _send_frames(self, peer: Peer, frames: Frames) -> None:
        peer.sent = (peer.sent + 1) & 0xFFFF  # SEQ-01
        self._out.append(Send(peer.key, peer.dialect.numbered(frames, peer.sent)))

    def _send_all(self, peers: Iterable[Peer], make: Callable[[Dialect], Message]) -> int:
        """The same message to many, encoded once for each dialect."""
        encoded: dict[str, Frames] = {}
        count = 0
        for peer in peers:
            frames = encoded.get(peer.dialect.name)
            if frames is None:
                frames = encoded[peer.dialect.name] = make(peer.dialect).encode()
            self._send_frames(peer, frames)
            count += 1
        return count

    def _everybody(self) -> Iterable[Peer]:
        """All whom we greeted, also seeds of which we do not know yet who they are."""
        if not self._seeds:
            return self.peers.values()
        return (*self.peers.values(), *(seed.greeting for seed in self._seeds if seed.greeting is not None))

    def whisper(self, uuid: UUID, content: Frames) -> None:
        """Send a message to one peer. (MSG-01)"""
        peer = self.peers.get(uuid.bytes)
        if peer is None or not peer.ready:
            raise NoSuchPeer(f"no peer {uuid} is here now")
        self._send(peer, peer.dialect.whisper(0, _content(content)))

    def shout(self, group: str, content: Frames) -> int:
        """Send a message to every peer in a group; how many that were. (MSG-02)"""
        content = _content(content)
        members = [peer for peer in self.peers.values() if peer.ready and group in peer.groups]
        return self._send_all(members, lambda dialect: dialect.shout(0, group, content))

    def join(self, group: str) -> bool:
        """Join a group; False if we are in it already. (GRP-01)"""
        if group in self.groups:
            return False
        _checked("the name of a group", group)
        self._addressed[string.encode(group)] = group
        self.groups.add(group)
        self._greetings.clear()
        self.status = (self.status + 1) & 0xFF
        self._send_all(self._everybody(), lambda dialect: dialect.join(0, group, self.status))
        return True

    def leave(self, group: str) -> bool:
        """Leave a group; False if we are not in it. (GRP-02)"""
        if group not in self.groups:
            return False
        self.groups.discard(group)
        self._addressed.pop(string.encode(group), None)
        self._greetings.clear()
        self.status = (self.status + 1) & 0xFF
        self._send_all(self._everybody(), lambda dialect: dialect.leave(0, group, self.status))
        return True

    def announce(self, service: str, endpoint: str, now: float) -> None:
        """Offer a service. It travels in HELLO, so that peers that know us already are greeted anew. (EXT-01)"""
        if self.headers.get(service) != endpoint:
            self.headers[_checked("the name of a service", service)] = endpoint
            self._greetings.clear()
            for peer in self._everybody():
                self._greet(peer, now)
            for peer in self.peers.values():
                self._schedule(peer, now)

    def services(self, service: str) -> dict[UUID, str]:
        """Who offers a service, and where. (EXT-02)"""
        return {
            peer.uuid: peer.headers[service] for peer in self.peers.values() if peer.ready and service in peer.headers
        }

    # Gossip: for networks without broadcast

    def _introduce(self, newcomer: Peer, now: float) -> None:
        """Whoever asks for gossip is told whom we know, and who comes; any node can be the seed of one that asks."""
        if gossip.HEADER in newcomer.headers:
            self._askers[newcomer.key] = None
            self._expect_round(now)
            self._tell_all(newcomer)
        if self._askers:
            (news,) = gossip.contents([gossip.Entry(newcomer.key, newcomer.endpoint)])
            askers = [self.peers[key] for key in self._askers if key != newcomer.key]
            self._send_all(askers, lambda dialect: dialect.whisper(0, news))

    def _tell_all(self, asker: Peer) -> None:
        known = [
            gossip.Entry(peer.key, peer.endpoint) for peer in self.peers.values() if peer is not asker and peer.ready
        ]
        for content in gossip.contents(known):
            self._send(asker, asker.dialect.whisper(0, content))

    def _receive_gossip(self, teller: Peer, frames: Frames, now: float) -> None:
        self._tellers.add(teller.key)
        for entry in gossip.read(frames):
            if entry.endpoint:
                if self._gossip:
                    self.discover(UUID(bytes=entry.key), entry.endpoint, now)
            elif entry.key == teller.key:
                self._let_go(teller)
                return

    def _expect_round(self, now: float) -> None:
        if self._next_round == _NEVER:
            self._next_round = now + self._expired

    def _begin_round(self, now: float) -> None:
        """Greet seeds that are no peers (any more), and peers that were lost; and tell one who asked whom we know."""
        wanted = self._gossip or self._seeds or self._askers
        self._next_round = now + self._expired if wanted else _NEVER
        for seed in self._seeds:
            if seed.greeting is not None:
                self._out.append(Disconnect(seed.dealer))
            elif seed.key in self.peers or seed.key == self.key:
                continue
            self._greet_seed(seed, now)
        for entry in self._lost.next_round():
            self.discover(UUID(bytes=entry.key), entry.endpoint, now)
        if self._askers:
            asker = next(iter(self._askers))
            del self._askers[asker]
            self._askers[asker] = None  # the next one's turn is in the next round
            self._tell_all(self.peers[asker])


def _content(content: Frames) -> Frames:
    """At least one frame: a WHISPER without any kills a Pyre node."""
    return content or (b"",)


def _checked(what: str, text: str) -> str:
    """A text that is to travel as a string, with one octet for its length."""
    size = len(as_bytes(text))
    if size > _LONGEST_STRING:
        raise ZreError(f"{what} has at most {_LONGEST_STRING} octets, not {size}: {text[:20]}...")
    return text
