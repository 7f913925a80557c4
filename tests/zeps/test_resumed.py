"""Publishers with a name, `resumed()` and `Fenced`, for both faces; and brokers without the extension "once"."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.effort import cases
from tests.zeps.faces import QUICK, TCP, Connect, bodies, both_faces
from tests.zeps.scripted import Scripted, cut
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps import messages
from zambezi.zeps.asyncio import Stream
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.broker.session import Session
from zambezi.zeps.client import publisher_connection
from zambezi.zeps.errors import BrokerError, Fenced, JournalFull, TimedOut, ZepsError
from zambezi.zeps.journal import Journal
from zambezi.zeps.messages import Attach, AttachOk, Invalid, Ping, PingOk, Publish, Resume, ResumeOk
from zambezi.zmtp import Backoff

NAME = "the copy of everything"
NO_MARK = bytes(16)
FASTEST = Backoff(0.0001, 0.001)
CUTS = cases(200)


async def publish(stream: Stream, start: int, stop: int) -> None:
    await stream.publish_many([("k", b"%d" % number) for number in range(start, stop)])
    await stream.flush(PATIENCE)


async def kept(connect: Connect, endpoint: str) -> list[int]:
    """Return the numbers in the stream `s`."""
    async with connect(endpoint) as client:
        return await bodies(client.stream("s").subscribe(since="earliest", until="now"))


# A publisher that goes on after its own end


@both_faces
@in_loop
async def test_a_publisher_with_a_name_goes_on_where_it_was(connect: Connect, tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker:
        endpoint = broker.bind(TCP)
        for life in range(3):
            async with connect(endpoint, backoff=QUICK) as client:
                stream = client.stream("s", publisher=NAME)
                assert await stream.resumed(PATIENCE) == life * 100
                assert await stream.resumed(PATIENCE) == life * 100, "it does not change while the program publishes"
                await publish(stream, life * 100, life * 100 + 100)
                assert await stream.resumed(PATIENCE) == life * 100
        assert await kept(connect, endpoint) == list(range(300))


@both_faces
@in_loop
async def test_a_restarted_broker_knows_the_publisher(connect: Connect, tmp_path: Path) -> None:
    for life in range(3):
        async with BrokerService(tmp_path) as broker:
            endpoint = broker.bind(TCP)
            async with connect(endpoint) as client:
                stream = client.stream("s", publisher=NAME)
                assert await stream.resumed(PATIENCE) == life * 10
                await publish(stream, life * 10, life * 10 + 10)
            assert await kept(connect, endpoint) == list(range(life * 10 + 10))


@both_faces
@in_loop
async def test_names_and_streams_are_counted_apart(connect: Connect, tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker, connect(broker.bind(TCP)) as client:
        await publish(client.stream("s", publisher="a"), 0, 7)
        async with connect(client._locate() or "") as other:
            assert await other.stream("s", publisher="b").resumed(PATIENCE) == 0
            assert await other.stream("t", publisher="a").resumed(PATIENCE) == 0
            assert await other.stream("u").resumed(PATIENCE) == 0, "a publisher without a name begins at 0"


@both_faces
@in_loop
async def test_messages_that_the_broker_refuses_count(connect: Connect, tmp_path: Path) -> None:
    async with BrokerService(tmp_path, limits=Limits(message=300)) as broker:
        endpoint = broker.bind(TCP)
        for start in (0, 4):
            async with connect(endpoint) as client:
                stream = client.stream("s", publisher=NAME)
                assert await stream.resumed(PATIENCE) == start
                for number in range(start, start + 4):
                    await stream.publish("k", b"%d" % number + b" " * (500 if number % 4 == 1 else 0))
                with pytest.raises(BrokerError, match="limit"):
                    await stream.flush(PATIENCE)
                await stream.flush(PATIENCE)
        assert await kept(connect, endpoint) == [0, 2, 3, 4, 6, 7]


@both_faces
@in_loop
async def test_an_empty_name_is_an_error(connect: Connect, tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker, connect(broker.bind(TCP)) as client:
        with pytest.raises(ZepsError, match="must be text, and not empty"):
            client.stream("s", publisher="")


@both_faces
@in_loop
async def test_resumed_waits_for_the_broker_up_to_its_timeout(connect: Connect) -> None:
    async with Scripted(extensions="once") as broker, connect(broker.endpoint) as client:
        with pytest.raises(TimedOut, match="did not tell"):
            await client.stream("s", publisher=NAME).resumed(0.01)


@both_faces
@in_loop
async def test_resumed_says_why_the_broker_does_not_answer(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker answers when the messages before are on the disk, and the disk is full."""

    def fail(*_: object) -> None:
        raise JournalFull("the disk is full")

    for face in ("asyncio", "sync"):
        monkeypatch.setattr(f"zambezi.zeps.administration.{face}.WHY", PATIENCE)
        monkeypatch.setattr(f"zambezi.zeps.{face}.WORTH_ASKING", 0.0)
    async with (
        BrokerService(tmp_path) as broker,
        connect(endpoint := broker.bind(TCP)) as client,
        connect(endpoint) as other,
    ):
        await publish(other.stream("s"), 0, 1)
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", fail)
            publishing = asyncio.ensure_future(publish(other.stream("s"), 1, 2))
            await eventually(lambda: broker.engine.streams[0].held)
            stream = client.stream("s", publisher=NAME)
            reason = (
                r"did not tell where 's' stands within 0\.05 s;.* the broker keeps messages waiting: the disk is full$"
            )
            with pytest.raises(TimedOut, match=reason):
                await stream.resumed(0.05)
        await publishing
        assert await stream.resumed(PATIENCE) == 0


