"""Pipelines on what a server has journalled of a real mesh and a real fleet: the tables say what happened."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from tests.cli.mesh_processes import free_port
from tests.server.test_server import config_for
from tests.zmtp.waiting import PATIENCE, eventually
from zambezi.mcollective.agents import action, agent
from zambezi.mcollective.asyncio import Connector, Fleet
from zambezi.mcollective.errors import ActionFailed
from zambezi.mcollective.host import AgentHost
from zambezi.server import Config, Server
from zambezi.spark.pipelines import PIPELINES, Run, Settings
from zambezi.spark.pipelines.results import Result, compute
from zambezi.zre.asyncio import Node
from zambezi.zre.log import What, hash_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "lights"


def config_of_all(path: Path) -> Config:
    """A server with all its services, which journals all that it can."""
    config = config_for(path)
    mcollective = dataclasses.replace(config.mcollective, enabled=True, endpoint="tcp://127.0.0.1:*", journal=["*"])
    zre = dataclasses.replace(config.zre, enabled=True, name="server", interface="lo", beacon_port=free_port())
    return dataclasses.replace(config, mcollective=mcollective, zre=zre)


def rows(results: dict[str, Result], name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of a table."""
    found = results[name].found
    places = [found.columns.index(column) for column in columns]
    return [tuple(row[place] for place in places) for row in found.rows]


# A mesh


class Mesh:
    """Nodes around a server, and what its journal has of them."""

    def __init__(self, server: Server) -> None:
        assert server.node is not None
        self.server = server
        self.home = server.node.uuid
        self._hashes = {hash_of(self.home)}

    def uuid(self) -> UUID:
        """One that can be told from the others by its hash."""
        while hash_of(made := uuid4()) in self._hashes:
            pass
        self._hashes.add(hash_of(made))
        return made

    @asynccontextmanager
    async def node(self, name: str, uuid: UUID, *, log: bool = True) -> AsyncIterator[Node]:
        """A node that has met the server: from that moment on it logs."""
        port = self.server.config.zre.beacon_port
        async with Node(name, uuid=uuid, interface="lo", beacon_port=port, groups=[GROUP], log=log) as node:
            await eventually(lambda: self.home in {one.uuid for one in node.peers})
            await eventually(lambda: not log or self.logged(What.ENTER, uuid, self.home))
            yield node

    def logged(self, what: What, node: UUID, peer: UUID | None) -> int:
        """Return how often an event is in the journal."""
        assert self.server.logs is not None
        known = [record.log for record in self.server.logs.recent]
        return [(log.event, log.node, log.peer) for log in known].count((what, hash_of(node), hash_of(peer)))


async def live(mesh: Mesh, ann: UUID, bob: UUID, carol: UUID) -> None:
    """Bob comes three times; the first time all talk."""

    def counted(what: What) -> tuple[int, int]:
        return mesh.logged(what, ann, bob), mesh.logged(what, carol, bob)

    async with mesh.node("ann", ann) as anns, mesh.node("carol", carol) as carols:
        await eventually(lambda: {one.uuid for one in carols.peers} == {ann, mesh.home})
        await eventually(lambda: mesh.logged(What.ENTER, ann, carol))
        for turn in (1, 2, 3):
            # He logs once: a node that begins anew under its old name finds everybody come, and nobody gone.
            async with mesh.node("bob", bob, log=turn == 1) as bobs:
                await eventually(partial(_is, counted, What.ENTER, (turn, turn)))
                if turn == 1:
                    await talk(mesh, anns, bobs, carol)
            await eventually(partial(_is, counted, What.EXIT, (turn, turn)))


def _is(asked: Callable[[What], tuple[int, int]], what: What, expected: tuple[int, int]) -> bool:
    return asked(what) == expected


