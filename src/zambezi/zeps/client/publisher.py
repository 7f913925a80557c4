"""A publisher, without I/O: what waits to go out, what has gone and is not confirmed yet, and when to ask.

ZEPS has no confirmation of a message. But PING is a barrier: PING-OK says that all that was published before is in the
journal. So a publisher keeps what it has sent until a PING-OK covers it, and sends it again if the connection is lost
before. That is "at least once": what had arrived when the connection broke comes a second time.

    publish ----> pieces ----> parcels that wait ----> parcels that were sent ----> confirmed, and forgotten
           (any thread)  collect              next, went          |           confirm
                                        ^                         |
                                        +-------------------------+
                                           the connection is lost

A message costs two entries in a list: what stands before its body (found in a dictionary by key and size) and the body.
The list is joined into a parcel, the octets as they go out, when somebody comes to send; until then, while somebody is
sure to come, any thread may add to it without a lock (`post`).

All that is not confirmed is kept, up to a bound in octets. At the bound a publisher waits, or does what else it was
told. (ZEP-15)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from zambezi.wire import Unencodable, string
from zambezi.zeps.errors import BrokerError, QueueFull, ZepsError
from zambezi.zeps.layout import BODY_LENGTH, PUBLISH, PUBLISH_LEAST, frame_header
from zambezi.zeps.messages import Ping

OnFull: TypeAlias = Literal["wait", "raise", "drop-oldest"]
Key: TypeAlias = str | bytes

BOUND: Final = 16 << 20
LARGEST: Final = 16 << 20  # of a message: what brokers take unless they are told otherwise
POSTS: Final = 512  # so many messages,
POST: Final = 1024  # of so many octets at most, are taken with no look at the bound
PARCEL: Final = 64 << 10
MERGED: Final = 4 << 10  # messages that wait one by one share parcels of so many octets
ASK_OCTETS: Final = 256 << 10  # confirmation is asked for after so many octets,
ASK_SECONDS: Final = 0.05  # or when something has waited so long for it,
ASKED: Final = 4  # but only so often at a time
PREFIXES: Final = 16_384

PING: Final = Ping().encode()[0]
_FRAMED_PING: Final = frame_header(len(PING)) + PING


@dataclass(slots=True)
class PublisherCounters:
    """What became of what was published, in messages; and how often the connection was made anew."""

    published: int = 0  # given to the publisher
    confirmed: int = 0  # known to be in the journal
    republished: int = 0  # sent again after a lost connection: subscribers may see these twice
    dropped: int = 0  # given up to make room, as `on_full="drop-oldest"` says: lost, unless they were on their way
    refused: int = 0  # answers of the broker that it does not take something
    unconfirmed: int = 0  # when the publisher was closed: the broker may or may not have them
    reconnects: int = 0


class Barrier(NamedTuple):
    """What somebody waits for: the confirmation of all parcels up to a number."""

    number: int
    refused: int  # how many answers of refusal were told of before


class Parcel:
    """Messages as they go out."""

    __slots__ = ("count", "number", "octets")

    def __init__(self, number: int, count: int, octets: bytes) -> None:
        self.number = number
        self.count = count
        self.octets = octets


class Outgoing:
    """What goes out next: some parcels, and a PING behind them where it is time for one."""

    __slots__ = ("octets", "parcels", "ping")

    def __init__(self, parcels: list[Parcel], ping: bool) -> None:
        self.parcels = parcels
        self.ping = ping
        pieces = [parcel.octets for parcel in parcels]
        if ping:
            pieces.append(_FRAMED_PING)
        self.octets = pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def bodies(self) -> list[bytes]:
        """The messages without their frame headers."""
        octets = self.octets
        bodies = []
        start = 0
        while start < len(octets):
            if octets[start]:
                size = int.from_bytes(octets[start + 1 : start + 9])
                start += 9
            else:
                size = octets[start + 1]
                start += 2
            bodies.append(octets[start : start + size])
            start += size
        return bodies


class _Sizes(dict[int, bytes]):
    """What stands before the body of a PUBLISH with one key, by the size of the body: frame header and all."""

    __slots__ = ("_all", "_key")

    def __init__(self, key: bytes, everything: Prefixes) -> None:
        self._key = key
        self._all = everything

    def __missing__(self, size: int) -> bytes:
        largest = self._all.largest
        if PUBLISH_LEAST - 1 + len(self._key) + size > largest:
            raise ZepsError(
                f"with a body of {size} octets the message is over the limit of {largest}; "
                "publish it in parts, or raise `largest` here and the limit of the broker"
            )
        head = PUBLISH + self._key + BODY_LENGTH.pack(size)
        made = self[size] = frame_header(len(head) + size) + head
        self._all.made()
        return made


class Prefixes(dict[Key, _Sizes]):
    """What stands before the body, by key and then by size. Bounded: when it has grown too large it starts anew."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._count = 0

    def __missing__(self, key: Key) -> _Sizes:
        sizes = self[key] = _Sizes(encode_key(key), self)
        return sizes

    def made(self) -> None:
        self._count += 1
        if self._count > PREFIXES:
            self._count = 0
            self.clear()


