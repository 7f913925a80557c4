"""A slow disk: creating or waking a stream delays the clients of that stream, and no others."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.zeps.speaker import Speaker
from tests.zeps.stage import PLENTY, Stage
from tests.zmtp.stranger import Stranger, hello
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps.broker.client_connection import MULTIPART
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.broker.session_state import SessionState
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.messages import Attach, Credit, Detach, Ping, Publish, Subscribe, Zeps
from zambezi.zmtp.frames import encode

TCP = "tcp://127.0.0.1:*"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as made:
        made.slow = True
        yield made


def failing(error: int = errno.ENOSPC) -> Callable[[int], None]:
    def fail(_descriptor: int) -> None:
        raise OSError(error, os.strerror(error))

    return fail


class Gate:
    """An `fsync` that waits until the test opens it; the thread of an event loop must never be in it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.opened = threading.Event()
        self.on_a_loop = 0
        fsync = os.fsync

        def slow(descriptor: int) -> None:
            self.asked += 1
            if asyncio._get_running_loop() is not None:
                self.on_a_loop += 1
            else:
                assert self.opened.wait(PATIENCE), "nobody opened it"
            fsync(descriptor)

        patch.setattr(os, "fsync", slow)


# With threads


@in_loop
async def test_a_stream_is_made_by_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with BrokerService(tmp_path) as broker:
        endpoint = broker.bind(TCP)
        async with Speaker(endpoint) as busy, Speaker(endpoint) as new:
            await busy.attach("busy", PLENTY)
            await busy.subscribe()
            await busy.publish("a")
            await busy.delivered(1)
            gate = Gate(monkeypatch)
            try:
                await new.say(Attach("new"), Publish("first", b""), Ping())
                await eventually(lambda: gate.asked)
                await busy.publish("b")
                assert [message.key for message in await busy.delivered(1)] == ["b"]
                await busy.barrier()
                assert broker.engine.names() == ["busy"]
            finally:
                gate.opened.set()
            assert [type(await new.hear()).__name__ for _ in range(2)] == ["AttachOk", "PingOk"]
            assert broker.engine.streams[1].journal.last == 1
            assert gate.on_a_loop == 0


@pytest.mark.spec("ZEP-06")
@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_an_idle_stream_is_woken_by_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str) -> None:
    @in_loop
    async def story() -> None:
        policy = Policy(sync=sync)  # type: ignore[arg-type]
        async with BrokerService(tmp_path, policy=policy, streams=["busy", "idle"]) as broker:
            endpoint = broker.bind(TCP)
            async with Speaker(endpoint) as busy, Speaker(endpoint) as idle, Speaker(endpoint) as reader:
                await busy.attach("busy")
                await busy.publish("a")
                await busy.barrier()
                await idle.attach("idle")
                await reader.attach("idle", PLENTY)
                await reader.subscribe()
                gate = Gate(monkeypatch)
                try:
                    await idle.say(Publish("first", b""), Ping(), Publish("second", b""))
                    await eventually(lambda: gate.asked)
                    await busy.publish("b")
                    await busy.barrier()
                    stream = broker.engine.find("idle")
                    assert stream is not None
                    # It is not in the journal, so it is neither delivered nor confirmed.
                    assert (stream.journal.last, stream.held) == (0, "")
                    assert stream._barriers
                finally:
                    gate.opened.set()
                await idle.hear()
                assert [message.key for message in await reader.delivered(2)] == ["first", "second"]
                assert gate.on_a_loop == 0
                assert sync != "always" or stream.journal.synced >= 1

    story()


@in_loop
async def test_messages_for_an_idle_stream_survive_the_close_of_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    gate.opened.set()
    async with BrokerService(tmp_path) as broker:
        gate.opened.clear()
        with Stranger.calling(broker.bind(TCP)) as stranger:
            words: list[Zeps] = [Attach("new"), *[Publish("k", b"")] * 3]
            stranger.say(hello() + encode([word.encode()[0] for word in words]))
            await eventually(lambda: any(session._deferred for session in broker.engine.sessions))
            closing = asyncio.ensure_future(broker.close())
            await eventually(lambda: broker._closing)
            gate.opened.set()
            await closing
    with Store(tmp_path) as store:
        assert store.open("new").last == 3


