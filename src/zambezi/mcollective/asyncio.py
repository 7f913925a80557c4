"""The middleware and the connector for asyncio. Names, arguments and meaning are those of `zambezi.mcollective.sync`.

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

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import ClassVar, Unpack
from uuid import uuid4

from zambezi.mcollective.archive import Archive, Since
from zambezi.mcollective.bounds import Bounds, Counters
from zambezi.mcollective.connector import Message, Ticket, octets_of, put_headers
from zambezi.mcollective.face import body_of, middleware_options, rules_of, texts_of, topics_of
from zambezi.mcollective.fleet import COLLECTIVE, DISCOVERY, PING, Call, Outcome, Reply, Request, reply_topic
from zambezi.mcollective.line import DEFAULT_LINGER, DEFAULT_TTL, ConnectorCore, default_identity
from zambezi.mcollective.messages import PUT, TOPIC, Frames
from zambezi.mcollective.middleware import MiddlewareCore
from zambezi.mcollective.report import TopicReport
from zambezi.mcollective.rules import Rule, Rules
from zambezi.zmtp.asyncio import YIELD_AFTER, BaseSocket
from zambezi.zmtp.core import Options
from zambezi.zmtp.errors import SocketClosed, TimedOut
from zambezi.zmtp.face import Sendable, SocketArguments

__all__ = ["Connector", "Fleet", "Message", "Middleware"]


class Middleware(BaseSocket):
    """A middleware for MCollective's clients: those in Ruby, and our own.

    `rules` says who may PUT and SUB to which topics, `archive` keeps what is PUT to some of them. Of the options of all
    sockets, `security` and `authenticator` say who may connect, and `send_bound` how much a subscriber may lag.
    """

    _make: ClassVar[Callable[..., MiddlewareCore]] = MiddlewareCore
    _core: MiddlewareCore

    def __init__(
        self,
        *,
        rules: Rules | Iterable[Rule | Mapping[str, object]] | None = None,
        archive: Archive | None = None,
        bounds: Bounds | None = None,
        linger: float | None = DEFAULT_LINGER,
        **options: Unpack[SocketArguments],
    ) -> None:
        self._open(linger, middleware_options(options), rules=rules_of(rules), archive=archive, bounds=bounds)

    @property
    def counters(self) -> Counters:
        """What was done, what was refused, and what was missed."""
        return self._core.engine.counters

    @property
    def clients(self) -> int:
        """How many are connected."""
        return len(self._core.engine.sessions)

    def replace_rules(self, rules: Rules | Iterable[Rule | Mapping[str, object]] | None) -> None:
        """Let other rules hold from now on. Who may not be subscribed any more is not, and is told."""
        self._core.replace_rules(rules_of(rules))

    def topics(self) -> list[TopicReport]:
        """The topics that have subscribers, and who these are."""
        return self._core.engine.report()


class Connector(BaseSocket):
    """A client of a middleware. It connects in the background, and comes back by itself when the connection is lost.

    `ttl` is in seconds: how soon either side notices that the other is gone. None: no heartbeats. The options are those
    of all sockets: `security` for CURVE, `identity` for what operators see, `backoff` for how soon it comes back.
    """

    _make: ClassVar[Callable[..., ConnectorCore]] = ConnectorCore
    _core: ConnectorCore

    def __init__(
        self,
        endpoint: str,
        *,
        ttl: float | None = DEFAULT_TTL,
        linger: float | None = DEFAULT_LINGER,
        **options: Unpack[SocketArguments],
    ) -> None:
        options.setdefault("identity", default_identity())
        self._open(linger, Options(**options), endpoint=endpoint, ttl=ttl)
        self._core.start()

    async def connect(self, timeout: float | None = None) -> None:
        """Wait until there is a session. Other calls do so by themselves; this one says why there is none."""
        try:
            await self._wait(self._senders, lambda: self._core.ready_now or None, timeout)
        except TimedOut:
            raise self._core.no_session(timeout) from None

    @property
    def connected(self) -> bool:
        """Whether there is a session now."""
        return self._core.ready_now

    @property
    def subscriptions(self) -> list[str]:
        """The topics that are wanted, whether there is a session or not."""
        return [topic.decode("utf-8", "surrogateescape") for topic in self._core.engine.topics]

    @property
    def missed(self) -> int:
        """How many messages the middleware says that we were too slow for."""
        return self._core.engine.missed

    async def subscribe(self, *topics: str, since: Since | None = None, timeout: float | None = None) -> None:
        """Want what is PUT to topics; returns when the middleware has said OK.

        With `since`, a sequence or a time, what was PUT since then is received first, where the middleware keeps the
        topic; and after a lost connection nothing is missing. Raises `CommandRefused` if a topic is not allowed, or not
        kept. After a `TimedOut` the topics are wanted still, and subscribed to as soon as there is a session.
        """
        names = topics_of(topics)
        self._checked()
        await self._settled(self._core.subscribe(names, since), timeout)

    async def unsubscribe(self, *topics: str, timeout: float | None = None) -> None:
        """Want topics no longer."""
        names = topics_of(topics)
        self._checked()
        await self._settled(self._core.unsubscribe(names), timeout)

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
        """Send a message to all who subscribed to a topic.

        Nothing is heard of it, unless it is to be confirmed: then this returns when the middleware has taken (and,
        where the topic is kept, written) it, and raises `CommandRefused`, or `Unconfirmed` if the connection was lost.
        """
        name = topics_of((topic,))[0]
        extra = put_headers(reply_to, headers)
        frames = body_of(body)
        if confirm:
            await self._request(PUT, {TOPIC: name, **extra}, frames, timeout)
            return
        core = self._core
        if core.closing or not core.try_put(name, extra, frames):
            await self._wait(self._senders, lambda: core.try_put(name, extra, frames) or None, timeout)
        self._sent += 1
        if self._sent > YIELD_AFTER:
            await self._give_way()

    async def request(
        self,
        verb: str,
        headers: Mapping[str, str] | None = None,
        positional: Iterable[bytes] = (),
        timeout: float | None = None,
    ) -> dict[str, str]:
        """Say any command with an ID, and wait for its outcome: the headers of the OK, or `CommandRefused`."""
        given = {octets_of(key): octets_of(value) for key, value in (headers or {}).items()}
        answer = await self._request(octets_of(verb), given, tuple(positional), timeout)
        return texts_of(answer)

    async def _request(
        self, verb: bytes, headers: Mapping[bytes, bytes], positional: Frames, timeout: float | None
    ) -> Mapping[bytes, bytes]:
        core = self._core
        ticket = await self._wait(self._senders, lambda: core.try_request(verb, headers, positional), timeout)
        return await self._settled(ticket, timeout)

    async def _settled(self, ticket: Ticket, timeout: float | None) -> Mapping[bytes, bytes]:
        try:
            await self._wait(self._senders, lambda: ticket.settled or None, timeout)
        finally:
            self._core.engine.forget(ticket)
        return ticket.result()

    async def recv(self, timeout: float | None = None) -> Message:
        """The next message of the topics that were subscribed to."""
        return await self._wait(self._receivers, self._core.next_message, timeout)

    async def messages(self) -> AsyncIterator[Message]:
        """All messages, until the connector is closed."""
        try:
            while True:
                yield await self.recv()
        except SocketClosed:
            return

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()


class Fleet:
    """Calls the agents of a fleet through a connector, whose messages are the replies and nothing else.

    `caller` is who we are to the nodes; the host's name by default.
    """

    def __init__(self, connector: Connector, *, caller: str = "", collective: str = COLLECTIVE) -> None:
        self._connector = connector
        self._caller = caller or socket.gethostname()
        self._collective = collective
        self._reply_to = reply_topic(collective, self._caller, os.getpid())
        self._calling = asyncio.Lock()
        self._listening = False

    async def ping(self, *, nodes: Iterable[str] | None = None, timeout: float = 2.0) -> Outcome:
        """Who is there, and what agents they have. Without `nodes`, all who answer within the timeout."""
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
        """Call an action on `nodes`, or on all that have the agent; the replies, and who did not answer.

        Who has the agent is found out first, by a ping of `discover` seconds (0: no ping; then nobody is expected, and
        all who answer within the timeout are heard).
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
                reply = call.take(message.body)
                if reply is not None and on_reply is not None:
                    on_reply(reply, call)
        except TimedOut:
            pass  # who has not answered by now is told to be silent
