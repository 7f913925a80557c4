"""Streams for asyncio. Names, arguments and meaning are those of `zambezi.zeps.sync`.

>>> import asyncio, tempfile
>>> from zambezi.zeps.broker import Broker
>>> async def main(path: str) -> list[bytes]:
...     async with Broker(path) as broker:
...         async with Client.connect(broker.bind("tcp://127.0.0.1:*")) as client:
...             prices = client.stream("prices")
...             await prices.publish("tea", b"4.20")
...             await prices.publish("coffee", b"3.10")
...             await prices.flush()
...             return [message.body async for message in prices.subscribe(since="earliest", until="now")]
>>> with tempfile.TemporaryDirectory() as path:
...     asyncio.run(main(path))
[b'4.20', b'3.10']

A call that is cancelled or times out loses nothing: a message is taken from a subscription only when the call returns
it, and it is published once the call has returned.
"""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack

from zambezi.zeps.client import ClientOptions, Locate, Session
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
    AwaitableEndpoint,
    Body,
    ClientArguments,
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
from zambezi.zeps.publisher import POSTS, Key, Publisher, PublisherCounters
from zambezi.zeps.publishing import Publishing
from zambezi.zeps.questions import Question
from zambezi.zeps.received import Message, MessageBatch
from zambezi.zeps.subscriber import Subscriber
from zambezi.zeps.subscribing import Subscribing
from zambezi.zmtp.reactor import AsyncioReactor

__all__ = ["Client", "Stream", "Subscription"]

T = TypeVar("T")

_DEFAULT: Final = "default"
_AT_ONCE: Final = 64
_NOTHING: Final = "no message came"


class _Waiting:
    """Those who wait for a session to change."""

    def __init__(self, session: Session) -> None:
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._futures: list[asyncio.Future[None]] = []
        self._closed = self._loop.create_future()
        self.on_closed: Callable[[], object] = lambda: None
        session.on_change = self.wake
        session.on_closed = self._done

    def wake(self) -> None:
        """Let all who wait look again."""
        futures = self._futures
        if futures:
            self._futures = []
            for future in futures:
                if not future.done():
                    future.set_result(None)

    async def until(self, attempt: Callable[[], T | None], timeout: float | None, what: str) -> T:
        """Call `attempt` whenever it may succeed, until it does."""
        result = attempt()
        if result is not None:
            return result
        try:
            async with asyncio.timeout(timeout):
                while (result := attempt()) is None:
                    future = self._loop.create_future()
                    self._futures.append(future)
                    try:
                        await future
                    finally:
                        if future in self._futures:
                            self._futures.remove(future)
                return result
        except TimeoutError:
            raise TimedOut(f"{what} within {timeout:g} s; the client is {self._session.state}") from None

    def _done(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)
        self.on_closed()

    async def closed(self) -> None:
        await asyncio.shield(self._closed)


