"""The middleware and the connector for asyncio.

Names, arguments and meaning are those of `zambezi.mcollective.sync`.

>>> import asyncio
>>> async def main() -> tuple[str, bytes]:
...     async with Middleware() as middleware:
...         endpoint = middleware.bind("tcp://127.0.0.1:*")
...         async with Connector(endpoint) as ann, Connector(endpoint) as bob:
...             await ann.subscribe("mcollective uptime")
...             await bob.put("mcollective uptime", b"how long?", reply_to="mcollective reply bob")
...             message = await ann.recv()
...             return message.reply_to, message.body
>>> asyncio.run(main())
('mcollective reply bob', b'how long?')
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Unpack
from uuid import uuid4

from zambezi.mcollective.archive import Archive, Since
from zambezi.mcollective.bounds import Bounds, Counters
from zambezi.mcollective.connector import DEFAULT_LINGER, DEFAULT_TTL, ConnectorShell, default_identity
from zambezi.mcollective.connector_engine import Message, Ticket
from zambezi.mcollective.face import (
    body_of,
    bytes_of,
    middleware_options,
    put_headers,
    rules_of,
    texts_of,
    topics_of,
)
from zambezi.mcollective.fleet import COLLECTIVE, DISCOVERY, PING, Call, Outcome, Reply, Request, reply_topic
from zambezi.mcollective.messages import PUT, TOPIC, Frames
from zambezi.mcollective.middleware import MiddlewareShell
from zambezi.mcollective.report import TopicReport
from zambezi.mcollective.rules import Rule, Rules
from zambezi.wire.text import as_text
from zambezi.zmtp.async_waiter import Mutex, Waiter
from zambezi.zmtp.asyncio import BaseSocket
from zambezi.zmtp.errors import SocketClosed, TimedOut
from zambezi.zmtp.face import NO_MESSAGE, YIELD_AFTER, Sendable, SocketArguments
from zambezi.zmtp.options import Options

__all__ = ["Connector", "Fleet", "Message", "Middleware"]

NO_ANSWER: Final = "no answer came"


class Middleware(BaseSocket):
    """A middleware for MCollective's clients: those in Ruby, and our own.

    `rules` decide which users can PUT and SUB to which topics; `archive` keeps the messages of some topics; `sessions`
    is a directory that keeps sessions, so that they survive a restart. Of the options of all sockets, `security` and
    `authenticator` decide which clients can connect, and `send_bound` how many bytes can wait for a slow subscriber.
    """

    _shell: MiddlewareShell

    def __init__(
        self,
        *,
        rules: Rules | Iterable[Rule | Mapping[str, object]] | None = None,
        archive: Archive | None = None,
        bounds: Bounds | None = None,
        sessions: str | os.PathLike[str] | None = None,
        linger: float | None = DEFAULT_LINGER,
        **options: Unpack[SocketArguments],
    ) -> None:
        waiter = Waiter()
        shell = MiddlewareShell(
            waiter.reactor,
            middleware_options(options),
            rules=rules_of(rules),
            archive=archive,
            bounds=bounds,
            sessions=Path(sessions) if sessions is not None else None,
        )
        super().__init__(waiter, shell, linger)

    @property
    def counters(self) -> Counters:
        """Counters of commands, deliveries, errors and missed messages."""
        return self._shell.engine.counters

    @property
    def clients(self) -> int:
        """The number of connected clients."""
        return len(self._shell.engine.sessions)

    @property
    def queues(self) -> list[tuple[str, int, int]]:
        """The queues of the middleware: name, length and bound. Of queues that every client has, the longest counts."""
        return self._waiter.call(self._shell.queues)

    def replace_rules(self, rules: Rules | Iterable[Rule | Mapping[str, object]] | None) -> None:
        """Use other rules from now on. A client that loses a subscription by them is told."""
        self._waiter.call(self._shell.replace_rules, rules_of(rules))

    def topics(self, most: int | None = None) -> list[TopicReport]:
        """Return the topics that have subscribers, or the first `most` by name, each with its first subscribers."""
        return self._waiter.call(self._shell.engine.report, most)

    @property
    def topic_count(self) -> int:
        """The number of topics that have subscribers."""
        return len(self._shell.engine.topics)


class Connector(BaseSocket):
    """A client of a middleware. It connects in the background, and connects again when the connection is lost.

    `ttl` is in seconds: after so much silence either side gives up the other; with None there are no heartbeats. The
    options are those of all sockets: `security` for CURVE, `identity` is the name that operators see, and `backoff` the
    time between attempts to connect.
    """

    _shell: ConnectorShell

    def __init__(
        self,
        endpoint: str,
        *,
        ttl: float | None = DEFAULT_TTL,
        linger: float | None = DEFAULT_LINGER,
        **options: Unpack[SocketArguments],
    ) -> None:
        options.setdefault("identity", default_identity())
        waiter = Waiter()
        shell = ConnectorShell(waiter.reactor, Options(**options), endpoint=endpoint, ttl=ttl)
        waiter.state = lambda: shell.problem
        super().__init__(waiter, shell, linger)
        self._try_put = waiter.fast(shell.try_put, self._transport)
        waiter.call(shell.start)

    async def connect(self, timeout: float | None = None) -> None:
        """Wait until there is a session. Other calls do this by themselves. `TimedOut` says why there is none."""
        await self._writable.until(self._while_open(lambda: self._shell.ready or None), timeout, "there was no session")

    @property
    def connected(self) -> bool:
        """Whether the connector has a session now."""
        return self._shell.ready

    @property
    def subscriptions(self) -> list[str]:
        """The topics that the program subscribed to, with a session or without."""
        return [as_text(topic) for topic in self._waiter.call(self._shell.engine.topics)]

    @property
    def missed(self) -> int:
        """The number of messages that the middleware could not deliver because this program was too slow."""
        return self._shell.engine.missed

    async def subscribe(self, *topics: str, since: Since | None = None, timeout: float | None = None) -> None:
        """Subscribe to topics; return when the middleware has answered OK.

        With `since`, a sequence or a time, the connector first receives the messages that were PUT since then, if the
        middleware keeps the topic, and misses none after a lost connection. Raises `CommandRefused` if a topic is not
        allowed, or not kept. After `TimedOut` the connector still subscribes as soon as it has a session.
        """
        names = topics_of(topics)
        ticket = self._waiter.call(self._while_open(partial(self._shell.subscribe, names, since)))
        await self._settled(ticket, timeout)

    async def unsubscribe(self, *topics: str, timeout: float | None = None) -> None:
        """Unsubscribe from topics."""
        names = topics_of(topics)
        await self._settled(self._waiter.call(self._while_open(partial(self._shell.unsubscribe, names))), timeout)

    async def put(
        self,
        topic: str,
        body: Sendable,
        *,
        reply_to: str | None = None,
        headers: Mapping[str, str] | None = None,
        confirm: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Send a message to all subscribers of a topic.

        With `confirm`, return when the middleware has accepted the message (and stored it, if the topic is kept), or
        raise `CommandRefused`, or `Unconfirmed` if the connection was lost. Without `confirm`, failures go unnoticed.
        """
        name = topics_of((topic,))[0]
        extra = put_headers(reply_to, headers)
        frames = body_of(body)
        if confirm:
            await self._request(PUT, {TOPIC: name, **extra}, frames, timeout)
            return
        if self._transport.closing or not self._try_put(name, extra, frames):
            attempt = self._while_open(lambda: self._shell.try_put(name, extra, frames) or None)
            await self._writable.until(attempt, timeout, "the message was not taken")
        self._sent += 1
        if self._sent > YIELD_AFTER:
            await self._breathe()

    async def request(
        self,
        verb: str,
        headers: Mapping[str, str] | None = None,
        positional: Iterable[bytes] = (),
        timeout: float | None = None,
    ) -> dict[str, str]:
        """Send any command with an ID; return the headers of the OK, or raise `CommandRefused`."""
        given = {bytes_of(key): bytes_of(value) for key, value in (headers or {}).items()}
        answer = await self._request(bytes_of(verb), given, tuple(positional), timeout)
        return texts_of(answer)

    async def _request(
        self, verb: bytes, headers: Mapping[bytes, bytes], positional: Frames, timeout: float | None
    ) -> Mapping[bytes, bytes]:
        attempt = self._while_open(partial(self._shell.try_request, verb, headers, positional))
        return await self._settled(await self._writable.until(attempt, timeout, NO_ANSWER), timeout)

    async def _settled(self, ticket: Ticket, timeout: float | None) -> Mapping[bytes, bytes]:
        try:
            await self._writable.until(self._while_open(lambda: ticket.settled or None), timeout, NO_ANSWER)
        finally:
            self._waiter.call(self._shell.engine.forget, ticket)
        return ticket.result()

    async def recv(self, timeout: float | None = None) -> Message:
        """Return the next message of the subscribed topics; raise `TimedOut` after `timeout` seconds."""
        return await self._readable.until(self._while_open(self._shell.next_message), timeout, NO_MESSAGE)

    async def messages(self) -> AsyncIterator[Message]:
        """Yield all messages, until the connector is closed."""
        try:
            while True:
                yield await self.recv()
        except SocketClosed:
            return

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()


