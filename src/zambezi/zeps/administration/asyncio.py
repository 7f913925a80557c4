"""Questions and orders to a broker, for asyncio. Programs use them by `Client`.

Names, arguments and behaviour are those of `zambezi.zeps.administration.sync`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Unpack

from zambezi.zeps.client.arguments import Since, StreamSettings, check_reader_name, check_stream_name, start_of
from zambezi.zeps.client.batch import Message
from zambezi.zeps.client.connection import BrokerConnection, ClientOptions
from zambezi.zeps.client.finder import Locate, is_endpoint
from zambezi.zeps.client.publisher import Key
from zambezi.zeps.client.questions import LastQuestion, Order, Question
from zambezi.zeps.directory import (
    BROKERS,
    CLIENTS,
    ELSEWHERE,
    INDEX,
    READERS,
    STREAMS,
    BrokerInfo,
    ClientInfo,
    ReaderInfo,
    StreamInfo,
    microseconds_of,
    read_brokers,
    read_clients,
    read_index,
    read_readers,
    read_streams,
)
from zambezi.zeps.errors import BrokerError, ClientClosed, TimedOut, ZepsError
from zambezi.zeps.journal.entry import IndexEntry
from zambezi.zmtp.async_waiter import Waiter

OTHERS: Final = 3.0  # seconds that another broker has to list its streams

WHY: Final = 1.0  # seconds that a broker has to say why messages wait

__all__ = ["Administration", "wake_on_change"]


def wake_on_change(waiter: Waiter, connection: BrokerConnection) -> None:
    """Let waiting callers check again whenever a connection changes."""
    waiter.state = lambda: "; ".join(filter(None, (f"the client is {connection.state}", connection.consequence)))
    connection.on_change = connection.transport.on_closed = waiter.wake


class Administration:
    """The part of a client that asks the broker, and gives it orders. Each has a connection of its own."""

    _closed: bool

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._waiter = Waiter(timed_out=TimedOut)
        self._questions: dict[Question, Waiter] = {}

    def _locate(self) -> str | tuple[str, ...] | None:
        """Return the endpoint of the broker, or several, or None if it is not known."""
        raise NotImplementedError

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("the client is closed")

    # Information about the broker

    async def streams(self, timeout: float | None = None) -> list[StreamInfo]:
        """Return all streams of the broker, and those of the brokers that share its object store.

        A stream whose broker does not answer has only its name and `owner`.
        """
        question = await self._question(STREAMS, 0, timeout)
        found = read_streams(question.bodies)
        if not question.has_others:
            return found
        elsewhere = read_streams(await self._ask(ELSEWHERE, 0, timeout))
        known = {one.stream: one for one in (*elsewhere, *found)}
        for endpoint in dict.fromkeys(one.owner for one in elsewhere if is_endpoint(one.owner)):
            known |= {one.stream: one for one in await self._streams_at(endpoint, timeout)}
        return [known[name] for name in sorted(known)]

    async def _streams_at(self, endpoint: str, timeout: float | None) -> list[StreamInfo]:
        """Return the streams of another broker; none if it does not answer soon: it can be dead."""
        try:
            patience = OTHERS if timeout is None else min(OTHERS, timeout)
            return read_streams((await self._question(STREAMS, 0, patience, lambda: endpoint)).bodies)
        except (BrokerError, TimedOut):
            return []

    async def _why_held(self, stream: str) -> str:
        """Return why the broker cannot append messages to a stream now; empty if it can, or does not say so soon."""
        try:
            # A client that is being closed asks, too: it waits for the last confirmations.
            question = await self._question(STREAMS, 0, WHY, pattern=f"exact:{stream}", closing=True)
        except ZepsError:
            return ""
        return next((one.held for one in read_streams(question.bodies) if one.stream == stream), "")

    async def brokers(self, timeout: float | None = None) -> list[BrokerInfo]:
        """Return the brokers that share an object store; raise `BrokerError` if the broker has none."""
        return read_brokers(await self._ask(BROKERS, 0, timeout))

    async def clients(self, timeout: float | None = None) -> list[ClientInfo]:
        """Return all connections of the broker, including those of this client."""
        return read_clients(await self._ask(CLIENTS, 0, timeout))

    async def index(self, stream: str, after: int = 0, timeout: float | None = None) -> list[IndexEntry]:
        """Return the batches of a stream's journal with messages after a sequence: their positions and times."""
        return read_index(await self._ask(check_stream_name(INDEX + check_stream_name(stream)), after, timeout))

    async def last(self, stream: str, key: Key, timeout: float | None = None) -> Message | None:
        """Return the last message of a key, with its time; None if the stream has none. Nothing is replayed.

        In a compacted stream this is quick. In another one the broker reads backwards until it finds the message.
        """
        waiter = Waiter(timed_out=TimedOut)
        question = LastQuestion(waiter.reactor, self._options, self._locate, check_stream_name(stream), key)
        await self._answer(question, waiter, timeout, f"the broker did not find the last message of {key!r}")
        return question.message

    # Administration

    async def create(self, stream: str, *, timeout: float | None = None, **settings: Unpack[StreamSettings]) -> None:
        """Create a stream. Raises `BrokerError` if it exists, or the broker's rules forbid it."""
        await self._order("create", timeout, stream=check_stream_name(stream), settings=settings)

    async def edit(self, stream: str, *, timeout: float | None = None, **settings: Unpack[StreamSettings]) -> None:
        """Change settings of a stream. A setting that is None becomes the broker's default again."""
        await self._order("edit", timeout, stream=stream, settings=settings)

    async def trim(self, stream: str, before: int | datetime, *, timeout: float | None = None) -> None:
        """Remove the messages of a stream before a sequence, or before a time."""
        point = {"before_time": microseconds_of(before)} if isinstance(before, datetime) else {"before": before}
        await self._order("trim", timeout, stream=stream, **point)

    async def truncate(self, stream: str, after: int, *, timeout: float | None = None) -> None:
        """Remove the messages of a stream after a sequence. Its clients are disconnected; its incarnation is new."""
        await self._order("truncate", timeout, stream=stream, after=after)

    async def delete(self, stream: str, *, timeout: float | None = None) -> None:
        """Delete a stream. Its subscribers get `BrokerError`; a publisher that goes on creates it again, empty."""
        await self._order("delete", timeout, stream=stream)

    async def copy(self, stream: str, to: str, *, timeout: float | None = None) -> None:
        """Create a stream with the messages that another one has now, and their times. Sequences begin at 1."""
        check_stream_name(to)
        await self._order("copy", timeout, stream=stream, to=to)

    async def readers(self, stream: str, timeout: float | None = None) -> list[ReaderInfo]:
        """Return the named readers of a stream, with their positions, and its groups of shared readers."""
        return read_readers(await self._ask(check_stream_name(READERS + check_stream_name(stream)), 0, timeout))

    async def set_reader(
        self, stream: str, reader: str, to: Since, *, shared: bool = False, timeout: float | None = None
    ) -> None:
        """Set the position of a named reader that no program uses, or add one. `to` is as `since` in `subscribe`.

        With shared=True, `reader` is a group that exists and has no members.
        """
        kind = "group" if shared else "reader"
        name = {"stream": stream, kind: check_reader_name(reader)}
        await self._order(f"set_{kind}", timeout, **name, latest=start_of(to))

    async def remove_reader(
        self, stream: str, reader: str, *, shared: bool = False, timeout: float | None = None
    ) -> None:
        """Remove a named reader that no program uses; with shared=True, a group that has no members."""
        kind = "group" if shared else "reader"
        await self._order(f"remove_{kind}", timeout, **{"stream": stream, kind: check_reader_name(reader)})

    async def _order(self, order: str, timeout: float | None, **content: object) -> None:
        waiter = Waiter(timed_out=TimedOut)
        question = Order(waiter.reactor, self._options, self._locate, order, content)
        await self._answer(question, waiter, timeout, f"no answer to the order {order!r} arrived")

    async def _ask(self, about: str, after: int, timeout: float | None) -> list[bytes]:
        return (await self._question(about, after, timeout)).bodies

    async def _question(
        self,
        about: str,
        after: int,
        timeout: float | None,
        locate: Locate | None = None,
        pattern: str = "",
        closing: bool = False,
    ) -> Question:
        waiter = Waiter(timed_out=TimedOut)
        question = Question(
            waiter.reactor, self._options, locate or self._locate, about, lambda _: None, pattern, after
        )
        await self._answer(question, waiter, timeout, f"the broker did not answer about {about}", closing)
        return question

    async def _answer(
        self, question: Question, waiter: Waiter, timeout: float | None, problem: str, closing: bool = False
    ) -> None:
        """Ask a question, and wait for its answer. A client that is closed asks only if `closing` is True."""
        wake_on_change(waiter, question)
        self._waiter.call(self._add_question, question, waiter, closing)
        try:
            waiter.call(question.start)
            await waiter.until(lambda: question.closing or None, timeout, problem)
        finally:
            waiter.call(question.close, 0)
            self._waiter.call(self._questions.pop, question, None)
        if question.failure is not None:
            raise question.failure
        if not question.done:
            raise ClientClosed("the client was closed")

    def _add_question(self, question: Question, waiter: Waiter, closing: bool) -> None:
        if not closing:
            self._check_open()
        self._questions[question] = waiter