class Client:
    """A client of a broker. It is made by `connect`, and closed with `async with`, or `close()`.

    Connections are made in the background, for each stream that is published to and for each subscription; they are
    made again whenever they are lost. See docs/streams.md for all the options.
    """

    def __init__(self, endpoint: AwaitableEndpoint, **options: Unpack[ClientArguments]) -> None:
        self._options = ClientOptions(**options)
        self._reactor = AsyncioReactor(asyncio.get_running_loop())
        self._asked = endpoint if inspect.isawaitable(endpoint) or inspect.iscoroutinefunction(endpoint) else None
        self._find: Locate = (lambda: None) if self._asked is not None else locator(endpoint)
        self._streams: dict[str, Stream] = {}
        self._subscriptions: set[Subscription] = set()
        self._questions: set[Question] = set()
        self._closed = False

    @classmethod
    def connect(cls, endpoint: AwaitableEndpoint, **options: Unpack[ClientArguments]) -> Self:
        """A client of the broker at an endpoint, or of the one that a node finds (`X-ZEPS`). Returns at once.

        A function is asked for the endpoint whenever there is no connection; it says None while it does not know.
        """
        return cls(endpoint, **options)

    async def __aenter__(self) -> Self:
        asked = self._asked
        if asked is not None:
            self._asked = None
            found = await (asked() if inspect.iscoroutinefunction(asked) else asked)  # type: ignore[misc]
            self._find = locator(found)
        return self

    def _locate(self) -> str | None:
        return self._find()

    def _open(self) -> None:
        if self._closed:
            raise ClientClosed("the client is closed")

    def stream(self, name: str, **options: Unpack[StreamArguments]) -> Stream:
        """The stream of that name. `bound` and `on_full` are for the first time that it is asked for."""
        self._open()
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = Stream(self, stream_name(name), options)
        elif options:
            raise ZepsError(
                f"the stream {name!r} is in use by this client; give its options when it is first asked for"
            )
        return stream

    # What the broker tells

    async def streams(self, timeout: float | None = None) -> list[StreamInfo]:
        """All streams of the broker."""
        return read_streams(await self._ask(STREAMS, 0, timeout))

    async def clients(self, timeout: float | None = None) -> list[ClientInfo]:
        """All connections of the broker, this one too."""
        return read_clients(await self._ask(CLIENTS, 0, timeout))

    async def index(self, stream: str, after: int = 0, timeout: float | None = None) -> list[IndexEntry]:
        """The batches of a stream's journal that have messages after a sequence: where they are, and of when."""
        return read_index(await self._ask(stream_name(INDEX + stream_name(stream)), after, timeout))

    async def _ask(self, about: str, after: int, timeout: float | None) -> list[bytes]:
        self._open()
        question = Question(self._reactor, self._options, self._locate, about, lambda _: None, after=after)
        waiting = _Waiting(question)
        self._questions.add(question)
        try:
            question.start()
            await waiting.until(lambda: question.closing or None, timeout, f"the broker told nothing of {about}")
        finally:
            question.close(0)
            self._questions.discard(question)
        if question.failure is not None:
            raise question.failure
        if not question.done:
            raise ClientClosed("the client was closed")
        return question.bodies

    # The end

    async def close(self, linger: float | str | None = _DEFAULT) -> None:
        """Close. What is not confirmed has `linger` seconds to be; if it is not, that is told by `TimedOut`."""
        self._closed = True
        seconds = self._options.linger if isinstance(linger, str) else linger
        for question in list(self._questions):
            question.close(0)
        closing = [stream.close(seconds) for stream in self._streams.values()]
        closing += [subscription.close() for subscription in list(self._subscriptions)]
        results = await asyncio.gather(*closing, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    @property
    def closed(self) -> bool:
        return self._closed

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
            return
        # Who leaves by an exception does not want to wait, and has one already.
        try:
            await self.close(0)
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
        self._post = self._engine.post
        self._session: Publishing | None = None
        self._waiting: _Waiting | None = None
        self._turns = 0
        self._over = False

    # Publishing

    async def publish(self, key: Key, body: Body, timeout: float | None = None) -> None:
        """Add a message. It is kept until the broker has confirmed it; `flush()` waits for that.

        Waits where what is not confirmed has reached its bound (or does what `on_full` says).
        """
        if not self._post(key, body):  # type: ignore[arg-type]
            await self._publish(key, as_body(body), timeout)

    async def _publish(self, key: Key, body: bytes, timeout: float | None) -> None:
        session, waiting = self._publishing()
        crowded = len(self._engine.pieces) >= 2 * POSTS
        if not session.publish(key, body):
            await waiting.until(
                lambda: session.publish(key, body) or None, timeout, f"there was no room in {self.name!r}"
            )
        self._turns += 1
        if crowded or self._turns % _AT_ONCE == 0:
            await asyncio.sleep(0)  # a program that does nothing but publish must let the loop run, too

    def publish_nowait(self, key: Key, body: Body) -> None:
        """Add a message now, or raise `QueueFull`."""
        if not self._post(key, body):  # type: ignore[arg-type]
            self._publishing()[0].publish(key, as_body(body), wait=False)

    async def publish_many(self, items: Iterable[tuple[Key, Body]], timeout: float | None = None) -> None:
        """Add many messages, each a key and a body. The fast way: a fraction of the cost of `publish`."""
        given = as_items(items)
        session, waiting = self._publishing()
        done = session.publish_many(given, 0)
        while done < len(given):

            def go_on(start: int = done) -> int | None:
                stop = session.publish_many(given, start)
                return stop if stop > start else None

            done = await waiting.until(go_on, timeout, f"{done} of {len(given)} messages were taken, and no more")
        await asyncio.sleep(0)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was published is in the journal of the broker (and on its disk, where the stream's policy
        says so). What the broker refused is told by `BrokerError`."""
        if self._session is None or self._waiting is None:
            return
        session, engine = self._session, self._engine
        session.checked()
        barrier = engine.barrier()
        session.pump()

        def attempt() -> bool | None:
            if engine.is_confirmed(barrier):
                return True
            session.checked()
            return None

        await self._waiting.until(attempt, timeout, f"not all of {self.name!r} was confirmed")

    def _publishing(self) -> tuple[Publishing, _Waiting]:
        session, waiting = self._session, self._waiting
        if session is None or waiting is None:
            self._client._open()
            if self._over:
                raise ClientClosed(f"the stream {self.name!r} of this client is closed")
            not_reserved(self.name)
            client = self._client
            session = Publishing(client._reactor, client._options, client._locate, self.name, self._engine)
            waiting = _Waiting(session)
            self._session, self._waiting = session, waiting
            session.start()
        return session, waiting

    @property
    def unconfirmed(self) -> int:
        """How many messages are published and not confirmed yet."""
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

        Returns at once. `async with` waits until the broker has confirmed it, for those who publish next.
        """
        client = self._client
        client._open()
        engine = Subscriber(
            self.name, pattern_text(pattern), place_of(since), end_of(until), window or client._options.window
        )
        wish = Wish.of(multicast, interface)
        session = Subscribing(client._reactor, client._options, client._locate, self.name, engine, wish)
        subscription = Subscription(client, session)
        client._subscriptions.add(subscription)
        session.start()
        return subscription

    # The end

    async def close(self, linger: float | None = 0) -> None:
        """Publish no more. What is not confirmed has `linger` seconds to be; if it is not, that is told."""
        self._over = True
        session, waiting = self._session, self._waiting
        if session is None or waiting is None or session.closing:
            return
        state = session.state
        try:
            if linger is None or linger > 0:
                await self.flush(linger)
        except TimedOut:
            state = session.state
        finally:
            session.close(1.0 if session.attached else 0)
            await waiting.closed()
        if left := self._engine.counters.unconfirmed:
            raise TimedOut(left_behind(self.name, left, state))

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"


class Subscription(Reading):
    """Messages of a stream, to be iterated over: one by one, or by `batches()`."""

    def __init__(self, client: Client, session: Subscribing) -> None:
        super().__init__(session)
        self._waiting = _Waiting(session)
        self._waiting.on_closed = lambda: client._subscriptions.discard(self)

    async def recv(self, timeout: float | None = None) -> Message:
        """The next message. At the end `ClientClosed`, and what ended it where that was a mistake."""
        while True:
            current = self._current
            for message in current:
                return message
            if not await self._waiting.until(partial(self._refill, current), timeout, _NOTHING):
                raise self._over()

    async def recv_batch(self, timeout: float | None = None) -> MessageBatch:
        """The next messages: all that came in one read, or what is left of them."""
        rest = self._rest()
        if rest is not None:
            return rest
        found = await self._waiting.until(self._next_batch, timeout, _NOTHING)
        if not found:
            raise self._over()
        return found

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            current = self._current
            for message in current:
                yield message
            if not await self._waiting.until(partial(self._refill, current), None, _NOTHING):
                return

    async def batches(self) -> AsyncIterator[MessageBatch]:
        """Many messages for each step: the fast way."""
        rest = self._rest()
        if rest is not None:
            yield rest
        while True:
            found = await self._waiting.until(self._next_batch, None, _NOTHING)
            if not found:
                return
            yield found

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until the broker has confirmed the subscription: what is published from then on is not missed."""
        await self._waiting.until(self._is_ready, timeout, "the subscription was not confirmed")

    async def close(self) -> None:
        """End the subscription. What has come and was not read can still be read."""
        self._session.close(1.0 if self._session.attached else 0)
        await self._waiting.closed()

    async def __aenter__(self) -> Self:
        try:
            await self.ready()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
