"""A node of a fleet, for asyncio: it receives requests, runs the actions of its agents, and replies.

>>> import asyncio
>>> from zambezi.mcollective.agents import action, agent
>>> from zambezi.mcollective.asyncio import Connector, Fleet, Middleware
>>> @agent("sums")
... class Sums:
...     @action
...     def add(self, one: int, other: int) -> int:
...         return one + other
>>> async def main() -> dict[str, object]:
...     async with Middleware() as middleware:
...         endpoint = middleware.bind("tcp://127.0.0.1:*")
...         async with AgentHost(Connector(endpoint), [Sums()], node="node1"), Connector(endpoint) as connector:
...             outcome = await Fleet(connector).call("sums", "add", {"one": 1, "other": 2}, nodes=["node1"])
...             return {node: reply.result for node, reply in outcome.replies.items()}
>>> asyncio.run(main())
{'node1': 3}
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

from zambezi.mcollective.agents import describe
from zambezi.mcollective.asyncio import Connector
from zambezi.mcollective.connector_engine import Message
from zambezi.mcollective.errors import ActionFailed, AgentError, McollectiveError
from zambezi.mcollective.fleet import COLLECTIVE, DISCOVERY, PING, Reply, Request, Roster, agent_topic, node_topic
from zambezi.zmtp.errors import ZmtpError

_log: Final = logging.getLogger("zambezi.mcollective")


@dataclass(slots=True)
class HostCounters:
    """The counters of a node: requests and their outcomes."""

    requests: int = 0
    failed: int = 0  # requests whose action raised
    refused: int = 0  # requests with an unknown action or wrong arguments, or too many at once
    strange: int = 0  # messages that are not requests in our format


class AgentHost:
    """Serves agents through a connector. The host owns the connector: it receives all its messages, and closes it.

    `at_once` actions run at a time, and `waiting` more are queued; further requests are refused. Actions that are not
    coroutines run in threads. `on_request` is called with each request and its reply.
    """

    def __init__(
        self,
        connector: Connector,
        agents: Iterable[object] = (),
        *,
        node: str = "",
        collective: str = COLLECTIVE,
        at_once: int = 8,
        waiting: int = 100,
        on_request: Callable[[Request, Reply], object] | None = None,
    ) -> None:
        self.node = node or socket.gethostname()
        self.counters = HostCounters()
        self._connector = connector
        self._roster = Roster(map(describe, agents))
        self._collective = collective
        self._most = at_once + waiting
        self._slots = asyncio.Semaphore(at_once)
        self._on_request = on_request
        self._running: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Task[None] | None = None

    @property
    def agents(self) -> list[str]:
        """The names of the agents."""
        return self._roster.names

    async def start(self, timeout: float | None = None) -> None:
        """Subscribe to the topics of the node and of its agents, and begin to serve."""
        topics = [agent_topic(self._collective, name) for name in (DISCOVERY, *self._roster.names)]
        await self._connector.subscribe(node_topic(self._collective, self.node), *topics, timeout=timeout)
        self._listener = asyncio.create_task(self._listen())

    async def serve(self) -> None:
        """Serve until the connector is closed."""
        if self._listener is None:
            await self.start()
        if self._listener is not None:
            await asyncio.shield(self._listener)

    async def close(self) -> None:
        """Stop serving. Actions that run in threads run to their end, but their callers get no reply."""
        tasks = [*self._running, *([self._listener] if self._listener else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._connector.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _listen(self) -> None:
        async for message in self._connector:
            request = Request.decode(message.body)
            if request is None:
                self.counters.strange += 1
                continue
            self.counters.requests += 1
            request = replace(request, user=message.user)
            task = asyncio.create_task(self._answer(request, message, len(self._running) >= self._most))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _answer(self, request: Request, message: Message, too_much: bool) -> None:
        began = time.monotonic()
        if too_much:
            reply = Reply(request.id, self.node, "refused", error="too many requests at once: try again later")
        else:
            reply = await self._perform(request, began)
        self.counters.refused += reply.status == "refused"
        self.counters.failed += reply.status == "error"
        if self._on_request is not None:
            self._on_request(request, reply)
        if message.reply_to:
            # Without the middleware the caller cannot be reached.
            with contextlib.suppress(ZmtpError, McollectiveError):
                await self._connector.put(message.reply_to, reply.encode())

    async def _perform(self, request: Request, began: float) -> Reply:
        if request.agent == DISCOVERY and request.action == PING:
            return Reply(request.id, self.node, "ok", self._roster.presence(), took=time.monotonic() - began)
        try:
            run = self._roster.find(request).prepare(request.arguments)
        except AgentError as error:
            return Reply(request.id, self.node, "refused", error=str(error))
        try:
            async with self._slots:
                began = time.monotonic()
                result = await _run(run)
            json.dumps(result)  # a result that is not JSON is a failure of the action
        except ActionFailed as error:
            text = str(error)
        except Exception as error:
            # An error in an agent must not end the node. The operator finds it in the log.
            _log.exception("%s.%s failed", request.agent, request.action)
            text = f"{type(error).__name__}: {error}"
        else:
            return Reply(request.id, self.node, "ok", result, took=time.monotonic() - began)
        return Reply(request.id, self.node, "error", error=text, took=time.monotonic() - began)


async def _run(call: Any) -> Any:
    if inspect.iscoroutinefunction(call.func):
        return await call()
    return await asyncio.to_thread(call)
