"""The rules of 36/ZRE, without I/O. Beacons, messages and the time go in; `take` returns what to do (see `outputs`).

A node knows each of its peers in one of two states:

    greeted   we found it (by a beacon, by gossip or by its own HELLO), connected to its mailbox and sent HELLO
    ready     its HELLO has come too: the program was told Enter, and can talk to the peer

`lookout` receives beacons, `reception` messages and `greetings` HELLO; with `tick` they move a peer from one state to
the other, or end it, by the actions of `meetings`. Three rules make a mesh heal by itself:

- A gap in a peer's sequence means that messages were lost, and with them perhaps a change of its groups. The peer ends
  (Exit), and enters again with its next sign of life. (SEQ-02)
- A HELLO from a ready peer means that the peer began a new session: it restarted, or it lost track of us. It ends,
  enters again, and we greet it again. But if we wait for its answer, its HELLO is the answer, however late it comes.
- A peer that does not answer our HELLO within `evasive` seconds is greeted again on a new connection, for as long as it
  gives signs of life; then after twice that time, and so on, but at least every `expired` seconds. That makes up for a
  HELLO that was lost with a connection.

PING and PING-OK have their place in the sequence, so they also show that the message before them was lost. We send a
PING whenever a connection was lost and made again.

What is not a rule of 36/ZRE has its own module: `peers` bounds the number of peers, `agenda` knows when to look at
which peer, `outbox` numbers messages, and `rendezvous` finds peers where there are no beacons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from zambezi.zmtp import z85
from zambezi.zre import events
from zambezi.zre.agenda import NEVER
from zambezi.zre.beacon import Beacon
from zambezi.zre.claims import Claim
from zambezi.zre.contact import PUBLIC_KEY, endpoint_at, host_of
from zambezi.zre.counters import Counters
from zambezi.zre.dialect import DIALECTS, Frames
from zambezi.zre.elections import Elections
from zambezi.zre.errors import NoSuchPeer, ZreError
from zambezi.zre.farewell import Farewell
from zambezi.zre.greetings import Greetings
from zambezi.zre.lookout import Lookout
from zambezi.zre.meetings import Meetings
from zambezi.zre.outbox import Outbox
from zambezi.zre.outputs import Broadcast, Disconnect, Output
from zambezi.zre.peer import Peer, Voting
from zambezi.zre.peers import Peers
from zambezi.zre.profile import Profile
from zambezi.zre.reach import Reach
from zambezi.zre.reception import Reception
from zambezi.zre.timing import Timing

# How many turns of a busy event loop an answer to HELLO takes: connecting, two steps of the handshake, and the answer.
_TURNS: Final = 4


class Engine:
    """One node, without its sockets.

    `endpoint_for` returns the endpoint of our mailbox that a peer at an address can reach; `mailbox_at` the endpoint of
    a mailbox by the address and the port of a beacon; `source_of` the address from which a peer is connected to our
    mailbox, `connects_to_us` whether it is connected there now, and `has_unread` whether messages of it wait there;
    `is_connected` whether our connection to a peer's
    mailbox is up. `reach` decides whether we connect to a contact that a peer named. A mesh with keys has `proves`,
    which returns whether our encrypted connection to a peer has reached that peer. A node with keys of its own has its
    `public_key`, and `key_of`, which returns the key that a peer has proved to our mailbox.
    """

    def __init__(
        self,
        uuid: UUID,
        name: str,
        endpoint_for: Callable[[str], str],
        *,
        mailbox_at: Callable[[str, int], str] | None = None,
        source_of: Callable[[bytes], str] = lambda _: "",
        connects_to_us: Callable[[bytes], bool] = lambda _: False,
        has_unread: Callable[[bytes], bool] = lambda _: False,
        reach: Reach | None = None,
        is_connected: Callable[[bytes], bool] = lambda _: True,
        public_key: bytes = b"",
        key_of: Callable[[bytes], bytes] | None = None,
        proves: Callable[[bytes], bool] | None = None,
        headers: Mapping[str, str] | None = None,
        groups: Iterable[str] = (),
        dialect: str = "stable",
        interval: float = 1.0,
        evasive: float = 5.0,
        expired: float = 30.0,
        gossip: bool = False,
        all_elect: bool = False,
        max_peers: int = 10_000,
        max_strangers: int = 1_000,
    ) -> None:
        if dialect not in DIALECTS:
            raise ZreError(f"dialect must be 'stable' or 'draft', not {dialect!r}")
        self.timing = timing = Timing(interval, evasive, expired)
        self.uuid = uuid
        self.key = uuid.bytes
        self.port = 0  # of the mailbox
        self.dialect = DIALECTS[dialect]
        own = {PUBLIC_KEY: z85.encode(public_key)} if public_key else {}
        self.profile = Profile(uuid, name, {**(headers or {}), **own}, groups)
        self.counters = Counters()
        self.peers = Peers(max_peers, max_strangers)
        self._out = Outbox()
        self.elections = Elections(self.key, self.profile, self.peers, self._out, self.counters, timing)
        self.meetings = meetings = Meetings(
            self.key,
            self.profile,
            self.dialect,
            self.peers,
            self._out,
            self.counters,
            self.elections,
            endpoint_for=endpoint_for,
            connects_to_us=connects_to_us,
            has_unread=has_unread,
            source_of=source_of,
            reach=reach,
            key_of=key_of,
            encrypted=proves is not None,
            gossip=gossip,
            timing=timing,
        )
        self.agenda = meetings.agenda
        self.rendezvous = meetings.rendezvous
        self.discover = meetings.discover
        self.unresponsive = meetings.unresponsive
        self.unreachable = meetings.unreachable
        self.connection_lost = meetings.connection_lost
        self.reached = meetings.reached
        self._public_key = public_key
        self._lookout = Lookout(
            self.key,
            self.peers,
            self.counters,
            meetings.departures,
            encrypted=proves is not None,
            keyed=bool(public_key),
            is_connected=is_connected,
            timing=timing,
            mailbox_at=mailbox_at or endpoint_at,
            meet=meetings.meet_beacon,
            replace=meetings.replace,
            regreet=meetings.regreet_stranger,
            depart=meetings.depart,
        )
        self.receive_beacon = self._lookout.receive
        greetings = Greetings(
            self.dialect,
            meetings,
            self._out,
            self.counters,
            source_of=source_of,
            proves=proves,
            timing=timing,
            all_elect=all_elect,
        )
        self.reception = Reception(self.key, self.profile, meetings, greetings, self._out, self.counters)
        self.receive = self.reception.receive
        self._endpoint_for = endpoint_for
        self._encrypted = proves is not None
        self._silence_is_normal = False
        self._next_beacon = NEVER
        self._late = 0.0  # by how many seconds `tick` comes too late, because this process has too little time

    def take(self) -> list[Output]:
        """Return what to do, in order, and forget it."""
        return self._out.take()

    # Coming and going

    def start(self, port: int, now: float, beacons: bool = True) -> None:
        """Begin to tell others that we exist. (BCN-02)"""
        self.port = port
        self._silence_is_normal = not beacons or self._encrypted
        if beacons:
            self._next_beacon = now
        self.rendezvous.start(now)
        self.tick(now)

    def stop(self) -> None:
        """Say goodbye, and end all peers. (BCN-08)"""
        if self._next_beacon != NEVER:
            self._out.append(Broadcast(Beacon(self.uuid, 0, self._public_key).encode()))
        self._next_beacon = NEVER
        self.rendezvous.stop()
        leaving = [peer for peer in self.peers.values() if peer.ready and peer.voting is not Voting.NOT]
        self._out.send_all(leaving, lambda dialect: dialect.goodbye(0))
        for peer in self.meetings.greeted_peers():
            self._out.append(Disconnect(peer.key))
        self.peers.clear()
        self.rendezvous.clear()
        self.elections.clear()
        self.meetings.claims.clear()
        self.meetings.departures.clear()

    def farewell(self, is_lost: Callable[[bytes], bool]) -> Farewell:
        """Ask all peers to confirm that they have read our messages, except those to which the connection is lost."""
        return Farewell(self.peers, self._out, is_lost)

    def endpoints_told(self) -> dict[bytes, str]:
        """Return the endpoint of our mailbox that each greeted peer was told, for `move`."""
        return {peer.key: self._endpoint_for(host_of(peer.endpoint)) for peer in self.meetings.greeted_peers()}

    def move(self, port: int, before: Mapping[bytes, str], now: float) -> None:
        """Tell all that our address or port changed. Peers that know an endpoint that is gone begin a new session."""
        self.port = port
        self.profile.moved()
        for peer in list(self.meetings.greeted_peers()):
            if self._endpoint_for(host_of(peer.endpoint)) == before.get(peer.key):
                continue
            if peer.ready:
                # The peer's connection to our old address is dead, and its last messages are lost: tell the program.
                self.meetings.end(peer, "our address changed")
                self.meetings.meet(peer.key, peer.endpoint, now, peer.dialect)
            else:
                self.meetings.greet_afresh(peer, peer.endpoint, now)
        if self._next_beacon != NEVER:
            self._next_beacon = now
        self.tick(now)

    # Time

    @property
    def deadline(self) -> float:
        """The time at which `tick` must be called."""
        return min(
            self._next_beacon,
            self.rendezvous.deadline,
            self.agenda.deadline,
            self.elections.deadline,
            self.meetings.claims.deadline,
            self.meetings.departures.deadline,
        )

    def tick(self, now: float) -> None:
        """Send the beacon that is due, begin the round that is due, and look at peers that have been silent."""
        self._late = max(now - min(self._next_beacon, self.agenda.deadline), self._late / 2)
        if now >= self._next_beacon:
            self._out.append(Broadcast(Beacon(self.uuid, self.port, self._public_key).encode()))
            # The rhythm stays the same, but beacons that were missed are not sent later.
            self._next_beacon = max(self._next_beacon + self.timing.interval, now)
        self.rendezvous.tick(now)
        self.elections.tick(now)
        for peer in self.agenda.due(now):
            self._look_at(peer, now)
        for peer in self.meetings.departures.due(now):
            self.meetings.let_go(peer)
        for claim in self.meetings.claims.due(now):
            self._admit(claim, now)

    def _admit(self, claim: Claim, now: float) -> None:
        """Meet the newcomer whose claim to an endpoint was right, with the messages that were kept."""
        for frames in claim.held:
            self.receive(b"\x01" + claim.key, frames, now)
        if claim.key and claim.key not in self.peers:
            self.meetings.meet_beacon(claim.key, claim.endpoint, now)

    def _look_at(self, peer: Peer, now: float) -> None:
        """End a peer that has expired, greet it again if it does not answer, or send it a PING."""
        silence = now - peer.heard
        if silence >= self.timing.expired:
            self.meetings.expire(peer)
            return
        if now >= self._patience_end(peer) and silence < self.timing.evasive:
            if peer.beacon and not peer.ready:
                # Its address can have changed: its beacons tell the new one.
                self.peers.move(peer, self._lookout.contact_by_beacon(peer))
            self.meetings.greet_afresh(peer, peer.endpoint, now)
        if peer.ready and silence >= self.timing.evasive * (peer.evasive + 1):
            peer.evasive += 1
            self._out.ping(peer)  # PING-01
            # A peer without beacons, or whose beacons prove nothing, is silent when it has nothing to say. It is
            # evasive if it does not answer a PING.
            expected = self._silence_is_normal or self.rendezvous.gossip.has_no_beacons(peer)
            missed = peer.evasive - 1 if expected else peer.evasive
            if missed == 1:
                self._out.append(events.Evasive(peer.uuid, peer.name))
            elif missed == 2:
                self._out.append(events.Silent(peer.uuid, peer.name))
        self.meetings.schedule(peer, now)

    def _patience_end(self, peer: Peer) -> float:
        """Return the time at which we greet a peer again that has not answered.

        If our own calls come late, the answer can wait in our sockets, and to greet again would be more work for both.
        """
        return peer.overdue + min(_TURNS * self._late, self.timing.expired)

    # Messages out

    def ready_peer(self, uuid: UUID) -> Peer:
        """Return a peer; raise `NoSuchPeer` if it is not ready."""
        peer = self.peers.get(uuid.bytes)
        if peer is None or not peer.ready:
            raise NoSuchPeer(f"there is no peer {uuid} now")
        return peer

    def whisper(self, uuid: UUID, content: Frames) -> None:
        """Send a message to one peer. (MSG-01)"""
        peer = self.ready_peer(uuid)
        self._out.send(peer, peer.dialect.whisper(0, _content(content)))

    def members(self, group: str) -> list[Peer]:
        """Return the peers in a group."""
        return [peer for peer in self.peers.values() if peer.ready and group in peer.groups]

    def shout(self, group: str, content: Frames) -> int:
        """Send a message to every peer in a group; return the number of these peers. (MSG-02)"""
        members = self.members(group)
        self.shout_to(members, group, content)
        return len(members)

    def shout_to(self, members: Iterable[Peer], group: str, content: Frames) -> None:
        """Send a message to some members of a group. (MSG-02)"""
        content = _content(content)
        self._out.send_all(members, lambda dialect: dialect.shout(0, group, content))

    def join(self, group: str, contest: bool = False) -> bool:
        """Join a group, and claim its lead if we contest it; return False if we are in it already. (GRP-01)"""
        joined = self.profile.join(group)
        if joined:
            self._out.send_all(
                self.meetings.greeted_peers(), lambda dialect: dialect.join(0, group, self.profile.status)
            )
        if contest:
            self.elections.contest(group)
        return joined

    def leave(self, group: str) -> bool:
        """Leave a group; return False if we are not in it. (GRP-02)"""
        left = self.profile.leave(group)
        if left:
            self._out.send_all(
                self.meetings.greeted_peers(), lambda dialect: dialect.leave(0, group, self.profile.status)
            )
            self.elections.leave(group)
        return left

    def set_name(self, name: str, now: float) -> None:
        """Change the name of this node, and greet all peers again."""
        if self.profile.rename(name):
            self._greet_all(now)

    def set_header(self, key: str, value: str | None, now: float) -> None:
        """Set a header, such as that of a service, or remove it; and greet all peers again. (EXT-01)"""
        if self.profile.set_header(key, value):
            self._greet_all(now)

    def _greet_all(self, now: float) -> None:
        """Greet the peers again that know us already: HELLO alone has the name and the headers."""
        for peer in self.meetings.greeted_peers():
            self.meetings.greet(peer, now)
        for peer in self.peers.values():
            self.meetings.schedule(peer, now)

    def set_timing(self, interval: float, evasive: float, expired: float, now: float) -> None:
        """Change the times of this node, also for the peers that it has."""
        self.timing.set(interval, evasive, expired)
        if self._next_beacon != NEVER:
            self._next_beacon = min(self._next_beacon, now + interval)
        if self.rendezvous.deadline != NEVER:
            self.rendezvous.deadline = min(self.rendezvous.deadline, now + expired)
        for peer in self.peers.values():
            self.meetings.schedule(peer, now)

    def add_seed(self, contact: str, now: float) -> None:
        """Meet the node at a contact, and from now on the nodes that it tells us of."""
        self.rendezvous.gossip.asks = True
        self.profile.moved()  # HELLO asks for gossip now
        self.rendezvous.start(now)
        self.rendezvous.add_seed(contact, now)

    def services(self, service: str) -> dict[UUID, str]:
        """Return the endpoints of a service, by the peer that offers it. (EXT-02)"""
        return {
            peer.uuid: peer.headers[service] for peer in self.peers.values() if peer.ready and service in peer.headers
        }


def _content(content: Frames) -> Frames:
    """Return content with at least one frame: a WHISPER without any kills a Pyre node."""
    return content or (b"",)
