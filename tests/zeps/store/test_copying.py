"""zambezi.zeps.store.copying: what a copy keeps, and when it refuses."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from tests.zeps.journal.streams import append
from tests.zeps.store.test_shell import settle
from zambezi.zeps.errors import StoreError
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.store import copying
from zambezi.zeps.store.catalog import find_stream, list_streams
from zambezi.zeps.store.commands import Failed
from zambezi.zeps.store.copying import copy_stream, end_of, fill_journal, restore_stream
from zambezi.zeps.store.names import StreamPlace
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import State, StreamLog

SMALL = Policy(segment=300)


def test_counts_of_publishers_are_kept(tmp_path: Path, real_store: ObjectStore) -> None:
    count = Count(b"p" * 16, 3, 41)
    with Store(tmp_path / "data") as data:
        journal = data.open("prices")
        append(journal, b"one")
        journal.append_counts([count], 5.0)
        assert copy_stream(real_store, journal) == 1
    (stream,) = real_store.run(list_streams())
    with Store(tmp_path / "new") as data:
        assert restore_stream(real_store, stream, data) == 1
        assert data.open("prices").counts.get(count.publisher) == count


def test_an_idle_journal_that_a_broker_had_opened_is_filled(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path / "store"))
    with Store(tmp_path / "data") as data, Store(tmp_path / "cache") as cache:
        journal = data.open("prices")
        append(journal, b"1")
        copy_stream(store, journal)
        (stream,) = store.run(list_streams())
        restore_stream(store, stream, cache)
        append(journal, b"2")
        copy_stream(store, journal)
        cached = cache.open("prices")
        cached.may_block = False  # as brokers do
        reader = LogReader(stream.place)
        store.run(reader.refresh())
        fill_journal(store, stream, reader, cached)
        assert cached.last == 2


def test_a_stream_without_its_oldest_messages_keeps_its_sequences(tmp_path: Path, real_store: ObjectStore) -> None:
    with Store(tmp_path / "data", policy=SMALL) as data:
        journal = data.open("prices")
        for _ in range(10):
            append(journal, b"x" * 100)
        journal.trim(6)
        assert copy_stream(real_store, journal) == 5
        (stream,) = real_store.run(list_streams())
        with Store(tmp_path / "new") as new:
            assert restore_stream(real_store, stream, new) == 5
            assert (new.open("prices").first, new.open("prices").last) == (6, 10)
        for _ in range(10):
            append(journal, b"x" * 100)
        journal.trim(15)
        with pytest.raises(StoreError, match="the messages between them are lost"):
            copy_stream(real_store, journal)


def test_a_copy_goes_on_and_refuses_another_incarnation(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path / "store"))
    with Store(tmp_path / "data") as data:
        journal = data.open("prices")
        append(journal, b"1")
        assert copy_stream(store, journal) == 1
        append(journal, b"2")
        append(journal, b"3")
        assert copy_stream(store, journal) == 2
        journal.truncate(1)
        with pytest.raises(StoreError, match="use another prefix"):
            copy_stream(store, journal)


def test_a_stream_that_a_broker_owns_is_not_taken(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path / "store"))
    with Store(tmp_path / "data") as data:
        journal = data.open("prices")
        append(journal, b"1")
        copy_stream(store, journal)
        stream = store.run(find_stream("prices"))
        assert stream is not None
        log = StreamLog(stream.place, uuid4().bytes, stream.incarnation.bytes)
        log.take(0.0)
        settle(store, log)
        assert log.state is State.OWNER
        append(journal, b"2")
        with pytest.raises(StoreError, match="belongs to broker"):
            copy_stream(store, journal)
        assert end_of(store, stream).last == 1


def test_a_store_that_does_not_answer_ends_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(str(tmp_path / "store"))
    log = StreamLog(StreamPlace.of("prices"), uuid4().bytes, uuid4().bytes)
    log.take(0.0)
    monkeypatch.setattr(store, "execute", lambda request: Failed("down"))
    with pytest.raises(StoreError, match="does not answer: down"):
        copying.settle(store, log, patience=-1.0)


def test_an_empty_stream_and_a_deleted_one(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path / "store"))
    with Store(tmp_path / "data") as data, Store(tmp_path / "new") as new:
        assert copy_stream(store, data.open("prices")) == 0
        (stream,) = store.run(list_streams())
        assert restore_stream(store, stream, new) == 0
        assert new.open("prices").incarnation == data.open("prices").incarnation
        log = StreamLog(stream.place, uuid4().bytes, stream.incarnation.bytes)
        log.take(0.0)
        settle(store, log)
        log.delete()
        settle(store, log)
        with pytest.raises(StoreError, match="deleted"):
            restore_stream(store, stream, new)
