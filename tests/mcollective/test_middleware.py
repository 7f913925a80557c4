"""zambezi.mcollective.middleware: many clients on real sockets, slow ones, and hostile ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

import pytest

from tests.interop.octets import ByHand, greeting, ready
from tests.mcollective.raw import Raw
from tests.zmtp.waiting import eventually, in_loop, next_of, wait_until
from zambezi.mcollective.archive import MemoryArchive
from zambezi.mcollective.asyncio import Connector, Middleware
from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.events import CaughtUp, ClientGone, SlowSubscriber
from zambezi.mcollective.middleware import PENDING
from zambezi.mcollective.rules import Rule, Rules
from zambezi.mcollective.sync import Middleware as BlockingMiddleware
from zambezi.zmtp import Authenticator, Bound, CurveClient, CurveServer, KeyPair
from zambezi.zmtp.asyncio import Dealer
from zambezi.zmtp.events import Disconnected
from zambezi.zmtp.frames import size_of
from zambezi.zmtp.peer import Peer

E = b""
_names = count()


def name() -> str:
    return f"inproc://mcollective-{os.getpid()}-{next(_names)}"


def put(topic: bytes, body: bytes) -> tuple[bytes, ...]:
    return (E, b"PUT", b"TOPIC", topic, E, body)


def message(topic: bytes, body: bytes) -> list[bytes]:
    return [E, b"MESSAGE", b"TOPIC", topic, E, body]


def peer_of(middleware: Middleware, identity: bytes) -> Peer:
    """Return the middleware's end of a client's connection."""
    return middleware._shell._identities.peers[identity]


# A crowd

CLIENTS, TOPICS, EACH, MESSAGES, SPEAKERS = 2000, 200, 10, 5, 4


def descriptors() -> int:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.mark.parametrize(
    "endpoint",
    [
        "inproc",
        pytest.param(
            "tcp://127.0.0.1:*",
            marks=pytest.mark.skipif(descriptors() < 2 * CLIENTS + 500, reason="too few descriptors for the sockets"),
        ),
    ],
)
@in_loop
async def test_two_thousand_clients_on_two_hundred_topics_and_every_delivery_is_counted(endpoint: str) -> None:
    async with Middleware(linger=0) as middleware:
        endpoint = middleware.bind(name() if endpoint == "inproc" else endpoint)
        clients = []
        for number in range(CLIENTS):
            client = Dealer(linger=0)
            client.connect(endpoint)
            topics = [b"topic %d" % ((number + step * 7) % TOPICS) for step in range(EACH)]
            await client.send([E, b"CONNECT", b"ID", b"c", b"TTL", b"600000", b"VERSION", b"0.2"])
            await client.send([E, b"SUB", b"ID", b"s", E, *topics])
            clients.append(client)
        for client in clients:
            assert await client.recv() == [E, b"OK", b"ID", b"c"]
            assert await client.recv() == [E, b"OK", b"ID", b"s"]
        report = middleware.topics()
        assert [len(each.subscribers) for each in report] == [CLIENTS * EACH // TOPICS] * TOPICS

        speakers = clients[:SPEAKERS]
        for number in range(MESSAGES):
            for topic in range(TOPICS):
                speaker = speakers[(topic + number) % SPEAKERS]
                await speaker.send(put(b"topic %d" % topic, b"%d" % number))
        seen: Counter[tuple[bytes, bytes]] = Counter()
        for client in clients:
            got: set[tuple[bytes, bytes]] = set()
            while len(got) < EACH * MESSAGES:
                for frames in await client.recv_batch(timeout=60):
                    assert frames[:3] == [E, b"MESSAGE", b"TOPIC"]
                    got.add((frames[3], frames[5]))
                    seen[frames[3], frames[5]] += 1
        assert len(seen) == TOPICS * MESSAGES
        assert set(seen.values()) == {CLIENTS * EACH // TOPICS}
        assert middleware.counters.deliveries == CLIENTS * EACH * MESSAGES
        assert middleware.counters.puts == TOPICS * MESSAGES
        assert (middleware.counters.missed, middleware.counters.errors) == (0, 0)
        await asyncio.gather(*(client.close() for client in clients))
        await eventually(lambda: middleware.clients == 0)
        assert middleware.topics() == []


# Clients that do not read


@in_loop
async def test_a_subscriber_that_does_not_read_misses_messages_and_others_do_not() -> None:
    bounds = Bounds(reading_time=0.0)
    async with Middleware(send_bound=Bound(octets=60_000), bounds=bounds, linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        slow = await Raw.join(endpoint, b"slow", buffer=4096)
        quick = await Raw.join(endpoint, b"quick")
        speaker = await Raw.join(endpoint, b"speaker")
        for client in (slow, quick):
            assert await client.ask(E, b"SUB", b"ID", b"1", E, b"a") == [E, b"OK", b"ID", b"1"]
        # Wait for the quick client each time, so that only the slow one fills the kernel's buffers and then its queue.
        sent = 0
        while not middleware.counters.missed:
            assert sent < 2000, "a hundred megabytes, and nothing was missed"
            await speaker.send(put(b"a", b"%08d" % sent + bytes(50_000)))
            assert (await quick.recv())[5][:8] == b"%08d" % sent
            sent += 1
        assert (await next_of(middleware, SlowSubscriber)).identity == b"slow"
        peer = peer_of(middleware, b"slow")
        assert peer.queued < 300_000

        got = []
        complaint: list[bytes] = []
        while not complaint:  # it is told when it has read, whether there are more messages for it or not
            frames = await slow.recv()
            if frames[1] == b"ERROR":
                complaint = frames
            else:
                got.append(int(frames[5][:8]))
        assert got == list(range(len(got)))  # it was told before the first gap
        missed = int(complaint[-1])
        assert complaint[-2] == b"X-MISSED"
        assert missed == middleware.counters.missed
        assert (await next_of(middleware, CaughtUp)).missed == missed
        await speaker.send(put(b"a", b"%08d" % sent))
        assert int((await slow.recv())[5]) == sent == len(got) + missed
        for client in (slow, quick, speaker):
            client.close()


async def burst(middleware: Middleware, senders: int, each: int, size: int) -> tuple[Raw, list[Raw]]:
    """Return a reader that has read nothing yet, and the senders of a burst of messages to it."""
    endpoint = middleware.bind("tcp://127.0.0.1:*")
    reader = await Raw.join(endpoint, b"reader", buffer=4096)
    await reader.ask(E, b"SUB", b"ID", b"1", E, b"reply")
    speakers = [await Raw.join(endpoint, b"%d" % number) for number in range(senders)]
    loop = asyncio.get_running_loop()
    for number, speaker in enumerate(speakers):
        octets = speaker.encoded(*(put(b"reply", b"%d %08d" % (number, at) + bytes(size)) for at in range(each)))
        speaker.sending = loop.create_task(loop.sock_sendall(speaker.sock, octets))
    return reader, speakers


@in_loop
async def test_a_burst_is_not_lost_for_a_client_that_reads() -> None:
    """Replies of many nodes to one client: they are many times its queue, and they wait for the client."""
    async with Middleware(send_bound=Bound(octets=100_000), linger=0) as middleware:
        reader, speakers = await burst(middleware, 5, 60, 50_000)
        await eventually(lambda: any(peer_of(middleware, b"%d" % number).paused for number in range(5)))
        got: dict[bytes, list[int]] = {}
        for _ in range(300):
            sender, number = (await reader.recv())[5][:10].split()
            got.setdefault(sender, []).append(int(number))
        assert list(got.values()) == [list(range(60))] * 5
        await eventually(lambda: not any(peer_of(middleware, b"%d" % number).paused for number in range(5)))
        assert middleware.counters.missed == 0
        assert middleware._shell._pressure.reserved == 0
        for client in (reader, *speakers):
            client.close()


@in_loop
async def test_a_slow_subscriber_misses_nothing_of_a_kept_topic_and_nobody_waits() -> None:
    archive = MemoryArchive()
    async with Middleware(archive=archive, send_bound=Bound(octets=100_000), linger=0) as middleware:
        reader, speakers = await burst(middleware, 3, 100, 50_000)
        await asyncio.gather(*(speaker.sending for speaker in speakers))
        await eventually(lambda: middleware.counters.puts == 300)  # before the reader has read anything
        peer = peer_of(middleware, b"reader")
        assert peer.queued < 500_000
        numbers = []
        got: dict[bytes, list[int]] = {}
        for _ in range(300):
            frames = await reader.recv()
            assert frames[1] == b"MESSAGE"
            numbers.append(int(frames[frames.index(b"X-SEQUENCE") + 1]))
            sender, number = frames[-1][:10].split()
            got.setdefault(sender, []).append(int(number))
        assert numbers == list(range(1, 301))
        assert list(got.values()) == [list(range(100))] * 3
        await speakers[0].send(put(b"reply", b"live again"))
        assert (await reader.recv())[-1] == b"live again"
        assert (middleware.counters.missed, middleware.counters.errors) == (0, 0)
        for client in (reader, *speakers):
            client.close()


@in_loop
async def test_a_subscriber_that_is_slow_now_and_then_gets_each_kept_message_once_and_in_order() -> None:
    """The topics alternate, so that one read makes many deliveries, and the kernel takes some of them."""
    async with Middleware(archive=MemoryArchive(), send_bound=Bound(octets=1), linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        reader = await Raw.join(endpoint, b"reader", buffer=4096)
        await reader.ask(E, b"SUB", b"ID", b"1", E, b"a", b"b")
        speaker = await Raw.join(endpoint, b"speaker")
        loop = asyncio.get_running_loop()
        octets = speaker.encoded(*(put(b"ab"[at % 2 :][:1], b"%08d" % at + bytes(7000)) for at in range(3000)))
        sending = loop.create_task(loop.sock_sendall(speaker.sock, octets))
        session = middleware._shell._sessions[peer_of(middleware, b"reader")]
        await eventually(lambda: session.replaying)
        got: dict[bytes, list[int]] = {b"a": [], b"b": []}
        for _ in range(3000):
            frames = await reader.recv()
            got[frames[3]].append(int(frames[-1][:8]))
        await sending
        assert got == {b"a": list(range(0, 3000, 2)), b"b": list(range(1, 3000, 2))}
        assert middleware.counters.replayed > 0
        reader.close()
        speaker.close()


@in_loop
async def test_while_the_senders_to_a_full_queue_wait_others_do_not() -> None:
    async with Middleware(send_bound=Bound(octets=100_000), bounds=Bounds(reading_time=3600.0), linger=0) as middleware:
        reader, speakers = await burst(middleware, 2, 100, 50_000)
        await eventually(lambda: all(peer_of(middleware, b"%d" % number).paused for number in range(2)))
        ann = await Raw.join(middleware.bind("tcp://127.0.0.1:*"), b"ann")
        await ann.ask(E, b"SUB", b"ID", b"1", E, b"a")
        for number in range(100):
            await ann.send(put(b"a", b"%d" % number))
            assert (await ann.recv())[5] == b"%d" % number
        assert middleware.counters.missed == 0
        # The queue is bounded: a read above its bound, and one of each sender.
        assert peer_of(middleware, b"reader").queued < 100_000 + 3 * (256 * 1024 + 50_000)
        reader.close()  # its senders are free
        await asyncio.gather(*(speaker.sending for speaker in speakers))
        for client in (ann, *speakers):
            client.close()


@in_loop
async def test_above_the_reserve_messages_are_missed_and_the_log_says_how_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bounds = Bounds(reading_time=3600.0, reserve_bytes=1)
    async with Middleware(send_bound=Bound(octets=100_000), bounds=bounds, linger=0) as middleware:
        reader, speakers = await burst(middleware, 2, 100, 50_000)
        await asyncio.gather(*(speaker.sending for speaker in speakers))
        await eventually(lambda: middleware.counters.puts == 200)
        missed = middleware.counters.missed
        assert missed > 0
        while (await reader.recv())[1] != b"ERROR":
            pass
        for client in (reader, *speakers):
            client.close()
    assert f"'reader' reads again; it missed {missed} messages" in caplog.text
    assert f"{missed} messages were not delivered to 1 client that did not read in time" in caplog.text


@in_loop
async def test_an_answer_overtakes_the_messages_that_wait() -> None:
    """The real connector takes the very next message after SUB for the answer."""
    async with Middleware(linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        slow, speaker = await Raw.join(endpoint, b"slow", buffer=4096), await Raw.join(endpoint, b"speaker")
        await slow.ask(E, b"SUB", b"ID", b"1", E, b"a")
        peer = peer_of(middleware, b"slow")
        sent = 0
        while not peer.queued:
            assert sent < 1000, "fifty megabytes, and nothing waits"
            await speaker.ask(E, b"PUT", b"ID", b"1", b"TOPIC", b"a", E, b"%08d" % sent + bytes(50_000))
            sent += 1
        waiting = peer.queued // size_of((*message(b"a", bytes(50_008)),))
        before = middleware.counters.commands
        await slow.send(
            (E, b"SUB", b"ID", b"2", E, b"b"), (E, b"nonsense"), put(b"b", b"x"), (E, b"NOOP", b"ID", b"3", b"odd")
        )
        await slow.send((E, b"UNSUB", b"ID", b"4", E, b"b"))
        await eventually(lambda: middleware.counters.commands == before + 5)
        heard = [await slow.recv() for _ in range(sent + 5)]
        overtaken = sent - waiting  # the messages before that were with the kernel already
        assert 0 < overtaken < sent
        assert [frames[3] for frames in heard[overtaken : overtaken + 3]] == [b"2", b"3", b"4"]
        verbs = [frames[1] for frames in heard]
        assert verbs.count(b"MESSAGE") == sent + 1
        assert [frames[3] for frames in heard if frames[2] == b"ID"] == [b"2", b"3", b"4"]
        bodies = [frames[5][:8] for frames in heard if frames[1] == b"MESSAGE"]
        assert bodies == [*(b"%08d" % number for number in range(sent)), b"x"]
        assert verbs[-3:] != [b"OK", b"ERROR", b"OK"]
        slow.close()
        speaker.close()


@in_loop
async def test_a_client_that_floods_and_does_not_read_the_answers_is_not_read_and_loses_none() -> None:
    async with Middleware(send_bound=Bound(octets=20_000), linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        flood = await Raw.join(endpoint, b"flood", buffer=4096)
        good = await Raw.join(endpoint, b"good")
        commands = b"".join(flood.encoded((E, b"NOOP", b"ID", b"%0300d" % number)) for number in range(30_000))
        sent = 0
        loop = asyncio.get_running_loop()

        async def send_all() -> None:
            nonlocal sent
            while sent < len(commands):
                await loop.sock_sendall(flood.sock, commands[sent : sent + 65536])
                sent += 65536

        sending = asyncio.create_task(send_all())
        peer = peer_of(middleware, b"flood")
        await eventually(lambda: peer.paused)
        before = -1
        while middleware.counters.commands != before:
            before = middleware.counters.commands
            assert (await good.ask(E, b"NOOP", b"ID", b"1"))[1] == b"OK"  # other clients are served meanwhile
            before += 1
        assert middleware.counters.commands < 30_000
        assert peer.queued < 2_000_000
        for number in range(30_000):
            assert await flood.recv() == [E, b"OK", b"ID", b"%0300d" % number]
        await sending
        assert not peer.paused
        flood.close()
        good.close()


# Clients that vanish, and clients that send garbage


@in_loop
async def test_clients_that_vanish_in_the_middle_of_everything() -> None:
    async with Middleware(linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        chance = random.Random(1)
        stayer = await Raw.join(endpoint, b"stayer")
        await stayer.ask(E, b"SUB", b"ID", b"1", E, b"a")
        for number in range(40):
            raw = await Raw.join(endpoint, b"%d" % number)
            octets = raw.encoded(
                (E, b"CONNECT", b"TTL", b"1000"), (E, b"SUB", E, b"a", b"%d" % number), put(b"b", b"x")
            )
            await asyncio.get_running_loop().sock_sendall(raw.sock, octets[: chance.randrange(len(octets))])
            await stayer.send(put(b"a", bytes(1000)))
            raw.vanish() if number % 2 else raw.close()
        for _ in range(40):
            assert await stayer.recv() == message(b"a", bytes(1000))
        await eventually(lambda: middleware.clients == 1)
        assert [each.topic for each in middleware.topics()] == [b"a"]
        stayer.close()


@in_loop
async def test_garbage_of_all_kinds_ends_the_connection_or_is_answered() -> None:
    chance = random.Random(2)
    async with Middleware(linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        good = await Raw.join(endpoint, b"good")
        for number in range(20):
            # Bytes that are not ZMTP, before the handshake and after it.
            with socket.create_connection((host, int(port))) as sock:
                sock.sendall(chance.randbytes(200))
            raw = await Raw.join(endpoint)
            await asyncio.get_running_loop().sock_sendall(raw.sock, b"\xff" + chance.randbytes(100))
            with pytest.raises(ConnectionError):
                await raw.recv()
            raw.close()
            # Messages that are not commands.
            raw = await Raw.join(endpoint)
            count = chance.randrange(1, 50)
            frames = [tuple(chance.randbytes(5) for _ in range(chance.randrange(1, 6))) for _ in range(count)]
            await raw.send(*frames)
            for _ in range(count):
                assert b"ERROR" in (await raw.recv())[:2]
            assert await good.ask(E, b"NOOP", b"ID", b"%d" % number) == [E, b"OK", b"ID", b"%d" % number]
            raw.close()
        assert middleware.counters.malformed == middleware.counters.errors > 0
        good.close()


@in_loop
async def test_a_message_that_is_too_large_ends_its_connection_and_no_other() -> None:
    async with Middleware(linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        good, raw = await Raw.join(endpoint), await Raw.join(endpoint)
        await asyncio.get_running_loop().sock_sendall(raw.sock, b"\x02" + (1 << 40).to_bytes(8, "big"))
        with pytest.raises(ConnectionError):
            await raw.recv()
        assert (await good.ask(E, b"NOOP", b"ID", b"1"))[1] == b"OK"
        raw.close()
        good.close()


# Time


@in_loop
async def test_heartbeats_and_expiry_by_the_clock() -> None:
    async with Middleware(linger=0, bounds=Bounds(patience=0.0)) as middleware:
        raw = await Raw.join(middleware.bind("tcp://127.0.0.1:*"), b"sleepy")
        await raw.ask(E, b"CONNECT", b"ID", b"1", b"TTL", b"600")
        assert await raw.recv() == [E, b"NOOP"]
        assert "TTL is 0.6 s" in (await next_of(middleware, ClientGone)).reason
        (answer,) = [await raw.ask(E, b"NOOP")]
        assert answer[1] == b"ERROR"
        assert answer[-2:] == [b"X-EXPECTED", b"CONNECT"]
        with pytest.raises(ConnectionError):  # its connection is closed after three times its TTL
            await raw.recv()
        raw.close()


# Identities


@in_loop
async def test_a_client_that_comes_back_takes_its_identity_over() -> None:
    async with Middleware(linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        before = await Raw.join(endpoint, b"me")
        await before.ask(E, b"SUB", b"ID", b"1", E, b"a")
        after = await Raw.join(endpoint, b"me")
        assert "taken over" in (await next_of(middleware, Disconnected)).reason
        assert middleware.clients == 1
        assert middleware.topics() == []
        assert await after.ask(E, b"NOOP", b"ID", b"2") == [E, b"OK", b"ID", b"2"]
        before.close()
        after.close()


SERVER, ANN, BOB, EVE = (KeyPair.generate() for _ in range(4))


@pytest.mark.spec("MCO-02")
@in_loop
async def test_only_the_keys_that_are_allowed_get_in_and_each_may_do_what_the_rules_say() -> None:
    guard = Authenticator(keys={"ann": ANN.public, "bob": BOB.public})
    rules = [{"user": "ann", "put": ["jobs"], "sub": ["*"]}, {"user": "*", "sub": ["jobs", "nodes {user}"]}]
    async with Middleware(security=CurveServer(SERVER), authenticator=guard, rules=rules, linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        ann = await Raw.join(endpoint, b"ann", security=CurveClient(SERVER.public, ANN))
        bob = await Raw.join(endpoint, b"bob", security=CurveClient(SERVER.public, BOB))
        with pytest.raises(ConnectionError):
            await Raw.join(endpoint, b"eve", security=CurveClient(SERVER.public, EVE))
        with pytest.raises(ConnectionError):
            await Raw.join(endpoint, b"plain")
        assert (await bob.ask(E, b"SUB", b"ID", b"1", E, b"jobs", b"nodes bob"))[1] == b"OK"
        assert (await bob.ask(E, b"SUB", b"ID", b"2", E, b"nodes ann"))[1] == b"ERROR"
        assert (await bob.ask(E, b"PUT", b"ID", b"3", b"TOPIC", b"jobs", E, b"x"))[1] == b"ERROR"
        assert (await ann.ask(E, b"PUT", b"ID", b"4", b"TOPIC", b"jobs", E, b"paint"))[1] == b"OK"
        assert await bob.recv() == [E, b"MESSAGE", b"X-ZAMBEZI-USER", b"ann", b"TOPIC", b"jobs", E, b"paint"]
        assert middleware.counters.denied == 2
        ann.close()
        bob.close()


@in_loop
async def test_an_identity_belongs_to_the_user_that_has_it() -> None:
    guard = Authenticator(keys={"ann": ANN.public, "bob": BOB.public})
    async with Middleware(security=CurveServer(SERVER), authenticator=guard, linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        bob = await Raw.join(endpoint, b"desk", security=CurveClient(SERVER.public, BOB))
        # Bob was first with this identity, and does not keep ann out; nor does ann take it over, or get his messages.
        ann = await Raw.join(endpoint, b"desk", security=CurveClient(SERVER.public, ANN))
        for client, topic in ((ann, b"reply ann"), (bob, b"reply bob")):
            assert (await client.ask(E, b"SUB", b"ID", b"1", E, topic))[1] == b"OK"
        assert [report.subscribers for report in middleware.topics()] == [((b"desk", "ann"),), ((b"desk", "bob"),)]
        await bob.ask(E, b"PUT", b"ID", b"2", b"TOPIC", b"reply ann", E, b"for ann")
        assert await ann.recv() == [E, b"MESSAGE", b"X-ZAMBEZI-USER", b"bob", b"TOPIC", b"reply ann", E, b"for ann"]
        assert await bob.ask(E, b"NOOP", b"ID", b"3") == [E, b"OK", b"ID", b"3"]
        # Ann's own next connection takes over from her old one, and from no other.
        again = await Raw.join(endpoint, b"desk", security=CurveClient(SERVER.public, ANN))
        assert await again.ask(E, b"NOOP", b"ID", b"4") == [E, b"OK", b"ID", b"4"]
        with pytest.raises(ConnectionError):
            await ann.recv()
        assert await bob.ask(E, b"NOOP", b"ID", b"5") == [E, b"OK", b"ID", b"5"]
        for client in (ann, bob, again):
            client.close()


@in_loop
async def test_a_key_with_another_name_is_cut_off_and_comes_back_under_that_name() -> None:
    guard = Authenticator(keys={"admin": ANN.public})
    rules = [{"user": "admin", "put": ["*"], "sub": ["*"]}]
    async with Middleware(security=CurveServer(SERVER), authenticator=guard, rules=rules, linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        ann = await Raw.join(endpoint, security=CurveClient(SERVER.public, ANN))
        assert (await ann.ask(E, b"SUB", b"ID", b"1", E, b"a"))[1] == b"OK"
        guard.update(keys={"guest": ANN.public})
        with pytest.raises(ConnectionError):
            await ann.recv()
        assert middleware.topics() == []
        again = await Raw.join(endpoint, security=CurveClient(SERVER.public, ANN))
        assert (await again.ask(E, b"SUB", b"ID", b"1", E, b"a"))[1] == b"ERROR"
        ann.close()
        again.close()


@in_loop
async def test_a_key_that_is_no_longer_allowed_is_cut_off() -> None:
    guard = Authenticator(keys={"ann": ANN.public})
    async with Middleware(security=CurveServer(SERVER), authenticator=guard, linger=0) as middleware:
        ann = await Raw.join(middleware.bind("tcp://127.0.0.1:*"), security=CurveClient(SERVER.public, ANN))
        await ann.ask(E, b"SUB", b"ID", b"1", E, b"a")
        guard.update(keys={})
        with pytest.raises(ConnectionError):
            await ann.recv()
        assert middleware.topics() == []
        ann.close()


def test_without_curve_there_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Middleware() as middleware:
            middleware.bind("tcp://127.0.0.1:*")
            middleware.bind("tcp://127.0.0.1:*")
        async with Middleware(security=CurveServer(SERVER)) as middleware:
            middleware.bind("tcp://127.0.0.1:*")

    asyncio.run(story())
    assert len([record for record in caplog.records if "no CURVE" in record.getMessage()]) == 1


def test_many_refused_commands_are_few_lines_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with (
            Middleware(rules=Rules([Rule("bob")])) as middleware,
            Dealer(identity=b"mallory") as dealer,
        ):
            dealer.connect(middleware.bind("tcp://127.0.0.1:*"))
            await dealer.send_batch([put(b"news", b"x")] * 1000)
            await eventually(lambda: middleware.counters.denied == 1000)

    asyncio.run(story())
    told = [record.getMessage() for record in caplog.records if "may not PUT 'news'" in record.getMessage()]
    assert len(told) == 2  # the first one, and the sum
    assert told[0] == "an anonymous client (127.0.0.1) may not PUT 'news'"
    assert told[-1].startswith("999 more like these; the last: ")


# Versions and socket types


@pytest.mark.spec("MCO-01")
@pytest.mark.parametrize("minor", [0, 1])
def test_a_dealer_of_zmtp_3_0_or_later_is_served_and_other_sockets_are_not(minor: int) -> None:
    command = b"".join(b"\x01" + bytes([len(frame)]) + frame for frame in (b"", b"NOOP", b"ID")) + b"\x00\x011"
    answer = b"".join(b"\x01" + bytes([len(frame)]) + frame for frame in (b"", b"OK", b"ID")) + b"\x00\x011"
    with BlockingMiddleware(linger=0, heartbeat=None) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        with ByHand.connect(endpoint) as dealer:
            assert b"ROUTER" in dealer.shake_hands(b"DEALER", minor)
            dealer.say(command)
            dealer.expect(answer)
        with ByHand.connect(endpoint) as sub:
            sub.say(greeting(minor), ready(b"SUB"))
            sub.hear_the_end()
        wait_until(lambda: middleware.counters.handshakes_failed == 1)


# Many to many, in bursts


@pytest.mark.parametrize("curve", [False, True])
@in_loop
async def test_bursts_arrive_whole_and_in_order_at_subscribers_of_both_forms(curve: bool) -> None:
    security = CurveServer(SERVER) if curve else None
    client_security = CurveClient(SERVER.public) if curve else None
    async with Middleware(**({"security": security} if security else {}), linger=0) as middleware:  # type: ignore[arg-type]
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        clients = [await Raw.join(endpoint, security=client_security) for _ in range(4)]
        for client in clients[:2]:
            await client.ask(E, b"SUB", b"ID", b"1", E, b"a", b"b")
        for client in clients[2:]:
            await client.ask(b"SUB", b"ID", b"1", E, b"a", b"b")
        chance = random.Random(3)
        sent = [(chance.choice([b"a", b"b"]), b"%d" % number + bytes(chance.randrange(600))) for number in range(500)]
        speaker = await Raw.join(endpoint, security=client_security)
        await speaker.send(*(put(topic, body) for topic, body in sent))
        for client in clients[:2]:
            assert [await client.recv() for _ in sent] == [message(*each) for each in sent]
        for client in clients[2:]:
            assert [await client.recv() for _ in sent] == [message(*each)[1:] for each in sent]
        for client in (*clients, speaker):
            client.close()


# The archive


@in_loop
async def test_a_replay_that_is_larger_than_the_queue_loses_nothing_and_ends_live() -> None:
    archive = MemoryArchive()
    async with Middleware(archive=archive, send_bound=Bound(octets=50_000), linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        speaker = await Raw.join(endpoint, b"speaker")
        for start in range(0, 2000, 100):
            await speaker.send(*(put(b"kept", b"%05d" % number + bytes(500)) for number in range(start, start + 100)))
        await eventually(lambda: middleware.counters.kept == 2000)
        reader = await Raw.join(endpoint, b"reader", buffer=4096)
        assert await reader.ask(E, b"SUB", b"ID", b"1", b"X-SINCE", b"500", E, b"kept") == [E, b"OK", b"ID", b"1"]
        for number in range(500, 1000):
            frames = await reader.recv()
            assert (frames[5], frames[7][:5]) == (b"%d" % (number + 1), b"%05d" % number)
        await speaker.send(*(put(b"kept", b"%05d" % number) for number in range(2000, 2100)))
        for number in range(1000, 2100):
            assert (await reader.recv())[7][:5] == b"%05d" % number
        await eventually(middleware.topics)
        await speaker.send(put(b"kept", b"live"))
        assert (await reader.recv())[7] == b"live"
        assert middleware.counters.missed == 0
        reader.close()
        speaker.close()


class StuckArchive(MemoryArchive):
    """An archive that stores nothing until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[str], object]] = []

    def append(
        self, topic: bytes, sender: bytes, messages: Sequence[tuple[bytes, ...]], stored: Callable[[str], object] | None
    ) -> int:
        if stored is not None:
            self.waiting.append(stored)
        return super().append(topic, sender, messages, None)


