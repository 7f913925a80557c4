"""Streams that block, for scripts and threads. Names, arguments and meaning are those of `zambezi.zeps.asyncio`.

>>> import asyncio, tempfile
>>> from zambezi.zeps.broker import Broker
>>> def script(endpoint: str) -> list[bytes]:
...     with Client.connect(endpoint) as client:
...         prices = client.stream("prices")
...         prices.publish("tea", b"4.20")
...         prices.publish("coffee", b"3.10")
...         prices.flush()
...         return [message.body for message in prices.subscribe(since="earliest", until="now")]
>>> async def main(path: str) -> list[bytes]:
...     async with Broker(path) as broker:
...         return await asyncio.to_thread(script, broker.bind("tcp://127.0.0.1:*"))
>>> with tempfile.TemporaryDirectory() as path:
...     asyncio.run(main(path))
[b'4.20', b'3.10']

No event loop of the user's is needed: the I/O thread of the process does what must happen while nobody calls. Any
thread may call any method at any time. To publish takes no lock as a rule: see `Publisher.post`.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack

from zambezi.zeps.client import ClientOptions, Session
from zambezi.zeps.directory import (
    CLIENTS,
    INDEX,
    STREAMS,
    ClientInfo,
    StreamInfo,
    read_clients,
    read_index,
    read_streams,
)
from zambezi.zeps.errors import ClientClosed, TimedOut, ZepsError
from zambezi.zeps.face import (
    Body,
    ClientArguments,
    Endpoint,
    Reading,
    Since,
    StreamArguments,
    Until,
    as_body,
    as_items,
    end_of,
    left_behind,
    locator,
    not_reserved,
    pattern_text,
    place_of,
    stream_name,
)
from zambezi.zeps.journal.entry import IndexEntry
from zambezi.zeps.multicast.listening import Wish
from zambezi.zeps.publisher import Key, Publisher, PublisherCounters
from zambezi.zeps.publishing import Publishing
from zambezi.zeps.questions import Question
from zambezi.zeps.received import Message, MessageBatch
from zambezi.zeps.subscriber import Subscriber
from zambezi.zeps.subscribing import Subscribing
from zambezi.zmtp.reactor import ThreadReactor
from zambezi.zmtp.sync import io_loop

__all__ = ["Client", "Stream", "Subscription"]

T = TypeVar("T")

_DEFAULT: Final = "default"
_NOTHING: Final = "no message came"


class _Waiting:
    """The lock of a session, and those who wait for it to change."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reactor = ThreadReactor(io_loop(), self.lock)
        self._changed = threading.Condition(self.lock)

    def watch(self, session: Session) -> None:
        session.on_change = session.on_closed = self.wake

    def wake(self) -> None:
        """With the lock held: let all who wait look again."""
        self._changed.notify_all()

    def until(self, session: Session, attempt: Callable[[], T | None], timeout: float | None, what: str) -> T:
        """With the lock held: call `attempt` whenever it may succeed, until it does."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (result := attempt()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimedOut(f"{what} within {timeout:g} s; the client is {session.state}")
            self._changed.wait(left)
        return result

    def close(self, session: Session, linger: float | None) -> None:
        """Close a session, and wait until it is."""
        with self.lock:
            session.close(linger)
            while not session.closed:
                self._changed.wait()


class Client:
    """A client of a broker. It is made by `connect`, and closed with `with`, or `close()`. Any thread may use it.

    Connections are made in the background, for each stream that is published to and for each subscription; they are
    made again whenever they are lost. See docs/streams.md for all the options.
    """

    def __init__(self, endpoint: Endpoint, **options: Unpack[ClientArguments]) -> None:
        self._options = ClientOptions(**options)
        self._locate = locator(endpoint)
        self._lock = threading.Lock()
        self._streams: dict[str, Stream] = {}
        self._subscriptions: set[Subscription] = set()
        self._questions: dict[Question, _Waiting] = {}
        self._closed = False

    @classmethod
    def connect(cls, endpoint: Endpoint, **options: Unpack[ClientArguments]) -> Self:
        """A client of the broker at an endpoint, or of the one that a node finds (`X-ZEPS`). Returns at once.

        A function is asked for the endpoint whenever there is no connection; it says None while it does not know.
        """
        return cls(endpoint, **options)

    def __enter__(self) -> Self:
        return self

    def _open(self) -> None:
        if self._closed:
            raise ClientClosed("the client is closed")

    def stream(self, name: str, **options: Unpack[StreamArguments]) -> Stream:
        """The stream of that name. `bound` and `on_full` are for the first time that it is asked for."""
        with self._lock:
            self._open()
            stream = self._streams.get(name)
            if stream is None:
                stream = self._streams[name] = Stream(self, stream_name(name), options)
            elif options:
                raise ZepsError(f"the stream {name!r} is in use by this client; its options are given the first time")
            return stream

    # What the broker tells

    def streams(self, timeout: float | None = None) -> list[StreamInfo]:
        """All streams of the broker."""
        return read_streams(self._ask(STREAMS, 0, timeout))

    def clients(self, timeout: float | None = None) -> list[ClientInfo]:
        """All connections of the broker, this one too."""
        return read_clients(self._ask(CLIENTS, 0, timeout))

    def index(self, stream: str, after: int = 0, timeout: float | None = None) -> list[IndexEntry]:
        """The batches of a stream's journal that have messages after a sequence: where they are, and of when."""
        return read_index(self._ask(stream_name(INDEX + stream_name(stream)), after, timeout))

    def _ask(self, about: str, after: int, timeout: float | None) -> list[bytes]:
        waiting = _Waiting()
        with waiting.lock:
            question = Question(waiting.reactor, self._options, self._locate, about, lambda _: None, after=after)
            waiting.watch(question)
            with self._lock:
                self._open()
                self._questions[question] = waiting
            try:
                question.start()
                what = f"the broker told nothing of {about}"
                waiting.until(question, lambda: question.closing or None, timeout, what)
            finally:
                question.close(0)
                with self._lock:
                    self._questions.pop(question, None)
        if question.failure is not None:
            raise question.failure
        if not question.done:
            raise ClientClosed("the client was closed")
        return question.bodies

    # The end

    def close(self, linger: float | str | None = _DEFAULT) -> None:
        """Close. What is not confirmed has `linger` seconds to be; if it is not, that is told by `TimedOut`."""
        seconds = self._options.linger if isinstance(linger, str) else linger
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._lock:
            self._closed = True
            questions = dict(self._questions)
            streams = list(self._streams.values())
            subscriptions = list(self._subscriptions)
        for question, waiting in questions.items():
            waiting.close(question, 0)
        for subscription in subscriptions:
            subscription.close()
        problems = []
        for stream in streams:
            try:
                stream.close(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except ZepsError as error:
                problems.append(error)
        if problems:
            raise problems[0]

    @property
    def closed(self) -> bool:
        return self._closed

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        # Who leaves by an exception does not want to wait, and has one already.
        try:
            self.close(0)
        except ZepsError as second:
            if error is not None:
                error.add_note(str(second))

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if not getattr(self, "_closed", True) and (self._streams or self._subscriptions):
            _warn(f"unclosed {self!r}", ResourceWarning, source=self)

    def __repr__(self) -> str:
        return f"<Client of {'nobody: it is closed' if self._closed else self._locate() or 'a broker not found yet'}>"


class Stream:
    """A stream of a broker, as a client sees it."""

    def __init__(self, client: Client, name: str, options: StreamArguments) -> None:
        self.name = name
        self._client = client
        defaults = client._options
        self._engine = Publisher(
            options.get("bound", defaults.bound), options.get("on_full", defaults.on_full), defaults.largest
        )
        self._waiting = _Waiting()
        self._session: Publishing | None = None
        self._over = False

    # Publishing

    def publish(self, key: Key, body: Body, timeout: float | None = None) -> None:
        """Add a message. It is kept until the broker has confirmed it; `flush()` waits for that.

        Waits where what is not confirmed has reached its bound (or does what `on_full` says).
        """
        engine = self._engine
        if not engine.post(key, body):  # type: ignore[arg-type]
            octets = as_body(body)
            with self._waiting.lock:
                session = self._publishing()
                if not session.publish(key, octets):
                    what = f"there was no room in {self.name!r}"
                    self._waiting.until(session, lambda: session.publish(key, octets) or None, timeout, what)
        elif not engine.posting:
            self._settle(body)  # type: ignore[arg-type]

    def publish_nowait(self, key: Key, body: Body) -> None:
        """Add a message now, or raise `QueueFull`."""
        engine = self._engine
        if not engine.post(key, body):  # type: ignore[arg-type]
            octets = as_body(body)
            with self._waiting.lock:
                self._publishing().publish(key, octets, wait=False)
        elif not engine.posting:
            self._settle(body)  # type: ignore[arg-type]

    def _settle(self, body: bytes) -> None:
        """A message was posted while somebody collected, and may have been left behind."""
        with self._waiting.lock:
            session = self._session
            assert session is not None
            if not session.closing:
                session.pump()
            elif self._engine.take_back(body):
                session.checked()

    def publish_many(self, items: Iterable[tuple[Key, Body]], timeout: float | None = None) -> None:
        """Add many messages, each a key and a body. The fast way: a fraction of the cost of `publish`."""
        given = as_items(items)
        with self._waiting.lock:
            session = self._publishing()
            done = session.publish_many(given, 0)
            while done < len(given):

                def go_on(start: int = done) -> int | None:
                    stop = session.publish_many(given, start)
                    return stop if stop > start else None

                done = self._waiting.until(
                    session, go_on, timeout, f"{done} of {len(given)} messages were taken, and no more"
                )

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was published is in the journal of the broker (and on its disk, where the stream's policy
        says so). What the broker refused is told by `BrokerError`."""
        engine = self._engine
        with self._waiting.lock:
            session = self._session
            if session is None:
                return
            session.checked()
            barrier = engine.barrier()
            session.pump()

            def attempt() -> bool | None:
                if engine.is_confirmed(barrier):
                    return True
                session.checked()
                return None

            self._waiting.until(session, attempt, timeout, f"not all of {self.name!r} was confirmed")

    def _publishing(self) -> Publishing:
        session = self._session
        if session is None:
            client = self._client
            client._open()
            if self._over:
                raise ClientClosed(f"the stream {self.name!r} of this client is closed")
            not_reserved(self.name)
            waiting = self._waiting
            session = Publishing(waiting.reactor, client._options, client._locate, self.name, self._engine)
            waiting.watch(session)
            self._session = session
            session.start()
        return session

    @property
    def unconfirmed(self) -> int:
        """How many messages are published and not confirmed yet."""
        with self._waiting.lock:
            return self._engine.unconfirmed

    @property
    def counters(self) -> PublisherCounters:
        """What became of what was published."""
        return self._engine.counters

    # Subscribing

    def subscribe(
        self,
        pattern: str = "",
        *,
        since: Since = "latest",
        until: Until = None,
        window: int | None = None,
        multicast: bool | str = False,
        interface: str | None = None,
    ) -> Subscription:
        """The messages whose keys match, from a place on, and then live; or up to another place.

        `since` is "latest" (from now on), "earliest", a sequence (after it), a time, or how long ago. `until` is a
        sequence (the last one), a time (what was before it), or "now": what is there now. `window` bounds what is held
        for a program that is slow to take it, in octets.

        With `multicast=True` live messages come from the stream's group, if it has one, and the broker is asked only
        for what is missing; `interface` says on which network. A text, `"udp://239.77.1.1:5680"`, is the group itself.

        Returns at once. `with` waits until the broker has confirmed it, for those who publish next.
        """
        client = self._client
        engine = Subscriber(
            self.name, pattern_text(pattern), place_of(since), end_of(until), window or client._options.window
        )
        wish = Wish.of(multicast, interface)
        waiting = _Waiting()
        with waiting.lock:
            session = Subscribing(waiting.reactor, client._options, client._locate, self.name, engine, wish)
            subscription = Subscription(client, session, waiting)
            with client._lock:
                client._open()
                client._subscriptions.add(subscription)
            session.start()
        return subscription

    # The end

    def close(self, linger: float | None = 0) -> None:
        """Publish no more. What is not confirmed has `linger` seconds to be; if it is not, that is told."""
        with self._waiting.lock:
            self._over = True
            session = self._session
            if session is None or session.closing:
                return
            state = session.state
        try:
            if linger is None or linger > 0:
                self.flush(linger)
        except TimedOut:
            state = session.state
        finally:
            self._waiting.close(session, 1.0 if session.attached else 0)
        if left := self._engine.counters.unconfirmed:
            raise TimedOut(left_behind(self.name, left, state))

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"


class Subscription(Reading):
    """Messages of a stream, to be iterated over: one by one, or by `batches()`."""

    def __init__(self, client: Client, session: Subscribing, waiting: _Waiting) -> None:
        self._client = client
        super().__init__(session)
        self._waiting = waiting
        waiting.watch(session)
        session.on_closed = self._done

    def _done(self) -> None:
        with self._client._lock:
            self._client._subscriptions.discard(self)
        self._waiting.wake()

    def recv(self, timeout: float | None = None) -> Message:
        """The next message. At the end `ClientClosed`, and what ended it where that was a mistake."""
        while True:
            current = self._current
            for message in current:
                return message
            if not self._refilled(current, timeout):
                raise self._over()

    def recv_batch(self, timeout: float | None = None) -> MessageBatch:
        """The next messages: all that came in one read, or what is left of them."""
        with self._waiting.lock:
            found = self._rest() or self._waiting.until(self._session, self._next_batch, timeout, _NOTHING)
        if not found:
            raise self._over()
        return found

    def __iter__(self) -> Iterator[Message]:
        while True:
            current = self._current
            yield from current
            if not self._refilled(current, None):
                return

    def batches(self) -> Iterator[MessageBatch]:
        """Many messages for each step: the fast way."""
        while True:
            with self._waiting.lock:
                found = self._rest() or self._waiting.until(self._session, self._next_batch, None, _NOTHING)
            if not found:
                return
            yield found

    def _refilled(self, finished: Iterator[Message], timeout: float | None) -> bool:
        """Have something to iterate over, when what was there is finished: False at the end."""
        with self._waiting.lock:
            return self._waiting.until(self._session, lambda: self._refill(finished), timeout, _NOTHING)

    def ready(self, timeout: float | None = None) -> None:
        """Wait until the broker has confirmed the subscription: what is published from then on is not missed."""
        with self._waiting.lock:
            self._waiting.until(self._session, self._is_ready, timeout, "the subscription was not confirmed")

    def close(self) -> None:
        """End the subscription. What has come and was not read can still be read."""
        self._waiting.close(self._session, 1.0 if self._session.attached else 0)

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
