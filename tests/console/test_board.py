"""The views of the page: what each has, and how few bytes a page gets of a large server."""

import copy
import itertools
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest

from tests.console.test_console import publish, shown
from tests.zmtp.waiting import in_loop
from zambezi.console import board, tables
from zambezi.console.answers import encode
from zambezi.console.board import NODES, Board
from zambezi.console.history import History
from zambezi.console.live import Differences
from zambezi.console.logbook import Logbook
from zambezi.console.tables import PAGE, LookError
from zambezi.server import Server
from zambezi.server.state import id_of
from zambezi.zre.log import hash_of
from zambezi.zre.peer_info import PeerInfo

MANY_STREAMS = 5000
MANY_NODES = 500
MOST_BYTES = 50_000  # that a page gets per second
VIEWS = ("overview", "streams", "clients", "mesh", "topics", "log", "mesh-log", "elsewhere")


class Crowd:
    """A server with thousands of streams without files, and hundreds of peers. All of them are busy all the time."""

    def __init__(self, server: Server, patch: pytest.MonkeyPatch) -> None:
        assert server.broker is not None
        engine = server.broker.engine
        template = engine.find_or_make("template")
        self.streams = [copy.copy(template) for _ in range(MANY_STREAMS)]
        for number, stream in enumerate(self.streams):
            stream.name = f"plant-{number % 7}.line-{number:04}.telemetry<b>"
            stream.journal = copy.copy(template.journal)
        peers = [
            PeerInfo(
                UUID(int=number << 64), f"node-{number:03}<b>", f"tcp://h:{number}", {"X-ZEPS": "e"}, frozenset("ab")
            )
            for number in range(MANY_NODES)
        ]
        hashes = [hash_of(peer.uuid) for peer in peers]
        self.talk = Counter(dict.fromkeys(itertools.pairwise(hashes), 100))
        node = SimpleNamespace(peers=peers, name="here", uuid=UUID(int=1), groups=[], counters=Nothing(), queues=[])
        logs = SimpleNamespace(talk=self.talk, recent=[], journalled=0, lost=0, discarded=0)
        patch.setattr(type(engine), "streams", self.streams)
        patch.setattr(engine, "find", {stream.name: stream for stream in self.streams}.get)
        patch.setattr(server, "node", node)
        patch.setattr(server, "logs", logs)
        patch.setattr(tables, "FRESH", 0.0)
        patch.setattr(board, "FRESH", 0.0)

    def go_on(self) -> None:
        """Change everything that changes each second on a busy server."""
        for number, stream in enumerate(self.streams):
            stream.published += number
            stream.rate = stream.rate + 1.5 * number
            stream.journal.last += number
            stream.journal.octets += 1000 * number
            stream.journal.last_time = (stream.journal.last_time or 0) + 1_000_000
        for pair in self.talk:
            self.talk[pair] += 1


@dataclass
class Nothing:
    """A service without counters."""


@in_loop
async def test_a_page_of_a_large_server_gets_few_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with shown(tmp_path) as (server, _):
        with monkeypatch.context() as patch:
            crowd, past = Crowd(server, patch), History()
            seen = Board(server, past, Logbook())
            views = {view: {"view": view} for view in VIEWS}
            views["streams"]["sort"] = "-rate"
            views["stream"] = {"view": "stream", "id": id_of(crowd.streams[7].name)}
            differences = {view: Differences() for view in views}
            for second in range(3):
                crowd.go_on()
                past.sample(server, float(second))
                sizes = {view: len(encode(differences[view].next(seen.see(query)))) for view, query in views.items()}
                assert max(sizes.values()) < MOST_BYTES / (2 if second else 1), sizes
            table = seen.see({"view": "streams", "filter": "plant-3 line-49", "page": "0"})["table"]
            assert (table["all"], table["found"]) == (MANY_STREAMS, 14)
            graph = seen.see({"view": "mesh"})["graph"]
            assert (len(graph["nodes"]), seen.see({"view": "mesh"})["table"]["all"]) == (NODES, MANY_NODES)
            assert len(seen.see({"view": "mesh"})["table"]["rows"]) == PAGE


@in_loop
async def test_every_view_has_its_rows(tmp_path: Path) -> None:
    async with shown(tmp_path) as (server, browser):
        await publish(server, 3)
        seen = Board(server, History(), Logbook())
        for view in VIEWS:
            assert json.loads(encode(seen.see({"view": view})))["view"] == view
        row = seen.see({"view": "streams"})["table"]["rows"]["prices"]
        assert (row["stream"], row["last"]) == ("prices", 3)
        detail = seen.see({"view": "stream", "id": "prices"})["detail"]
        assert (detail["last"], detail["segment_count"], detail["orders"]) == (3, 1, [])
        assert seen.see({"view": "stream", "id": "nope"})["detail"] is None
        with pytest.raises(LookError):
            seen.see({"view": "nope"})
        for query in ("view=nope", "view=streams&sort=nope", "view=streams&page=x", "view=clients&filter=" + "x" * 300):
            assert (await browser.get(f"/api/live?{query}")).status == 400
