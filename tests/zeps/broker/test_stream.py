"""zambezi.zeps.broker.stream: blocks, barriers, a disk that is full, and one that fails."""

import errno
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zeps.stage import PLENTY, Client, Stage, never_wait_for_the_disk
from zambezi.zeps.block import Block
from zambezi.zeps.broker import stream as streams
from zambezi.zeps.broker.stream import NEVER, where_to_start
from zambezi.zeps.errors import JournalError, JournalFull, OutOfRange
from zambezi.zeps.journal import Journal, Policy
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.segment import Files
from zambezi.zeps.matchers import KeyTest
from zambezi.zeps.messages import LATEST, TIME, Detach, DetachOk, Ping, Publish, Subscribe
from zambezi.zmtp.source import Framed


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as made:
        yield made


class Disk:
    """A disk that is full when the test says so."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.appends: list[int] = []
        append = Journal.append

        def perhaps(journal: Journal, block: Block, now: float, counts: Sequence[Count] = ()) -> None:
            if self.full:
                raise JournalFull("no room")
            append(journal, block, now, counts)
            self.appends.append(block.count)

        patch.setattr(Journal, "append", perhaps)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def frame(key: str = "k", body: bytes = b"") -> bytes:
    return Publish(key, body).encode()[0]


def test_an_idle_stream_is_small(stage: Stage) -> None:
    """A broker can have ten thousand streams: the page about operations has the memory of each."""
    stage.client("prices")
    stream = stage.stream("prices")
    assert not hasattr(stream, "__dict__")
    assert not hasattr(stream.journal, "__dict__")


# Blocks


def test_after_a_quiet_moment_a_message_does_not_wait(stage: Stage, disk: Disk) -> None:
    client = stage.client("prices")
    stage.stream("prices").journal.wake()
    client.session.receive([frame()])
    assert disk.appends == [1]
    for _ in range(5):
        client.session.receive([frame(), frame()])
    assert disk.appends == [1]  # the next messages wait for their neighbours
    stage.run()
    assert disk.appends == [1, 10]
    stage.now += 1
    client.session.receive([frame()])
    assert disk.appends == [1, 10, 1]


def test_the_latency_of_each_message_is_counted_once_for_each_block(stage: Stage, disk: Disk) -> None:
    client = stage.client("prices")
    stage.stream("prices").journal.wake()
    client.session.receive([frame()])
    client.session.receive([frame()])
    stage.now += 0.2
    client.session.receive([frame()])
    stage.run()
    latency = stage.engine.latency
    assert latency.count == 3
    assert latency.seconds == pytest.approx(0.4)  # the second and the third message count as long as the second waited
    disk.full = True
    stage.now += 1
    client.session.receive([frame()])
    stage.now += 4
    disk.full = False
    stage.stream("prices").retry()
    assert latency.count == 4
    assert latency.seconds == pytest.approx(4.4)


def test_pending_messages_are_bounded(stage: Stage, disk: Disk) -> None:
    client = stage.client("prices")
    stage.stream("prices").journal.wake()
    client.session.receive([frame()])
    for _ in range(20):
        client.session.receive([frame("k", b"x" * 100_000)])
    assert disk.appends == [1, 11]
    stage.run()
    assert disk.appends == [1, 11, 9]


@pytest.mark.spec("ZEP-09")
def test_nothing_is_delivered_that_is_not_in_the_journal(stage: Stage, disk: Disk) -> None:
    client = stage.client("prices", credit=PLENTY)
    client.subscribe()
    disk.full = True
    client.publish("a")
    assert client.sequences == []
    disk.full = False
    stage.tick()
    client.read()
    assert client.sequences == [1]
    assert stage.stream("prices").journal.last == 1


def test_messages_of_many_publishers_share_a_block(stage: Stage, disk: Disk) -> None:
    clients = [stage.client("prices") for _ in range(5)]
    clients[0].publish("k")
    for number, client in enumerate(clients):
        client.session.receive([frame(str(number)), frame(str(number))])
    stage.run()
    assert disk.appends == [1, 10]


# A disk that is full


@pytest.mark.spec("ZEP-04", "ZEP-15")
def test_a_full_disk_holds_publishers_back_and_loses_nothing(stage: Stage, disk: Disk) -> None:
    one, other = stage.client("prices"), stage.client("prices")
    watcher = stage.client("prices", credit=PLENTY)
    watcher.subscribe()
    disk.full = True
    for number in range(10):
        one.publish(f"a{number}")
        other.publish(f"b{number}")
    one.ping()
    stage.tick()
    stage.tick()
    assert stage.stream("prices").held == "no room"
    assert stage.stream("prices").journal.last == 0
    assert stage.stream("prices").pending_bytes == len(frame("a0")) + len(frame("b0"))  # the rest was not read
    assert one.confirmed == 0
    assert watcher.said == ["AttachOk", "SubscribeOk"]
    disk.full = False
    stage.tick()
    watcher.read()
    one.read()
    assert [key for key in watcher.keys if key[0] == "a"] == [f"a{number}" for number in range(10)]
    assert [key for key in watcher.keys if key[0] == "b"] == [f"b{number}" for number in range(10)]
    assert watcher.sequences == list(range(1, 21))
    assert one.confirmed == 1
    assert stage.stream("prices").held == ""
    one.publish("more")
    assert watcher.read() != []


@pytest.mark.spec("ZEP-06")
@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_a_barrier_waits_for_room(tmp_path: Path, disk: Disk, sync: str) -> None:
    with Stage(tmp_path, policy=Policy(sync=sync)) as stage:  # type: ignore[arg-type]
        client = stage.client("prices")
        disk.full = True
        client.send(Publish("a", b""), Ping(), Publish("b", b""), Ping())
        client.ping()
        stage.write_back()
        stage.tick()
        client.read()
        assert client.confirmed == 0
        disk.full = False
        stage.tick()
        client.read()
        if sync == "always":
            assert client.confirmed == 0
            stage.write_back()
            client.read()
        assert client.confirmed == 3
        assert stage.stream("prices").journal.last == 2


def test_while_the_disk_syncs_publishers_that_wait_are_appended_together(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="always")) as stage:
        clients = [stage.client("prices") for _ in range(5)]
        clients[0].send(Publish("first", b""), Ping())
        for client in clients[1:]:  # all in one turn of the loop
            client.session.receive([Publish("k", b"").encode()[0], Ping().encode()[0]])
        stage.run()
        journal = stage.stream("prices").journal
        assert [entry.count for entry in journal.entries()] == [1, 4]
        stage.write_back()
        for client in clients:
            client.read()
        assert [client.confirmed for client in clients] == [1] * 5
        assert journal.synced == 5


@pytest.mark.parametrize("sync", ["always", "never"])
def test_a_flood_of_barriers_costs_little(tmp_path: Path, disk: Disk, sync: str) -> None:
    with Stage(tmp_path, policy=Policy(sync=sync)) as stage:  # type: ignore[arg-type]
        one, other = stage.client("prices"), stage.client("prices")
        tried: list[int] = []
        append = Journal.append

        def noted(journal: Journal, block: Block, now: float, counts: Sequence[Count] = ()) -> None:
            tried.append(block.count)
            append(journal, block, now, counts)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Journal, "append", noted)
            disk.full = True
            one.publish("a")
            for _ in range(10):
                other.send(*[Ping()] * 5000)
            assert tried == [1]  # a client cannot cause further attempts
            stream = stage.stream("prices")
            assert stream._barriers == {NEVER: {other.session: 1000}}  # the rest waits in the connection
            disk.full = False
            stage.tick()
            stage.write_back()
            other.read()
            assert other.confirmed == 50_000
            assert not stream._barriers


def test_the_disk_is_full_again_while_pending_messages_are_handed_out(stage: Stage, disk: Disk) -> None:
    clients = [stage.client("prices") for _ in range(3)]
    disk.full = True
    for number, client in enumerate(clients):
        client.publish_many([f"{number}"] * 3)
        client.publish_many([f"{number}"] * 3)
        client.ping()
    append = Journal.append

    def once(journal: Journal, block: Block, now: float, counts: Sequence[Count] = ()) -> None:
        append(journal, block, now, counts)
        disk.full = True

    disk.full = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "append", once)
        stage.tick()
    assert stage.stream("prices").journal.last == 9
    assert stage.stream("prices").held
    disk.full = False
    stage.tick()
    for client in clients:
        client.read()
        assert client.confirmed == 1
    assert stage.stream("prices").journal.last == 18


def test_a_subscriber_reads_on_while_the_disk_is_full(stage: Stage, disk: Disk) -> None:
    publisher = stage.client("prices")
    publisher.publish_many(["a"] * 5)
    disk.full = True
    publisher.publish("b")
    client = stage.client("prices", credit=PLENTY)
    client.subscribe()
    assert client.sequences == [1, 2, 3, 4, 5]
    disk.full = False
    stage.tick()
    client.read()
    assert client.sequences == [1, 2, 3, 4, 5, 6]


def test_messages_of_a_publisher_that_left_wait_for_room_too(stage: Stage, disk: Disk) -> None:
    client = stage.client("prices")
    disk.full = True
    client.publish("a")
    client.publish("b")
    client.publish("c")
    client.close()
    assert not stage.engine.sessions
    disk.full = False
    stage.tick()
    assert stage.stream("prices").journal.last == 3


def test_messages_that_wait_for_room_are_bounded_for_any_number_of_publishers(
    stage: Stage, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "WAITING", 100_000)
    disk.full = True
    for _ in range(100):
        client = stage.client("prices")
        client.publish("k", b"x" * 5000)
        client.publish("k", b"x" * 5000)
        client.close()
    stream = stage.stream("prices")
    assert stream.pending_bytes < 110_000
    assert stage.engine.counters.dismissed > 80
    client = stage.client("prices")
    client.send(Publish("k", b""), Ping())
    assert client.said == ["AttachOk", "Detach"]  # so it connects again later
    disk.full = False
    stage.tick()
    client.read()
    assert stream.journal.last == 20
    client.send(DetachOk())
    assert client.parted


def test_a_publisher_may_leave_while_the_disk_is_full(stage: Stage, disk: Disk) -> None:
    client = stage.client("prices")
    disk.full = True
    client.send(Publish("a", b""), Ping(), Detach())
    assert client.said == ["AttachOk", "DetachOk"]
    disk.full = False
    stage.tick()
    client.read()
    assert stage.stream("prices").journal.last == 1
    assert client.said == ["AttachOk", "DetachOk"]
    assert not stage.engine.sessions


def test_a_real_disk_without_room(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    client = stage.client("prices", credit=PLENTY)
    client.subscribe()
    client.publish("a")
    write = os.pwrite
    room = [0]

    def bounded(descriptor: int, octets: bytes, offset: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(room[0], len(octets))
        room[0] -= taken
        return write(descriptor, octets[:taken], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", bounded)
        client.send(Publish("b", b"x" * 1000), Ping())
        for some in (1, 100, 1010, 1024 + 20):  # a part of the log; the log and a part of the index
            room[0] = some
            stage.tick()
            assert stage.stream("prices").journal.last == 1
        assert client.read() == []
    stage.tick()
    client.read()
    assert client.sequences == [1, 2]
    assert client.confirmed == 1
    assert not stage.stream("prices").journal.failed


# A disk that fails


def fail_sync(patch: pytest.MonkeyPatch) -> None:
    def broken(files: Files, *_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    patch.setattr(Files, "sync", broken)


@pytest.mark.spec("ZEP-06")
def test_a_failed_sync_stops_the_stream_and_nothing_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stage(tmp_path, policy=Policy(sync="always")) as stage:
        client, other = stage.client("prices"), stage.client("prices")
        reader = stage.client("prices", credit=PLENTY)
        reader.subscribe()
        healthy = stage.client("others")
        client.send(Publish("a", b""), Ping())
        with monkeypatch.context() as patch:
            fail_sync(patch)
            stage.write_back()
        client.read()
        assert client.said == ["AttachOk", "Invalid", "Detach"]
        assert "stopped" in client.reasons[0]
        # A later sync would succeed, but prove nothing.
        stage.write_back()
        other.send(Publish("b", b""), Ping())
        assert other.said == ["AttachOk", "Invalid", "Detach", "Invalid"]
        assert other.confirmed == client.confirmed == 0
        reader.read()
        assert reader.sequences == [1]
        late = stage.client("prices", credit=PLENTY)
        late.subscribe()
        assert late.sequences == [1]
        healthy.send(Publish("c", b""), Ping())
        stage.write_back()
        healthy.read()
        assert healthy.confirmed == 1
        # The refused clients can detach.
        client.send(DetachOk())
        other.send(DetachOk())
        assert client.parted
        assert other.parted
        assert {session.stream_name for session in stage.engine.sessions} == {"prices", "others"}
        stage.tick()


@pytest.mark.spec("ZEP-06")
def test_a_stream_that_stops_while_publishers_are_held_back(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stage(tmp_path, policy=Policy(sync="interval")) as stage:
        client = stage.client("prices")
        client.publish("a")
        disk.full = True
        client.publish("b")
        client.send(Publish("c", b""), Ping())
        with monkeypatch.context() as patch:
            fail_sync(patch)
            stage.tick()
            stage.write_back()
        client.read()
        assert client.said[:3] == ["AttachOk", "Invalid", "Detach"]
        client.send(DetachOk())
        assert client.parted
        assert not stage.engine.sessions
        disk.full = False
        stage.tick()
        assert stage.stream("prices").journal.last == 1


def test_messages_for_a_stopped_stream_are_not_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    client = stage.client("prices")
    client.publish("a")
    client.close()
    with monkeypatch.context() as patch:
        fail_sync(patch)
        with pytest.raises(JournalError):
            stage.stream("prices").journal.sync()
    for _ in range(3):
        client = stage.client("prices")
        client.publish_many(["b"] * 100, b"x" * 1000)
        client.close()
    assert stage.stream("prices").pending_bytes == 0
    assert not stage.engine.sessions


# Where to start


def test_where_subscriptions_start(stage: Stage) -> None:
    client = stage.client("prices")
    journal = stage.stream("prices").journal
    assert where_to_start(journal, 0) == (0, 0)
    assert where_to_start(journal, LATEST) == (0, 0)
    assert where_to_start(journal, TIME) == (0, 0)
    assert where_to_start(journal, TIME | 5) == (NEVER, 5000)
    client.publish_many(["k"] * 5)
    assert where_to_start(journal, 0) == (0, 0)
    assert where_to_start(journal, 3) == (3, 0)
    assert where_to_start(journal, 5) == (5, 0)
    assert where_to_start(journal, LATEST) == (5, 0)
    with pytest.raises(OutOfRange, match="last sequence of this stream is 5"):
        where_to_start(journal, 6)
    at = int(stage.now * 1000)
    assert where_to_start(journal, TIME | at) == (0, 0)
    assert where_to_start(journal, TIME | (at + 1)) == (NEVER, (at + 1) * 1000)


# Groups


def test_subscribers_with_the_same_patterns_share_the_selected_messages(stage: Stage) -> None:
    clients = [stage.client("prices", credit=PLENTY) for _ in range(4)]
    taken: list[Framed] = []

    def spy(client: Client) -> None:
        connection = client.connection
        offer = connection.offer

        def noted(messages: Framed) -> bool:
            taken.append(messages)
            return offer(messages)

        connection.offer = noted

    for client in clients:
        spy(client)
    for client in clients[:2]:
        client.send(Subscribe("a", 0), Subscribe("b", 0))
    for client in clients[2:]:
        client.send(Subscribe("b", 0), Subscribe("a", 0))
    stage.client("prices").publish_many(["a", "b", "c"])
    assert len(taken) == 4
    assert len({id(block) for block in taken}) == 1
    assert isinstance(taken[0], Block)
    assert taken[0].keys == [b"a", b"b"]


def test_everything_is_handed_out_as_it_is(stage: Stage) -> None:
    every = [stage.client("prices", credit=PLENTY) for _ in range(3)]
    every[0].subscribe("")
    every[1].subscribe("prefix:")
    every[2].send(Subscribe("", 0), Subscribe("a", 0))
    some = stage.client("prices", credit=PLENTY)
    some.subscribe("a")
    publisher = stage.client("prices")
    publisher.publish_many(["a", "b"])
    for client in every:
        client.read()
        assert client.sequences == [1, 2]
    every[0].close()
    publisher.publish_many(["a", "b"])
    for client in every[1:]:
        client.read()
        assert client.sequences == [1, 2, 3, 4]
        client.close()
    publisher.publish_many(["a", "b"])
    assert [message.sequence for message in some.read()] == [1, 3, 5]  # type: ignore[attr-defined]
    again = stage.client("prices", credit=PLENTY)
    again.follow()
    publisher.publish("b")
    again.read()
    assert again.sequences == [7]


def test_a_block_is_looked_through_once_for_all_patterns(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def spy(rest: bytes) -> KeyTest:
        def test(key: bytes) -> bool:
            asked.append(key)
            return True

        return test

    stage.engine.matchers.register("spy", spy)
    clients = [stage.client("prices", credit=PLENTY) for _ in range(10)]
    for client in clients:
        client.follow("spy:x")
    publisher = stage.client("prices")
    publisher.publish_many(["k"] * 50)
    publisher.publish_many(["k"] * 50)
    assert asked == [b"k"]
    for client in clients:
        client.read()
        assert len(client.sequences) == 100


def test_appending_in_the_process_itself(stage: Stage, disk: Disk) -> None:
    client = stage.client("prices", credit=PLENTY)
    client.subscribe()
    stream = stage.stream("prices")
    assert stream.append([frame("a"), frame("b")]) == 2
    client.session.receive([frame("c")])
    client.session.receive([frame("d")])
    assert stream.append([frame("e")]) == 5
    client.read()
    assert client.keys == ["a", "b", "c", "d", "e"]
    disk.full = True
    with pytest.raises(JournalFull):
        stream.append([frame("f")])
    client.publish("g")
    with pytest.raises(JournalFull):
        stream.append([frame("h")])
    disk.full = False
    stage.tick()
    assert stream.append([frame("i")]) == 7
    client.read()
    assert client.keys[5:] == ["g", "i"]


@pytest.mark.spec("ZEP-06")
@settings(max_examples=cases(20))
@given(st.data())
def test_a_barrier_is_never_answered_too_early_and_always_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    sync = data.draw(st.sampled_from(["always", "interval", "never"]))
    with pytest.MonkeyPatch.context() as patch:
        never_wait_for_the_disk(patch)
        disk = Disk(patch)
        stage = Stage(tmp_path_factory.mktemp("barrier"), policy=Policy(sync=sync))  # type: ignore[arg-type]
        clients = [stage.client("s") for _ in range(3)]
        stream = stage.stream("s")
        published = [0] * 3
        asked: list[list[int]] = [[], [], []]  # the messages that each client had published before each PING

        def check() -> None:
            safe = stream.journal.synced if sync == "always" else stream.journal.last
            span = stream.journal.reader(0).peek(1 << 30)
            keys = span.read().keys[:safe] if span is not None else []
            for number, client in enumerate(clients):
                client.read()
                journalled = keys.count(b"%d" % number)
                assert all(before <= journalled for before in asked[number][: client.confirmed])

        for step in data.draw(
            st.lists(st.sampled_from(["publish", "publish", "ping", "full", "tick", "disk"]), max_size=40)
        ):
            number = data.draw(st.integers(0, 2))
            if step == "publish":
                count = data.draw(st.integers(1, 4))
                published[number] += count
                clients[number].publish_many([str(number)] * count)
            elif step == "ping":
                asked[number].append(published[number])
                clients[number].ping()
            elif step == "full":
                disk.full = not disk.full
            elif step == "tick":
                stage.tick()
            else:
                stage.write_back()
            check()
        disk.full = False
        for _ in range(2):
            stage.tick()
            stage.write_back()
        check()
        assert [client.confirmed for client in clients] == [len(pings) for pings in asked]
        assert stream.journal.last == sum(published)
        assert not stream._barriers
        stage.close()


@pytest.mark.spec("ZEP-10")
@pytest.mark.parametrize("pattern", ["", "glob:*"])
def test_messages_of_a_connection_that_is_found_broken_do_not_overtake_those_that_are_handed_out(
    stage: Stage, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, other = stage.client("prices", credit=PLENTY), stage.client("prices", credit=PLENTY)
    for client in (lost, other):
        client.follow(pattern)
    publisher = stage.client("prices")
    publisher.publish("first")
    moments = itertools.count(stage.now + 1)  # time passes while the block is handed out
    monkeypatch.setattr(stage.stream("prices"), "clock", lambda: float(next(moments)))
    lost.pause()
    lost.session._deferred = [Publish("late", b"").encode()[0]]
    lost.broken = True
    publisher.publish("second")
    stage.run()
    other.read()
    assert list(zip(other.sequences, other.keys, strict=True)) == [(1, "first"), (2, "second"), (3, "late")]