class Fleet:
    """Calls the agents of a fleet through a connector. The program must not use this connector for anything else.

    `caller` is the name of this program for the nodes; the host's name by default.
    """

    def __init__(self, connector: Connector, *, caller: str = "", collective: str = COLLECTIVE) -> None:
        self._connector = connector
        self._caller = caller or socket.gethostname()
        self._collective = collective
        self._reply_to = reply_topic(collective, self._caller, os.getpid())
        self._calling = Mutex()
        self._listening = False

    async def ping(self, *, nodes: Iterable[str] | None = None, timeout: float = 2.0) -> Outcome:
        """Find the nodes and their agents. Without `nodes`, every node that answers within the timeout counts."""
        return await self.call(DISCOVERY, PING, nodes=nodes, timeout=timeout, discover=0)

    async def call(
        self,
        agent: str,
        action: str,
        arguments: Mapping[str, object] | None = None,
        *,
        nodes: Iterable[str] | None = None,
        timeout: float = 10.0,
        discover: float = 1.0,
        on_reply: Callable[[Reply, Call], object] | None = None,
    ) -> Outcome:
        """Call an action on `nodes`, or on every node that has the agent; return the replies, and the silent nodes.

        Without `nodes`, a ping of `discover` seconds first finds the nodes that have the agent. With `discover=0` there
        is no ping: no node is expected, and every node that answers within the timeout counts.
        """
        expected: list[str] = []
        if nodes is None and discover > 0:
            present = await self.ping(timeout=discover)
            expected = present.having(agent)
        async with self._calling:
            call = Call(Request(str(uuid4()), agent, action, arguments or {}, self._caller), nodes, expected)
            await self._run(call, timeout, on_reply)
        return call.outcome

    async def _run(self, call: Call, timeout: float, on_reply: Callable[[Reply, Call], object] | None) -> None:
        deadline = time.monotonic() + timeout
        if not self._listening:
            await self._connector.subscribe(self._reply_to, timeout=timeout)
            self._listening = True
        body = call.request.encode()
        for topic in call.topics(self._collective):
            await self._connector.put(topic, body, reply_to=self._reply_to, timeout=timeout)
        try:
            while not call.complete:
                message = await self._connector.recv(timeout=max(0.0, deadline - time.monotonic()))
                reply = call.take(message.body, message.user)
                if reply is not None and on_reply is not None:
                    on_reply(reply, call)
        except TimedOut:
            pass  # nodes that have not answered by now are reported as silent
