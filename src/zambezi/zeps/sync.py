# Generated from asyncio.py by `make generate`. Change that file, and generate this one anew.
"""Streams for threads, in calls that block.

Names, arguments and behaviour are those of `zambezi.zeps.asyncio`.

>>> import tempfile
>>> from zambezi.zeps.testing import serve
>>> def main(path: str) -> list[bytes]:
...     with serve(path) as endpoint, Client.connect(endpoint) as client:
...         prices = client.stream("prices")
...         prices.publish("tea", b"4.20")
...         prices.publish("coffee", b"3.10")
...         prices.flush()
...         return [message.body for message in prices.subscribe(since="earliest", until="now")]
>>> with tempfile.TemporaryDirectory() as path:
...     main(path)
[b'4.20', b'3.10']

A call that times out loses nothing: a message is removed from a subscription only when the call
returns it, and a message is published when the call has returned.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack

from zambezi.zeps.administration.sync import Administration, wake_on_change
from zambezi.zeps.client.arguments import (
    AckMode,
    Body,
    ClientArguments,
    Endpoint,
    IfHeld,
    Since,
    StreamArguments,
    Until,
    as_body,
    as_items,
    check_not_reserved,
    check_pattern,
    check_stream_name,
    check_times,
    client_options,
    end_of,
    locator,
    named_reader,
    publisher_id,
    start_of,
    unconfirmed_text,
)
from zambezi.zeps.client.batch import Message, MessageBatch
from zambezi.zeps.client.connection import QUIET, BrokerConnection
from zambezi.zeps.client.finder import Locate
from zambezi.zeps.client.member_connection import MemberConnection
from zambezi.zeps.client.named_connection import NamedConnection
from zambezi.zeps.client.publisher import POSTS, Key, Publisher, PublisherCounters
from zambezi.zeps.client.publisher_connection import PublisherConnection
from zambezi.zeps.client.questions import Question
from zambezi.zeps.client.reading import SubscriptionReader
from zambezi.zeps.client.sharing import SharedArguments, group_member
from zambezi.zeps.client.subscriber import Subscriber
from zambezi.zeps.client.subscriber_connection import SubscriberConnection
from zambezi.zeps.errors import ClientClosed, TimedOut, ZepsError
from zambezi.zeps.multicast.group_subscription import MulticastOptions
from zambezi.zeps.requests.sync import Requester, Serving
from zambezi.zmtp.face import go_on
from zambezi.zmtp.thread_waiter import Waiter

__all__ = ["Client", "Stream", "Subscription"]

_log: Final = logging.getLogger("zambezi.zeps")
_DEFAULT: Final = "default"
T = TypeVar("T")

WORTH_ASKING: Final = 1.0  # seconds that a caller has waited, after which a broker is asked why
_AT_ONCE: Final = 64  # messages that a program can publish in a row before the event loop runs
_NOTHING: Final = "no message arrived"


def _close_connection(waiter: Waiter, connection: BrokerConnection, linger: float | None) -> None:
    """Close a connection, and wait until it is closed."""
    waiter.call(connection.close, linger)
    waiter.until(lambda: connection.closed or None, None, "")


class Client(Administration):
    """A client of a broker. Make it with `connect`, and close it with `with`, or `close()`.

    The client connects in the background, once for each stream that it publishes to and for each subscription, and
    connects again whenever a connection is lost. The options of `connect`, all by keyword:

        security    NULL by default, or `CurveClient`
        heartbeat   ZMTP's: it notices a broker that is gone without closing the connection
        backoff     the pauses between attempts to connect
        bound       bytes that are published and not confirmed, for each stream
        on_full     what `publish` does at that bound: "wait", "raise" or "drop-oldest"
        largest     bytes of a message
        window      bytes that are received and not read, for each subscription
        linger      seconds that `close` waits for confirmations
        group_key   the key of sealed multicast groups
        tracing     a `zambezi.zeps.tracing.Tracing`: spans by OpenTelemetry; None by default
    """

    def __init__(self, endpoint: Endpoint, **options: Unpack[ClientArguments]) -> None:
        super().__init__(client_options(endpoint, options))
        self._asked = endpoint if self._waiter.is_question(endpoint) else None
        self._find: Locate = (lambda: None) if self._asked is not None else locator(endpoint)
        self._streams: dict[str, Stream] = {}
        self._subscriptions: set[Subscription] = set()
        self._servings: set[Serving] = set()
        self._closed = False

    @classmethod
    def connect(cls, endpoint: Endpoint, **options: Unpack[ClientArguments]) -> Self:
        """Return a client of the broker at an endpoint, or of those that a node finds (`X-ZEPS`). Returns at once.

        Several brokers that share a store can be given, as a list of endpoints, or found by a node. The client asks the
        next one if a broker does not answer, and goes to the one that has the stream: subscriptions go on with the next
        message, and published messages are in the stream once.

        Instead of an endpoint you can give a function that returns it, or None while it is unknown. The client calls it
        whenever it has no connection.
        """
        return cls(endpoint, **options)

    def __enter__(self) -> Self:
        asked, self._asked = self._asked, None
        if asked is not None:
            self._find = locator(self._waiter.answer(asked))
        return self

    def _locate(self) -> str | tuple[str, ...] | None:
        return self._find()

    def stream(self, name: str, **options: Unpack[StreamArguments]) -> Stream:
        """Return the stream of that name. Give options only in the first call for a stream, or after its `close`."""
        return self._waiter.call(self._stream, name, options)

    def _stream(self, name: str, options: StreamArguments) -> Stream:
        self._check_open()
        stream = self._streams.get(name)
        if stream is None or stream._closed:
            stream = self._streams[name] = Stream(self, check_stream_name(name), options)
        elif options:
            raise ZepsError(
                f"the stream {name!r} is in use by this client; give its options in the first call of stream()"
            )
        return stream

    # Closing

    def close(self, linger: float | str | None = _DEFAULT) -> None:
        """Close the client. Wait up to `linger` seconds for confirmations; raise `TimedOut` if messages remain."""
        seconds = self._options.linger if isinstance(linger, str) else linger
        deadline = None if seconds is None else time.monotonic() + seconds
        questions, subscriptions, streams = self._waiter.call(self._begin_to_close)
        for question, waiter in questions.items():
            waiter.call(question.close, 0)
        problems: list[ZepsError] = []
        for serving in list(self._servings):
            serving.close()
        for subscription in subscriptions:
            try:
                subscription.close(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except ZepsError as error:
                problems.append(error)
        for stream in streams:
            try:
                stream.close(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except ZepsError as error:
                problems.append(error)
        if problems:
            raise problems[0]

    def _begin_to_close(self) -> tuple[dict[Question, Waiter], list[Subscription], list[Stream]]:
        self._closed = True
        return dict(self._questions), list(self._subscriptions), list(self._streams.values())

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        # A program that leaves with an exception does not want to wait, and has an error already.
        try:
            self.close(0)
        except ZepsError as second:
            if error is not None:
                error.add_note(str(second))

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if not getattr(self, "_closed", True) and (self._streams or self._subscriptions):
            _warn(f"unclosed {self!r}", ResourceWarning, source=self)

    def __repr__(self) -> str:
        if self._closed:
            return "<Client, closed>"
        found = self._locate() or "a broker not found yet"
        return f"<Client of {found if isinstance(found, str) else ', '.join(found)}>"


class Stream:
    """A stream of a broker, to publish to and to subscribe to. Get it from `Client.stream`."""

    def __init__(self, client: Client, name: str, options: StreamArguments) -> None:
        self.name = name
        self._client = client
        defaults = client._options
        self._engine = Publisher(
            publisher_id(options.get("publisher")),
            options.get("bound", defaults.bound),
            options.get("on_full", defaults.on_full),
            defaults.largest,
        )
        self._tracing = defaults.tracing
        post = self._engine.post
        self._post = post if self._tracing is None else self._tracing.wrap_post(name, post)
        self._waiter = Waiter(timed_out=TimedOut)
        self._connection: PublisherConnection | None = None
        self._turns = 0
        self._requester: Requester | None = None
        self._held = ""  # why the broker kept messages waiting, when it was asked last
        self._closed = False

    # Publishing

    def publish(self, key: Key, body: Body, timeout: float | None = None) -> None:
        """Publish a message. The client keeps it until the broker has confirmed it; `flush()` waits for that.

        Waits if the messages that are not confirmed have reached `bound`, or does what `on_full` says.
        """
        if self._post(key, body):  # type: ignore[arg-type]
            return
        crowded = len(self._engine.pieces) >= 2 * POSTS
        octets = body if type(body) is bytes else as_body(body)
        if not self._waiter.call(self._try_publish, key, octets):
            self._until(lambda: self._try_publish(key, octets) or None, timeout, f"there was no room in {self.name!r}")
        self._turns += 1
        if crowded or self._turns % _AT_ONCE == 0:
            self._waiter.breathe()

    def publish_nowait(self, key: Key, body: Body) -> None:
        """Publish a message now, or raise `QueueFull`."""
        if not self._post(key, body):  # type: ignore[arg-type]
            self._waiter.call(self._try_publish, key, as_body(body), False)

    def _try_publish(self, key: Key, body: bytes, wait: bool = True) -> bool:
        return (self._connection or self._publisher()).publish(key, body, wait)

    def publish_many(self, items: Iterable[tuple[Key, Body]], timeout: float | None = None) -> None:
        """Publish many messages, each a key and a body. Much faster per message than `publish`."""
        given = as_items(items)
        connection = self._waiter.call(self._publisher)
        if self._tracing is not None:
            self._tracing.note_published(self.name, given)
        done = 0
        while done < len(given):
            attempt = partial(go_on, connection.publish_many, given, done)
            problem = f"there was no room for {len(given) - done} of {len(given)} messages"
            done = self._until(attempt, timeout, problem)
        self._waiter.breathe()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the broker has journalled all published messages (and synced them, if its policy says so).

        Raises `BrokerError` if the broker refused a message.
        """
        connection, engine = self._connection, self._engine
        if connection is None:
            return
        barrier = self._waiter.call(connection.ask_for_confirmation)

        def attempt() -> bool | None:
            if engine.check_confirmed(barrier):
                return True
            connection.check_open()
            return None

        self._until(attempt, timeout, f"not all messages of {self.name!r} were confirmed")

    def _until(self, attempt: Callable[[], T | None], timeout: float | None, what: str) -> T:
        """Wait for room or for a confirmation. If nothing is confirmed for a while, ask why: the disk can be full.

        That while can begin at any time: before it, the broker was only slow.
        """
        left, began, has_warned = timeout, time.monotonic(), False
        while not has_warned and (left is None or left > QUIET):
            confirmed = self._engine.counters.confirmed
            try:
                return self._waiter.until(attempt, QUIET, what)
            except TimedOut:
                if confirmed == self._engine.counters.confirmed:
                    self._warn()
                    has_warned = True
            left = None if timeout is None else max(0.0, began + timeout - time.monotonic())
        try:
            return self._waiter.until(attempt, left, what)
        except TimedOut:
            problem = self._waiter.failure(what, timeout)
            held = self._ask_why() if timeout is not None and timeout >= WORTH_ASKING else ""
            raise TimedOut(f"{problem}; the broker keeps messages waiting: {held}" if held else problem) from None

    def _warn(self) -> None:
        """Log why messages wait, so that no program waits in silence. A connection without a broker does so itself."""
        if held := self._ask_why():
            _log.warning("the broker keeps messages of %s waiting: %s", self.name, held)
        elif self._connection is not None and self._connection.granted:
            _log.warning(
                "the broker confirms no messages of %s now: this client is %s", self.name, self._connection.state
            )

    def _ask_why(self) -> str:
        """Ask the broker why it keeps messages waiting; return "" if it does not, or does not answer."""
        connection = self._connection
        is_there = connection is not None and connection.granted
        self._held = self._client._why_held(self.name) if is_there else ""
        return self._held

    def resumed(self, timeout: float | None = None) -> int:
        """Return how many messages the stream had of this publisher before this program began to publish.

        A program that gives `publisher="name"` in `Client.stream` goes on after that number, and each of its messages
        is in the stream once, even if the program was killed. Messages that the broker refused count, too.
        """
        connection = self._waiter.call(self._publisher)

        def attempt() -> int | None:
            connection.check_open()
            return connection.found

        return self._until(attempt, timeout, f"the broker did not tell where {self.name!r} stands")

    def _publisher(self) -> PublisherConnection:
        """Return the connection that publishes; the first call makes it."""
        connection = self._connection
        if connection is None:
            client = self._client
            client._check_open()
            if self._closed:
                raise ClientClosed(f"the stream {self.name!r} of this client is closed")
            check_not_reserved(self.name)
            connection = PublisherConnection(
                self._waiter.reactor, client._options, client._locate, self.name, self._engine
            )
            wake_on_change(self._waiter, connection)
            self._connection = connection
            connection.start()
        return connection

    @property
    def unconfirmed(self) -> int:
        """The number of messages that are published and not yet confirmed."""
        return self._waiter.call(lambda: self._engine.unconfirmed)

    @property
    def counters(self) -> PublisherCounters:
        """Counters of this publisher."""
        return self._engine.counters

    # Subscribing

    def subscribe(
        self,
        pattern: str = "",
        *,
        since: Since = "latest",
        until: Until = None,
        window: int | None = None,
        times: bool = False,
        multicast: bool | str = False,
        interface: str | None = None,
        name: str | None = None,
        ack: AckMode = "auto",
        if_held: IfHeld = "take",
        **sharing: Unpack[SharedArguments],
    ) -> Subscription:
        """Subscribe to the messages whose keys match a pattern: older ones first, and then live ones.

        `since` is where to begin: "latest" (now), "earliest", a sequence (after it), a `datetime`, or a `timedelta`
        (that long ago). `until` is where to end: a sequence (included), a `datetime` (before it), or "now" (after the
        messages that exist now). `window` bounds the bytes that are received and not read yet.

        With `times=True` each message has its `time`: when the broker appended it to the journal, in UTC. Messages of
        reserved streams have none, and multicast groups do not carry it.

        With `multicast=True` live messages come from the stream's group, if it has one, and the broker sends only
        missing ones; `interface` names the network. A text, `"udp://239.77.1.1:5680"`, is the group itself.

        With a `name` the broker keeps the position of this reader: a program that is started again goes on after the
        last message that it has acknowledged, and `since` matters only if the name is new. With ack="auto" the next
        `recv` acknowledges what the program has got before, and so does the end of `with`, unless by an
        exception; with "manual" the program calls `ack`.
        One client reads under a name: a new one takes the name away (`ReaderTaken`), or is refused (if_held="refuse").

        With `shared` several programs share the messages: each message goes to one member of the group with that name,
        and the messages of a key to the same one. What a member does not acknowledge within `wait` seconds, gives back
        (`nack`) or leaves behind goes to another one. After `limit` deliveries a message goes to the stream `dead`. A
        member has at most `in_flight` messages. `since` matters only if the group is new.

        Returns at once. `with` waits until the broker has confirmed the subscription: messages published after
        that are not missed.
        """
        client = self._client
        start = start_of(since)
        size = window or client._options.window
        excluded = {"name": name, "until": until, "multicast": multicast}
        member = group_member(sharing, self.name, pattern, start, size, ack, times=times, **excluded)
        if member is not None:
            waiter = Waiter(timed_out=TimedOut)
            shared = MemberConnection(waiter.reactor, client._options, client._locate, self.name, member)
            return self._begin_subscription(shared, waiter)
        reader = named_reader(name, start, ack, if_held, self.name, multicast)
        engine = Subscriber(
            self.name,
            check_pattern(pattern),
            start,
            end_of(until),
            size,
            check_times(times, self.name, multicast),
            is_named=reader is not None,
        )
        options = MulticastOptions.from_arguments(multicast, interface)
        waiter = Waiter(timed_out=TimedOut)
        connection: SubscriberConnection
        place = waiter.reactor, client._options, client._locate, self.name, engine
        connection = SubscriberConnection(*place, options) if reader is None else NamedConnection(*place, reader)
        return self._begin_subscription(connection, waiter)

    def _begin_subscription(self, connection: SubscriberConnection | MemberConnection, waiter: Waiter) -> Subscription:
        subscription = Subscription(self._client, connection, waiter)
        self._client._waiter.call(self._add_subscription, subscription)
        waiter.call(connection.start)
        return subscription

    # Request and reply

    def request(self, key: str, body: Body = b"", timeout: float | None = 5.0) -> bytes:
        """Send a request to a server of this stream, and return its reply.

        Raises `NobodyServes` at once if no server wants it, `RequestFailed` if the server answers with an error, and
        `TimedOut` after `timeout` seconds. A request is a message of the stream, whose body has an envelope.
        """
        requester = self._requester or self._waiter.call(self._open_requester)
        return requester.request(key, body, timeout)

    def _open_requester(self) -> Requester:
        if self._requester is None:
            self._client._check_open()
            if self._closed:
                raise ClientClosed(f"the stream {self.name!r} of this client is closed")
            check_not_reserved(self.name)
            self._requester = Requester(self)
        return self._requester

    def serve(self, pattern: str = "", *, wait: float = 30.0) -> Serving:
        """Serve the requests whose keys match a pattern: `for request in stream.serve("square")`.

        Answer each request with `reply` or `fail`. Several programs can serve the same pattern: each request goes to
        one of them, and to another one if it is not answered within `wait` seconds. Returns at once. `with` waits
        until requests find this program.
        """
        check_not_reserved(self.name)
        serving = Serving(self, check_pattern(pattern), wait)
        self._client._waiter.call(self._client._servings.add, serving)
        return serving

    def _add_subscription(self, subscription: Subscription) -> None:
        self._client._check_open()
        self._client._subscriptions.add(subscription)

    # Closing

    def close(self, linger: float | None = 0) -> None:
        """Stop publishing. Wait up to `linger` seconds for confirmations; raise `TimedOut` if messages remain."""
        self._closed = True
        if self._requester is not None:
            self._requester.close()
        connection = self._connection
        if connection is None or connection.closing:
            return
        state = connection.state
        try:
            if (linger is None or linger > 0) and not connection.is_known_to_be_refused:
                self.flush(linger)
        except TimedOut:
            state = connection.state
        finally:
            _close_connection(self._waiter, connection, 1.0 if connection.granted else 0)
        if (left := self._engine.counters.unconfirmed) and not connection.is_known_to_be_refused:
            raise TimedOut(unconfirmed_text(self.name, left, state, self._held))

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"


