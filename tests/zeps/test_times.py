"""zambezi.zeps.times, and times from the journal to the program: replay, live, patterns, broken connections.

The simulation has the real engines of both sides, and neither sockets nor clocks.
"""

from __future__ import annotations

import asyncio
from array import array
from datetime import UTC
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zeps.faces import TCP, Connect, both_faces, connected, fill
from tests.zeps.scripted import cut
from tests.zeps.stage import PLENTY, Client, Stage, never_wait_for_the_disk
from tests.zmtp.engines import CLIENT_KEYS, SERVER_KEYS, guard
from tests.zmtp.waiting import PATIENCE, eventually, in_loop
from zambezi.zeps.asyncio import Client as AsyncioClient
from zambezi.zeps.broker import cursor as cursors
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.client.batch import Message
from zambezi.zeps.client.subscriber import Subscriber
from zambezi.zeps.directory import StreamInfo, microseconds_of
from zambezi.zeps.errors import ZepsError
from zambezi.zeps.journal import Journal, Policy
from zambezi.zeps.matchers import Matchers
from zambezi.zeps.messages import EARLIEST, LATEST, Attach, Deliver, Times, Zeps
from zambezi.zeps.times import MOST, TimeTable, encode_times
from zambezi.zmtp import CurveClient, CurveServer

PATTERNS = ["", "a", "exact:ab", "glob:*b", "regex:a.*a", "nothing"]
KEYS = ["a", "b", "ab", "ba", "aba", "c"]

numbers = st.integers(0, (1 << 64) - 1)


def parse(octets: bytes) -> TimeTable:
    message = Zeps.decode(octets)
    assert isinstance(message, Times)
    return TimeTable.parse(message.times)


@given(st.dictionaries(st.integers(1, 50), numbers, min_size=1), st.sets(st.integers(0, 60), min_size=1))
def test_a_time_is_that_of_the_last_pair_before_the_message(pairs: dict[int, int], wanted: set[int]) -> None:
    table = parse(encode_times(sorted(pairs.items())))
    assert table.first == min(pairs)
    sequences = [sequence for sequence in sorted(wanted) if sequence >= table.first]
    if sequences:
        expected = [pairs[max(first for first in pairs if first <= sequence)] for sequence in sequences]
        assert table.times_of(sequences) == array("Q", expected)


@pytest.mark.parametrize(
    ("octets", "problem"),
    [
        (b"", "0 bytes"),
        (bytes(15), "15 bytes"),
        (bytes(17), "17 bytes"),
        (bytes(32), "not in order"),
        (bytes(16 * (MOST + 1)), f"1 to {MOST} pairs"),
    ],
)
def test_a_list_that_no_broker_sends_is_an_error(octets: bytes, problem: str) -> None:
    with pytest.raises(ZepsError, match=problem):
        TimeTable.parse(octets)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_table_or_an_error(octets: bytes) -> None:
    try:
        table = TimeTable.parse(octets)
    except ZepsError:
        return
    assert len(table.times_of([table.first, (1 << 64) - 1])) == 2


# From the journal to the program


def times_in(journal: Journal) -> dict[int, int]:
    """Return the time of every message, by its sequence."""
    return {
        sequence: entry.time
        for entry in journal.entries(limit=1 << 20)
        for sequence in range(entry.first, entry.last + 1)
    }


class Reader:
    """The client's engine of a subscription with times, and its connections to the broker's engine."""

    def __init__(self, stage: Stage, pattern: str, since: int, window: int, room: int) -> None:
        self.stage = stage
        self.room = room
        self.engine = Subscriber("s", pattern, since, window=window, times=True)
        self.found: list[Message] = []
        self.connect()

    def connect(self) -> None:
        journal = self.stage.stream("s").journal
        self.engine.update(StreamInfo(stream="s", incarnation="one", first=journal.first, last=journal.last))
        self.client = Client(self.stage, "", self.room)
        self._heard = 0
        # Not by `send`, which also reads.
        self.client.session.receive([Attach("s").encode()[0], *self.engine.subscribe_messages()])

    def cut(self) -> None:
        """Lose the connection, with all that the client has not read; and connect again."""
        self.client.close()
        self.connect()

    def read(self) -> None:
        """Read from the connection, and let the program read some batches."""
        self.client.read()
        for message in self.client.heard[self._heard :]:
            if isinstance(message, Times):
                self.engine.learn_times(message.times)
            elif isinstance(message, Deliver):
                frame = message.encode()[0]
                assert not self.engine.lacks_time_of(frame)
                self.engine.accept_from_broker([frame], 0)
        self._heard = len(self.client.heard)
        while (batch := self.engine.next_batch()) is not None:
            self.found += batch
        credit = self.engine.next_credit()
        if credit is not None:
            self.client.session.receive([credit])


