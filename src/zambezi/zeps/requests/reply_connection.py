"""The connection of a server: it tells the broker which requests it serves, and sends the replies.

While the broker is away, replies wait for the next connection, up to a bound: their clients may still be there.

A request that is answered must be acknowledged, so that no other server gets it. No client waits for that, so the
connection collects acknowledgements for a moment: one for each request would cost the broker as much as the request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from zambezi.zeps.client.batch import MessageBatch
from zambezi.zeps.client.connection import BrokerConnection, ClientOptions
from zambezi.zeps.client.finder import Locate
from zambezi.zeps.client.subscriber import WINDOW
from zambezi.zeps.directory import REPLIES as STREAM
from zambezi.zeps.errors import BrokerError, ZepsError
from zambezi.zeps.messages import LATEST, REQUESTS, Credit, Subscribe
from zambezi.zeps.requests.envelope import CLOCK, TIME, Stored, encode_reply, publish_frame
from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.reactor import Reactor

DELAY: Final = 0.02  # seconds that an acknowledgement waits for others
TOGETHER: Final = 64  # acknowledgements that wait, at most
UNSENT: Final = 16 << 20  # bytes of replies that may wait


class ReplyConnection(BrokerConnection):
    """The connection that sends replies."""

    def __init__(self, reactor: Reactor, options: ClientOptions, locate: Locate, stream: str, pattern: str) -> None:
        super().__init__(reactor, options, locate, STREAM + stream)
        self.about = stream
        self.is_announced = False  # whether the broker knows that this program serves
        self.failure: ZepsError | None = None
        self.dropped = 0  # replies that could not wait for the broker
        self._pattern = pattern
        self._offset = 0  # from the clock of the reactor to that of the broker, in microseconds
        self._largest = options.largest  # bytes of a message; fewer if the broker takes less
        self._unsent: deque[bytes] = deque()
        self._bytes = 0
        self.on_handled: Callable[[list[int]], object] = lambda _: None  # told the sequences to acknowledge
        self._handled: list[int] = []
        self._alarm = Alarm(reactor, self.acknowledge)

    def check(self) -> None:
        """Raise the error that ended the connection, if there is one."""
        if self.failure is not None:
            raise self.failure
        self.check_open()

    def announced(self) -> bool | None:
        """Return True if the broker knows that this program serves, and None before that."""
        self.check()
        return self.is_announced or None

    def is_expired(self, request: Stored) -> bool:
        """Return whether the client of a request does not wait any more."""
        return bool(request.deadline) and self.reactor.time() * 1e6 + self._offset > request.deadline

    def reply(self, sequence: int, request: Stored, status: bytes, content: bytes) -> bool | None:
        """Send the reply to a request, and acknowledge the request soon; return None if it must wait for room."""
        self.check()
        peer = self._peer
        if self.granted and peer is not None and peer.queued >= WINDOW:
            return None
        message = publish_frame(status, encode_reply(request, content))
        if len(message) > self._largest:
            raise ZepsError(f"with {len(content)} bytes the reply exceeds the limit of {self._largest}")
        if self.granted:
            self.send(message)
        else:
            self._keep(message)
        self.note_handled(sequence)
        return True

    def _keep(self, message: bytes) -> None:
        self._unsent.append(message)
        self._bytes += len(message)
        while self._bytes > UNSENT:
            self._bytes -= len(self._unsent.popleft())
            self.dropped += 1

    # Acknowledgements

    def note_handled(self, sequence: int) -> None:
        """Acknowledge a request soon."""
        self._handled.append(sequence)
        if len(self._handled) >= TOGETHER:
            self.acknowledge()
        elif len(self._handled) == 1:
            self._alarm.set(self.reactor.time() + DELAY)

    def acknowledge(self) -> None:
        """Acknowledge the requests that were handled."""
        handled, self._handled = self._handled, []
        if handled:
            self.on_handled(handled)

    # Events of the connection

    def stream_granted(self) -> None:
        if not self.extends(REQUESTS):
            self._fail(BrokerError("the broker does not know requests: it is an older release, or another program"))
            return
        for message in (*Subscribe(self._pattern, LATEST).encode(), *Credit(WINDOW).encode()):
            self.send(message)
        while self._unsent:
            self.send(self._unsent.popleft())
        self._bytes = 0

    def subscription_confirmed(self) -> None:
        self.is_announced = True
        self.on_change()

    def messages_received(self, frames: list[bytes], body_at: int) -> None:
        batch = MessageBatch(self.stream, frames, body_at)
        for key, body in zip(batch.raw_keys(), batch.bodies(), strict=True):
            if key == TIME and len(body) == CLOCK.size:
                time, limit = CLOCK.unpack(body)
                self._offset = time - int(self.reactor.time() * 1e6)
                self._largest = min(limit, self.options.largest)

    def writable(self, peer: Peer) -> None:
        self.on_change()

    def disconnected(self) -> None:
        self.is_announced = False

    def invalid_received(self, reason: str) -> None:
        self._fail(BrokerError(f"the broker refuses replies to {self.about!r}: {reason}"))

    def _fail(self, error: ZepsError) -> None:
        self.failure = self.failure or error
        self.suspend()

    def close(self, linger: float | None) -> None:
        if not self.closing:
            self.acknowledge()
            self._alarm.end()
        super().close(linger)

    @property
    def suspended_state(self) -> str:
        return "disconnected, because the broker refuses replies"