async def talk(mesh: Mesh, ann: Node, bob: Node, carol: UUID) -> None:
    await eventually(lambda: {one.uuid for one in ann.peers if GROUP in one.groups} == {bob.uuid, carol})
    await eventually(lambda: ann.uuid in {one.uuid for one in bob.peers})
    for _ in range(5):
        await ann.whisper(bob.uuid, b"how are you?")
    for _ in range(2):
        await bob.whisper(ann.uuid, b"fine")
    for _ in range(3):
        await ann.shout(GROUP, b"lights out!")
    for _ in range(4):
        await ann.whisper(mesh.home, b"is anybody there?")  # the server's own node logs nothing
    sent = {(ann.uuid, bob.uuid): 5, (bob.uuid, ann.uuid): 2, (ann.uuid, None): 3, (ann.uuid, mesh.home): 4}
    heard = {(bob.uuid, ann.uuid): 5 + 3, (ann.uuid, bob.uuid): 2, (carol, ann.uuid): 3}
    await eventually(lambda: all(mesh.logged(What.SEND, *pair) == count for pair, count in sent.items()))
    await eventually(lambda: all(mesh.logged(What.RECV, *pair) == count for pair, count in heard.items()))


def test_the_health_of_a_real_mesh(spark: SparkSession, tmp_path: Path) -> None:
    async def story() -> tuple[dict[str, Result], list[str]]:
        async with Server(config_of_all(tmp_path)) as server:
            mesh = Mesh(server)
            people = [mesh.uuid() for _ in range(3)]
            async with asyncio.timeout(6 * PATIENCE):
                await live(mesh, *people)
            hashes = [f"{hash_of(one):04x}" for one in (*people, mesh.home)]
            assert server.logs is not None
            assert (server.logs.lost, server.logs.discarded) == (0, 0)
            return await asyncio.to_thread(report, server), hashes

    def report(server: Server) -> dict[str, Result]:
        options = {"endpoint": server.endpoints["zeps"]}
        run = Run(spark, PIPELINES["network-health"], str(tmp_path / "out"), options, Settings(flaps=3))
        assert server.logs is not None
        assert run.catch_up().rows == server.logs.journalled
        found = {one.name: one for one in compute(run.reports())}
        run.release()
        return found

    found, (ann, bob, carol, home) = asyncio.run(story())
    assert set(rows(found, "health-talk", *_TALK)) == {
        (ann, bob, 5, 5, 0, 3, 0),
        (bob, ann, 2, 2, 0, 0, 0),
        (ann, carol, 0, 0, 0, 3, 0),
        (ann, home, 4, 0, None, 0, 0),
    }
    assert rows(found, "health-unreceived", "kind", "sender", "to", "sent", "heard", "note") == [
        ("WHISPER", ann, home, 4, 0, "the receiver logs nothing")
    ]
    comings = rows(found, "health-flapping", "peer", "name", "seen_by", "comings", "most")
    assert set(comings) == {(bob, "bob", ann, 3, 3), (bob, "bob", carol, 3, 3)}
    nodes = rows(found, "health-nodes", "node", "hashes", "state", "restarts", "comings", "flapping_seen_by")
    assert nodes[0] == ("bob", bob, "flapping", 0, 3, 2)
    assert ("server", home) in {one[:2] for one in nodes}
    times = [one[1:] for one in rows(found, "health-timeline", "hash", "node", "seconds", "seen_by") if one[0] == bob]
    assert [(name, seen_by) for name, _, seen_by in times] == [("bob", 2)] * 3
    assert all(seconds >= 0 for _, seconds, _ in times)
    events: Counter[tuple[str, str]] = Counter()  # over all windows
    for node, *counts in rows(found, "health-events", "node", "enter", "exit", "send", "recv"):
        for what, count in zip(("enter", "exit", "send", "recv"), counts, strict=True):
            events[node, what] += count
    assert (events[ann, "enter"], events[ann, "send"], events[ann, "recv"]) == (1 + 1 + 3, 5 + 3 + 4, 2)
    assert (events[carol, "exit"], events[carol, "send"], events[carol, "recv"]) == (3, 0, 3)
    assert (events[home, "enter"], events[home, "send"]) == (0, 0)
    assert rows(found, "health-ambiguity", "hash") == []
    assert "4 hashes were seen" in found["health-ambiguity"].notes[0]


_TALK = ("sender", "receiver", "whispers_sent", "whispers_received", "missing", "shouts_received", "others")


# A fleet


@agent("machine")
class Machine:
    """The actions of a machine."""

    @action
    def uptime(self) -> int:
        """Return the seconds since it started."""
        return 1

    @action
    def reboot(self) -> None:
        """Never works."""
        raise ActionFailed("somebody is logged in")


