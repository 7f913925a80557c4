"""zambezi.zeps.store.removing: brokers delete and truncate streams of a store."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.zeps.store.shelf import piece
from zambezi.zeps.errors import StoreError

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

from zambezi.zeps.store.catalog import find_stream, make_stream
from zambezi.zeps.store.copying import settle, take_log
from zambezi.zeps.store.removing import delete_stream, truncate_stream
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings, StreamLog
from zambezi.zeps.store.view import look

OWNER = b"o" * 16
QUICK = LogSettings(commit=0.0)


def filled(store: ObjectStore) -> StreamLog:
    stream = store.run(make_stream("prices", uuid4(), {}))
    log = StreamLog(stream.place, OWNER, stream.incarnation.bytes, QUICK)
    take_log(store, log)
    log.append(piece(1, b"1", b"2", b"3"))
    settle(store, log)
    return log


@pytest.mark.parametrize("is_putting", [False, True])
def test_a_stream_is_deleted(tmp_path: Path, is_putting: bool) -> None:
    store = ObjectStore(str(tmp_path))
    log = filled(store)
    log._is_putting = is_putting  # its answer never comes
    delete_stream(store, log, OWNER)
    assert store.run(find_stream("prices")) is None


def test_a_stream_of_another_broker_is_not_deleted(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    log = filled(store)
    take_log(store, StreamLog(log.place, b"2" * 16, log.incarnation, QUICK))
    with pytest.raises(StoreError, match="it is deposed in the store"):
        delete_stream(store, log, OWNER)


def test_a_stream_is_truncated_and_the_old_messages_are_removed(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    old = filled(store).place
    made = truncate_stream(store, "prices", OWNER, 1)
    assert store.run(find_stream("prices")) == made
    assert all(chunk.is_fence for chunk in store.run(look(old)).chunks)
    assert truncate_stream(store, "prices", OWNER, 1) == made
    with pytest.raises(StoreError, match="was deleted"):
        truncate_stream(store, "silver", OWNER, 1)
