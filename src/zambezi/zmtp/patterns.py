"""Who gets which message: DEALER, ROUTER, PUB, SUB, XPUB, XSUB (28/REQREP and 29/PUBSUB, as libzmq does it)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from zambezi.zmtp.connection import Ready
from zambezi.zmtp.core import Core, Options
from zambezi.zmtp.errors import MessageError, ProtocolError, Unroutable, ZmtpError
from zambezi.zmtp.frames import Batch, Encoded, Message, parts_of
from zambezi.zmtp.memory import MemoryLink
from zambezi.zmtp.pipe import Pipe
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.stream import StreamLink
from zambezi.zmtp.subscriptions import Subscriptions

Unroutables: TypeAlias = Literal["drop", "error"]


class Dealer(Core):
    """DEALER: each message to one peer, in turn, among those with room."""

    socket_type = "DEALER"
    early = True

    def __init__(self, reactor: Reactor, options: Options, chance: random.Random | None = None) -> None:
        super().__init__(reactor, options, chance)
        self._turn: list[Pipe] = []

    def attach(self, pipe: Pipe) -> None:
        self._turn.append(pipe)
        super().attach(pipe)

    def detach(self, pipe: Pipe) -> None:
        self._turn.remove(pipe)
        super().detach(pipe)

    @property
    def lone(self) -> Pipe | None:
        """The peer, where there is only one."""
        turn = self._turn[:2]  # a copy: threads look without the lock
        return turn[0] if len(turn) == 1 else None

    def try_send(self, message: Message) -> bool:
        turn = self._turn
        for _ in range(len(turn)):
            pipe = turn[0]
            if len(turn) > 1:
                turn.append(turn.pop(0))
            if pipe.mailbox:
                pipe.collect()
            if len(pipe.outbox) < self.send_messages and pipe.out_octets < self.send_octets:
                pipe.push(message)
                return True
        return self.full("every peer's queue is full" if turn else "there is no peer to send to")

    def try_send_batch(self, messages: Sequence[Message], start: int) -> int:
        if len(self._turn) != 1 or any(type(message) is not bytes for message in messages):
            return super().try_send_batch(messages, start)
        pipe = self._turn[0]
        while start < len(messages):
            # What is queued may go out at once and make room, so that only a queue that takes nothing is full.
            stop = pipe.push_many(messages, start)  # type: ignore[arg-type]
            if stop == start:
                if not self.full("the peer's queue is full"):
                    break
                stop += 1
            start = stop
        return start


class Router(Core):
    """ROUTER: the first frame of a message is the identity of the peer that it goes to, or comes from."""

    socket_type = "ROUTER"
    addressed = True

    def __init__(
        self,
        reactor: Reactor,
        options: Options,
        chance: random.Random | None = None,
        unroutable: Unroutables = "drop",
        handover: bool = False,
    ) -> None:
        super().__init__(reactor, options, chance)
        if unroutable not in ("drop", "error"):
            raise ZmtpError(f"unroutable is 'drop' or 'error', not {unroutable!r}")
        self.peers: dict[bytes, Pipe] = {}
        self._unroutable = unroutable
        self._handover = handover
        self._next_identity = self.chance.getrandbits(32)

    def admit(self, properties: Mapping[str, bytes]) -> None:
        identity = properties.get("identity")
        if identity and identity in self.peers and not self._handover:
            raise ProtocolError("the identity is in use by another connection")

    def identify(self, pipe: Pipe, ready: Ready) -> bool:
        identity = ready.identity
        if not identity:
            if pipe.identity[:1] == b"\0":
                return True  # it keeps the one that it was given the first time
            self._next_identity = (self._next_identity + 1) & 0xFFFFFFFF
            identity = b"\0" + self._next_identity.to_bytes(4, "big")
        before = self.peers.get(identity)
        if before is not None and before is not pipe:
            if not self._handover:
                return False
            if before.link is not None:
                before.link.abort("its identity was taken over by a newer connection")
        if pipe.identity != identity:
            # What was queued for whoever was at the other end before is not for this one.
            self.counters.abandoned += pipe.clear_outbox()
            pipe.identity = identity
        self._adopt(pipe)
        return True

    def _adopt(self, pipe: Pipe) -> None:
        """What the peer sent on an old connection, if it is not read yet, is received before what it sends now."""
        for before in [one for one in self.ready if one.identity == pipe.identity and one is not pipe]:
            while (batch := before.pop_batch()) is not None:
                pipe.deliver(batch)

    def attach(self, pipe: Pipe) -> None:
        self.peers[pipe.identity] = pipe
        super().attach(pipe)

    def detach(self, pipe: Pipe) -> None:
        if self.peers.get(pipe.identity) is pipe:
            del self.peers[pipe.identity]
        super().detach(pipe)
        self.on_writable()  # who waited for room in this queue must learn that it is gone

    def _find(self, identity: bytes, messages: int) -> Pipe | None:
        pipe = self.peers.get(identity)
        if pipe is None:
            self.counters.unroutable += messages
            if self._unroutable == "error":
                raise Unroutable(f"no peer has the identity {identity!r}")
        return pipe

    def try_send(self, message: Message) -> bool:
        parts = parts_of(message)
        if len(parts) < 2:
            raise MessageError("a ROUTER sends [identity, frame, ...]: the identity alone is no message")
        pipe = self._find(parts[0], 1)
        if pipe is None:
            return True
        if len(pipe.outbox) >= self.send_messages or pipe.out_octets >= self.send_octets:
            return self.full(f"the queue of peer {parts[0]!r} is full")
        pipe.push(parts[1] if len(parts) == 2 else parts[1:])
        return True

    def try_send_to(self, identity: bytes, messages: Sequence[Message], start: int) -> int:
        """Queue messages without their identity frame, all for one peer."""
        pipe = self._find(identity, len(messages) - start)
        if pipe is None:
            return len(messages)
        singles = all(type(message) is bytes for message in messages)
        while start < len(messages):
            stop = start
            if singles:
                stop = pipe.push_many(messages, start)  # type: ignore[arg-type]
            elif not pipe.full:
                pipe.push(messages[start])
                stop += 1
            if stop == start:
                if not self.full(f"the queue of peer {identity!r} is full"):
                    break
                stop += 1
            start = stop
        return start


class XPub(Core):
    """XPUB: messages go to those who subscribed to a prefix of their first frame; subscriptions can be received."""

    socket_type = "XPUB"
    reports_subscriptions = True

    def __init__(self, reactor: Reactor, options: Options, chance: random.Random | None = None) -> None:
        super().__init__(reactor, options, chance)
        self.subscriptions: Subscriptions[Pipe] = Subscriptions()

    def subscribed_to(self, pipe: Pipe, prefix: bytes, cancel: bool) -> None:
        if not pipe.attached:
            return  # it is leaving: nobody would take the subscription back
        change = self.subscriptions.cancel if cancel else self.subscriptions.add
        # Only what changes for the socket as a whole is told upstream, so that XPUB to XSUB proxies stay small.
        if change(prefix, pipe) and self.reports_subscriptions:
            pipe.deliver(Batch([(b"\x00" if cancel else b"\x01") + prefix], None, len(prefix) + 1))

    def detach(self, pipe: Pipe) -> None:
        gone = self.subscriptions.remove(pipe)
        if pipe.link is None:
            # The peer subscribes anew when it is found again, and what was queued is stale by then.
            self.counters.abandoned += pipe.clear_outbox()
        if gone and self.reports_subscriptions:
            frames = [b"\x00" + prefix for prefix in gone]
            pipe.deliver(Batch(frames, None, sum(map(len, frames))))
        super().detach(pipe)
        self.on_writable()

    def try_send(self, message: Message) -> bool:
        topic = message if type(message) is bytes else parts_of(message)[0]
        pipes = self.subscriptions.match(topic)
        if not pipes:
            return True
        messages, octets = self.send_messages, self.send_octets
        full = [pipe for pipe in pipes if len(pipe.outbox) >= messages or pipe.out_octets >= octets]
        if full:
            if not self.full(f"the queues of {len(full)} subscribers are full"):
                return False
            pipes = [pipe for pipe in pipes if pipe not in full]
        shared: Message = message
        if len(pipes) > 1:
            shared = Encoded(message)  # type: ignore[arg-type]
        for pipe in pipes:
            pipe.push(shared)
        return True


class Pub(XPub):
    """PUB: XPUB that keeps the subscriptions to itself."""

    socket_type = "PUB"
    reports_subscriptions = False

    def try_recv(self) -> list[bytes] | None:
        raise ZmtpError("a PUB socket does not receive; use XPub to see subscriptions")

    def try_recv_batch(self) -> Batch | None:
        raise ZmtpError("a PUB socket does not receive; use XPub to see subscriptions")

    def arrived(self, pipe: Pipe) -> None:
        """What subscribers send upstream goes nowhere."""
        while pipe.pop_batch() is not None:
            pass


class XSub(Core):
    """XSUB: sends its subscriptions as messages that begin with 1 (subscribe) or 0 (cancel), and others upstream."""

    socket_type = "XSUB"

    def __init__(self, reactor: Reactor, options: Options, chance: random.Random | None = None) -> None:
        super().__init__(reactor, options, chance)
        self._wanted: dict[bytes, int] = {}
        self._links: dict[Pipe, StreamLink | MemoryLink] = {}

    def subscribe(self, prefix: bytes) -> None:
        """Want messages that begin with `prefix`. Subscriptions count: two of these need two `unsubscribe`."""
        count = self._wanted.get(prefix, 0)
        self._wanted[prefix] = count + 1
        if not count:
            for link in list(self._links.values()):
                _tell(link, prefix, cancel=False)

    def unsubscribe(self, prefix: bytes) -> None:
        """Take one `subscribe` back."""
        count = self._wanted.get(prefix, 0)
        if not count:
            raise ZmtpError(f"{prefix!r} is not subscribed to")
        if count > 1:
            self._wanted[prefix] = count - 1
            return
        del self._wanted[prefix]
        for link in list(self._links.values()):
            _tell(link, prefix, cancel=True)

    def attach(self, pipe: Pipe) -> None:
        link = pipe.link
        if isinstance(link, StreamLink | MemoryLink):
            self._links[pipe] = link
            for prefix in self._wanted:
                _tell(link, prefix, cancel=False)
        super().attach(pipe)

    def detach(self, pipe: Pipe) -> None:
        self._links.pop(pipe, None)
        super().detach(pipe)

    def try_send(self, message: Message) -> bool:
        parts = parts_of(message)
        head = parts[0][:1]
        if len(parts) == 1 and head == b"\x01":
            self.subscribe(parts[0][1:])
        elif len(parts) == 1 and head == b"\x00":
            if parts[0][1:] in self._wanted:
                self.unsubscribe(parts[0][1:])
        else:
            for pipe in self._links:
                if not pipe.full:
                    pipe.push(message)
                else:
                    self.counters.dropped += 1
        return True


class Sub(XSub):
    """SUB: XSUB with `subscribe` and `unsubscribe` for sending."""

    socket_type = "SUB"

    def try_send(self, message: Message) -> bool:
        raise ZmtpError("a SUB socket does not send; call subscribe() or unsubscribe()")

    def _filter(self, batch: Batch) -> Batch | None:
        """Drop what arrives after its subscription was taken back: the publisher may not have heard of it yet."""
        wanted = self._wanted
        if b"" in wanted:
            return batch
        prefixes = tuple(wanted)
        if batch.ends is None:
            frames = [frame for frame in batch.frames if frame.startswith(prefixes)]
            if len(frames) == len(batch.frames):
                return batch
            return Batch(frames, None, batch.octets) if frames else None
        kept = [message for message in batch if message[0].startswith(prefixes)]
        if len(kept) == len(batch):
            return batch
        frames, ends = [], []
        for message in kept:
            frames += message
            ends.append(len(frames))
        return Batch(frames, ends, batch.octets) if kept else None

    def arrived(self, pipe: Pipe) -> None:
        batch = pipe.inbox[-1]
        kept = self._filter(batch)
        if kept is batch:
            super().arrived(pipe)
            return
        pipe.replace_last(kept)
        if kept is not None:
            super().arrived(pipe)


def _tell(link: StreamLink | MemoryLink, prefix: bytes, cancel: bool) -> None:
    if isinstance(link, MemoryLink):
        link.subscribe(prefix, cancel)
    else:
        (link.connection.cancel if cancel else link.connection.subscribe)(prefix)
        link.nudge_control()
