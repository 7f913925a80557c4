"""zambezi.mcollective.host: hosts with agents, and their callers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest

from tests.zmtp.waiting import eventually, in_loop
from zambezi.mcollective.agents import action, agent
from zambezi.mcollective.asyncio import Connector, Fleet, Middleware
from zambezi.mcollective.errors import ActionFailed
from zambezi.mcollective.fleet import Call, Reply
from zambezi.mcollective.host import AgentHost
from zambezi.zmtp import Backoff


@agent("work")
class Work:
    """For tests."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    @action
    def add(self, one: int, other: int = 1) -> int:
        return one + other

    @action
    async def soon(self, text: str) -> str:
        await asyncio.sleep(0)
        return text.upper()

    @action
    def fail(self) -> None:
        raise ActionFailed("it is not the day for it")

    @action
    def break_down(self) -> None:
        raise ZeroDivisionError("a mistake of the agent's")

    @action
    def unfit(self) -> object:
        return {1, 2}

    @action
    def wait(self) -> str:
        return "done" if self.gate.wait(60) else "too late"


@contextlib.asynccontextmanager
async def fleet_of(*names: str, agents: int | None = None) -> AsyncIterator[tuple[Fleet, list[AgentHost], Connector]]:
    """Start nodes and a caller. Only the first `agents` nodes have the agent."""
    async with Middleware() as middleware, contextlib.AsyncExitStack() as stack:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        hosts = []
        for number, name in enumerate(names):
            served = [Work()] if agents is None or number < agents else []
            host = AgentHost(Connector(endpoint), served, node=name, at_once=2, waiting=2)
            hosts.append(await stack.enter_async_context(host))
        connector = await stack.enter_async_context(Connector(endpoint))
        yield Fleet(connector, caller="laptop"), hosts, connector


@in_loop
async def test_all_nodes_with_the_agent_are_called_and_answer() -> None:
    async with fleet_of("n1", "n2", "n3", agents=2) as (fleet, hosts, _):
        heard: list[tuple[str, int]] = []

        def note(reply: Reply, call: Call) -> None:
            heard.append((reply.node, len(call.expected)))

        outcome = await fleet.call("work", "add", {"one": 1}, discover=3, timeout=60, on_reply=note)
        assert {node: reply.result for node, reply in outcome.replies.items()} == {"n1": 2, "n2": 2}
        assert outcome.ok
        assert sorted(heard) == [("n1", 2), ("n2", 2)]
        assert hosts[2].counters.requests == 1  # the ping
        assert hosts[0].agents == ["work"]


@in_loop
async def test_nodes_are_called_directly_and_the_silent_are_named() -> None:
    async with fleet_of("n1", "n2") as (fleet, hosts, _):
        outcome = await fleet.call("work", "soon", {"text": "hi"}, nodes=["n1", "n9"], timeout=3)
        assert outcome.replies["n1"].result == "HI"
        assert outcome.silent == ("n9",)
        assert not outcome.ok
        assert hosts[1].counters.requests == 0


@in_loop
async def test_a_ping_returns_the_nodes_and_their_actions() -> None:
    async with fleet_of("n1", "n2", agents=1) as (fleet, _, _connector):
        outcome = await fleet.ping(nodes=["n1", "n2"], timeout=60)
        agents = outcome.replies["n1"].result["agents"]
        assert agents["work"]["summary"] == "For tests."
        assert agents["work"]["actions"]["add"]["parameters"] == "one: int, other: int = 1"
        assert outcome.replies["n2"].result == {"agents": {}}
        everybody = await fleet.ping(timeout=3)
        assert list(everybody.replies) == ["n1", "n2"]


@pytest.mark.parametrize(
    ("action_name", "arguments", "status", "words"),
    [
        ("fail", {}, "error", "it is not the day for it"),
        ("break_down", {}, "error", "ZeroDivisionError: a mistake of the agent's"),
        ("unfit", {}, "error", "not JSON serializable"),
        ("dance", {}, "refused", "no action 'dance'; it has add"),
        ("add", {"one": "x"}, "refused", "one must be int, but 'x' is not"),
        ("add", {}, "refused", "needs the argument 'one'"),
    ],
)
def test_the_caller_is_told_what_went_wrong(
    action_name: str, arguments: dict[str, object], status: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with fleet_of("n1") as (fleet, _, _connector):
            outcome = await fleet.call("work", action_name, arguments, nodes=["n1"], timeout=60)
            reply = outcome.replies["n1"]
            assert reply.status == status
            assert words in reply.error
            # The node still works.
            outcome = await fleet.call("work", "add", {"one": "1", "other": 2}, nodes=["n1"], timeout=60)
            assert outcome.replies["n1"].result == 3

    asyncio.run(story())


@in_loop
async def test_an_unknown_agent_is_refused() -> None:
    async with fleet_of("n1") as (fleet, _, _connector):
        outcome = await fleet.call("play", "dance", nodes=["n1"], timeout=60)
        assert "no agent 'play' here; there are work" in outcome.replies["n1"].error


@in_loop
async def test_too_much_at_once_is_refused_and_the_rest_is_done() -> None:
    slow = Work()
    async with Middleware() as middleware, contextlib.AsyncExitStack() as stack:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        host = AgentHost(Connector(endpoint), [slow], node="n1", at_once=1, waiting=1)
        await stack.enter_async_context(host)
        callers = [await stack.enter_async_context(Connector(endpoint)) for _ in range(3)]
        fleets = [Fleet(connector, caller=f"caller{number}") for number, connector in enumerate(callers)]
        calls = [asyncio.create_task(fleet.call("work", "wait", nodes=["n1"], timeout=60)) for fleet in fleets]
        await eventually(lambda: host.counters.refused == 1)
        slow.gate.set()
        replies = [(await call).replies["n1"] for call in calls]
        assert sorted(reply.status for reply in replies) == ["ok", "ok", "refused"]
        assert [reply.error for reply in replies if not reply.ok] == ["too many requests at once: try again later"]


@in_loop
async def test_messages_that_are_no_requests_are_ignored() -> None:
    async with fleet_of("n1") as (fleet, hosts, connector):
        for body in (b"\x04\x08o:\x08Foo", b"{}", b"[1]", b""):
            await connector.put("zambezi nodes n1", body, reply_to="x")
        await fleet.ping(nodes=["n1"], timeout=60)
        assert hosts[0].counters.strange == 4
        assert hosts[0].counters.requests == 1


@in_loop
async def test_nodes_come_back_after_the_middleware_was_away() -> None:
    middleware = Middleware(linger=0)
    endpoint = middleware.bind("tcp://127.0.0.1:*")
    quick = Backoff(0.01, 0.05)
    host = AgentHost(Connector(endpoint, backoff=quick), [Work()], node="n1")
    async with host, Connector(endpoint, backoff=quick) as connector:
        fleet = Fleet(connector)
        assert (await fleet.call("work", "add", {"one": 1}, nodes=["n1"], timeout=60)).ok
        await middleware.close()
        async with Middleware(linger=0) as middleware:
            middleware.bind(endpoint)
            await eventually(lambda: len(middleware.topics()) == 4)
            assert (await fleet.call("work", "add", {"one": 1}, nodes=["n1"], timeout=60)).ok
