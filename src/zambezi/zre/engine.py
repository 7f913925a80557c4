"""The rules of 36/ZRE, without I/O. Beacons, messages and the time go in; `take` returns what to do (see `outputs`).

A node knows each of its peers in one of two states:

    greeted   we found it (by a beacon, by gossip or by its own HELLO), connected to its mailbox and sent HELLO
    ready     its HELLO has come too: the program was told Enter, and can talk to the peer

`receive_beacon`, `_receive_hello`, `tick`, and the check of the sequence in `receive` move a peer from one state to the
other, and end it. Three rules make a mesh heal by itself:

- A gap in a peer's sequence means that messages were lost, and with them perhaps a change of its groups. The peer ends
  (Exit), and enters again with its next sign of life. (SEQ-02)
- A HELLO from a ready peer means that the peer began a new session: it restarted, or it lost track of us. It ends,
  enters again, and we greet it again. But if we greeted it a moment ago, its HELLO is the answer.
- A peer that does not answer our HELLO is greeted again on a new connection, every `evasive` seconds, for as long as it
  gives signs of life. That makes up for a HELLO that was lost with a connection.

PING and PING-OK have their place in the sequence, so they also show that the message before them was lost. We send a
PING whenever a connection was lost and made again.

`lookout` has the rules of beacons. What is not a rule of 36/ZRE has its own module: `peers` bounds the number of peers,
`agenda` knows when to look at which peer, `outbox` numbers messages, and `rendezvous` finds peers where there are no
beacons.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum, auto
from typing import Final
from uuid import UUID

from zambezi.wire import Message, TooMany, WireError
from zambezi.zre import bounds, events, messages
from zambezi.zre import dialect as dialects
from zambezi.zre.agenda import NEVER, Agenda
from zambezi.zre.beacon import Beacon
from zambezi.zre.counters import Counters
from zambezi.zre.dialect import DIALECTS, DRAFT, STABLE, Dialect, Frames, Greeting
from zambezi.zre.errors import NoSuchPeer, ZreError
from zambezi.zre.gossip import MARK
from zambezi.zre.lookout import Lookout
from zambezi.zre.outbox import Outbox
from zambezi.zre.outputs import Broadcast, Connect, Disconnect, Output, Send
from zambezi.zre.peer import Peer, host_of, together
from zambezi.zre.peers import Peers
from zambezi.zre.profile import Profile
from zambezi.zre.reach import Reach
from zambezi.zre.rendezvous import Rendezvous

# Zyre has further commands in its sequence (ELECT, LEADER, GOODBYE), which ZRE does not define.
_LAST_COMMAND: Final = 7
_WHISPER: Final = 2
_SHOUT: Final = 3
# A HELLO does not say whether it begins a session or answers ours. If two nodes answer each other's answers, they stop
# after so many new sessions in quick succession.
_RENEWALS: Final = 3


class _Situation(Enum):
    """The situation in which a HELLO comes, by what we know of its sender."""

    NEWCOMER = auto()  # we do not know the sender
    ANSWER = auto()  # the sender answers our HELLO
    RENEWAL = auto()  # the sender is ready, and begins a new session
    OTHER_DIALECT = auto()  # the sender speaks the stable protocol, and we speak the draft alone
    TOO_MANY = auto()  # no further peer can become ready


class Engine:
    """One node, without its sockets.

    `endpoint_for` returns the endpoint of our mailbox that a peer at an address can reach; `mailbox_at` the endpoint of
    a mailbox by the address and the port of a beacon; `source_of` the address from which a peer is connected to our
    mailbox. `accepts` decides whether we connect to an endpoint that a peer at an address named. A mesh with keys has
    `proves`, which returns whether our encrypted connection to a peer has reached that peer.
    """

    def __init__(
        self,
        uuid: UUID,
        name: str,
        endpoint_for: Callable[[str], str],
        *,
        mailbox_at: Callable[[str, int], str] | None = None,
        source_of: Callable[[bytes], str] = lambda _: "",
        accepts: Callable[[str, str], bool] | None = None,
        proves: Callable[[bytes], bool] | None = None,
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
            raise ZreError(f"dialect must be 'stable' or 'draft', not {dialect!r}")
        if not 0 < evasive < expired:
            raise ZreError(f"evasive must be less than expired, but they are {evasive} s and {expired} s")
        self.uuid = uuid
        self.key = uuid.bytes
        self.port = 0  # of the mailbox
        self.dialect = DIALECTS[dialect]
        self.profile = Profile(uuid, name, headers or {}, groups)
        self.counters = Counters()
        self.peers = Peers(max_peers, max_strangers)
        self.agenda = Agenda(self.peers)
        self._out = Outbox()
        self.rendezvous = Rendezvous(
            self.key,
            self.dialect,
            self.peers,
            self._out,
            asks=gossip,
            encrypted=proves is not None,
            period=expired,
            greet=self._greet,
            accepts=self._accepts,
            discover=self.discover,
            let_go=self._let_go,
        )
        self._endpoint_for = endpoint_for
        self._mailbox_at = mailbox_at or "tcp://{}:{}".format
        self._source_of = source_of
        self._accepts_from = accepts or Reach().accepts
        self._proves = proves
        self._lookout = Lookout(
            self.key,
            self.peers,
            self.counters,
            encrypted=proves is not None,
            interval=interval,
            evasive=evasive,
            mailbox_at=self._mailbox_at,
            meet=self._meet_stranger,
            replace=self._replace,
            regreet=self._greet_afresh,
            let_go=self._let_go,
        )
        self._interval = interval
        self._evasive = evasive
        self._expired = expired
        self._silence_is_normal = False
        self._next_beacon = NEVER

    def take(self) -> list[Output]:
        """Return what to do, in order, and forget it."""
        return self._out.take()

    # Coming and going

    def start(self, port: int, now: float, beacons: bool = True) -> None:
        """Begin to tell others that we exist. (BCN-02)"""
        self.port = port
        self._silence_is_normal = not beacons or self._proves is not None
        if beacons:
            self._next_beacon = now
        self.rendezvous.start(now)
        self.tick(now)

    def stop(self) -> None:
        """Say goodbye, and end all peers. (BCN-08)"""
        if self._next_beacon != NEVER:
            self._out.append(Broadcast(Beacon(self.uuid, 0).encode()))
        self._next_beacon = NEVER
        self.rendezvous.stop()
        for peer in self._greeted_peers():
            self._out.append(Disconnect(peer.key))
        self.peers.clear()
        self.rendezvous.clear()

    def endpoints_told(self) -> dict[bytes, str]:
        """Return the endpoint of our mailbox that each greeted peer was told, for `move`."""
        return {peer.key: self._endpoint_for(host_of(peer.endpoint)) for peer in self._greeted_peers()}

    def move(self, port: int, before: Mapping[bytes, str], now: float) -> None:
        """Tell all that our address or port changed. Peers that know an endpoint that is gone begin a new session."""
        self.port = port
        self.profile.moved()
        for peer in list(self._greeted_peers()):
            if self._endpoint_for(host_of(peer.endpoint)) == before.get(peer.key):
                continue
            if peer.ready:
                # The peer's connection to our old address is dead, and its last messages are lost: tell the program.
                self._end(peer, "our address changed")
                self._meet(peer.key, peer.endpoint, now, peer.dialect)
            else:
                self._greet_afresh(peer, peer.endpoint, now)
        if self._next_beacon != NEVER:
            self._next_beacon = now
        self.tick(now)

    # Time

    @property
    def deadline(self) -> float:
        """The time at which `tick` must be called."""
        return min(self._next_beacon, self.rendezvous.deadline, self.agenda.deadline)

    def tick(self, now: float) -> None:
        """Send the beacon that is due, begin the round that is due, and look at peers that have been silent."""
        if now >= self._next_beacon:
            self._out.append(Broadcast(Beacon(self.uuid, self.port).encode()))
            # The rhythm stays the same, but beacons that were missed are not sent later.
            self._next_beacon = max(self._next_beacon + self._interval, now)
        self.rendezvous.tick(now)
        for peer in self.agenda.due(now):
            self._look_at(peer, now)

    def _look_at(self, peer: Peer, now: float) -> None:
        """End a peer that has expired, greet it again if it does not answer, or send it a PING."""
        silence = now - peer.heard
        if silence >= self._expired:
            self._end(peer, f"silent for {self._expired:g} s")  # PING-02
            return
        unanswered = not peer.ready or peer.waiting > 0
        if unanswered and silence < self._evasive and now - peer.greeted >= self._evasive:
            if peer.beacon and not peer.ready:
                # Its address can have changed: its beacons tell the new one.
                peer.move(self._mailbox_at(peer.address, int.from_bytes(peer.beacon[20:], "big")))
            self._greet_afresh(peer, peer.endpoint, now)
        if peer.ready and silence >= self._evasive * (peer.evasive + 1):
            peer.evasive += 1
            self._out.send(peer, peer.dialect.ping(0))  # PING-01
            # A peer without beacons, or whose beacons prove nothing, is silent when it has nothing to say. It is
            # evasive if it does not answer a PING.
            expected = self._silence_is_normal or self.rendezvous.gossip.has_no_beacons(peer)
            missed = peer.evasive - 1 if expected else peer.evasive
            if missed == 1:
                self._out.append(events.Evasive(peer.uuid, peer.name))
            elif missed == 2:
                self._out.append(events.Silent(peer.uuid, peer.name))
        self._schedule(peer, now)

    def _schedule(self, peer: Peer, now: float) -> None:
        """Set the time at which we look at a peer again: for a PING, another HELLO, or its end."""
        wanted = peer.heard + self._evasive * (peer.evasive + 1) if peer.ready else NEVER
        if not peer.ready or peer.waiting:
            again = peer.greeted + self._evasive
            wanted = min(wanted, again if again > now else now + self._evasive)
        self.agenda.set(peer, max(min(wanted, peer.heard + self._expired), now + 1e-3))

    # Meeting, greeting and ending

    def receive_beacon(self, octets: bytes, address: str, now: float) -> None:
        """Receive a datagram from an address."""
        self._lookout.receive(octets, address, now)

    def discover(self, uuid: UUID, endpoint: str, now: float) -> None:
        """Meet a node that was found by other means than a beacon."""
        key = uuid.bytes
        if key not in self.peers and key != self.key and not self.rendezvous.seeds.awaits(key, endpoint):
            self._meet_stranger(key, endpoint, now)

    def _meet_stranger(self, key: bytes, endpoint: str, now: float) -> None:
        if self.peers.admit_stranger(now):
            self._meet(key, endpoint, now)
        else:
            self.counters.refused_strangers += 1

    def _meet(self, key: bytes, endpoint: str, now: float, dialect: Dialect | None = None) -> Peer:
        """Add a peer, connect to it and greet it."""
        peer = Peer(key, endpoint, dialect or self.dialect, now)
        self.peers.add(peer)
        self._out.append(Connect(key, endpoint))
        self._greet(peer, now)
        self._schedule(peer, now)
        return peer

    def _greet(self, peer: Peer, now: float) -> None:
        peer.sent = 1
        peer.waiting += 1
        peer.greeted = now
        mailbox = self._endpoint_for(host_of(peer.endpoint))
        hello = self.profile.hello(mailbox, peer.dialect, self.rendezvous.gossip.headers(mailbox))
        self._out.append(Send(peer.key, hello))  # HEL-01

    def _greet_afresh(self, peer: Peer, endpoint: str, now: float) -> None:
        """Greet a peer on a new connection, to the endpoint that it had or to another one."""
        peer.move(endpoint)
        self._out.append(Disconnect(peer.key))
        self._out.append(Connect(peer.key, peer.endpoint))
        peer.waiting = 0
        self._greet(peer, now)

    def _end(self, peer: Peer, reason: str) -> None:
        """End a peer. The program is told only if it was told of the peer before."""
        self.peers.remove(peer)
        self.rendezvous.gossip.part(peer)
        self._out.append(Disconnect(peer.key))
        if peer.ready:
            self._out.append(events.Exit(peer.uuid, peer.name, reason))

    def _replace(self, peer: Peer, endpoint: str, reason: str, now: float) -> None:
        """End a peer, and meet it at another endpoint."""
        self._end(peer, reason)
        self._meet(peer.key, endpoint, now)

    def _let_go(self, peer: Peer) -> None:
        """End a peer that leaves. (BCN-07)"""
        self._end(peer, "it left")
        self.rendezvous.gossip.left(peer)

    def unresponsive(self, key: bytes) -> None:
        """End a peer because the queue of its DEALER is full. (MBX-05)"""
        peer = self.peers.get(key)
        if peer is not None:
            self._end(peer, "it does not respond: its queue is full")

    def unreachable(self, key: bytes) -> None:
        """End a peer whose HELLO named an endpoint to which nothing can connect."""
        self.counters.bad_messages += 1
        peer = self.peers.get(key)
        if peer is not None:
            self._end(peer, f"we cannot connect to its endpoint {peer.endpoint!r}")

    def connection_lost(self, key: bytes) -> None:
        """Send a PING to a peer to whose mailbox the connection was lost; it goes out on the next connection.

        Our last message can be lost with the old connection. No gap would show that, but the PING does.
        """
        peer = self.peers.get(key)
        if peer is not None and peer.ready:
            self._out.send(peer, peer.dialect.ping(0))  # SEQ-02

    # Messages in

    def receive(self, identity: bytes, frames: list[bytes], now: float) -> None:
        """Receive a message to our mailbox, from a DEALER with this identity."""
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
        if dialect is STABLE and octets[3] != 2:
            self.counters.bad_messages += 1  # SIG-02
            return
        peer.received = (peer.received + 1) & 0xFFFF  # SEQ-01
        if dialect.sequence_of(octets) != peer.received:
            self.counters.gaps += 1
            got, wanted = dialect.sequence_of(octets), peer.received
            self._end(peer, f"a gap in its sequence: {got} came instead of {wanted}")  # SEQ-02
            self._meet(key, peer.endpoint, now, dialect)  # it is alive, and can begin a new session
            return
        peer.hear(now)
        if octets[2] > _LAST_COMMAND:
            self.counters.unknown_commands += 1  # it has its place in the sequence, and is otherwise ignored
            return
        if octets[2] in (_WHISPER, _SHOUT) and self._receive_content(peer, octets, frames):
            return
        try:
            message = dialect.family.decode(frames)
        except WireError:
            self.counters.bad_messages += 1
            return
        self._receive_command(peer, message, now)

    def _receive_content(self, peer: Peer, octets: bytes, frames: list[bytes]) -> bool:
        """Receive a WHISPER, or a SHOUT to a group of ours, without decoding it; return False if it is neither.

        It is a faster twin of `_receive_command`, for the messages that have nothing to check.
        """
        rest = octets[peer.dialect.sequence_at + 2 :]
        if octets[2] == _SHOUT:
            group = self.profile.own_group(rest)
            if group is None:
                return False
            self._out.append(events.Shout(peer.uuid, peer.name, group, tuple(frames[1:])))
            return True
        if rest or len(frames) < 2 or frames[1] == MARK:
            return False
        self._out.append(events.Whisper(peer.uuid, peer.name, tuple(frames[1:])))
        return True

    def _receive_command(self, peer: Peer, message: Message, now: float) -> None:
        match message:
            case messages.Whisper() | messages.DraftWhisper():
                content = tuple(message.content)
                if self.rendezvous.gossip.recognizes(peer, content):
                    self.rendezvous.receive_gossip(peer, content, now)
                else:
                    self._out.append(events.Whisper(peer.uuid, peer.name, content))  # MSG-01
            case messages.Shout() | messages.DraftShout():
                if message.group in self.profile.groups:
                    self._out.append(events.Shout(peer.uuid, peer.name, message.group, tuple(message.content)))
                else:
                    self.counters.not_members += 1
            case messages.Join() | messages.DraftJoin():
                self._check_status(peer, message.status)
                if message.group not in peer.groups:
                    self._receive_join(peer, message.group)
            case messages.Leave() | messages.DraftLeave():
                self._check_status(peer, message.status)
                if message.group in peer.groups:
                    peer.groups = together(tuple(peer.groups - {message.group}))
                    self.peers.set_cost(peer, peer.cost - bounds.ITEM - len(message.group))
                    self._out.append(events.Leave(peer.uuid, peer.name, message.group))
            case messages.Ping() | messages.DraftPing():
                self._out.send(peer, peer.dialect.ping_ok(0))  # PING-03

    def _receive_join(self, peer: Peer, group: str) -> None:
        cost = peer.cost + bounds.ITEM + len(group)
        if len(peer.groups) >= bounds.GROUPS or not self.peers.has_room_for(peer, cost):
            self.counters.refused_groups += 1
            return
        peer.groups = together((*peer.groups, group))
        self.peers.set_cost(peer, cost)
        self._out.append(events.Join(peer.uuid, peer.name, group))

    def _check_status(self, peer: Peer, status: int) -> None:
        peer.status = (peer.status + 1) & 0xFF  # GRP-03
        if peer.status != status:
            self.counters.status_mismatches += 1
            peer.status = status

    # HELLO

    def _receive_hello(self, key: bytes, frames: list[bytes], now: float) -> None:
        try:
            dialect, greeting = dialects.read_hello(frames, key)
        except WireError as error:
            self.counters.refused_hellos += isinstance(error, TooMany)
            self.counters.bad_messages += not isinstance(error, TooMany)
            return
        if not self._accepts(key, greeting.endpoint):
            return
        peer = self.peers.get(key)
        match self._situation(peer, dialect, greeting.cost, now), peer:
            case _Situation.NEWCOMER, _:
                self._enter(self._meet_greeter(key, greeting, dialect, now), greeting, now)
            case _Situation.ANSWER, Peer():
                self._receive_answer(peer, greeting, dialect, now)
            case _Situation.RENEWAL, Peer():
                self._end(peer, "it greeted us again")
                again = self._meet_greeter(key, greeting, dialect, now)
                again.renewals = self._renewals(peer, now)
                self._enter(again, greeting, now)
            case _Situation.OTHER_DIALECT, _:
                self._receive_other_dialect(key, peer, greeting.endpoint, now)
            case _Situation.TOO_MANY, _:
                self.counters.refused_peers += 1
                if peer is not None:
                    self._end(peer, "there are too many peers")

    def _accepts(self, key: bytes, endpoint: str) -> bool:
        """Return whether we connect to an endpoint that a peer named; count it if we do not."""
        accepted = self._accepts_from(endpoint, self._source_of(key))
        self.counters.refused_endpoints += not accepted
        return accepted

    def _situation(self, peer: Peer | None, dialect: Dialect, cost: int, now: float) -> _Situation:
        if self.dialect is DRAFT and dialect is not DRAFT:
            return _Situation.OTHER_DIALECT
        if not self.peers.has_room_for(peer, cost):
            return _Situation.TOO_MANY
        if peer is not None and peer.ready:
            answers = peer.waiting and now - peer.greeted < self._evasive
            return _Situation.ANSWER if answers or self._renewals(peer, now) > _RENEWALS else _Situation.RENEWAL
        if self.peers.full:
            return _Situation.TOO_MANY
        return _Situation.NEWCOMER if peer is None else _Situation.ANSWER

    def _renewals(self, peer: Peer, now: float) -> int:
        """Return how often a peer has begun a new session in quick succession, if it begins another one now."""
        return peer.renewals + 1 if now - peer.greeted < self._interval else 0

    def _meet_greeter(self, key: bytes, greeting: Greeting, dialect: Dialect, now: float) -> Peer:
        """Meet the unknown sender of a HELLO: a new peer, or a seed that answers. (MBX-06, HEL-03)"""
        seed = self.rendezvous.adopt(key, greeting.endpoint, self._source_of(key), now)
        if seed is None:
            return self._meet(key, greeting.endpoint, now, dialect)
        self.peers.add(seed)
        self._schedule(seed, now)
        self._use_dialect(seed, dialect, now)
        return seed

    def _receive_answer(self, peer: Peer, greeting: Greeting, dialect: Dialect, now: float) -> None:
        """Receive the HELLO of a peer that we greeted."""
        self.rendezvous.met_otherwise(peer, greeting.endpoint)
        if peer.ready and peer.headers != greeting.headers:
            # Both sides began a new session at once. The program learns of headers by Enter.
            self._out.append(events.Exit(peer.uuid, peer.name, "it greeted us again"))
            self.peers.make_stranger(peer)
        is_elsewhere = not peer.ready and greeting.endpoint != peer.endpoint
        if is_elsewhere and self._proves is not None and not self._proves(peer.key):
            # We connected where a beacon said, which can have been forged. HELLO came by an encrypted connection.
            self._greet_afresh(peer, greeting.endpoint, now)
        self._use_dialect(peer, dialect, now)
        self._enter(peer, greeting, now)

    def _receive_other_dialect(self, key: bytes, peer: Peer | None, endpoint: str, now: float) -> None:
        """Greet the sender of a HELLO that we do not speak: it will answer in the draft. (DIA-01)"""
        if peer is not None and peer.ready:
            self._end(peer, "it greeted us again")
            peer = None
        if peer is None:
            self._meet_stranger(key, endpoint, now)

    def _use_dialect(self, peer: Peer, dialect: Dialect, now: float) -> None:
        """Speak the dialect of a peer; it did not understand a HELLO in another one, so greet it again. (DIA-01)"""
        if peer.dialect is not dialect:
            peer.dialect = dialect
            peer.waiting = 0
            self._greet(peer, now)

    def _enter(self, peer: Peer, greeting: Greeting, now: float) -> None:
        """Make a peer ready, with the contents of its HELLO, and tell the program what is new."""
        peer.waiting = max(peer.waiting - 1, 0)
        peer.received = 1
        peer.hear(now)
        if not peer.ready and peer.sent > 1:
            # No gap would show that a message after our HELLO was lost, see `connection_lost`.
            self._out.send(peer, peer.dialect.ping(0))
        peer.name = greeting.name
        peer.headers = greeting.headers
        peer.status = greeting.status  # HEL-04
        before, peer.groups = peer.groups, together(tuple(greeting.groups))
        self.peers.set_cost(peer, greeting.cost)
        is_new = not peer.ready
        if is_new:
            self.peers.make_ready(peer)
            self._out.append(events.Enter(peer.uuid, peer.name, peer.endpoint, dict(peer.headers)))
            self._schedule(peer, now)
        for group in sorted(peer.groups - before):
            self._out.append(events.Join(peer.uuid, peer.name, group))
        for group in sorted(before - peer.groups):
            self._out.append(events.Leave(peer.uuid, peer.name, group))
        if is_new:
            self.rendezvous.introduce(peer, now)

    # Messages out

    def whisper(self, uuid: UUID, content: Frames) -> None:
        """Send a message to one peer. (MSG-01)"""
        peer = self.peers.get(uuid.bytes)
        if peer is None or not peer.ready:
            raise NoSuchPeer(f"there is no peer {uuid} now")
        self._out.send(peer, peer.dialect.whisper(0, _content(content)))

    def shout(self, group: str, content: Frames) -> int:
        """Send a message to every peer in a group; return the number of these peers. (MSG-02)"""
        content = _content(content)
        members = [peer for peer in self.peers.values() if peer.ready and group in peer.groups]
        self._out.send_all(members, lambda dialect: dialect.shout(0, group, content))
        return len(members)

    def join(self, group: str) -> bool:
        """Join a group; return False if we are in it already. (GRP-01)"""
        joined = self.profile.join(group)
        if joined:
            self._out.send_all(self._greeted_peers(), lambda dialect: dialect.join(0, group, self.profile.status))
        return joined

    def leave(self, group: str) -> bool:
        """Leave a group; return False if we are not in it. (GRP-02)"""
        left = self.profile.leave(group)
        if left:
            self._out.send_all(self._greeted_peers(), lambda dialect: dialect.leave(0, group, self.profile.status))
        return left

    def announce(self, service: str, endpoint: str, now: float) -> None:
        """Offer a service. It travels in HELLO, so peers that know us already are greeted again. (EXT-01)"""
        if self.profile.announce(service, endpoint):
            for peer in self._greeted_peers():
                self._greet(peer, now)
            for peer in self.peers.values():
                self._schedule(peer, now)

    def services(self, service: str) -> dict[UUID, str]:
        """Return the endpoints of a service, by the peer that offers it. (EXT-02)"""
        return {
            peer.uuid: peer.headers[service] for peer in self.peers.values() if peer.ready and service in peer.headers
        }

    def _greeted_peers(self) -> Collection[Peer]:
        """Return all peers that we greeted, and the seeds that have not answered yet."""
        seeds = self.rendezvous.seeds
        return (*self.peers.values(), *seeds.greetings) if seeds else self.peers.values()


def _content(content: Frames) -> Frames:
    """Return content with at least one frame: a WHISPER without any kills a Pyre node."""
    return content or (b"",)