class Subscription(SubscriptionReader):
    """The messages of a subscription. Iterate over them one by one, or over `batches()`."""

    def __init__(self, client: Client, connection: SubscriberConnection | MemberConnection, waiter: Waiter) -> None:
        super().__init__(connection)
        self._client = client
        self._waiter = waiter
        wake_on_change(waiter, connection)
        connection.transport.on_closed = self._on_closed

    def _on_closed(self) -> None:
        self._client._waiter.call(self._client._subscriptions.discard, self)
        self._waiter.wake()

    def recv(self, timeout: float | None = None) -> Message:
        """Return the next message. At the end, raise `ClientClosed`, or the error that ended the subscription."""
        while True:
            current = self._current
            for message in current:
                return message
            if not self._waiter.until(partial(self._refill, current), timeout, _NOTHING):
                raise self._end_error()

    def recv_batch(self, timeout: float | None = None) -> MessageBatch:
        """Return the next batch: all messages that came in one read, or the rest of them."""
        found = self._waiter.until(self._rest_or_next, timeout, _NOTHING)
        if not found:
            raise self._end_error()
        return found

    def __iter__(self) -> Iterator[Message]:
        while True:
            current = self._current
            yield from current
            if not self._waiter.until(partial(self._refill, current), None, _NOTHING):
                return

    def batches(self) -> Iterator[MessageBatch]:
        """Yield batches of messages. Much faster per message than one by one."""
        while found := self._waiter.until(self._rest_or_next, None, _NOTHING):
            yield found

    def ready(self, timeout: float | None = None) -> None:
        """Wait until the broker has confirmed the subscription: messages published after that are not missed."""
        self._waiter.until(self._is_ready, timeout, "the subscription was not confirmed")

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the broker has confirmed all acknowledgements of a named reader, or of a member of a group.

        Raises `BrokerError` if a member has lost its connection since the last `flush`, and acknowledgements with it:
        some of the messages can come again.
        """
        problem = "not all acknowledgements were confirmed"
        if self._named is not None:
            target = self._waiter.call(self._named.ask_for_confirmation)
            self._waiter.until(partial(self._named.check_confirmed, target), timeout, problem)
        elif self._member is not None:
            place = self._waiter.call(self._member.ask_for_confirmation)
            self._waiter.until(partial(self._member.check_confirmed, place), timeout, problem)

    def close(self, linger: float | str | None = _DEFAULT) -> None:
        """End the subscription. Messages that were received can still be read.

        A named reader waits up to `linger` seconds for confirmations, and raises `TimedOut` if they do not come.
        """
        seconds = self._client._options.linger if isinstance(linger, str) else linger
        try:
            if self._named is not None and not (self._named.closing or self._is_lost):
                if self._named.reader.is_claimed and not self._named.reader.is_confirmed and seconds != 0:
                    self.flush(seconds)
            elif self._waiter.call(self._leave_group) and seconds != 0:
                self.flush(seconds)
        finally:
            _close_connection(self._waiter, self._connection, 1.0 if self._connection.granted else 0)

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
        if kind is None:
            self._acknowledge_returned()
        self.close(_DEFAULT if kind is None else 0)
