"""A publisher, without I/O: its queue of messages, those that are sent and not confirmed, and when to send a PING.

Time is an argument of the methods that need it. The connection calls them under its lock; only `post` takes no lock.

ZEPS does not confirm a single message. But PING is a barrier: PING-OK says that all messages before it are in the
journal. So a publisher keeps the messages that it has sent until a PING-OK covers them, and puts them back into its
queue if the connection is lost before. On the next connection the broker tells how many of them it has (`position`),
and only the rest is sent again: each message is in the stream once. A broker without the extension "once" does not
tell, and gets all of them again: that is "at least once".

    publish ----> pieces ----> parcels that wait ----> parcels that are sent ----> confirmed, and dropped
           (any thread)  collect       next_outgoing, mark_sent   |         ping_answered, resume
                                        ^                         |
                                        +-------------------------+
                                              connection_lost

A message costs two entries in a list: the bytes before its body (cached by key and size), and the body. The connection
joins the list into a parcel, the bytes as they go out, when it sends. Until then, while the connection is certain to
send soon, any thread may add to the list without a lock (`post`).

All messages that are not confirmed are kept, up to a bound in bytes. At the bound a publisher waits, raises or drops
the oldest messages, as `on_full` says. (ZEP-15)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final, Literal, NamedTuple, TypeAlias

from zambezi.wire import Unencodable, string
from zambezi.zeps.client.position import Position
from zambezi.zeps.errors import BrokerError, QueueFull, ZepsError
from zambezi.zeps.layout import BODY_LENGTH, LONG, PUBLISH, PUBLISH_LEAST, SHORT, frame_header
from zambezi.zeps.messages import Ping, ResumeOk

OnFull: TypeAlias = Literal["wait", "raise", "drop-oldest"]
Key: TypeAlias = str | bytes

BOUND: Final = 16 << 20  # bytes that may be unconfirmed
LARGEST: Final = 16 << 20  # bytes of a message: the default limit of brokers
POSTS: Final = 512  # messages that `post` accepts without a check of the bound
POST: Final = 1024  # bytes of such a message, at most
PARCEL: Final = 256 << 10  # bytes of a parcel: as many as the broker reads at once
MANY: Final = 4096  # messages of a parcel that `publish_many` makes
MERGED: Final = 4 << 10  # bytes up to which single messages are merged into one parcel
PING_OCTETS: Final = 2 << 20  # bytes after which a PING is sent
PING_LEAST: Final = 256 << 10  # the same with a small bound
PING_SECONDS: Final = 0.05  # seconds after which a PING is sent for fewer bytes
PINGS: Final = 4  # PINGs that may be unanswered
PREFIXES: Final = 16_384  # prefixes that are cached

PING: Final = Ping().encode()[0]
_FRAMED_PING: Final = frame_header(len(PING)) + PING


@dataclass(slots=True)
class PublisherCounters:
    """Counters of a publisher: messages, except where noted."""

    published: int = 0  # accepted by the publisher
    confirmed: int = 0  # known to be in the journal
    republished: int = 0  # sent again after a lost connection
    dropped: int = 0  # dropped to make room (`on_full="drop-oldest"`): lost, unless they had been sent already
    refused: int = 0  # INVALID answers of the broker
    unconfirmed: int = 0  # not confirmed when the publisher was closed: the broker may or may not have them
    reconnects: int = 0  # connections after the first one


class Barrier(NamedTuple):
    """A point to wait for: the confirmation of all parcels up to a number."""

    number: int
    refused: int  # the number of refusals that were raised before


def _frames(octets: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each message begins, without its frame header, and where it ends."""
    start = 0
    while start < len(octets):
        if octets[start]:
            size = int.from_bytes(octets[start + 1 : start + LONG])
            start += LONG
        else:
            size = octets[start + 1]
            start += SHORT
        yield start, start + size
        start += size


class Parcel:
    """Messages as the bytes that go out."""

    __slots__ = ("count", "number", "octets")

    def __init__(self, number: int, count: int, octets: bytes) -> None:
        self.number = number
        self.count = count
        self.octets = octets

    def cut_head(self, count: int) -> int:
        """Remove the first messages; return how many bytes they had."""
        for _, end in islice(_frames(self.octets), count):
            cut = end
        self.octets = self.octets[cut:]
        self.count -= count
        return cut


