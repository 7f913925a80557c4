"""zambezi.zeps.broker.service: the engine with real sockets, threads and files."""

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.zeps.speaker import Speaker
from tests.zeps.stage import PLENTY
from tests.zmtp.engines import CLIENT_KEYS, SERVER_KEYS
from tests.zmtp.stranger import Stranger, hello
from tests.zmtp.waiting import eventually, in_loop
from zambezi.zeps.asyncio import Client
from zambezi.zeps.block import Block
from zambezi.zeps.broker.engine import UNREAD, Limits
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.errors import JournalError, JournalFull
from zambezi.zeps.journal import Journal, Policy, Span
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.segment import Files
from zambezi.zeps.messages import (
    LATEST,
    Attach,
    AttachOk,
    Credit,
    Deliver,
    Detach,
    DetachOk,
    Invalid,
    Ping,
    PingOk,
    Publish,
    Subscribe,
    SubscribeOk,
)
from zambezi.zmtp import EndpointError
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.frames import encode
from zambezi.zmtp.security import CurveClient, CurveServer, Null

TCP = "tcp://127.0.0.1:*"


@pytest.mark.spec("ZEP-04", "ZEP-05", "ZEP-10", "ZEP-14")
@pytest.mark.parametrize("transport", ["tcp", "ipc", "inproc"])
@in_loop
async def test_replay_and_live_over_every_transport(tmp_path: Path, transport: str) -> None:
    endpoint = {"tcp": TCP, "ipc": f"ipc://{tmp_path}/socket", "inproc": "inproc://broker"}[transport]
    async with BrokerService(tmp_path / "data") as broker, Speaker(broker.bind(endpoint)) as speaker:
        await speaker.attach("prices", PLENTY)
        await speaker.publish("a", "b", "c", body=b"old")
        await speaker.barrier()
        await speaker.subscribe("", 1)
        await speaker.publish("d", body=b"new")
        assert await speaker.delivered(3) == [Deliver(2, "b", b"old"), Deliver(3, "c", b"old"), Deliver(4, "d", b"new")]
        assert broker.counters.published == 4


