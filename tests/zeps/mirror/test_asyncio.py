"""Mirrors, by both faces: `zambezi.zeps.mirror.asyncio` and `zambezi.zeps.mirror.sync`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.zeps.broker_process import BrokerProcess
from tests.zeps.faces import NOWHERE, QUICK, TCP, bodies, fill
from tests.zeps.scripted import cut
from tests.zeps.serving import serving
from tests.zeps.stage import replace_method
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps import sync
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.errors import BrokerError, Fenced, Incarnation, JournalFull, ZepsError
from zambezi.zeps.mirror import Mirror as BlockingMirror
from zambezi.zeps.mirror.asyncio import Mirror


@asynccontextmanager
async def two(path: Path, **options: object) -> AsyncIterator[tuple[BrokerService, BrokerService, Client, Client]]:
    """Two brokers, and a client of each."""
    async with (
        BrokerService(path / "source", **options) as one,  # type: ignore[arg-type]
        BrokerService(path / "target") as other,
        Client.connect(one.bind(TCP), backoff=QUICK) as source,
        Client.connect(other.bind(TCP), backoff=QUICK) as target,
    ):
        yield one, other, source, target


async def copy(source: Client, target: Client, **options: object) -> Mirror:
    """Mirror what the source has now."""
    async with Mirror(source.stream("s"), target.stream("t"), until="now", **options) as mirror:  # type: ignore[arg-type]
        async with asyncio.timeout(PATIENCE):
            assert await mirror.run()
        return mirror


async def found(target: Client) -> list[int]:
    return await bodies(target.stream("t").subscribe(since="earliest", until="now"))


@asynccontextmanager
async def following(mirror: Mirror) -> AsyncIterator[Mirror]:
    async with mirror:
        task = asyncio.ensure_future(mirror.run())
        try:
            yield mirror
        finally:
            if task.done():
                task.result()  # the error of the mirror explains that of the test
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@in_loop
async def test_a_stream_is_mirrored_and_followed(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, target):
        await fill(source.stream("s"), 500)
        async with following(Mirror(source.stream("s"), target.stream("t"))) as mirror:
            await eventually(lambda: mirror.position == 500)
            await fill(source.stream("s"), 100, start=500)
            await eventually(lambda: mirror.position == 600)
            assert (mirror.counters.mirrored, mirror.counters.missed, mirror.lag) == (600, 0, 0)
            assert not mirror.waits_for
        assert await found(target) == list(range(600))
        keys = [message.key async for message in target.stream("t").subscribe(since=590, until="now")]
        assert keys == [f"k{number}" for number in range(10)]


@in_loop
async def test_a_mirror_goes_on_where_it_was(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, target):
        for begin in (0, 300, 600):
            await fill(source.stream("s"), 300, start=begin)
            mirror = await copy(source, target)
            assert mirror.counters.mirrored == 300
        assert await found(target) == list(range(900))
        assert (await copy(source, target)).counters.mirrored == 0


def test_the_blocking_face_mirrors(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, endpoint), sync.Client.connect(endpoint) as client:
        stream, copied = client.stream("s"), client.stream("t")
        stream.publish_many([("k", b"%d" % number) for number in range(100)])
        stream.flush(PATIENCE)
        with BlockingMirror(stream, copied, until="now") as mirror:
            assert mirror.run(PATIENCE)
            assert mirror.position == 100
        assert len(list(copied.subscribe(since="earliest", until="now"))) == 100


@in_loop
async def test_a_pattern_selects_messages_and_the_position_stays_right(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, target):
        for begin in (0, 100, 200):
            await fill(source.stream("s"), 100, start=begin)
            await copy(source, target, pattern="regex:^k[37]$")
        assert await found(target) == [number for number in range(300) if number % 10 in (3, 7)]


@in_loop
async def test_broken_connections_lose_and_repeat_nothing(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other, source, target):
        chance = random.Random(5)
        async with following(Mirror(source.stream("s"), target.stream("t"))) as mirror:
            for begin in range(0, 3000, 100):
                await fill(source.stream("s"), 100, start=begin)
                if chance.random() < 0.5:
                    cut(chance.choice((one, other)))
                await asyncio.sleep(0)
            await eventually(lambda: mirror.position == 3000)
            assert mirror.counters.mirrored == 3000
        assert await found(target) == list(range(3000))


def test_kills_of_both_brokers_and_of_the_mirror_lose_and_repeat_nothing(tmp_path: Path) -> None:
    async def story(one: BrokerProcess, other: BrokerProcess) -> list[int]:
        async with (
            Client.connect(one.endpoint, backoff=QUICK) as source,
            Client.connect(other.endpoint, backoff=QUICK) as target,
        ):
            begin = 0
            for killed in (one, other, None):
                mirror = Mirror(source.stream("s"), target.stream("t"), pattern="regex:[^5]$")
                async with following(mirror):
                    await fill(source.stream("s"), 500, start=begin)
                    begin += 500
                    if killed is not None:
                        killed.kill()
                        await asyncio.to_thread(killed.start)
                    await fill(source.stream("s"), 500, start=begin)
                    begin += 500
                    await eventually(lambda: mirror.position > begin - 400)  # noqa: B023
            await copy(source, target, pattern="regex:[^5]$")
            return await found(target)

    with BrokerProcess(tmp_path / "one", sync="never") as one, BrokerProcess(tmp_path / "two", sync="never") as other:
        mirrored = asyncio.run(story(one, other))
    assert mirrored == [number for number in range(3000) if number % 10 != 5]


@pytest.mark.parametrize("behind", ["invalid", "oldest"])
@in_loop
async def test_messages_that_retention_removed_are_counted(behind: str, tmp_path: Path) -> None:
    async with two(tmp_path, behind=behind) as (_, _, source, target):
        await fill(source.stream("s"), 10)
        await copy(source, target)
        await fill(source.stream("s"), 10, start=10)
        await source.trim("s", before=16)
        mirror = await copy(source, target)
        assert mirror.counters.missed == 5
        assert await found(target) == [*range(10), *range(15, 20)]


@in_loop
async def test_a_gap_while_the_mirror_runs_does_not_end_it(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, _, source, target):
        endpoint = one.bind(TCP)
        way = [endpoint]

        def find() -> str | None:
            return way[0]

        await fill(source.stream("s"), 10)
        async with Client.connect(find, backoff=QUICK) as far:
            mirror = Mirror(far.stream("s"), target.stream("t"))
            await eventually_run(mirror, lambda: mirror.position == 10)
            way[0] = NOWHERE
            cut(one, lambda session: session.cursor is not None)
            await eventually(lambda: bool(mirror.waits_for))
            await fill(source.stream("s"), 10, start=10)
            await source.trim("s", before=15)
            way[0] = endpoint
            await eventually_run(mirror, lambda: mirror.position == 20)
            await mirror.close()
        assert mirror.counters.missed == 4
        assert await found(target) == [*range(10), *range(14, 20)]


async def eventually_run(mirror: Mirror, reached: Callable[[], bool]) -> None:
    """Run a mirror, in small parts, until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not reached():
            await mirror.run(0.01)


