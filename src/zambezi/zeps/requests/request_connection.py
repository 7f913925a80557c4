"""The connection of a client that sends requests to the servers of one stream.

A request waits for its reply under a random id. The connection passes the reply, or an error, to the request and wakes
its caller. One timer serves the timeouts of all requests: a timer for each would take longer than the request itself is
prepared. A request that was sent on a connection which is lost fails: it may have been handled, and to send it again
could handle it twice. One that was not sent yet waits for the next connection.

If there are several brokers, the connection asks which requests are stored. Such a request does not fail: a server gets
it at the next broker, where this client has the same address by its token.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Final

from zambezi.zeps.client.connection import BrokerConnection, ClientOptions
from zambezi.zeps.client.finder import Locate
from zambezi.zeps.client.publisher import encode_key
from zambezi.zeps.client.subscriber import WINDOW
from zambezi.zeps.directory import REQUESTS as STREAM
from zambezi.zeps.errors import BrokerError, ClientClosed, NobodyServes, RequestFailed, TimedOut, ZepsError
from zambezi.zeps.layout import delivered_key_and_body
from zambezi.zeps.messages import LATEST, REQUESTS, Credit, Ping, Subscribe
from zambezi.zeps.requests.envelope import ID, LONGEST, NOBODY, OK, TOKEN, encode_asked, publish_frame
from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.async_waiter import failure
from zambezi.zmtp.reactor import Reactor

STORED: Final = 30.0  # seconds that a stored request waits for its reply after the connection was lost, at most
_PING: Final = Ping().encode()[0]
PRECISION: Final = 0.005  # seconds between looks for requests whose time is over: each looks at all requests


class Pending:
    """A request that waits for its reply."""

    __slots__ = ("deadline", "error", "id", "is_stored", "key", "message", "reply", "timeout", "wake")

    def __init__(
        self, number: bytes, key: str, message: bytes, timeout: float | None, now: float, wake: Callable[[], object]
    ) -> None:
        self.id = number
        self.key = key
        self.message = message  # the PUBLISH; empty when it was sent
        self.timeout = timeout
        self.deadline = math.inf if timeout is None else now + timeout
        self.wake = wake
        self.is_stored = False  # whether the next broker has it, too
        self.reply: bytes | None = None
        self.error: ZepsError | None = None

    def result(self) -> bytes | None:
        """Return the reply, or None if it has not come; raise the error if the request has failed."""
        if self.error is not None:
            raise self.error
        return self.reply


class RequestConnection(BrokerConnection):
    """The connection that sends requests and receives replies."""

    def __init__(self, reactor: Reactor, options: ClientOptions, locate: Locate, stream: str) -> None:
        super().__init__(reactor, options, locate, STREAM + stream)
        self.about = stream
        self.late = 0  # replies that came after their request was given up, or a second time
        self._pending: dict[bytes, Pending] = {}
        self._unsent: dict[bytes, Pending] = {}  # those of them that wait for a connection
        self._used = 0  # bytes of credit that the broker has used
        self._alarm = Alarm(reactor, self._expire)
        self._token = os.urandom(TOKEN).hex()
        self._has_choice = False  # whether there is another broker, if this connection is lost
        self._unsafe: list[Pending] = []  # sent on this connection, and perhaps not stored
        self._asked: list[Pending] | None = None  # those of them that the PING without an answer is about

    def ask(self, key: str, body: bytes, timeout: float | None, wake: Callable[[], object]) -> Pending:
        """Send a request, now or when the broker is connected; return it. `wake` is called when it is over."""
        self.check_open()
        number = os.urandom(ID)
        milliseconds = 0 if timeout is None else min(LONGEST, max(1, int(timeout * 1000)))
        message = publish_frame(encode_key(key)[1:], encode_asked(number, milliseconds, body))
        if len(message) > self.options.largest:
            raise ZepsError(f"with a body of {len(body)} bytes the request exceeds the limit of {self.options.largest}")
        pending = self._pending[number] = Pending(number, key, message, timeout, self.reactor.time(), wake)
        self._alarm.set(pending.deadline)
        if self.granted:
            self._send_request(pending)
        else:
            self._unsent[number] = pending
        return pending

    def _send_request(self, pending: Pending) -> None:
        self.send(pending.message)
        pending.message = b""
        if self._has_choice:
            self._unsafe.append(pending)
            if self._asked is None:
                self._ask_what_is_stored()

    def _ask_what_is_stored(self) -> None:
        self._asked, self._unsafe = self._unsafe, []
        self.send(_PING)

    def ping_answered(self) -> None:
        for pending in self._asked or ():
            pending.is_stored = True
        self._asked = None
        if self._unsafe:
            self._ask_what_is_stored()

    def forget(self, pending: Pending) -> None:
        """Remove a request that is over, or whose caller does not wait any more."""
        self._pending.pop(pending.id, None)
        self._unsent.pop(pending.id, None)

    def _expire(self) -> None:
        """Fail the requests whose time is over, and look again when the next one may be."""
        now = self.reactor.time()
        for pending in [one for one in self._pending.values() if one.deadline <= now]:
            self.forget(pending)
            what = f"no reply to {pending.key!r} came"
            pending.error = TimedOut(failure(what, pending.timeout, lambda: f"the client is {self.state}"))
            pending.wake()
        following = min((one.deadline for one in self._pending.values()), default=math.inf)
        self._alarm.set(max(following, now + PRECISION))

    @property
    def waiting(self) -> int:
        """The number of requests that wait for their reply."""
        return len(self._pending)

    # Events of the connection

    def stream_granted(self) -> None:
        if not self.extends(REQUESTS):
            self._fail_all(BrokerError("the broker does not know requests: it is an older release, or another program"))
            return
        self._used = 0
        self._has_choice = self._finder.has_choice
        for message in (*Subscribe(self._token, LATEST).encode(), *Credit(WINDOW).encode()):
            self.send(message)
        unsent, self._unsent = self._unsent, {}
        for pending in unsent.values():
            self._send_request(pending)

    def messages_received(self, frames: list[bytes], body_at: int) -> None:
        for frame in frames:
            self._settle(*delivered_key_and_body(frame))
        self._used += sum(map(len, frames))
        if self._used >= WINDOW // 4:
            self.send(Credit(self._used).encode()[0])
            self._used = 0

    def _settle(self, status: bytes, body: bytes) -> None:
        pending = self._pending.pop(body[:ID], None)
        if pending is None:
            self.late += 1
            return
        if status == OK:
            pending.reply = body[ID:]
        elif status == NOBODY:
            pending.error = NobodyServes(f"no server of {self.about!r} answers requests with the key {pending.key!r}")
        else:
            pending.error = RequestFailed(body[ID:].decode(errors="replace") or "the server failed without a reason")
        pending.wake()

    def disconnected(self) -> None:
        self._unsafe, self._asked = [], None
        latest = self.reactor.time() + STORED
        for pending in self._pending.values():
            if pending.is_stored and pending.deadline > latest:
                pending.deadline = latest  # its reply can be lost
                self._alarm.set(latest)
        self._fail(
            [one for one in self._pending.values() if not one.message and not one.is_stored],
            BrokerError(
                f"the connection was lost before the reply: a server of {self.about!r} may have got the request"
            ),
        )

    def invalid_received(self, reason: str) -> None:
        self._fail_all(BrokerError(f"the broker refuses requests to {self.about!r}: {reason}"))

    def _fail_all(self, error: ZepsError) -> None:
        self._unsent.clear()
        self._fail(list(self._pending.values()), error)

    def _fail(self, requests: list[Pending], error: ZepsError) -> None:
        for pending in requests:
            del self._pending[pending.id]
            pending.error = error
            pending.wake()

    def close(self, linger: float | None) -> None:
        if not self.closing:
            self._fail_all(ClientClosed("the client was closed before the reply"))
            self._alarm.end()
        super().close(linger)