# A stream that is being created


@pytest.mark.spec("ZEP-01")
def test_messages_of_a_client_wait_until_its_stream_is_created(stage: Stage) -> None:
    client = stage.client()
    client.send(Attach("new"), Credit(PLENTY), Subscribe("", 0), Publish("a", b""))
    client.send(Ping())
    assert client.heard == []
    assert client.session.state is SessionState.ATTACHING
    other = stage.client("new")
    assert other.heard == []
    stage.slow = False
    stage.let_disk_work()
    client.read()
    other.read()
    assert client.said == ["AttachOk", "SubscribeOk", "Deliver", "PingOk"]
    assert other.said == ["AttachOk"]
    assert stage.engine.names() == ["new"]
    assert stage.stream("new").attached == 2
    client.send(Attach("another"))
    assert client.said[-1] == "Invalid"


def test_several_frames_in_one_message_are_answered_in_their_order(stage: Stage) -> None:
    client = stage.client("new")
    client.session.receive([MULTIPART])
    client.send(Ping())
    stage.let_disk_work()
    client.read()
    assert client.said == ["AttachOk", "Invalid", "PingOk"]


def test_streams_that_are_being_made_count(tmp_path: Path) -> None:
    with Stage(tmp_path, limits=Limits(streams=2)) as stage:
        stage.slow = True
        clients = [stage.client(name) for name in ("a", "b", "c", "b")]
        assert [client.said for client in clients] == [[], [], ["Invalid"], []]
        stage.let_disk_work()
        for client in clients:
            client.read()
        assert [client.said for client in clients] == [["AttachOk"], ["AttachOk"], ["Invalid"], ["AttachOk"]]


def test_a_stream_that_cannot_be_made_is_refused_and_another_can_be_asked_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = stage.client()
    client.send(Attach("new"), Ping(), Attach("newer"), Ping())
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing())
        while stage.engine.making.keys() == {"new"}:
            stage._jobs.popleft()()
    client.read()
    assert client.said == ["Invalid", "Invalid"]
    assert os.strerror(errno.ENOSPC) in client.reasons[0]
    assert "before ATTACH" in client.reasons[1]
    stage.let_disk_work()
    client.read()
    assert client.said[2:] == ["AttachOk", "PingOk"]
    assert stage.engine.names() == ["newer"]
    client.publish("a")
    stage.let_disk_work()
    assert stage.stream("newer").journal.last == 1


@pytest.mark.spec("ZEP-09")
def test_messages_from_before_the_connection_broke_count_when_the_stream_is_created(stage: Stage) -> None:
    client = stage.client()
    client.send(Attach("new"), Publish("a", b""))
    client.send(Publish("b", b""))
    client.close()
    assert list(stage.engine.sessions) == [client.session]
    stage.slow = False
    stage.let_disk_work()
    assert stage.stream("new").journal.last == 2
    assert stage.stream("new").attached == 0
    assert not stage.engine.sessions


def test_a_client_that_waits_for_a_stream_is_disconnected_when_the_broker_ends(stage: Stage) -> None:
    client = stage.client()
    client.send(Attach("new"), Publish("a", b""))
    stage.engine.detach_all()
    assert client.parted
    stage.slow = False
    stage.let_disk_work()
    assert not stage.engine.sessions
    assert stage.stream("new").attached == 0
    assert stage.stream("new").journal.last == 1


def test_a_stream_is_asked_for_from_within_while_it_is_being_made(stage: Stage) -> None:
    client = stage.client("new")
    stream = stage.engine.find_or_make("new")
    stage.let_disk_work()
    client.read()
    assert client.said == ["AttachOk"]
    assert client.session.stream is stream


# A stream that is being woken