@in_loop
async def test_a_client_with_too_many_pending_answers_is_paused_until_they_are_given() -> None:
    archive = StuckArchive()
    async with Middleware(archive=archive, linger=0) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        raw, good = await Raw.join(endpoint, b"raw"), await Raw.join(endpoint, b"good")
        commands = [(E, b"PUT", b"ID", b"%d" % number, b"TOPIC", b"a", E, bytes(100)) for number in range(20_000)]
        sending = asyncio.create_task(raw.send(*commands))
        await eventually(lambda: peer_of(middleware, b"raw").paused)
        before = middleware.counters.kept
        assert PENDING <= before < 20_000
        for number in range(10):
            assert await good.ask(E, b"NOOP", b"ID", b"%d" % number) == [E, b"OK", b"ID", b"%d" % number]
        assert middleware.counters.kept == before
        answered = 0
        while answered < 20_000:
            waiting, archive.waiting = archive.waiting, []
            pending = middleware.counters.kept - answered
            for stored in waiting:
                stored("")
            for _ in range(pending):
                assert await raw.recv() == [E, b"OK", b"ID", b"%d" % answered]
                answered += 1
            await asyncio.sleep(0)
        await sending
        raw.close()
        good.close()


class LateArchive(MemoryArchive):
    """An archive that answers later."""

    def append(
        self, topic: bytes, sender: bytes, messages: Sequence[tuple[bytes, ...]], stored: Callable[[str], object] | None
    ) -> int:
        if stored is not None:
            asyncio.get_running_loop().call_later(0.01, stored, "")
        return super().append(topic, sender, messages, None)