class Publisher:
    """The rules of publishing to one stream over a connection that comes and goes."""

    __slots__ = (
        "_asked_at",
        "_barriers",
        "_bound",
        "_made",
        "_on_full",
        "_parcel",
        "_reached",
        "_refusal",
        "_sent",
        "_sent_octets",
        "_since",
        "_told",
        "_waiting",
        "_wanted",
        "counters",
        "held",
        "pieces",
        "posting",
        "prefixes",
        "settle",
    )

    def __init__(self, bound: int = BOUND, on_full: OnFull = "wait", largest: int = LARGEST) -> None:
        if bound < 1:
            raise ZepsError(f"the bound of what is not confirmed is a number of octets above zero, not {bound}")
        if on_full not in ("wait", "raise", "drop-oldest"):
            raise ZepsError(f"on_full is 'wait', 'raise' or 'drop-oldest', not {on_full!r}")
        self.counters = PublisherCounters()
        self.prefixes = Prefixes(largest)
        self.pieces: list[bytes] = []  # a prefix, a body, a prefix, a body...
        self.posting = False  # whether it is certain that the connection will collect, and there is room
        self.settle: Callable[[bytes], bool] = _collected  # sees to a message that was posted just too late
        self.held = 0  # the octets of all parcels that are not confirmed
        self._bound = bound
        self._on_full = on_full
        self._parcel = max(1, min(PARCEL, bound // 8))
        self._made = 0  # the number of the last parcel
        self._waiting: deque[Parcel] = deque()
        self._sent: deque[Parcel] = deque()
        self._barriers: deque[int] = deque()  # for each PING that is out, the last parcel that it covers
        self._reached = 0  # the last parcel that was sent on this connection
        self._asked_at = 0  # the last parcel that a PING covers
        self._sent_octets = 0  # sent since the last PING,
        self._since = 0.0  # and when the first of it was
        self._wanted = 0  # up to which parcel somebody waits for the confirmation
        self._refusal = ""
        self._told = 0

    # In

    def post(self, key: Key, body: bytes) -> bool:
        """Take a message without the lock; return False if the connection may not collect it, or there is no room.

        Any thread may call this: `extend` is atomic, and `collect` removes only what it has seen. It looks again
        *after* it has posted whether the publisher is still `posting`: the connection clears that *before* it collects,
        so that a message is either collected, or `settle` takes the lock and sees to it.
        """
        pieces = self.pieces
        if not self.posting or type(body) is not bytes or len(body) > POST or len(pieces) >= 2 * POSTS:
            return False
        pieces.extend((self.prefixes[key][len(body)], body))
        return self.posting or self.settle(body)  # type: ignore[unreachable]  # another thread may have cleared it

    def take_back(self, body: bytes) -> bool:
        """Take a message back that was posted too late: False if it was collected."""
        pieces = self.pieces
        for index in range(len(pieces) - 1, 0, -2):
            if pieces[index] is body:
                del pieces[index - 1 : index + 1]
                return True
        return False

    def publish(self, key: Key, body: bytes, wait: bool = True) -> bool:
        """Take a message. False: there is no room now, and it shall wait."""
        prefix = self.prefixes[key][len(body)]
        self.collect()
        if not self._make_room(len(prefix) + len(body), wait):
            return False
        self.pieces.extend((prefix, body))
        return True

    def publish_many(self, items: Sequence[tuple[Key, bytes]], start: int, wait: bool = True) -> int:
        """Take messages from `start` on; where it stopped, for there is no room now and the rest shall wait."""
        self.collect()
        while start < len(items):
            part = items[start : start + POSTS]
            while True:
                pieces = self._pieces_of(part)
                size = sum(map(len, pieces))
                if len(part) == 1 or self.held + size <= self._bound:
                    break
                part = part[: len(part) // 2]
            try:
                if not self._make_room(size, wait):
                    break
            except QueueFull as error:
                raise QueueFull(f"the first {start} of {len(items)} messages were taken: {error}") from None
            self._wrap(pieces, size)
            start += len(part)
        return start

    def _pieces_of(self, items: Sequence[tuple[Key, bytes]]) -> list[bytes]:
        keys, bodies = zip(*items, strict=True)
        prefixes = self.prefixes
        pieces: list[bytes] = [b""] * (2 * len(bodies))
        if keys.count(keys[0]) == len(keys):
            pieces[0::2] = map(prefixes[keys[0]].__getitem__, map(len, bodies))
        else:
            pieces[0::2] = [prefixes[key][len(body)] for key, body in items]
        pieces[1::2] = bodies
        return pieces

    def _make_room(self, size: int, wait: bool) -> bool:
        if self.held + size <= self._bound or not self.held:
            return True
        if self._on_full == "drop-oldest":
            while self.held and self.held + size > self._bound:
                self._drop()
            return True
        if not self._barriers:
            self._wanted = self._made  # there is nothing to wait for until somebody asks
        if wait and self._on_full == "wait":
            return False
        raise QueueFull(
            f"{self.held} octets are not confirmed yet and the bound is {self._bound}; "
            "flush(), or let publish() wait, or give the publisher a larger bound"
        )

    def _drop(self) -> None:
        # What was sent has probably arrived, and is only no longer kept; what was not is lost.
        parcel = (self._sent or self._waiting).popleft()
        self.held -= len(parcel.octets)
        self.counters.dropped += parcel.count

    def collect(self) -> None:
        """Make parcels of what was posted."""
        pieces = self.pieces
        count = len(pieces)
        if count:
            posted = pieces[:count]
            del pieces[:count]  # what was appended meanwhile stays
            self._wrap(posted, sum(map(len, posted)))

    def _wrap(self, pieces: list[bytes], size: int) -> None:
        count = len(pieces) // 2
        if size > self._parcel and count > 1:
            half = count // 2 * 2
            octets = sum(map(len, pieces[:half]))
            self._wrap(pieces[:half], octets)
            self._wrap(pieces[half:], size - octets)
            return
        self.held += size
        self.counters.published += count
        waiting = self._waiting
        if waiting and len(waiting[-1].octets) + size <= min(MERGED, self._parcel):
            last = waiting[-1]
            last.octets += b"".join(pieces)
            last.count += count
        else:
            self._made += 1
            waiting.append(Parcel(self._made, count, b"".join(pieces)))

    @property
    def roomy(self) -> bool:
        """Whether as much as can be posted fits."""
        return self.held + POSTS * (POST + PUBLISH_LEAST) <= self._bound

    # Out

    def next(self, now: float) -> Outgoing | None:
        """What goes out next on a connection that is attached; it has gone when `went` says so."""
        parcels: list[Parcel] = []
        octets = 0
        for parcel in self._waiting:
            if parcels and octets + len(parcel.octets) > PARCEL:
                break
            parcels.append(parcel)
            octets += len(parcel.octets)
        ping = self._is_time_to_ask(parcels, octets, now)
        return Outgoing(parcels, ping) if parcels or ping else None

    def _is_time_to_ask(self, parcels: list[Parcel], octets: int, now: float) -> bool:
        reached = parcels[-1].number if parcels else self._reached
        if reached <= self._asked_at:
            return False
        if self._asked_at < self._wanted <= reached:
            return True
        if self._sent_octets + octets >= ASK_OCTETS:
            return len(self._barriers) < ASKED
        return not self._barriers and self._reached > self._asked_at and now >= self._since + ASK_SECONDS

    def ask(self) -> bool:
        """Whether a PING is to be sent now, past `next`: there is something that none covers."""
        if self._reached <= self._asked_at or not self._sent:
            return False
        self.went(Outgoing([], True), self._since)
        return True

    @property
    def settled(self) -> bool:
        """Whether all that was sent on this connection is confirmed."""
        return not self._sent

    def went(self, outgoing: Outgoing, now: float) -> None:
        """The connection has taken it."""
        if outgoing.parcels:
            for parcel in outgoing.parcels:
                self._waiting.popleft()
                self._sent.append(parcel)
            if self._reached <= self._asked_at:
                self._since = now
            self._reached = outgoing.parcels[-1].number
            self._sent_octets += len(outgoing.octets)
        if outgoing.ping:
            self._barriers.append(self._reached)
            self._asked_at = self._reached
            self._sent_octets = 0

    @property
    def deadline(self) -> float | None:
        """When `next` has a PING to send, if nothing else happens before."""
        if self._barriers or self._reached <= self._asked_at:
            return None
        return self._since + ASK_SECONDS

    # What the broker says

    def confirm(self) -> None:
        """A PING-OK: everything before the oldest PING is safe."""
        if not self._barriers:
            return  # nobody asked; it confirms nothing
        covered = self._barriers.popleft()
        sent = self._sent
        while sent and sent[0].number <= covered:
            parcel = sent.popleft()
            self.held -= len(parcel.octets)
            self.counters.confirmed += parcel.count

    def refuse(self, reason: str) -> None:
        """An INVALID: the broker does not take something of what was published."""
        self.counters.refused += 1
        self._refusal = reason
        # It may have been a PING. Who waits is told; who asks again gets an answer of its own.
        self._wanted = 0
        if self._sent:
            self._asked_at = self._sent[0].number - 1

    def lost(self) -> None:
        """The connection is gone: what is not confirmed is sent again, in its order, on the next one."""
        self.counters.republished += sum(parcel.count for parcel in self._sent)
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        self._barriers.clear()
        self._sent_octets = 0
        # The next connection starts from nothing: no parcel was sent on it, and no PING covers any.
        self._reached = self._asked_at = 0

    # Waiting for confirmation

    def barrier(self) -> Barrier:
        """Ask for the confirmation of all until now."""
        self.collect()
        if self.held:
            self._wanted = self._made
        return Barrier(self._made, self._told)

    def is_confirmed(self, barrier: Barrier) -> bool:
        """Whether nothing up to the barrier is left to be confirmed. Raises what the broker refused since the last."""
        refused = self.counters.refused
        if refused > barrier.refused:
            self._told = refused
            raise BrokerError(f"the broker refused something that was published: {self._refusal}")
        oldest = self._sent or self._waiting
        return not oldest or oldest[0].number > barrier.number

    @property
    def unconfirmed(self) -> int:
        """How many messages are not confirmed."""
        kept: Iterable[Parcel] = (*self._sent, *self._waiting)
        return sum(parcel.count for parcel in kept) + len(self.pieces) // 2


def _collected(_body: bytes) -> bool:
    return True


def encode_key(key: object) -> bytes:
    """A routing key as it stands in a message."""
    if isinstance(key, bytes):
        if len(key) > 255:
            raise ZepsError(f"a key of {len(key)} octets is too long: 255 at most")
        return bytes((len(key),)) + key
    if not isinstance(key, str):
        raise ZepsError(f"a key is text, not {type(key).__name__}")
    try:
        return string.encode(key)
    except Unencodable as error:
        raise ZepsError(f"this key cannot be sent: {error}") from None