@pytest.mark.spec("ZEP-06", "ZEP-09")
def test_published_messages_wait_until_the_stream_is_awake(stage: Stage) -> None:
    client, reader = stage.client("prices"), stage.client("prices", credit=PLENTY)
    stage.let_disk_work()
    reader.subscribe()
    client.send(Publish("a", b""), Ping(), Publish("b", b""))
    client.send(Publish("c", b""), Ping())
    stage.tick()
    stream = stage.stream("prices")
    assert (stream.journal.last, stream.held, client.confirmed) == (0, "", 0)
    assert reader.keys == []
    reader.ping()
    assert reader.confirmed == 0  # its PING waits behind the pending messages
    stage.let_disk_work()
    client.read()
    reader.read()
    assert reader.keys == ["a", "b", "c"]
    assert (client.confirmed, reader.confirmed) == (2, 1)


@pytest.mark.spec("ZEP-06", "ZEP-07")
def test_a_ping_before_detach_is_answered_before_it(stage: Stage) -> None:
    client, reader = stage.client("prices"), stage.client("prices", credit=PLENTY)
    stage.let_disk_work()
    reader.subscribe()
    client.send(Publish("a", b""), Ping(), Detach(), Publish("b", b""), Ping())
    client.read()
    assert client.said == ["AttachOk"]
    stage.let_disk_work()
    client.read()
    reader.read()
    assert client.said == ["AttachOk", "PingOk", "DetachOk"]
    assert client.parted
    assert reader.keys == ["a"]
    assert list(stage.engine.sessions) == [reader.session]


def test_a_client_that_is_parting_and_goes_away_is_forgotten(stage: Stage) -> None:
    client = stage.client("prices")
    stage.let_disk_work()
    client.send(Publish("a", b""), Ping(), Detach())
    client.session.on_connection_lost()
    assert not stage.engine.sessions
    stage.let_disk_work()
    assert stage.stream("prices").journal.last == 1
    assert stage.stream("prices").attached == 0


def test_a_client_that_is_parting_does_not_wait_for_a_broker_that_ends(stage: Stage) -> None:
    client = stage.client("prices")
    stage.let_disk_work()
    client.send(Publish("a", b""), Ping(), Detach())
    stage.engine.detach_all()
    client.read()
    assert client.said == ["AttachOk", "DetachOk"]
    assert not stage.engine.sessions


def test_a_stream_that_cannot_be_woken_says_why_and_is_tried_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = stage.client("prices")
    stage.let_disk_work()
    client.send(Publish("a", b""), Ping())
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing())
        stage.let_disk_work()
        stream = stage.stream("prices")
        assert os.strerror(errno.ENOSPC) in stream.held
        stage.tick()
        stage.let_disk_work()
        assert stream.held
    assert client.confirmed == 0
    stage.tick()
    stage.let_disk_work()
    client.read()
    assert (stream.held, client.confirmed, stream.journal.last) == ("", 1, 1)


def test_a_stream_that_rests_between_two_messages_is_woken(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="interval")) as stage:
        client = stage.client("prices")
        client.publish("a")
        while stage.stream("prices").journal.is_dirty:
            stage.tick()
            stage.write_back()
        stage.slow = True
        client.publish("b")
        assert stage.stream("prices").journal.last == 1
        stage.let_disk_work()
        assert stage.stream("prices").journal.last == 2


def test_messages_that_wait_for_an_idle_stream_are_appended_when_the_broker_closes(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        client = stage.client("prices")
        stage.slow = True
        client.publish_many(["a", "b"])
        assert stage.stream("prices").journal.last == 0
    with Store(tmp_path) as store:
        assert store.open("prices").last == 2


def test_appending_in_the_process_itself_overtakes_nothing(stage: Stage) -> None:
    client = stage.client("prices", credit=PLENTY)
    stage.let_disk_work()
    client.subscribe()
    client.publish("a")
    stream = stage.stream("prices")
    assert stream.append([Publish("b", b"").encode()[0]]) == 2
    stage.let_disk_work()
    client.read()
    assert client.keys == ["a", "b"]
    client.send(Publish("c", b""), Detach())
    assert stream.journal.last == 3


def test_a_stream_that_failed_cannot_be_woken(stage: Stage) -> None:
    client = stage.client("prices")
    stage.let_disk_work()
    client.publish("a")
    journal = stage.stream("prices").journal
    journal.failed = "the disk is gone"
    with pytest.raises(JournalError, match="is stopped"):
        journal.wake()
    stage.let_disk_work()
    client.read()
    assert client.said == ["AttachOk", "Invalid", "Detach"]
