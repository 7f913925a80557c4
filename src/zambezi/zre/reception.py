"""The reception of messages to the mailbox of a node: their sequence, and the commands of ready peers.

`greetings` receives HELLO, which begins a session and its sequence.
"""

from __future__ import annotations

from typing import Final

from zambezi.wire import Message, WireError
from zambezi.zre import bounds, events, messages
from zambezi.zre import dialect as dialects
from zambezi.zre.agenda import NEVER
from zambezi.zre.counters import Counters
from zambezi.zre.dialect import STABLE
from zambezi.zre.gossip import MARK
from zambezi.zre.greetings import Greetings
from zambezi.zre.meetings import Meetings
from zambezi.zre.outbox import Outbox
from zambezi.zre.peer import Peer, together
from zambezi.zre.profile import Profile

_LAST_COMMAND: Final = 10  # Zyre's last one; 36/ZRE ends with 7
_WHISPER: Final = 2
_SHOUT: Final = 3


class Reception:
    """Receives the messages to a mailbox for an engine, of which it is given the parts."""

    def __init__(
        self,
        us: bytes,
        profile: Profile,
        meetings: Meetings,
        greetings: Greetings,
        out: Outbox,
        counters: Counters,
    ) -> None:
        self._us = us
        self._profile = profile
        self._meetings = meetings
        self._greetings = greetings
        self._peers = meetings.peers
        self._claims = meetings.claims
        self._out = out
        self._counters = counters

    def receive(self, identity: bytes, frames: list[bytes], now: float) -> None:
        """Receive a message to our mailbox, from a DEALER with this identity."""
        if len(identity) != 17 or identity[0] != 1:
            self._counters.bad_identities += 1  # MBX-08
            return
        key = identity[1:]
        if key == self._us:
            return
        octets = frames[0]
        if not dialects.is_signed(octets):
            self._counters.bad_messages += 1  # SIG-01
            return
        if dialects.is_hello(octets):
            self._greetings.receive(key, frames, now)
            return
        peer = self._peers.get(key)
        if peer is None or not peer.ready:
            self._counters.before_hello += 1  # HEL-02
            if self._claims.tests:
                self._claims.hold(key, frames)
            return
        dialect = peer.dialect
        if dialect is STABLE and octets[3] != 2:
            self._counters.bad_messages += 1  # SIG-02
            return
        peer.received = (peer.received + 1) & 0xFFFF  # SEQ-01
        if dialect.sequence_of(octets) != peer.received:
            self._counters.gaps += 1
            got, wanted = dialect.sequence_of(octets), peer.received
            self._meetings.end(peer, f"a gap in its sequence: {got} came instead of {wanted}")  # SEQ-02
            self._meetings.meet(key, peer.endpoint, now, dialect)  # it is alive, and can begin a new session
            return
        peer.hear(now)
        if self._claims.tests:
            self._claims.passed(peer)
        if octets[2] > _LAST_COMMAND:
            self._counters.unknown_commands += 1  # it has its place in the sequence, and is otherwise ignored
            return
        if octets[2] in (_WHISPER, _SHOUT) and self._receive_content(peer, octets, frames):
            return
        try:
            message = dialect.family.decode(frames)
        except WireError:
            self._counters.bad_messages += 1
            return
        self._receive_command(peer, message, now)

    def _receive_content(self, peer: Peer, octets: bytes, frames: list[bytes]) -> bool:
        """Receive a WHISPER, or a SHOUT to a group of ours, without decoding it; return False if it is neither.

        It is a faster twin of `_receive_command`, for the messages that have nothing to check.
        """
        rest = octets[peer.dialect.sequence_at + 2 :]
        if octets[2] == _SHOUT:
            group = self._profile.own_group(rest)
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
                if self._meetings.rendezvous.gossip.recognizes(peer, content):
                    self._meetings.rendezvous.receive_gossip(peer, content, now)
                else:
                    self._out.append(events.Whisper(peer.uuid, peer.name, content))  # MSG-01
            case messages.Shout() | messages.DraftShout():
                if message.group in self._profile.groups:
                    self._out.append(events.Shout(peer.uuid, peer.name, message.group, tuple(message.content)))
                else:
                    self._counters.not_members += 1
            case messages.Join() | messages.DraftJoin():
                self._check_status(peer, message.status)
                if message.group not in peer.groups:
                    self._receive_join(peer, message.group)
            case messages.Leave() | messages.DraftLeave():
                self._check_status(peer, message.status)
                if message.group in peer.groups:
                    peer.groups = together(tuple(peer.groups - {message.group}))
                    self._peers.set_cost(peer, peer.cost - bounds.ITEM - len(message.group))
                    self._out.append(events.Leave(peer.uuid, peer.name, message.group))
                    self._meetings.elections.left(peer, message.group)
            case messages.Ping() | messages.DraftPing():
                self._out.send(peer, peer.dialect.ping_ok(0))  # PING-03
            case messages.PingOk() | messages.DraftPingOk():
                peer.pings = max(peer.pings - 1, 0)
                if peer.doubtful and not peer.pings:
                    # The PING followed our HELLO, so the peer has it.
                    peer.waiting, peer.doubtful, peer.overdue = 0, False, NEVER
            case messages.Elect() | messages.DraftElect():
                self._meetings.elections.receive_elect(peer, message.group, message.challenger)
            case messages.Leader() | messages.DraftLeader():
                self._meetings.elections.receive_leader(peer, message.group, message.leader)
            case messages.Goodbye() | messages.DraftGoodbye():
                self._meetings.let_go(peer)

    def _receive_join(self, peer: Peer, group: str) -> None:
        cost = peer.cost + bounds.ITEM + len(group)
        if len(peer.groups) >= bounds.GROUPS or not self._peers.has_room_for(peer, cost):
            self._counters.refused_groups += 1
            return
        peer.groups = together((*peer.groups, group))
        self._peers.set_cost(peer, cost)
        self._out.append(events.Join(peer.uuid, peer.name, group))
        self._meetings.elections.joined(peer, group)

    def _check_status(self, peer: Peer, status: int) -> None:
        peer.status = (peer.status + 1) & 0xFF  # GRP-03
        if peer.status != status:
            self._counters.status_mismatches += 1
            peer.status = status
