# Generated from asyncio.py by `make generate`. Change that file, and generate this one anew.
"""Request and reply for threads, in calls that block. Programs use it by `Stream.request` and `Stream.serve`.

Names, arguments and behaviour are those of `zambezi.zeps.requests.asyncio`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from zambezi.zeps.client.arguments import Body, as_body
from zambezi.zeps.client.batch import Message
from zambezi.zeps.errors import ClientClosed, TimedOut, ZepsError
from zambezi.zeps.requests.envelope import DELIVERIES, ERROR, OK, Stored, group_of, read_stored
from zambezi.zeps.requests.reply_connection import ReplyConnection
from zambezi.zeps.requests.request_connection import RequestConnection
from zambezi.zmtp.thread_waiter import Waiter

if TYPE_CHECKING:
    from zambezi.zeps.sync import Stream, Subscription

__all__ = ["Request", "Requester", "Serving"]


class Requester:
    """The requests of a client to one stream, over one connection."""

    def __init__(self, stream: Stream) -> None:
        client = stream._client
        self._waiter = Waiter(timed_out=TimedOut)
        self.connection = RequestConnection(self._waiter.reactor, client._options, client._locate, stream.name)
        self._waiter.state = lambda: f"the client is {self.connection.state}"
        self.connection.transport.on_closed = self._waiter.wake
        self._waiter.call(self.connection.start)

    def request(self, key: str, body: Body, timeout: float | None) -> bytes:
        """Send a request, and wait for its reply."""
        waiter = self._waiter.sibling()
        connection = self.connection
        pending = self._waiter.call(connection.ask, key, as_body(body), timeout, waiter.wake)
        try:
            return waiter.until(pending.result, None, "")
        except BaseException:
            self._waiter.call(connection.forget, pending)
            raise

    def close(self) -> None:
        """Fail the requests that wait, and disconnect."""
        connection = self.connection
        self._waiter.call(connection.close, 0)
        self._waiter.until(lambda: connection.closed or None, None, "")


@dataclass(slots=True)
class ServingCounters:
    """Counters of a server: requests, except where noted."""

    received: int = 0
    replied: int = 0
    failed: int = 0  # answered with an error
    expired: int = 0  # passed over, because their client did not wait any more
    strange: int = 0  # messages that are not requests, passed over


class Request:
    """A request. Answer it once, with `reply` or `fail`."""

    __slots__ = ("_is_answered", "_message", "_serving", "_stored", "body")

    def __init__(self, serving: Serving, message: Message, stored: Stored) -> None:
        self._serving = serving
        self._message = message
        self._stored = stored
        self._is_answered = False
        self.body = stored.content

    @property
    def key(self) -> str:
        """The key of the request."""
        return self._message.key

    @property
    def sequence(self) -> int:
        """The sequence of the request in its stream."""
        return self._message.sequence

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._message.stream

    def reply(self, body: Body) -> None:
        """Send the reply. If the client does not wait any more, the broker drops it."""
        self._serving._answer(self, OK, as_body(body))

    def fail(self, reason: str) -> None:
        """Answer with an error: the client's `request` raises `RequestFailed` with the reason."""
        self._serving._answer(self, ERROR, reason.encode("utf-8", "surrogateescape"))

    def __repr__(self) -> str:
        return f"<Request {self.sequence} of {self.stream!r}, {self.key!r}, {len(self.body)} bytes>"


class Serving:
    """The requests that this program serves. Iterate over them, and answer each. Get it from `Stream.serve`."""

    def __init__(self, stream: Stream, pattern: str, wait: float) -> None:
        client = stream._client
        self.counters = ServingCounters()
        self._client = client
        self._pattern = pattern
        self._stream = stream
        self._waiter = Waiter(timed_out=TimedOut)
        self._connection = ReplyConnection(self._waiter.reactor, client._options, client._locate, stream.name, pattern)
        self._waiter.state = lambda: f"the client is {self._connection.state}"
        self._connection.on_change = self._connection.transport.on_closed = self._waiter.wake
        self._connection.on_handled = self._acknowledge
        self._is_started = False
        self._subscription: Subscription = stream.subscribe(
            pattern, since="latest", ack="manual", shared=group_of(pattern), wait=wait, limit=DELIVERIES
        )

    def ready(self, timeout: float | None = None) -> None:
        """Wait until the broker passes requests to this program. Requests before that find no server."""
        self._subscription.ready(timeout)
        self._waiter.call(self._start)
        self._waiter.until(self._connection.announced, timeout, "the broker did not confirm")

    def _start(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._connection.start()

    def recv(self, timeout: float | None = None) -> Request:
        """Return the next request."""
        if not self._connection.is_announced:
            self.ready(timeout)
        while True:
            message = self._subscription.recv(timeout)
            request = self._accept(message)
            if request is not None:
                return request
            self._waiter.call(self._connection.note_handled, message.sequence)

    def _acknowledge(self, sequences: list[int]) -> None:
        with contextlib.suppress(ZepsError):  # if the subscription has ended, another server gets them
            for sequence in sequences:
                self._subscription.ack(sequence)

    def _accept(self, message: Message) -> Request | None:
        """Return the request in a message; None if it is not one, or its client does not wait any more."""
        counters = self.counters
        stored = read_stored(message.body)
        if stored is None:
            counters.strange += 1
            return None
        if self._connection.is_expired(stored):
            counters.expired += 1
            return None
        counters.received += 1
        return Request(self, message, stored)

    def _answer(self, request: Request, status: bytes, content: bytes) -> None:
        if request._is_answered:
            raise ZepsError(f"the request {request.sequence} of {request.stream!r} was answered already")
        reply = request._message.sequence, request._stored, status, content
        if not self._waiter.call(self._connection.reply, *reply):
            self._waiter.until(partial(self._connection.reply, *reply), None, "the reply had no room")
        request._is_answered = True
        if status == OK:
            self.counters.replied += 1
        else:
            self.counters.failed += 1

    def __iter__(self) -> Iterator[Request]:
        while True:
            try:
                request = self.recv()
            except ClientClosed:
                return
            yield request

    def close(self) -> None:
        """Stop serving. Requests that are not answered get no reply from this program any more."""
        connection = self._connection
        self._client._waiter.call(self._client._servings.discard, self)
        self._waiter.call(connection.close, 1.0 if connection.granted else 0)
        self._subscription.close()
        if self._is_started:
            self._waiter.until(lambda: connection.closed or None, None, "")

    def __enter__(self) -> Self:
        try:
            self.ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Serving {self._stream.name!r}, {self._pattern!r}>"