class Outgoing:
    """The parcels that go out next, and a PING after them if it is time for one."""

    __slots__ = ("octets", "parcels", "ping")

    def __init__(self, parcels: list[Parcel], ping: bool) -> None:
        self.parcels = parcels
        self.ping = ping
        if len(parcels) == 1 and not ping:
            self.octets = parcels[0].octets
        else:
            pieces = [parcel.octets for parcel in parcels]
            self.octets = b"".join([*pieces, _FRAMED_PING] if ping else pieces)

    @property
    def bodies(self) -> list[bytes]:
        """The messages without their frame headers."""
        return [self.octets[start:end] for start, end in _frames(self.octets)]


class _Sizes(dict[int, bytes]):
    """The bytes before the body of a PUBLISH with one key, frame header included, by the size of the body."""

    __slots__ = ("_all", "_key")

    def __init__(self, key: bytes, everything: Prefixes) -> None:
        self._key = key
        self._all = everything

    def __missing__(self, size: int) -> bytes:
        largest = self._all.largest
        if PUBLISH_LEAST - 1 + len(self._key) + size > largest:
            raise ZepsError(
                f"with a body of {size} bytes the message exceeds the limit of {largest}; "
                "publish it in parts, or raise `largest` here and the limit of the broker"
            )
        head = PUBLISH + self._key + BODY_LENGTH.pack(size)
        made = self[size] = frame_header(len(head) + size) + head
        self._all.note_added()
        return made


class Prefixes(dict[Key, _Sizes]):
    """The bytes before the body, by key and then by size. It is bounded: when it is full it is cleared."""

    def __init__(self, largest: int) -> None:
        self.largest = largest
        self._count = 0

    def __missing__(self, key: Key) -> _Sizes:
        sizes = self[key] = _Sizes(encode_key(key), self)
        return sizes

    def note_added(self) -> None:
        """Count a prefix that was added, and clear the cache if it is full."""
        self._count += 1
        if self._count > PREFIXES:
            self._count = 0
            self.clear()


