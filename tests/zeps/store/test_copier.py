"""zambezi.zeps.store.copier: streams on the disk are copied behind the scenes, and made again from their copies."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.zeps.journal.streams import append, block, held
from tests.zeps.serving import serving
from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi.zeps.broker.depot import StoreOptions
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.positions import READER, Content, Position
from zambezi.zeps.sync import Client

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

from zambezi.zeps.store import copier as copier_module
from zambezi.zeps.store.catalog import check_format, find_stream
from zambezi.zeps.store.copier import PERIOD, Copier, restore_copies
from zambezi.zeps.store.copying import end_of
from zambezi.zeps.store.shell import ObjectStore

POLICY = Policy(sync="never", segment=500, batch=200)
PUBLISHER = b"p" * 16


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[ObjectStore]:
    store = ObjectStore(str(tmp_path / "store"))
    store.run(check_format(create=True))
    yield store
    store.close()


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "data", policy=POLICY) as store:
        yield store


def last_copied(remote: ObjectStore, name: str = "prices") -> int:
    stream = remote.run(find_stream(name))
    return end_of(remote, stream).last if stream is not None else 0


def test_a_copy_follows_its_stream(remote: ObjectStore, data: Store) -> None:
    journal = data.open("prices")
    append(journal, b"1", b"2")
    copier = Copier(remote, data.journals)
    assert copier.lag == 2
    copier.step(100.0)
    assert (last_copied(remote), journal.copied, copier.lag) == (2, 2, 0)
    append(journal, b"3")
    copier.step(100.0 + PERIOD / 2)
    assert (last_copied(remote), copier.lag) == (2, 1)  # few messages wait for others
    copier.step(100.0 + PERIOD)
    assert (last_copied(remote), copier.counters.messages) == (3, 3)
    append(journal, *[bytes(1 << 20)] * 9)
    copier.step(101.0 + PERIOD)
    assert last_copied(remote) == 12  # many messages do not wait


def test_only_messages_that_the_disk_has_are_copied(remote: ObjectStore, data: Store) -> None:
    journal = data.open("prices", Policy(sync="always"))
    append(journal, b"1")
    journal.sync()
    append(journal, b"2")
    Copier(remote, data.journals).step(100.0)
    assert last_copied(remote) == 1


def test_a_finished_copy_is_the_same_stream(remote: ObjectStore, data: Store, tmp_path: Path) -> None:
    journal = data.open("prices")
    for number in range(1, 30):
        journal.append(block(number, [b"%d" % number * 20]), float(number), [Count(PUBLISHER, 1, number)])
    copier = Copier(remote, data.journals)
    copier.step(100.0)
    append(journal, b"end", now=99.0)
    copier.finish(101.0)
    with Store(tmp_path / "other") as other:
        assert restore_copies(remote, other, lambda _: True) == ["prices"]
        assert restore_copies(remote, other, lambda _: True) == []
        restored = other.open("prices")
        assert (restored.incarnation, held(restored)) == (journal.incarnation, held(journal))
        assert (restored.first_time, restored.last_time) == (journal.first_time, journal.last_time)
        assert restored.counts.get(PUBLISHER) == Count(PUBLISHER, 1, 29)


def test_a_copy_that_may_lack_messages_becomes_another_incarnation(
    remote: ObjectStore, data: Store, tmp_path: Path
) -> None:
    journal = data.open("prices")
    append(journal, b"1", b"2")
    Copier(remote, data.journals).step(100.0)
    append(journal, b"lost")
    with Store(tmp_path / "other", policy=POLICY) as other:
        restore_copies(remote, other, lambda _: True)
        restored = other.open("prices")
        assert (restored.last, restored.incarnation != journal.incarnation) == (2, True)
        append(restored, b"3")
        copier = Copier(remote, other.journals)
        copier.step(200.0)
        assert (last_copied(remote), copier.problems) == (3, {})


def test_counts_are_not_ahead_of_the_messages(remote: ObjectStore, data: Store, tmp_path: Path) -> None:
    journal = data.open("prices", Policy(sync="always"))
    journal.append(block(1, [b"1"]), 1.0, [Count(PUBLISHER, 1, 1)])
    journal.sync()
    journal.append(block(2, [b"2"]), 1.0, [Count(PUBLISHER, 1, 2)])
    Copier(remote, data.journals).step(100.0)
    with Store(tmp_path / "other") as other:
        restore_copies(remote, other, lambda _: True)
        assert other.open("prices").counts.get(PUBLISHER) == Count(PUBLISHER, 1, 1)


def test_a_stream_that_is_deleted_is_not_made_again(remote: ObjectStore, data: Store, tmp_path: Path) -> None:
    for name in ("prices", "other"):
        append(data.open(name), b"1")
    copier = Copier(remote, data.journals)
    copier.step(100.0)
    data.delete("prices")
    copier.step(101.0)
    with Store(tmp_path / "new") as new:
        assert restore_copies(remote, new, lambda _: True) == ["other"]


def test_a_stream_that_was_truncated_is_copied_anew(remote: ObjectStore, data: Store) -> None:
    journal = data.open("prices")
    append(journal, b"1", b"2", b"3")
    copier = Copier(remote, data.journals)
    copier.step(100.0)
    journal.truncate(1)
    append(journal, b"other")
    copier.step(100.0 + PERIOD)
    stream = remote.run(find_stream("prices"))
    assert stream is not None
    assert (stream.place.generation, stream.incarnation) == (2, journal.incarnation)
    assert (last_copied(remote), copier.problems) == (2, {})


def test_a_compacted_stream_is_left_out(remote: ObjectStore, data: Store) -> None:
    append(data.open("prices", Policy(compact=True)), b"1")
    copier = Copier(remote, data.journals)
    copier.step(100.0)
    assert (last_copied(remote), copier.problems) == (0, {})


def test_a_store_that_fails_is_tried_again(remote: ObjectStore, data: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        append(data.open(name), b"1")
    copier = Copier(remote, data.journals)
    execute = ObjectStore._execute
    monkeypatch.setattr(copier_module, "PATIENCE", 0.0)
    monkeypatch.setattr(ObjectStore, "_execute", _fail)
    copier.step(100.0)
    assert (copier.counters.failures, list(copier.problems)) == (1, ["a"])  # the other one would only wait, too
    copier.finish(100.0)
    monkeypatch.setattr(ObjectStore, "_execute", execute)
    copier.step(101.0)
    assert (copier.problems, last_copied(remote, "a"), last_copied(remote, "b")) == ({}, 1, 1)


def _fail(_store: ObjectStore, _request: object) -> None:
    raise OSError("down")


def test_a_broker_copies_its_streams_and_makes_them_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    options = StoreOptions(url=str(tmp_path / "store"), copies="berlin", period=0.1)
    make = partial(BrokerService, policy=Policy(sync="always"), store=options, scrub=0)
    with serving(data, make) as (broker, endpoint), Client(endpoint) as client:
        stream = client.stream("prices")
        stream.publish("gold", b"1")
        stream.flush(PATIENCE)
        wait_until(lambda: journal_of(broker).copied == 1)
        (info,) = client.streams(timeout=PATIENCE)
        assert (info.sync, info.copied) == ("always", 1)
        stream.publish("gold", b"2")
        stream.flush(PATIENCE)
    shutil.rmtree(data)
    with serving(data, make) as (broker, endpoint), Client(endpoint) as client:
        found = [message.body for message in client.stream("prices").subscribe(since="earliest", until="now")]
        assert found == [b"1", b"2"]
        assert (str(journal_of(broker).incarnation), broker.problems) == (info.incarnation, [])


def journal_of(broker: BrokerService) -> Journal:
    stream = broker.engine.find("prices")
    assert stream is not None
    return stream.journal


def test_a_copy_has_the_positions_of_readers(remote: ObjectStore, data: Store, tmp_path: Path) -> None:
    journal = data.open("prices")
    append(journal, b"1", b"2")
    copier = Copier(remote, data.journals)
    journal.positions.write([Position(READER, "one", 1), Position(READER, "two", 2)])
    copier.step(100.0)
    journal.positions.write([Position(READER, "one", 2)])
    journal.positions.remove([(READER, "two")])
    copier.step(100.0 + PERIOD)
    copier.finish(200.0)
    with Store(tmp_path / "other", policy=POLICY) as other:
        assert restore_copies(remote, other, lambda _: True) == ["prices"]
        assert other.open("prices").positions.all(READER) == [Position(READER, "one", 2)]


def test_a_position_is_not_copied_before_its_message(remote: ObjectStore, data: Store) -> None:
    journal = data.open("prices", Policy(sync="always"))
    append(journal, b"1")
    journal.sync()
    append(journal, b"2")
    journal.positions.write([Position(READER, "one", 2)])
    Copier(remote, data.journals).step(100.0)
    stream = remote.run(find_stream("prices"))
    assert stream is not None
    end = end_of(remote, stream)
    assert (end.last, Content(end.positions).states[READER, "one"].position) == (1, 1)