@settings(max_examples=cases(37))
@given(st.data())
def test_every_message_has_the_time_of_its_batch_in_the_journal(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    draw = data.draw
    policy = Policy(sync="never", segment=4000, batch=1000)
    with Stage(tmp_path_factory.mktemp("times"), policy=policy) as stage, pytest.MonkeyPatch.context() as patch:
        never_wait_for_the_disk(patch)
        for name in ("WHOLE", "FILTERED", "FEW"):
            patch.setattr(cursors, name, draw(st.sampled_from([1, 300, 3000, 1 << 20])))
        publisher = stage.client("s")
        published: list[str] = []

        def publish() -> None:
            keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=20))
            publisher.publish_many(keys, b"x" * draw(st.sampled_from([0, 50, 300])))
            published.extend(keys)
            stage.now += draw(st.sampled_from([0.0, 0.000_001, 0.5]))

        for _ in range(draw(st.integers(0, 10))):
            publish()
        pattern = draw(st.sampled_from(PATTERNS))
        since = draw(st.sampled_from([EARLIEST, LATEST, len(published)]))
        begin = 0 if since == EARLIEST else len(published)
        window, room = draw(st.sampled_from([20, 500, 1 << 20])), draw(st.sampled_from([1, 100, PLENTY]))
        reader = Reader(stage, pattern, since, window, room)
        for step in draw(st.lists(st.sampled_from("pprrtc"), max_size=25)):
            if step == "p":
                publish()
            elif step == "r":
                reader.read()
            elif step == "c":
                reader.cut()
            else:
                stage.run()
        for _ in range(20 + sum(400 // window + 1 for _ in published)):
            stage.run()
            reader.read()
        matches = Matchers().parse(pattern)
        due = [number for number, key in enumerate(published, 1) if number > begin and matches(key.encode())]
        assert [message.sequence for message in reader.found] == due
        expected = times_in(stage.stream("s").journal)
        assert [microseconds_of(one.time) for one in reader.found if one.time] == [expected[number] for number in due]


@settings(max_examples=cases(25))
@given(st.data())
def test_times_are_right_for_several_subscriptions_of_a_connection(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    draw = data.draw
    policy = Policy(sync="never", segment=4000, batch=1000)
    with Stage(tmp_path_factory.mktemp("times"), policy=policy) as stage, pytest.MonkeyPatch.context() as patch:
        never_wait_for_the_disk(patch)
        for name in ("WHOLE", "FILTERED", "FEW"):
            patch.setattr(cursors, name, draw(st.sampled_from([1, 300, 3000])))
        publisher = stage.client("s")
        client, plain = stage.client("s"), stage.client("s")
        client.send(Times(b""))
        subscriptions = 0
        last = 0
        for step in draw(st.lists(st.sampled_from("ppsc"), max_size=25)):
            if step == "p":
                keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=20))
                publisher.publish_many(keys, b"x" * draw(st.sampled_from([0, 300])))
                last += len(keys)
                stage.now += draw(st.sampled_from([0.0, 0.5]))
            elif step == "s" and subscriptions < 5:
                subscriptions += 1
                latest, pattern = draw(st.integers(0, last)), draw(st.sampled_from(PATTERNS))
                client.subscribe(pattern, latest)
                plain.subscribe(pattern, latest)
            else:
                credit = draw(st.integers(0, 2000))
                client.credit(credit)
                plain.credit(credit)
        for each in (client, plain):
            each.credit(PLENTY)
            stage.run()
            each.read()
        expected = times_in(stage.stream("s").journal)
        table: TimeTable | None = None
        for message in client.heard:
            if isinstance(message, Times):
                table = TimeTable.parse(message.times)
            elif isinstance(message, Deliver):
                assert table is not None
                assert list(table.times_of([message.sequence])) == [expected[message.sequence]]
        # TIMES cost no credit, and change nothing else.
        assert [one for one in client.heard if not isinstance(one, Times)] == plain.heard
        assert not plain.of(Times)


# With sockets, in both faces


def time_of(message: Message) -> int:
    assert message.time is not None
    assert message.time.tzinfo is UTC
    return microseconds_of(message.time)


@pytest.mark.parametrize("where", [TCP, "inproc://zeps-times"])
@pytest.mark.parametrize("pattern", ["", "k3"])
@both_faces
@in_loop
async def test_times_across_replay_live_messages_and_broken_connections(
    connect: Connect, pattern: str, where: str, tmp_path: Path
) -> None:
    async with connected(tmp_path, where, connect) as (broker, client):
        stream = client.stream("s")
        for start in range(0, 1000, 100):
            await fill(stream, 100, start)
        subscription = stream.subscribe(pattern, since="earliest", window=5000, times=True)

        async def publish() -> None:
            for start in range(1000, 2000, 20):
                await fill(stream, 20, start)

        publishing = asyncio.create_task(publish())
        found: list[Message] = []
        total = 2000 if not pattern else 200
        while len(found) < total:
            found.append(await subscription.recv(PATIENCE))
            if len(found) % (total // 5) == 1:
                await eventually(lambda: cut(broker, lambda session: session.cursor is not None))
        await publishing
        journal = broker.engine.streams[0].journal
        expected = times_in(journal)
        assert len(set(expected.values())) > 10
        assert [time_of(message) for message in found] == [expected[message.sequence] for message in found]
        assert [int(message.body) for message in found] == [n for n in range(2000) if not pattern or n % 10 == 3]
        assert subscription.counters.reconnects > 0
        await subscription.close()


@in_loop
async def test_times_over_curve(tmp_path: Path) -> None:
    async with BrokerService(tmp_path, security=CurveServer(SERVER_KEYS), authenticator=guard("CURVE")) as broker:
        endpoint = broker.bind(TCP)
        security = CurveClient(SERVER_KEYS.public, CLIENT_KEYS)
        async with AsyncioClient.connect(endpoint, security=security) as client:
            stream = client.stream("s")
            for start in range(0, 300, 100):
                await fill(stream, 100, start)
            async with stream.subscribe(since="earliest", times=True) as subscription:
                found = [await subscription.recv(PATIENCE) for _ in range(300)]
                await fill(stream, 3, 300)
                found += [await subscription.recv(PATIENCE) for _ in range(3)]
            expected = times_in(broker.engine.streams[0].journal)
            assert [time_of(message) for message in found] == [expected[number] for number in range(1, 304)]


@both_faces
@in_loop
async def test_batches_have_times_if_they_were_asked_for(connect: Connect, tmp_path: Path) -> None:
    async with connected(tmp_path, connect=connect) as (broker, client):
        stream = client.stream("s")
        await fill(stream, 10)
        await fill(stream, 10, 10)
        expected = times_in(broker.engine.streams[0].journal)
        subscription = stream.subscribe(since="earliest", until="now", times=True)
        assert time_of(await subscription.recv(PATIENCE)) == expected[1]
        found = [microseconds_of(time) async for batch in subscription.batches() for time in batch.times() if time]
        assert found == [expected[number] for number in range(2, 21)]
        batch = await stream.subscribe(since=5, until=7).recv_batch(PATIENCE)
        assert batch.times() == [None, None]
        assert batch[0].time is None
        reserved = client.stream("$streams").subscribe(since=0, until=1, times=True)
        assert [message.time async for message in reserved] == [None]


@both_faces
@in_loop
async def test_times_do_not_come_by_multicast(connect: Connect, tmp_path: Path) -> None:
    async with connected(tmp_path, connect=connect) as (_, client):
        with pytest.raises(ZepsError, match="choose times or multicast, not both"):
            client.stream("s").subscribe(times=True, multicast=True)
