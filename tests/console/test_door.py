"""Clients of the console that are slow, silent or many: they cost neither memory nor the answers of others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.console.test_console import shown
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.console import console
from zambezi.console.answers import FRESH, PIECE, Answer, encode, pieces
from zambezi.console.board import Board
from zambezi.console.door import REQUEST, Door

HIGH_WATER = 64 * 1024  # bytes of asyncio's buffer for a connection; a writer waits when it has more
LARGE = {"text": "x" * 8_000_000}  # more than the buffers of the kernel
ALWAYS = 3600.0


class Raw:
    """A connection without a browser: it reads only if the test does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def get(self, path: str) -> None:
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    async def status(self) -> int:
        """Return the status of the next answer."""
        async with asyncio.timeout(PATIENCE):
            return int((await self.reader.readline()).split()[1])

    async def ended(self) -> bool:
        """Wait until the console has ended the connection; return whether it sent nothing before."""
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read() == b""
        return True


class Visitors:
    """A console with a door, and raw connections to it."""

    def __init__(self, door: Door, browser: aiohttp.ClientSession, builds: list[int]) -> None:
        self.door = door
        self.builds = builds  # one entry for each time that the state was built
        self._url = browser._base_url
        self._open: list[Raw] = []

    async def connect(self, count: int = 1) -> list[Raw]:
        assert self._url is not None
        made = [Raw(*await asyncio.open_connection(self._url.host, self._url.port, limit=1024)) for _ in range(count)]
        self._open += made
        return made

    async def check_health(self) -> None:
        (raw,) = await self.connect()
        for path in ("/healthz", "/readyz", "/metrics"):
            raw.get(path)
            assert await raw.status() == 200
            head = await raw.reader.readuntil(b"\r\n\r\n")
            length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
            await raw.reader.readexactly(length)
        raw.writer.close()

    def close(self) -> None:
        for raw in self._open:
            raw.writer.transport.abort()


@asynccontextmanager
async def visited(path: Path, door: Door, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Visitors]:
    builds: list[int] = []

    def build(_: object) -> dict[str, str]:
        builds.append(1)
        return LARGE

    monkeypatch.setattr(console, "Door", lambda: door)
    monkeypatch.setattr(console, "state_of", build)
    monkeypatch.setattr(Board, "see", lambda *_: LARGE)
    async with shown(path) as (_, browser):
        visitors = Visitors(door, browser, builds)
        try:
            yield visitors
        finally:
            visitors.close()


def buffered(door: Door) -> list[int]:
    """Return the bytes that wait in this process for each connection."""
    return [visit._transport.get_write_buffer_size() for visit in door._visits.values() if visit._transport]


@in_loop
async def test_readers_that_never_read_share_one_answer_and_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zambezi.console.answers.FRESH", ALWAYS)
    door = Door(answer=ALWAYS)
    async with visited(tmp_path, door, monkeypatch) as visitors:
        raws = await visitors.connect(100)
        for index, raw in enumerate(raws):
            raw.get("/api/live" if index % 20 == 0 else "/api/state")
        await eventually(lambda: door.inside["pages"] == 100 and min(buffered(door)) > 0)
        assert len(visitors.builds) == 1, "built once for all"
        assert max(buffered(door)) <= HIGH_WATER + 2 * (HIGH_WATER + PIECE)
        for visit in [*door._visits.values()]:
            assert visit._timer is not None, "each has a deadline"
            visit.set_deadline(0)
        await eventually(lambda: door.turned_away == 100)
        await eventually(lambda: not any(door.inside.values()))


@in_loop
async def test_health_checks_have_room_when_readers_take_all_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = Door(most=12, room=4, answer=ALWAYS, patience=ALWAYS)
    async with visited(tmp_path, door, monkeypatch) as visitors:
        monkeypatch.setattr(console, "exposition", lambda *_: b"small")
        for raw in await visitors.connect(8):
            raw.get("/api/state")
        await eventually(lambda: door.inside["pages"] == 8)
        (more,) = await visitors.connect()
        more.get("/api/state")
        assert await more.status() == 503
        await visitors.connect(30)  # silent
        await eventually(lambda: len(door._visits) == 12)
        await visitors.check_health()
        assert door.inside["pages"] == 8, "none of the requests in progress had to end"


