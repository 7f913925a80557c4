"""Request and reply in the broker: requests become messages of a stream, and replies find their client.

A client of requests is attached to the reserved stream `$requests/S`. The broker gives its connection an address, and
publishes each request to the stream S with that address in front. Servers read S like every other reader. They are also
attached to `$replies/S`: there they SUBSCRIBE to the patterns that they serve, and publish their replies, which the
broker passes on to the connection with that address.

So replies are never in a journal: they cost no disk, and nothing remains of them when the client, a server or the
broker dies. The reply stream of a client is its connection. The broker knows all servers by their connections, and
tells a client at once if no server wants its request; such a request is not stored.

The broker remembers no requests, only addresses. A reply that comes late finds no request at the client; one whose
client is gone finds no address. A client that does not read its replies loses those that do not fit into its inbox.

If another broker takes S, clients and servers follow one after the other. A client with a token has the same address
there, and its requests are in S: so it gets replies to requests that it sent to the broker before. For some seconds the
new broker believes that the servers of S come again, and keeps replies for clients that are not here yet.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from zambezi.zeps.block import Block, deliver
from zambezi.zeps.broker.cursor import Outlet
from zambezi.zeps.broker.desk import Desk
from zambezi.zeps.directory import REPLIES, REQUESTS
from zambezi.zeps.errors import BrokerError
from zambezi.zeps.filters import Filter, PatternTable
from zambezi.zeps.requests.envelope import (
    ADDRESS,
    CLOCK,
    ERROR,
    ID,
    NOBODY,
    OK,
    SERVERS,
    TIME,
    address_of,
    encode_stored,
    publish_frame,
    read_asked,
)

if TYPE_CHECKING:
    from zambezi.zeps.broker.engine import Engine
    from zambezi.zeps.broker.session import Session
    from zambezi.zeps.broker.stream import BrokerStream

INBOX: Final = 1 << 20  # bytes of replies that wait for a client; one reply can be larger
INBOXES: Final = 1 << 28  # bytes of replies that wait for all clients
_OF_BLOCK: Final = 300  # bytes that a reply takes in memory besides its own
_MOST_CREDIT: Final = 1 << 62
_PATTERNS: Final = 100  # that one connection serves
_SLOW: Final = 200  # patterns of all servers of a stream that are tried one by one: some milliseconds for a new key


class Inbox(Desk):
    """Messages to one client that are in memory only. They go out as the client gives credit and reads."""

    def __init__(self, exchange: Exchange, outlet: Outlet) -> None:
        self._exchange = exchange
        self._outlet = outlet
        self._waiting: deque[Block] = deque()
        self._bytes = 0
        self._sequence = 0
        self._credit = 0

    def put(self, key: bytes, body: bytes) -> bool:
        """Deliver a message now or later; return False if it does not fit, and count that."""
        if self._bytes >= INBOX or self._exchange.waiting >= INBOXES:
            self._exchange.engine.counters.unclaimed += 1
            return False
        self._sequence += 1
        block = deliver([publish_frame(key, body)], self._sequence)
        if not self._waiting and self._credit > 0 and self._outlet.offer(block):
            self._credit -= block.credit
            return True
        self._waiting.append(block)
        self._note(len(block.octets) + _OF_BLOCK)
        self._outlet.wake()
        return True

    def _note(self, octets: int) -> None:
        self._bytes += octets
        self._exchange.waiting += octets

    def subscribe(self, pattern: str) -> None:
        """Do nothing: a client gets all its replies."""

    def add_credit(self, octets: int) -> None:
        self._credit = min(self._credit + octets, _MOST_CREDIT)
        if self._waiting:
            self._outlet.wake()

    def pull(self) -> Block | None:
        if not self._waiting or self._credit <= 0:
            return None
        block = self._waiting.popleft()
        self._note(-len(block.octets) - _OF_BLOCK)
        self._credit -= block.credit
        return block

    def close(self) -> None:
        self._waiting.clear()
        self._note(-self._bytes)


class RequestDesk(Inbox):
    """A client that sends requests to the servers of a stream."""

    def __init__(self, exchange: Exchange, session: Session, outlet: Outlet, stream: str) -> None:
        super().__init__(exchange, outlet)
        self.stream = stream
        self.address = exchange.random(ADDRESS)
        self._session = session
        self.apply_rules()
        exchange.inboxes[self.address] = self

    def apply_rules(self) -> None:
        self._may_ask = self._exchange.engine.allows(self._session, "publish", self.stream)

    def order(self, key: bytes, body: bytes) -> None:
        """Publish a request; or answer at once that no server listens, or why it cannot be published."""
        exchange, engine = self._exchange, self._exchange.engine
        asked = read_asked(body)
        if asked is None:
            self._session.reject("order", "a request is too short: it begins with 12 bytes")
            return
        number, timeout, content = asked
        engine.counters.requests += 1
        if not self._may_ask:
            user = self._session.user or "anybody"
            self._answer(ERROR, number, f"{user} may not publish to the stream {self.stream}")
            return
        stream = engine.find(self.stream)
        self._session.spend(exchange.work_for(self.stream, key))
        if stream is None or not (exchange.has_server(self.stream, key) or exchange.expects_server(stream, key)):
            engine.counters.unserved += 1
            self._answer(NOBODY, number, "")
            return
        deadline = int(stream.clock() * 1_000_000) + timeout * 1000 if timeout else 0
        frame = publish_frame(key, encode_stored(self.address, number, deadline, content))
        if len(frame) > engine.limits.message:
            self._answer(ERROR, number, f"a request of {len(frame)} bytes is over the limit of the broker")
            return
        self.used = stream
        engine.counters.published += 1
        stream.publish([frame], self._session)

    def subscribe(self, pattern: str) -> None:
        """Have the address of a token from now on; another pattern changes nothing: a client gets all its replies."""
        address = address_of(pattern)
        if address is not None:
            self._leave()
            self.address = address
            self._exchange.inboxes[address] = self  # an older connection of this client gets nothing any more
            for key, body in self._exchange.take_kept(address, self.stream):
                self.put(key, body)

    def _leave(self) -> None:
        if self._exchange.inboxes.get(self.address) is self:
            del self._exchange.inboxes[self.address]

    def _answer(self, status: bytes, number: bytes, text: str) -> None:
        self.put(status, number + text.encode(errors="replace"))

    def close(self) -> None:
        super().close()
        self._leave()
        if self.used is not None:
            self.used.forget_publisher(self._session)


class ReplyDesk(Inbox):
    """A server of a stream: the patterns that it serves, and its replies."""

    def __init__(self, exchange: Exchange, session: Session, outlet: Outlet, stream: str) -> None:
        super().__init__(exchange, outlet)
        self._session = session
        self._stream = stream
        self._patterns: list[str] = []
        self.apply_rules()

    def apply_rules(self) -> None:
        # Whether the rules allow it now. Each request and each reply needs the answer.
        self.may_serve = self._exchange.engine.allows(self._session, "serve", self._stream)

    def order(self, key: bytes, body: bytes) -> None:
        """Pass a reply on to its client."""
        engine = self._exchange.engine
        if key not in (OK, ERROR) or len(body) < ADDRESS + ID:
            self._session.reject(
                "order", "a reply has the key 'ok' or 'error', and begins with 24 bytes of its request"
            )
            return
        if not self.may_serve:
            self._session.reject("forbidden", self._forbidden)
            return
        address, reply = body[:ADDRESS], body[ADDRESS:]
        inbox = self._exchange.inboxes.get(address)
        if inbox is None and self._exchange.keep(address, self._stream, key, reply):
            return
        if inbox is None or inbox.stream != self._stream:
            engine.counters.unclaimed += 1
        else:
            inbox.put(key, reply)

    def subscribe(self, pattern: str) -> None:
        """Serve a pattern from now on, and tell the server the clock and the limit of the broker."""
        exchange = self._exchange
        if not self.may_serve:
            raise BrokerError(self._forbidden)
        if len(self._patterns) >= _PATTERNS:
            raise BrokerError(f"a connection serves at most {_PATTERNS} patterns")
        exchange.check_pattern(self._stream, pattern)
        exchange.remove_server(self._stream, self, self._patterns)
        self._patterns.append(pattern)
        exchange.add_server(self._stream, self, self._patterns)
        self.put(TIME, CLOCK.pack(exchange.microseconds(), exchange.engine.limits.message))

    @property
    def _forbidden(self) -> str:
        return f"{self._session.user_name} may not serve the stream {self._stream}"

    def close(self) -> None:
        super().close()
        self._exchange.remove_server(self._stream, self, self._patterns)
        self._patterns = []


class Exchange:
    """The clients and the servers of all streams."""

    def __init__(self, engine: Engine, clock: Callable[[], float], random: Callable[[int], bytes] = os.urandom) -> None:
        self.engine = engine
        self.random = random
        self.inboxes: dict[bytes, RequestDesk] = {}  # by address
        self.waiting = 0  # bytes of all inboxes
        self._clock = clock
        self._servers: dict[str, tuple[PatternTable[ReplyDesk], set[ReplyDesk]]] = {}
        # Replies for clients that are perhaps on their way to this broker, by address and stream.
        self._kept: dict[tuple[bytes, str], list[tuple[bytes, bytes]]] = {}
        self._kept_bytes = 0

    def open(self, name: str, session: Session, outlet: Outlet) -> Desk | None:
        """Return the desk for a connection to a reserved stream; None if it is not one of requests or replies."""
        if (stream := name.removeprefix(REQUESTS)) != name:
            return RequestDesk(self, session, outlet, stream)
        if (stream := name.removeprefix(REPLIES)) != name:
            return ReplyDesk(self, session, outlet, stream)
        return None

    def microseconds(self) -> int:
        """Return the time of the broker, in microseconds since 1970."""
        return int(self._clock() * 1_000_000)

    def check_pattern(self, stream: str, pattern: str) -> None:
        """Raise an error if the servers of a stream cannot have one more pattern like that."""
        self.engine.matchers.parse(pattern)
        is_slow = self.engine.matchers.split(pattern)[0] not in ("prefix", "exact")
        if is_slow and stream in self._servers and self._servers[stream][0].slow >= _SLOW:
            raise BrokerError(
                f"the servers of the stream {stream} have {_SLOW} glob and regex patterns, the limit: use a prefix"
            )

    def work_for(self, stream: str, key: bytes) -> int:
        """Return the units of work that it takes to find the servers that want a key."""
        found = self._servers.get(stream)
        return 0 if found is None or found[0].knows(key) else found[0].slow

    def has_server(self, stream: str, key: bytes) -> bool:
        """Return whether a server wants requests with a key."""
        found = self._servers.get(stream)
        if found is not None:
            for desk in found[0].find(key):
                if desk.may_serve:
                    return True
        return False

    def expects_server(self, stream: BrokerStream, key: bytes) -> bool:
        """Return whether a server that wants requests with a key was at the broker before, and comes soon."""
        if not stream.is_settling:
            return False
        patterns = stream.groups.patterns(SERVERS)
        return bool(patterns) and Filter(patterns, self.engine.matchers)(key)

    def keep(self, address: bytes, stream: str, key: bytes, body: bytes) -> bool:
        """Keep a reply for a client that comes soon; return False if none is expected, or there is no room."""
        found = self.engine.find(stream)
        if found is None or not found.is_settling:
            self._kept.clear()
            self._kept_bytes = 0
            return False
        if self._kept_bytes + len(body) > INBOX:
            return False
        self._kept_bytes += len(body)
        self._kept.setdefault((address, stream), []).append((key, body))
        return True

    def take_kept(self, address: bytes, stream: str) -> list[tuple[bytes, bytes]]:
        """Return the replies that were kept for a client, and forget them."""
        found = self._kept.pop((address, stream), [])
        self._kept_bytes -= sum(len(body) for _, body in found)
        return found

    def add_server(self, stream: str, desk: ReplyDesk, patterns: list[str]) -> None:
        """Add a server with its patterns."""
        if stream not in self._servers:
            self._servers[stream] = (PatternTable(self.engine.matchers), set())
        table, desks = self._servers[stream]
        table.add(desk, patterns)
        desks.add(desk)

    def remove_server(self, stream: str, desk: ReplyDesk, patterns: list[str]) -> None:
        """Remove a server; `patterns` are those that it was added with."""
        if not patterns:
            return
        table, desks = self._servers[stream]
        table.remove(desk, patterns)
        desks.discard(desk)
        if not desks:
            del self._servers[stream]