# Two programs with one name


async def flush_for_ever(stream: Stream) -> None:
    """Flush until that raises: the news of another program is on its way."""
    while True:
        await stream.flush(PATIENCE)
        await asyncio.sleep(0.01)


@both_faces
@in_loop
async def test_the_older_of_two_programs_with_one_name_is_fenced(connect: Connect, tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker:
        endpoint = broker.bind(TCP)
        old = connect(endpoint, backoff=QUICK)
        older = old.stream("s", publisher=NAME)
        await publish(older, 0, 10)
        async with connect(endpoint, backoff=QUICK) as new:
            newer = new.stream("s", publisher=NAME)
            assert await newer.resumed(PATIENCE) == 10
            await eventually(lambda: broker.counters.fenced == 1)
            with pytest.raises(Fenced, match="another program"):
                await flush_for_ever(older)
            for call in (
                lambda: older.publish("k", b"99"),
                lambda: older.publish_many([("k", b"99")]),
                lambda: older.flush(PATIENCE),
                lambda: older.resumed(PATIENCE),
            ):
                with pytest.raises(Fenced):
                    await call()
            with pytest.raises(Fenced):
                older.publish_nowait("k", b"99")
            with pytest.raises(Fenced):
                await asyncio.wait_for(old.close(), PATIENCE)
            await publish(newer, 10, 20)
        assert await kept(connect, endpoint) == list(range(20))


@both_faces
@in_loop
async def test_messages_that_a_fenced_program_has_buffered_are_not_published(connect: Connect, tmp_path: Path) -> None:
    """The old program was disconnected, and buffers messages, while the new one takes over."""
    async with BrokerService(tmp_path) as broker:
        endpoint = broker.bind(TCP)
        reachable = [endpoint]
        old = connect(lambda: reachable[0], backoff=QUICK)
        older = old.stream("s", publisher=NAME)
        await publish(older, 0, 5)
        reachable[0] = "tcp://127.0.0.1:1"
        cut(broker)
        await older.publish_many([("k", b"99")] * 5)
        async with connect(endpoint) as new:
            newer = new.stream("s", publisher=NAME)
            assert await newer.resumed(PATIENCE) == 5
            await publish(newer, 5, 10)
            reachable[0] = endpoint
            with pytest.raises(Fenced):
                await older.flush(PATIENCE)
            await publish(newer, 10, 15)
        with pytest.raises(Fenced):
            await old.close()
        assert older.counters.unconfirmed == 5
        assert await kept(connect, endpoint) == list(range(15))


@both_faces
@in_loop
async def test_a_call_that_waits_for_room_is_told_of_the_fence(connect: Connect, tmp_path: Path) -> None:
    async with Scripted(extensions="once") as broker:
        client = connect(broker.endpoint)
        stream = client.stream("s", bound=100, publisher=NAME)
        waiting = asyncio.ensure_future(stream.publish_many([("k", bytes(90))] * 3))
        who = await broker.attached()
        await broker.expect(Resume, who)
        await broker.say(who, ResumeOk(1, 0, 0, NO_MARK, 0))
        await broker.expect(Publish, who)
        await broker.say(who, messages.Fenced(2))
        with pytest.raises(Fenced, match="epoch 2"):
            await asyncio.wait_for(waiting, PATIENCE)
        with pytest.raises(Fenced):
            await asyncio.wait_for(client.close(), PATIENCE)


# Brokers that refuse, or do not know the extension


@both_faces
@in_loop
async def test_a_broker_without_the_extension_gets_plain_messages(connect: Connect) -> None:
    async with Scripted() as broker, connect(broker.endpoint, backoff=QUICK) as client:
        stream = client.stream("s", publisher=NAME)
        await stream.publish("k", b"1")
        who = await broker.attached()
        assert await broker.recv() == (who, Publish("k", b"1")), "and no RESUME before it"
        with pytest.raises(BrokerError, match="does not count"):
            await stream.resumed(PATIENCE)
        broker.cut()
        who = await broker.attached()
        assert await broker.recv() == (who, Publish("k", b"1")), "at least once: it was not confirmed"
        await broker.expect(Ping, who)
        await broker.say(who, PingOk())
        await eventually(lambda: stream.unconfirmed == 0)
        assert stream.counters.republished == 1


@both_faces
@in_loop
async def test_a_refused_attach_is_tried_again(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_connection, "RETRY_INTERVAL", 0.01)
    async with Scripted(extensions="once") as broker, connect(broker.endpoint) as client:
        stream = client.stream("s", publisher=NAME)
        resuming = asyncio.ensure_future(stream.resumed(PATIENCE))
        who, _ = await broker.expect(Attach)
        await broker.say(who, Invalid("not yet"))
        with pytest.raises(BrokerError, match="not yet"):
            await resuming
        await broker.expect(Attach, who)
        await broker.say(who, AttachOk())
        _, resume = await broker.expect(Resume, who)
        assert (resume.epoch, resume.confirmed) == (0, 0)
        await broker.say(who, ResumeOk(3, 7, 0, NO_MARK, 0))
        await eventually(lambda: stream._engine.position.found == 7)
        assert await stream.resumed(PATIENCE) == 7


@both_faces
@in_loop
async def test_a_refused_resume_is_tried_again_and_messages_wait(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream whose disk has failed refuses RESUME, until an operator has repaired it."""
    monkeypatch.setattr(publisher_connection, "RETRY_INTERVAL", 0.01)
    async with Scripted(extensions="once") as broker, connect(broker.endpoint) as client:
        stream = client.stream("s", publisher=NAME)
        await stream.publish("k", b"1")
        who = await broker.attached()
        await broker.expect(Resume, who)
        await broker.say(who, Invalid("the stream is stopped"))
        await eventually(lambda: stream.counters.refused == 1)
        with pytest.raises(BrokerError, match="stopped"):
            await stream.resumed(PATIENCE)
        with pytest.raises(BrokerError, match="stopped"):
            await stream.flush(PATIENCE)
        await stream.publish("k", b"2")
        await broker.expect(Resume, who)
        await broker.say(who, ResumeOk(1, 0, 0, NO_MARK, 0))
        assert [(await broker.expect(Publish, who))[1].body for _ in range(2)] == [b"1", b"2"]
        await broker.expect(Ping, who)
        await broker.say(who, PingOk())
        await stream.flush(PATIENCE)
        assert await stream.resumed(PATIENCE) == 0


@both_faces
@in_loop
async def test_only_the_messages_that_the_broker_does_not_have_are_sent_again(connect: Connect) -> None:
    async with Scripted(extensions="once") as broker, connect(broker.endpoint, backoff=QUICK) as client:
        stream = client.stream("s")
        await stream.publish_many([("k", b"%d" % number) for number in range(5)])
        who = await broker.attached()
        await broker.expect(Resume, who)
        await broker.say(who, ResumeOk(1, 0, 0, NO_MARK, 0))
        for _ in range(5):
            await broker.expect(Publish, who)
        broker.cut()
        who = await broker.attached()
        _, resume = await broker.expect(Resume, who)
        assert (resume.epoch, resume.confirmed) == (1, 0)
        await broker.say(who, ResumeOk(1, 3, 0, NO_MARK, 0))
        assert [(await broker.expect(Publish, who))[1].body for _ in range(2)] == [b"3", b"4"]
        assert stream.counters.confirmed == 3
        assert stream.counters.republished == 2
        await broker.expect(Ping, who)
        await broker.say(who, PingOk())
        await stream.flush(PATIENCE)


# Hundreds of broken connections


@both_faces
@in_loop
async def test_each_message_is_in_the_stream_once_over_hundreds_of_broken_connections(
    connect: Connect, tmp_path: Path
) -> None:
    cuts = 0
    async with BrokerService(tmp_path) as broker, connect(broker.bind(TCP), backoff=FASTEST) as client:
        stream = client.stream("s", bound=4000)

        def publishes(session: Session) -> bool:
            return session.publisher is not None

        count = 0
        while cuts < CUTS:
            await asyncio.wait_for(stream.publish_many([("k", b"%d" % n) for n in range(count, count + 10)]), PATIENCE)
            count += 10
            cuts += cut(broker, publishes)
            await asyncio.sleep(0)
        await stream.flush(PATIENCE)
        assert stream.counters.confirmed == stream.counters.published == count
        found = await bodies(client.stream("s").subscribe(since="earliest", until="now"))
        assert found == list(range(count))