@in_loop
async def test_scrapes_that_are_not_read_leave_room_for_health_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "exposition", lambda *_: b"x" * 8_000_000)
    door = Door(most=12, room=4, answer=ALWAYS)
    async with visited(tmp_path, door, monkeypatch) as visitors:
        raws = await visitors.connect(3)
        for raw in raws[:2]:
            raw.get("/metrics")
        await eventually(lambda: door.inside["scrapes"] == 2)
        raws[2].get("/metrics")
        assert await raws[2].status() == 503
        (check,) = await visitors.connect()
        check.get("/healthz")
        assert await check.status() == 200


@in_loop
async def test_a_new_connection_takes_the_place_of_the_one_that_was_idle_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = Door(most=4, room=2)
    async with visited(tmp_path, door, monkeypatch) as visitors:
        monkeypatch.setattr(console, "exposition", lambda *_: b"small")
        first, second = await visitors.connect(2)
        first.get("/healthz")
        assert await first.status() == 200
        await visitors.connect(3)
        assert await second.ended(), "the first one has sent a request after the second one came"
        await visitors.connect(200)
        await visitors.check_health()
        assert len(door._visits) <= 4


@in_loop
async def test_a_request_that_arrives_too_slowly_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with visited(tmp_path, Door(patience=0.5), monkeypatch) as visitors:
        kept, slow, silent = await visitors.connect(3)
        kept.get("/healthz")
        assert await kept.status() == 200
        slow.writer.write(b"GET /healthz HT")
        assert await slow.ended()
        assert await silent.ended()
        await kept.reader.readuntil(b"ok\n")
        kept.get("/healthz")
        assert await kept.status() == 200, "a connection that sent a request stays open"
        assert visitors.door.turned_away == 2


@in_loop
async def test_a_connection_ends_although_its_answers_are_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The web server closes such a connection, and a closed transport stays open until its bytes are read."""
    monkeypatch.setattr("zambezi.console.door.KEPT", 0.5)
    async with visited(tmp_path, Door(answer=0.5), monkeypatch) as visitors:
        (raw,) = await visitors.connect()
        for _ in range(200):
            raw.get("/static/console.js")
        raw.writer.write(b"nonsense\r\n\r\n")
        await eventually(lambda: visitors.door.turned_away == 1)
        assert not visitors.door._visits


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"a" * REQUEST,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * REQUEST,
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n" + b"x" * REQUEST,
        b"GET /api/live HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * REQUEST,
    ],
    ids=["a long line", "many headers", "a body", "many chunks"],
)
@in_loop
async def test_a_request_that_is_too_long_is_not_even_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    parsed: list[int] = []
    receive = web.RequestHandler.data_received

    def count(handler: web.RequestHandler, data: bytes) -> None:
        parsed.append(len(data))
        receive(handler, data)

    monkeypatch.setattr(web.RequestHandler, "data_received", count)
    async with visited(tmp_path, Door(), monkeypatch) as visitors:
        (raw,) = await visitors.connect()
        raw.writer.write(request_)
        await raw.ended()
        assert visitors.door.turned_away == 1
        assert sum(parsed) <= REQUEST


@in_loop
async def test_followers_are_bounded_and_have_no_deadline_between_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LARGE, "text", "small")
    door = Door(followers=2, answer=0.5)
    async with visited(tmp_path, door, monkeypatch) as visitors:
        one, two, three = await visitors.connect(3)
        one.get("/api/live")
        two.get("/api/live")
        assert (await one.status(), await two.status()) == (200, 200)
        three.get("/api/live")
        assert await three.status() == 503
        for _ in range(2):  # the second state comes later than an answer may take
            async with asyncio.timeout(PATIENCE):
                await one.reader.readuntil(b"data: ")
        assert door.inside["followers"] == 2


@in_loop
async def test_an_answer_is_built_again_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    builds: list[float] = []

    def build() -> bytes:
        builds.append(now)
        return encode(now)

    answer = Answer(build)
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        assert [answer.content() for _ in range(3)] == [b"0.0"] * 3
        now = FRESH
        assert answer.content() == b"0.5"
    assert builds == [0.0, FRESH]


def test_pieces_share_the_memory_of_their_content() -> None:
    content = bytes(2 * PIECE + 1)
    made = list(pieces(content))
    assert [len(piece) for piece in made] == [PIECE, PIECE, 1]
    assert all(piece.obj is content for piece in made)