@pytest.mark.spec("ZEP-14")
@in_loop
async def test_a_client_subscribes_and_publishes_on_one_connection(tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker, Speaker(broker.bind(TCP)) as speaker:
        await speaker.say(Attach("s"), Publish("a", b"1"), Subscribe("", 0), Credit(10_000), Publish("b", b"2"), Ping())
        await speaker.say(Publish("c", b"3"), Ping())
        heard = [await speaker.hear() for _ in range(7)]
        assert [message for message in heard if isinstance(message, Deliver)] == [
            Deliver(1, "a", b"1"),
            Deliver(2, "b", b"2"),
            Deliver(3, "c", b"3"),
        ]
        assert [message for message in heard if not isinstance(message, Deliver)] == [
            AttachOk(),
            SubscribeOk(),
            PingOk(),
            PingOk(),
        ]
        assert broker.counters.published == 3


@in_loop
async def test_replay_and_live_over_curve(tmp_path: Path) -> None:
    security = CurveServer(SERVER_KEYS)
    authenticator = Authenticator(keys={"ann": CLIENT_KEYS.public})
    allowed: list[tuple[str, str, str]] = []

    def allow(user: str, action: str, stream: str) -> bool:
        allowed.append((user, action, stream))
        return True

    async with BrokerService(tmp_path, security=security, authenticator=authenticator, allow=allow) as broker:
        endpoint = broker.bind(TCP)
        async with Speaker(endpoint, security=CurveClient(SERVER_KEYS.public, CLIENT_KEYS)) as speaker:
            await speaker.attach("prices", PLENTY)
            bodies = [b"%d" % number * (number % 900) for number in range(2000)]
            await speaker.say(*[Publish("k", body) for body in bodies], Ping())
            await speaker.hear()
            await speaker.subscribe("", 500)
            await speaker.publish("k", body=b"live")
            heard = await speaker.delivered(1501)
            assert [message.body for message in heard] == [*bodies[500:], b"live"]
            assert [message.sequence for message in heard] == list(range(501, 2002))
        assert {("ann", "create", "prices"), ("ann", "publish", "prices"), ("ann", "subscribe", "prices")} <= set(
            allowed
        )


@in_loop
async def test_a_second_broker_for_the_same_data_refuses_to_start(tmp_path: Path) -> None:
    async with BrokerService(tmp_path):
        with pytest.raises(JournalError, match=f"in use by process {os.getpid()}"):
            BrokerService(tmp_path)
    async with BrokerService(tmp_path):
        pass


@pytest.mark.spec("ZEP-17")
@in_loop
async def test_a_broker_that_is_closed_leaves_everything_to_the_next(tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker, Speaker(broker.bind(TCP)) as speaker:
        await speaker.attach("prices")
        await speaker.publish(*"abc")
        await speaker.barrier()
        await speaker.publish("d")
        await eventually(lambda: broker.counters.published == 4)
    async with BrokerService(tmp_path) as broker, Speaker(broker.bind(TCP)) as speaker:
        await speaker.attach("prices", PLENTY)
        await speaker.publish("e")
        await speaker.subscribe()
        assert [message.key for message in await speaker.delivered(5)] == list("abcde")


@pytest.mark.spec("ZEP-07")
@in_loop
async def test_a_broker_that_closes_says_goodbye_and_hears_the_last_words(tmp_path: Path) -> None:
    broker = BrokerService(tmp_path)
    endpoint = broker.bind(TCP)
    async with Speaker(endpoint) as early:
        await early.attach("prices")
        await early.say(Detach())
        await early.expect(DetachOk)
    await eventually(lambda: not broker.engine.sessions)
    async with Speaker(endpoint) as speaker, Speaker(endpoint) as stranger:
        await speaker.attach("prices")
        await stranger.dealer.send(b"")  # connected, and attached to nothing
        await stranger.expect(Invalid)
        closing = asyncio.ensure_future(broker.close())
        await speaker.expect(Detach)
        await speaker.say(Publish("last", b""), Ping())
        await speaker.hear()
        await speaker.say(DetachOk())
        await closing
        await broker.close()
    async with BrokerService(tmp_path) as broker:
        assert broker.engine.streams[0].journal.last == 1


@pytest.mark.spec("ZEP-07")
@in_loop
async def test_a_client_that_detaches_is_let_go_when_it_has_read_everything(tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker:
        with Stranger.calling(broker.bind(TCP)) as stranger:
            stranger.say(hello() + encode([message.encode()[0] for message in (Attach("s"), Ping(), Detach())]))
            await asyncio.to_thread(stranger.listen_to_the_end)
            assert stranger.messages == [[b"\xaa\xa5\x02"], [b"\xaa\xa5\x09"], [b"\xaa\xa5\x0b"]]
        await eventually(lambda: not broker.engine.sessions)


@pytest.mark.spec("ZEP-08")
@in_loop
async def test_bad_input_is_answered_and_counted(tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker, Speaker(broker.bind(TCP)) as speaker:
        await speaker.attach("prices")
        await speaker.dealer.send([b"two", b"frames"])
        await speaker.dealer.send([Publish("k", b"").encode()[0], b""])
        await speaker.dealer.send(b"garbage")
        reasons = [(await speaker.expect(Invalid)).reason for _ in range(3)]
        assert reasons[:2] == ["a message of ZEPS must have one frame"] * 2
        assert "aaa5" in reasons[2]
        await speaker.barrier()
        assert broker.counters.invalid == {"multipart": 2, "malformed": 1}
        assert broker.counters.published == 0
        assert broker.engine.streams[0].journal.last == 0


@pytest.mark.parametrize("security", ["null", "curve"])
@in_loop
async def test_a_message_that_is_too_large_is_refused_and_skipped(tmp_path: Path, security: str) -> None:
    server = CurveServer(SERVER_KEYS) if security == "curve" else Null()
    async with BrokerService(tmp_path, limits=Limits(message=10_000), security=server) as broker:
        endpoint = broker.bind(TCP)
        client = CurveClient(SERVER_KEYS.public) if security == "curve" else Null()
        async with Speaker(endpoint, security=client) as speaker:
            await speaker.attach("prices")
            for size in (9_000, 500_000, 9_001, 11_000, 9_002):
                await speaker.say(Publish("k", bytes(size)))
            await speaker.say(Ping())
            answers = [await speaker.hear() for _ in range(3)]
            assert [type(answer) for answer in answers] == [Invalid, Invalid, PingOk]
            assert "is over the limit of 10000 bytes" in str(answers[0])
        assert broker.engine.find_or_make("prices").journal.last == 3
        assert broker.counters.invalid == {"oversize": 2}


@in_loop
async def test_connections_are_limited(tmp_path: Path) -> None:
    async with BrokerService(tmp_path, limits=Limits(connections=2)) as broker:
        endpoint = broker.bind(TCP)
        async with Speaker(endpoint) as one, Speaker(endpoint) as other:
            await one.attach("a")
            await other.attach("a")
            assert broker.socket_counters.refused == 0
            with Stranger.calling(endpoint) as stranger:
                await asyncio.to_thread(stranger.listen_to_the_end)
            await one.barrier()
            assert broker.socket_counters.refused == 1
            assert len(broker.engine.sessions) == 2


@in_loop
async def test_a_client_that_does_not_read_its_answers_is_disconnected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "zambezi.zmtp")
    async with BrokerService(tmp_path) as broker:
        endpoint = broker.bind(TCP)
        async with Speaker(endpoint) as other:
            await other.attach("prices")
            with Stranger.calling(endpoint, small=True) as stranger:
                stranger.say(hello() + encode([Attach("$streams").encode()[0]]))
                await eventually(lambda: len(broker.engine.sessions) == 2)
                questions = encode([Publish("k", b"").encode()[0]] * 10_000)  # each is answered with INVALID
                stranger.sock.setblocking(False)
                unsent = b""

                def held_back() -> bool:
                    nonlocal unsent
                    unsent = unsent or questions
                    with contextlib.suppress(BlockingIOError):
                        unsent = unsent[stranger.sock.send(unsent) :]
                    return bool(broker.engine.unread)

                await eventually(held_back)
                (session,) = broker.engine.unread
                for _ in range(UNREAD):
                    broker.engine.tick()
                assert session in broker.engine.unread  # a slow reader has its time
                broker.engine.tick()
            await eventually(lambda: len(broker.engine.sessions) == 1)
            assert broker.counters.unread == 1
            assert "the client does not read its answers" in caplog.text
            assert broker.counters.invalid["forbidden"] >= 1000
            await other.barrier()


@in_loop
async def test_a_connection_that_ends_while_its_held_messages_are_handled(tmp_path: Path) -> None:
    """Messages wait while a stream is created. The broker disconnects the client in the middle of them."""
    async with BrokerService(tmp_path) as broker:
        endpoint = broker.bind("tcp://127.0.0.1:*")
        with Stranger.calling(endpoint, small=True) as stranger:
            stranger.say(hello() + encode([Attach("new").encode()[0], *[Ping().encode()[0]] * 20_000]))
            async with Speaker(endpoint) as lawful:
                await lawful.attach("new")
                await lawful.barrier()
        await eventually(lambda: len(broker.engine.sessions) == 0)


@pytest.mark.spec("ZEP-15")
@in_loop
async def test_a_full_disk_holds_publishers_back_by_tcp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = True
    append = Journal.append

    def perhaps(journal: Journal, block: Block, now: float, counts: Sequence[Count] = ()) -> None:
        if full:
            raise JournalFull("no room")
        append(journal, block, now, counts)

    monkeypatch.setattr(Journal, "append", perhaps)
    async with BrokerService(tmp_path) as broker, Speaker(broker.bind(TCP)) as speaker:
        await speaker.attach("prices", PLENTY)
        messages = [Publish(f"{number}", b"x" * 1000) for number in range(20_000)]
        sending = asyncio.ensure_future(speaker.say(*messages, Ping()))
        await eventually(lambda: broker.engine.streams[0].held)
        (stream,) = broker.engine.streams
        for _ in range(50):
            await asyncio.sleep(0)
        assert stream.pending_bytes < 2_000_000
        assert not sending.done() or stream.journal.last == 0
        full = False
        await sending
        await speaker.hear()
        assert stream.journal.last == 20_000
        await speaker.subscribe("", 0)
        assert [message.key for message in await speaker.delivered(20_000)] == [f"{n}" for n in range(20_000)]


@in_loop
async def test_messages_sent_before_a_connection_broke_wait_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True
    append = Journal.append

    def perhaps(journal: Journal, block: Block, now: float, counts: Sequence[Count] = ()) -> None:
        if full:
            raise JournalFull("no room")
        append(journal, block, now, counts)

    monkeypatch.setattr(Journal, "append", perhaps)
    async with BrokerService(tmp_path) as broker:
        with Stranger.calling(broker.bind(TCP)) as stranger:
            stranger.say(hello() + encode([Attach("prices").encode()[0]] + [Publish("k", b"").encode()[0]] * 10))
            await eventually(lambda: broker.engine.streams and broker.engine.streams[0].held)
            stranger.say(encode([Publish("k", b"").encode()[0]] * 10))
            (session,) = broker.engine.sessions
            await eventually(lambda: session._connection.held)  # type: ignore[attr-defined]
        (stream,) = broker.engine.streams
        await eventually(lambda: not broker.engine.sessions)
        full = False
        await eventually(lambda: stream.journal.last == 20)
        assert broker.counters.published == 20
        assert broker.counters.dismissed == 0


@in_loop
async def test_messages_after_detach_are_ignored(tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker:
        with Stranger.calling(broker.bind(TCP), small=True) as stranger:
            words = [Attach("prices"), Credit(PLENTY), Subscribe("", 0), *[Publish("k", b"x" * 100_000)] * 100]
            await asyncio.to_thread(stranger.say, hello() + encode([word.encode()[0] for word in words]))
            # It does not read, so that DETACH-OK has to wait; and it sends more.
            await eventually(lambda: broker.counters.published == 100)
            stranger.say(encode([Detach().encode()[0]]))
            await eventually(lambda: not broker.engine.sessions)
            stranger.say(encode([Publish("late", b"").encode()[0]] * 100))
            await asyncio.to_thread(stranger.listen_to_the_end)
            assert stranger.messages[-1] == [b"\xaa\xa5\x0b"]
        assert broker.engine.streams[0].journal.last == 100
        assert broker.counters.published == 100
        assert broker.counters.invalid == {}


@in_loop
async def test_a_broker_that_cannot_start_leaves_the_directory_free(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="a stream needs a name; this one is empty"):
        BrokerService(tmp_path, streams=[""])
    async with BrokerService(tmp_path) as broker:
        assert broker.engine.names() == []


@pytest.mark.spec("ZEP-06")
@in_loop
async def test_with_sync_always_the_disk_is_asked_by_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    release = asyncio.Event()
    begun: list[str] = []
    sync = Files.sync

    def slow(files: Files, *arguments: Any) -> None:
        begun.append("sync")
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(60)
        sync(files, *arguments)

    async with BrokerService(tmp_path, policy=Policy(sync="always")) as broker:
        endpoint = broker.bind(TCP)
        async with Speaker(endpoint) as one, Speaker(endpoint) as other:
            await one.attach("prices")
            await other.attach("prices", PLENTY)
            await other.subscribe()
            with monkeypatch.context() as patch:
                patch.setattr(Files, "sync", slow)
                await one.say(Publish("a", b""), Ping())
                await eventually(lambda: begun)
                # The loop is free, and other clients are served; but nothing is confirmed.
                assert (await other.delivered(1))[0].key == "a"
                (stream,) = broker.engine.streams
                assert stream.journal.synced == 0
                assert broker.syncs.count == 0
                release.set()
                await one.expect(PingOk)
            assert stream.journal.synced == 1
            assert broker.syncs.count == 1


@in_loop
async def test_the_publisher_learns_of_a_failed_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(files: Files, *_: object) -> None:
        raise OSError(5, "Input/output error")

    async with BrokerService(tmp_path, policy=Policy(sync="always")) as broker, Speaker(broker.bind(TCP)) as speaker:
        await speaker.attach("prices")
        with monkeypatch.context() as patch:
            patch.setattr(Files, "sync", broken)
            await speaker.say(Publish("a", b""), Ping())
            assert (await speaker.expect(Invalid)).reason == (
                "the stream is stopped: the disk does not have the messages after sequence 0: Input/output error"
            )
            await speaker.expect(Detach)
        await speaker.say(DetachOk())
        await eventually(lambda: not broker.engine.sessions)
        assert broker.counters.invalid == {"stopped": 1}


@in_loop
async def test_a_sync_of_a_stream_that_was_deleted_is_no_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()

    def sync(journal: Journal, each: object = map) -> int:
        assert go_on.wait(10)
        raise JournalError("the journal is closed")

    monkeypatch.setattr(Journal, "sync", sync)
    async with BrokerService(tmp_path) as broker, Client.connect(broker.bind("inproc://deleted")) as client:
        async with Speaker(broker.bind(TCP)) as speaker:
            await speaker.attach("s")
            await speaker.say(Publish("k", b"1"), Ping())
            await eventually(lambda: broker._syncing)
            await client.delete("s")
            go_on.set()
            await eventually(lambda: not broker._syncing)
        assert "is stopped" not in caplog.text


@in_loop
async def test_pages_that_are_not_in_memory_are_read_by_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with BrokerService(tmp_path) as broker, Speaker(broker.bind(TCP)) as speaker:
        await speaker.attach("prices", PLENTY)
        await speaker.publish(*["k"] * 1000, body=b"x" * 1000)
        await speaker.barrier()
        warmed: list[tuple[int, bool]] = []
        monkeypatch.setattr(Span, "is_resident", lambda span: False)
        warm = Span.warm

        def noted(span: Span) -> None:
            warmed.append((span.first, threading.current_thread() is threading.main_thread()))
            warm(span)

        monkeypatch.setattr(Span, "warm", noted)
        await speaker.subscribe("")
        assert [message.sequence for message in await speaker.delivered(1000)] == list(range(1, 1001))
        assert warmed[0] == (1, False)


@pytest.mark.spec("ZEP-11")
@in_loop
async def test_a_subscriber_that_stops_reading_delays_no_other(tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker:
        endpoint = broker.bind(TCP)
        async with Speaker(endpoint) as publisher, Speaker(endpoint) as reader:
            await publisher.attach("prices")
            await reader.attach("prices", PLENTY)
            await reader.subscribe("", LATEST)
            with Stranger.calling(endpoint, small=True) as stalled:
                start = [Attach("prices"), Credit(PLENTY), Subscribe("", 0)]
                stalled.say(hello() + encode([message.encode()[0] for message in start]))
                await eventually(lambda: broker.engine.streams[0].subscribers == 2)
                for _ in range(30):
                    await publisher.publish(*["k"] * 100, body=b"x" * 10_000)
                    await reader.delivered(100)
                cursors = [session.cursor for session in broker.engine.sessions if session.cursor]
                assert {cursor.gear for cursor in cursors} == {"live", "history"}

                await eventually(lambda: stalled.heard_all() and len(stalled.messages) >= 3002)
                assert [message[0][3:11] for message in stalled.messages[2:]] == [
                    number.to_bytes(8) for number in range(1, 3001)
                ]


@in_loop
async def test_a_port_is_free_again_and_clients_reconnect(tmp_path: Path) -> None:
    async with BrokerService(tmp_path) as broker:
        endpoint = broker.bind(TCP)
        speaker = Speaker(endpoint)
        await speaker.attach("prices")
    async with BrokerService(tmp_path) as broker:
        assert broker.bind(endpoint) == endpoint
        await speaker.expect(Detach)
        await speaker.attach("prices")
        await speaker.close()


@in_loop
async def test_a_port_in_use_is_an_error_and_the_broker_can_be_closed(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with BrokerService(tmp_path) as broker:
            with pytest.raises(EndpointError, match="in use"):
                broker.bind(f"tcp://127.0.0.1:{taken.getsockname()[1]}")