async def recreate(source: Client, count: int) -> None:
    await source.delete("s")
    await fill(source.stream("s"), count, start=100)


@in_loop
async def test_a_source_that_was_created_again_is_refused_or_begun_again_as_asked(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, target):
        await fill(source.stream("s"), 10)
        await copy(source, target)
        await recreate(source, 20)
        with pytest.raises(Incarnation, match="deleted and created again"):
            await copy(source, target)
        mirror = await copy(source, target, begin_again=True)
        assert (mirror.counters.begun_again, mirror.counters.mirrored) == (1, 20)
        assert await found(target) == [*range(10), *range(100, 120)]
        assert (await copy(source, target, begin_again=True)).counters.mirrored == 0


@in_loop
async def test_a_target_that_was_deleted_is_filled_again_and_a_cut_one_is_not(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, target):
        await fill(source.stream("s"), 100)
        await copy(source, target)
        await target.truncate("t", after=60)
        await copy(source, target)
        assert await found(target) == list(range(60))
        await target.delete("t")
        await copy(source, target)
        assert await found(target) == list(range(100))


@in_loop
async def test_the_newer_of_two_mirrors_goes_on(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, target):
        await fill(source.stream("s"), 10)
        first = Mirror(source.stream("s"), target.stream("t"))
        await eventually_run(first, lambda: first.position == 10)
        async with following(Mirror(source.stream("s"), target.stream("t"))) as second:
            await eventually(lambda: second.counters.resumed == 1)
            with pytest.raises(Fenced, match="another mirror"):
                await first.run(PATIENCE)
            await fill(source.stream("s"), 10, start=10)
            await eventually(lambda: second.position == 20)
        await first.close()
        assert await found(target) == list(range(20))