class Publisher:
    """The rules of publishing to one stream over a connection that comes and goes."""

    __slots__ = (
        "_barriers",
        "_bound",
        "_last_parcel",
        "_on_full",
        "_parcel_size",
        "_ping_bytes",
        "_pinged_parcel",
        "_refusal",
        "_refusals_raised",
        "_sent",
        "_sent_parcel",
        "_unpinged_bytes",
        "_unpinged_since",
        "_waiting",
        "_wanted_parcel",
        "counters",
        "on_late_post",
        "pieces",
        "position",
        "posting",
        "prefixes",
        "unconfirmed_bytes",
    )

    def __init__(self, publisher: bytes, bound: int = BOUND, on_full: OnFull = "wait", largest: int = LARGEST) -> None:
        if bound < 1:
            raise ZepsError(f"bound must be a number of bytes above zero, not {bound}")
        if on_full not in ("wait", "raise", "drop-oldest"):
            raise ZepsError(f"on_full must be 'wait', 'raise' or 'drop-oldest', not {on_full!r}")
        self.counters = PublisherCounters()
        self.position = Position(publisher)
        self.prefixes = Prefixes(largest)
        self.pieces: list[bytes] = []  # a prefix, a body, a prefix, a body...
        self.posting = False  # whether the connection is certain to call `collect` soon, and there is room
        self.on_late_post: Callable[[bytes], bool] = _accept  # handles a message that was posted too late
        self.unconfirmed_bytes = 0  # the bytes of all parcels that are not confirmed
        self._bound = bound
        self._on_full = on_full
        self._parcel_size = max(1, min(PARCEL, bound // 8))
        self._ping_bytes = min(PING_OCTETS, max(PING_LEAST, bound // 8))
        self._last_parcel = 0  # the number of the newest parcel
        self._waiting: deque[Parcel] = deque()  # not sent yet
        self._sent: deque[Parcel] = deque()  # sent, not confirmed yet
        self._barriers: deque[int] = deque()  # for each unanswered PING, the last parcel that it covers
        self._sent_parcel = 0  # the last parcel that was sent on this connection
        self._pinged_parcel = 0  # the last parcel that a PING covers
        self._unpinged_bytes = 0  # bytes sent since the last PING
        self._unpinged_since = 0.0  # when the first of these bytes were sent
        self._wanted_parcel = 0  # the last parcel whose confirmation a caller waits for
        self._refusal = ""  # the last reason of the broker
        self._refusals_raised = 0  # `counters.refused` when a refusal was last raised

    # Accepting messages

    def post(self, key: Key, body: bytes) -> bool:
        """Add a message without the lock; return False if the connection may not collect it, or there is no room.

        Any thread may call this: `extend` is atomic, and `collect` removes only the pieces that it has copied. `post`
        reads `posting` again *after* it has added the message. The connection clears `posting` *before* it collects. So
        the message is collected, or `on_late_post` takes the lock and handles it.
        """
        pieces = self.pieces
        if not self.posting or type(body) is not bytes or len(body) > POST or len(pieces) >= 2 * POSTS:
            return False
        pieces.extend((self.prefixes[key][len(body)], body))
        return self.posting or self.on_late_post(body)  # type: ignore[unreachable]  # another thread may have cleared it

    def take_back(self, body: bytes) -> bool:
        """Remove a message that was posted too late; return False if it was collected already."""
        pieces = self.pieces
        for index in range(len(pieces) - 1, 0, -2):
            if pieces[index] is body:
                del pieces[index - 1 : index + 1]
                return True
        return False

    def publish(self, key: Key, body: bytes, wait: bool = True) -> bool:
        """Add a message; return False if there is no room and the caller must wait."""
        prefix = self.prefixes[key][len(body)]
        if self.pieces:
            self.collect()
        size = len(prefix) + len(body)
        if self.unconfirmed_bytes + size > self._bound and not self._make_room(size, wait):
            return False
        self.pieces.extend((prefix, body))
        return True

    def publish_many(self, items: Sequence[tuple[Key, bytes]], start: int, wait: bool = True) -> int:
        """Add messages from `start` on; return the index of the first one that must wait for room."""
        self.collect()
        while start < len(items):
            key, body = items[start]
            guess = self._parcel_size // (len(self.prefixes[key][len(body)]) + len(body))
            part = items[start : start + max(1, min(guess, MANY))]
            while True:
                pieces, size = self._pieces_of(part)
                limit = max(1, min(self._parcel_size, self._bound - self.unconfirmed_bytes))
                if len(part) == 1 or size <= limit:
                    break
                part = part[: max(1, len(part) * limit // size)]
            try:
                if not self._make_room(size, wait):
                    break
            except QueueFull as error:
                raise QueueFull(f"only the first {start} of {len(items)} messages were accepted: {error}") from None
            self._make_parcels(pieces, size)
            start += len(part)
        return start

    def _pieces_of(self, items: Sequence[tuple[Key, bytes]]) -> tuple[list[bytes], int]:
        """Return messages as pieces, and the bytes of all of them."""
        keys, bodies = zip(*items, strict=True)
        lengths = list(map(len, bodies))
        count, key, length = len(lengths), keys[0], lengths[0]
        pieces: list[bytes] = [b""] * (2 * count)
        pieces[1::2] = bodies
        if keys.count(key) == count and lengths.count(length) == count:  # most calls
            prefix = self.prefixes[key][length]
            pieces[0::2] = [prefix] * count
            return pieces, count * (len(prefix) + length)
        prefixes = self.prefixes
        pieces[0::2] = made = [prefixes[key][length] for key, length in zip(keys, lengths, strict=True)]
        return pieces, sum(map(len, made)) + sum(lengths)

    def _make_room(self, size: int, wait: bool) -> bool:
        if self.unconfirmed_bytes + size <= self._bound or not self.unconfirmed_bytes:
            return True
        if self._on_full == "drop-oldest":
            while self.unconfirmed_bytes and self.unconfirmed_bytes + size > self._bound:
                self._drop_oldest()
            return True
        if not self._barriers:
            self._wanted_parcel = self._last_parcel  # without a PING the room would never come
        if wait and self._on_full == "wait":
            return False
        raise QueueFull(
            f"{self.unconfirmed_bytes} bytes are not confirmed yet and the bound is {self._bound}; "
            "call flush(), let publish() wait, or set a larger bound"
        )

    def _drop_oldest(self) -> None:
        # A parcel that was sent has probably arrived, and is only no longer kept. One that was not sent is lost.
        if self._sent:
            parcel = self._sent.popleft()
            self.position.note_confirmed(parcel.count)
        else:
            parcel = self._waiting.popleft()
            self.position.note_dropped(parcel.count)
        self.unconfirmed_bytes -= len(parcel.octets)
        self.counters.dropped += parcel.count

    def collect(self) -> None:
        """Make parcels of the posted messages."""
        pieces = self.pieces
        count = len(pieces)
        if count:
            posted = pieces[:count]
            del pieces[:count]  # pieces that another thread has added meanwhile stay
            self._make_parcels(posted, sum(map(len, posted)))

    def _make_parcels(self, pieces: list[bytes], size: int) -> None:
        count = len(pieces) // 2
        if size > self._parcel_size and count > 1:
            parts = -(-size // self._parcel_size)
            share = -(-count // parts) * 2
            for start in range(0, len(pieces), share):
                part = pieces[start : start + share]
                self._make_parcels(part, sum(map(len, part)))
            return
        self.unconfirmed_bytes += size
        self.counters.published += count
        waiting = self._waiting
        if waiting and len(waiting[-1].octets) + size <= min(MERGED, self._parcel_size):
            last = waiting[-1]
            last.octets += b"".join(pieces)
            last.count += count
        else:
            self._last_parcel += 1
            waiting.append(Parcel(self._last_parcel, count, b"".join(pieces)))

    @property
    def has_room_to_post(self) -> bool:
        """Whether all messages that `post` could accept would fit."""
        return self.unconfirmed_bytes + POSTS * (POST + PUBLISH_LEAST) <= self._bound

    # Sending

    def next_outgoing(self, now: float) -> Outgoing | None:
        """Return the next parcels to send, or None. It changes nothing: call `mark_sent` when they are sent."""
        parcels: list[Parcel] = []
        octets = 0
        for parcel in self._waiting:
            if parcels and octets + len(parcel.octets) > PARCEL:
                break
            parcels.append(parcel)
            octets += len(parcel.octets)
        ping = self._is_time_to_ping(parcels, octets, now)
        return Outgoing(parcels, ping) if parcels or ping else None

    def _is_time_to_ping(self, parcels: list[Parcel], octets: int, now: float) -> bool:
        reached = parcels[-1].number if parcels else self._sent_parcel
        if reached <= self._pinged_parcel:
            return False
        if self._pinged_parcel < self._wanted_parcel <= reached:
            return True
        if self._unpinged_bytes + octets >= self._ping_bytes:
            return len(self._barriers) < PINGS
        return (
            not self._barriers
            and self._sent_parcel > self._pinged_parcel
            and now >= self._unpinged_since + PING_SECONDS
        )

    def claim_ping(self) -> bool:
        """Return whether the caller must send a PING now, for messages that no PING covers; and count it as sent."""
        if self._sent_parcel <= self._pinged_parcel or not self._sent:
            return False
        self.mark_sent(Outgoing([], True), self._unpinged_since)
        return True

    @property
    def all_sent_confirmed(self) -> bool:
        """Whether all messages that were sent on this connection are confirmed."""
        return not self._sent

    def mark_sent(self, outgoing: Outgoing, now: float) -> bool:
        """Note that the connection has sent these parcels; return whether others wait."""
        if outgoing.parcels:
            for parcel in outgoing.parcels:
                self._waiting.popleft()
                self._sent.append(parcel)
            if self._sent_parcel <= self._pinged_parcel:
                self._unpinged_since = now
            self._sent_parcel = outgoing.parcels[-1].number
            self._unpinged_bytes += len(outgoing.octets)
        if outgoing.ping:
            self._barriers.append(self._sent_parcel)
            self._pinged_parcel = self._sent_parcel
            self._unpinged_bytes = 0
        return bool(self._waiting)

    @property
    def deadline(self) -> float | None:
        """The time when `next_outgoing` returns a PING, if nothing else happens before; or None."""
        if self._barriers or self._sent_parcel <= self._pinged_parcel:
            return None
        return self._unpinged_since + PING_SECONDS

    # Answers of the broker

    def ping_answered(self) -> None:
        """Confirm all messages before the oldest PING: the broker has sent PING-OK."""
        if not self._barriers:
            return  # no PING was sent; it confirms nothing
        covered = self._barriers.popleft()
        sent = self._sent
        while sent and sent[0].number <= covered:
            parcel = sent.popleft()
            self.unconfirmed_bytes -= len(parcel.octets)
            self.counters.confirmed += parcel.count
            self.position.note_confirmed(parcel.count)

    def resume(self, answer: ResumeOk) -> None:
        """Go on where the broker says: it has sent RESUME-OK. The messages that it has are confirmed."""
        arrived = self.position.resume(answer)
        self.counters.confirmed += arrived
        waiting = self._waiting
        while arrived:
            parcel = waiting[0]
            if parcel.count <= arrived:
                waiting.popleft()
                arrived -= parcel.count
                self.unconfirmed_bytes -= len(parcel.octets)
            else:
                self.unconfirmed_bytes -= parcel.cut_head(arrived)
                arrived = 0

    def begin(self) -> None:
        """Note that the connection begins to send."""
        self.counters.republished += self.position.begin()

    def note_refusal(self, reason: str) -> None:
        """Note that the broker has refused a message: it has sent INVALID."""
        self.counters.refused += 1
        self._refusal = reason
        # It may have refused a PING. Waiting callers get the error; the next caller needs a new PING.
        self._wanted_parcel = 0
        if self._sent:
            self._pinged_parcel = self._sent[0].number - 1

    def connection_lost(self) -> None:
        """Put the messages that are not confirmed back into the queue, in order, for the next connection."""
        self.position.note_lost(sum(parcel.count for parcel in self._sent))
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        self._barriers.clear()
        self._unpinged_bytes = 0
        # On the next connection no parcel was sent yet, and no PING covers any.
        self._sent_parcel = self._pinged_parcel = 0

    # Waiting for confirmation

    def request_confirmation(self) -> Barrier:
        """Let the next PING cover all messages so far; return the barrier to wait for."""
        self.collect()
        if self.unconfirmed_bytes:
            self._wanted_parcel = self._last_parcel
        return Barrier(self._last_parcel, self._refusals_raised)

    def check_confirmed(self, barrier: Barrier) -> bool:
        """Return whether all messages up to a barrier are confirmed. Raise `BrokerError`, once, after a refusal."""
        refused = self.counters.refused
        if refused > barrier.refused:
            self._refusals_raised = refused
            raise BrokerError(f"the broker refused a published message: {self._refusal}")
        oldest = self._sent or self._waiting
        return not oldest or oldest[0].number > barrier.number

    @property
    def has_raised_refusal(self) -> bool:
        """Whether the program was told of a refusal."""
        return self._refusals_raised > 0

    @property
    def unconfirmed(self) -> int:
        """The number of messages that are not confirmed."""
        kept: Iterable[Parcel] = (*self._sent, *self._waiting)
        return sum(parcel.count for parcel in kept) + len(self.pieces) // 2


def _accept(_body: bytes) -> bool:
    return True


def encode_key(key: object) -> bytes:
    """Return a routing key as it stands in a message: its length, and its bytes."""
    if isinstance(key, str):
        return _encode_text(key)
    if not isinstance(key, bytes):
        raise ZepsError(f"a key must be text, not {type(key).__name__}")
    if len(key) > 255:
        raise ZepsError(f"a key of {len(key)} bytes is too long: 255 at most")
    return bytes((len(key),)) + key


@lru_cache(maxsize=1024)
def _encode_text(key: str) -> bytes:
    try:
        return string.encode(key)
    except Unencodable as error:
        raise ZepsError(f"this key cannot be sent: {error}") from None