async def answered(fleet: Fleet, name: str, count: int, nodes: list[str] | None = None) -> None:
    """Call an action until `count` nodes have answered, without waiting for the others."""
    enough = asyncio.Event()
    heard: list[str] = []

    def hear(reply: Any, _call: Any) -> None:
        heard.append(reply.node)
        if len(heard) == count:
            enough.set()

    call = asyncio.create_task(
        fleet.call("machine", name, nodes=nodes, timeout=6 * PATIENCE, discover=0, on_reply=hear)
    )
    await asyncio.wait([call, asyncio.create_task(enough.wait())], return_when=asyncio.FIRST_COMPLETED)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert len(heard) == count


async def work(stack: AsyncExitStack, endpoint: str) -> None:
    """Three machines are asked this and that; one goes away, and another never was there."""
    for name in ("web1", "db1"):
        await stack.enter_async_context(AgentHost(Connector(endpoint), [Machine()], node=name))
    fleet = Fleet(await stack.enter_async_context(Connector(endpoint)), caller="ann")
    async with AgentHost(Connector(endpoint), [Machine()], node="web2"):
        assert len((await fleet.ping(nodes=["web1", "web2", "db1"], timeout=PATIENCE)).replies) == 3
    await answered(fleet, "uptime", 1, ["web1", "db2"])
    await answered(fleet, "reboot", 1, ["web1"])
    await answered(fleet, "explode", 1, ["web1"])
    await answered(fleet, "uptime", 2)


def test_the_audit_of_a_real_fleet(spark: SparkSession, tmp_path: Path) -> None:
    async def story() -> dict[str, Result]:
        async with Server(config_of_all(tmp_path)) as server, AsyncExitStack() as stack:
            async with asyncio.timeout(6 * PATIENCE):
                await work(stack, server.endpoints["mcollective"])
                assert server.broker is not None
                stream = server.broker.engine.find("mcollective")
                assert stream is not None
                await eventually(lambda: stream.journal.last == (3 + 2 + 1 + 1 + 1) + (3 + 1 + 1 + 1 + 2))
            return await asyncio.to_thread(report, server.endpoints["zeps"])

    def report(endpoint: str) -> dict[str, Result]:
        run = Run(spark, PIPELINES["fleet-audit"], str(tmp_path / "out"), {"endpoint": endpoint}, Settings(patience=0))
        assert run.once().rows == 16
        found = {one.name: one for one in compute(run.reports())}
        run.release()
        return found

    found = asyncio.run(story())
    assert set(rows(found, "fleet-topics", "topic", "kind", "messages")) == {
        ("zambezi reply *", "reply", 8),
        ("zambezi nodes web1", "request", 4),
        ("zambezi nodes web2", "request", 1),
        ("zambezi nodes db1", "request", 1),
        ("zambezi nodes db2", "request", 1),
        ("zambezi machine", "request", 1),
    }
    columns = ("caller", "agent", "action", "asked", "answered", "ok", "errors", "refused", "silent")
    assert rows(found, "fleet-calls", *columns) == [
        ("ann", "machine", "uptime", "all", 2, 2, 0, 0, 1),
        ("ann", "machine", "explode", "web1", 1, 0, 0, 1, 0),
        ("ann", "machine", "reboot", "web1", 1, 0, 1, 0, 0),
        ("ann", "machine", "uptime", "db2, web1", 1, 1, 0, 0, 1),
        ("ann", "discovery", "ping", "db1, web1, web2", 3, 3, 0, 0, 0),
    ]
    assert rows(found, "fleet-silences", "node", "action") == [("web2", "uptime"), ("db2", "uptime")]
    assert set(rows(found, "fleet-nodes", "node", "answered", "silent", "errors", "refused")) == {
        ("web1", 5, 0, 1, 1),
        ("web2", 1, 1, 0, 0),
        ("db1", 2, 0, 0, 0),
        ("db2", 0, 1, 0, 0),
    }
    assert set(rows(found, "fleet-latency", "agent", "action", "requests", "replies")) == {
        ("discovery", "ping", 1, 3),
        ("machine", "uptime", 2, 3),
        ("machine", "reboot", 1, 1),
        ("machine", "explode", 1, 1),
    }
    assert all(median >= 0 for (median,) in rows(found, "fleet-latency", "median_s"))