@in_loop
async def test_mirrors_of_different_names_fill_one_target(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, target):
        await fill(source.stream("s"), 20)
        await copy(source, target, pattern="k1", name="ones")
        await copy(source, target, pattern="k2", name="twos", since="earliest")
        assert await found(target) == [1, 11, 2, 12]


@in_loop
async def test_a_target_with_messages_of_others_needs_a_start(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, target):
        await fill(source.stream("s"), 5)
        await fill(target.stream("t"), 5, start=50)
        with pytest.raises(ZepsError, match="no position of this mirror"):
            await copy(source, target)
        await copy(source, target, since=3)
        assert await found(target) == [*range(50, 55), 3, 4]


@in_loop
async def test_a_mirror_from_the_latest_message_on_remembers_that(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, target):
        await fill(source.stream("s"), 5)
        await copy(source, target, since="latest")
        await fill(source.stream("s"), 5, start=5)
        await copy(source, target, since="latest")
        assert await found(target) == list(range(5, 10))


@in_loop
async def test_a_stream_is_not_mirrored_into_itself(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, _):
        await fill(source.stream("s"), 5)
        async with Mirror(source.stream("s"), source.stream("s"), since="earliest") as mirror:
            with pytest.raises(ZepsError, match="the source itself"):
                await mirror.run(PATIENCE)


@in_loop
async def test_a_source_that_does_not_exist_is_an_error_and_is_not_created(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, target):
        with pytest.raises(BrokerError, match="there is no stream 's'"):
            await copy(source, target)
        assert await source.streams() == []


@in_loop
async def test_a_source_that_refuses_is_an_error(tmp_path: Path) -> None:
    async with two(tmp_path, allow=lambda _user, action, _stream: action != "subscribe") as (_, _, source, target):
        await fill(source.stream("s"), 5)
        with pytest.raises(BrokerError, match="may not subscribe"):
            await copy(source, target)


@in_loop
async def test_a_mirror_says_which_server_it_waits_for(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, target):
        await fill(source.stream("s"), 5)
        async with Client.connect(NOWHERE) as nowhere:
            away = Mirror(nowhere.stream("s"), target.stream("t"))
            await eventually_run(away, lambda: away.waits_for.startswith("the source: not connected to tcp://"))
            await away.close()
            away = Mirror(source.stream("s"), nowhere.stream("t"))
            await eventually_run(away, lambda: "refused" in away.waits_for)
            assert away.waits_for.startswith("the target: not connected to tcp://")
            assert not await away.run(0.01)
            await away.close()


@in_loop
async def test_a_target_with_a_full_disk_is_told_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise JournalFull("no room")

    async with two(tmp_path) as (_, other, source, target):
        await fill(source.stream("s"), 10)
        mirror = Mirror(source.stream("s"), target.stream("t"))
        await eventually_run(mirror, lambda: mirror.position == 10)
        journal = other.engine.find("t")
        assert journal is not None
        with monkeypatch.context() as patch:
            replace_method(patch, journal.journal, "append", full)
            await source.stream("s").publish_many([("k", bytes(1 << 20))] * 12)
            await eventually_run(mirror, lambda: "does not confirm" in mirror.waits_for)
        await eventually_run(mirror, lambda: mirror.position == 22 and not mirror.waits_for)
        await mirror.close()


@pytest.mark.parametrize("since", ["now", -1, True, 1.5])
@in_loop
async def test_a_wrong_start_is_an_error(since: object, tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, target):
        with pytest.raises(ZepsError, match="a mirror begins at"):
            Mirror(source.stream("s"), target.stream("t"), since=since)  # type: ignore[arg-type]
        with pytest.raises(ZepsError, match="reserved"):
            Mirror(source.stream("s"), target.stream("$t"))
        with pytest.raises(ZepsError, match="a mirror ends"):
            Mirror(source.stream("s"), target.stream("t"), until="later")  # type: ignore[arg-type]


@in_loop
async def test_a_mirror_that_never_ran_closes(tmp_path: Path) -> None:
    async with two(tmp_path) as (_, _, source, target):
        mirror = Mirror(source.stream("s"), target.stream("t"))
        await mirror.close()
        await mirror.close()
        assert not await mirror.run()
        assert "Mirror of 's' to 't'" in repr(mirror)