@in_loop
async def test_an_answer_that_waits_for_the_archive_comes_first_when_it_comes() -> None:
    async with Middleware(archive=LateArchive(lambda topic: topic == b"kept"), linger=0) as middleware:
        endpoint = middleware.bind(name())
        async with Connector(endpoint) as connector:
            await connector.subscribe("kept", "a")
            for number in range(5):
                await asyncio.gather(
                    connector.put("kept", b"%d" % number, confirm=True), connector.put("a", b"%d" % number)
                )
            bodies = sorted([(await connector.recv()).body for _ in range(10)])
            assert bodies == sorted([b"%d" % number for number in range(5)] * 2)


@in_loop
async def test_a_replay_to_a_client_in_this_process() -> None:
    async with Middleware(archive=MemoryArchive(), linger=0) as middleware:
        endpoint = middleware.bind(name())
        async with Connector(endpoint) as speaker, Connector(endpoint) as reader:
            for number in range(100):
                await speaker.put("kept", b"%d" % number)
            await speaker.request("NOOP")
            await reader.subscribe("kept", since=10)
            messages = [await reader.recv() for _ in range(90)]
            assert [each.sequence for each in messages] == list(range(11, 101))
            assert middleware.topics()[0].kept


# Closing


@in_loop
async def test_the_last_puts_go_out_before_the_middleware_closes() -> None:
    middleware = Middleware()
    endpoint = middleware.bind("tcp://127.0.0.1:*")
    raw = await Raw.join(endpoint)
    await raw.ask(E, b"SUB", b"ID", b"1", E, b"a")
    await raw.send(*[put(b"a", bytes(1000))] * 100)
    await eventually(lambda: middleware.counters.puts == 100)
    closing = asyncio.create_task(middleware.close())
    for _ in range(100):
        await raw.recv()
    with contextlib.suppress(ConnectionError):
        await raw.recv()
    raw.close()
    await closing
