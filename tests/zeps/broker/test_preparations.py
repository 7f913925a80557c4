"""zambezi.zeps.broker.preparations: the ends of logs that a broker will perhaps take, and their caches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

from zambezi.zeps.block import deliver
from zambezi.zeps.broker import preparations
from zambezi.zeps.broker.depot import Depot, StoreOptions
from zambezi.zeps.journal import Policy
from zambezi.zeps.journal.identity import is_cached
from zambezi.zeps.messages import Publish
from zambezi.zeps.store.catalog import StoredStream, find_stream
from zambezi.zeps.store.chunk import piece_of
from zambezi.zeps.store.copying import settle

STORED = Policy(sync="store")


@contextmanager
def depot(tmp_path: Path, name: str) -> Iterator[Depot]:
    options = StoreOptions(url=str(tmp_path / "store"))
    opened = Depot(tmp_path / name, options, policy=STORED, policies={}, own=())
    try:
        yield opened
    finally:
        opened.close()


def fill(one: Depot) -> StoredStream:
    """Make a stream with a message, at a broker that then is silent."""
    one.open("prices")
    log = one.log_of("prices")
    assert log is not None
    log.append(piece_of(deliver([Publish("key", b"1").encode()[0]], 1), 1_000_000, 1 << 20, []))
    settle(one.remote, log)
    found = one.remote.run(find_stream("prices"))
    assert found is not None
    return found


@pytest.fixture
def heir(tmp_path: Path) -> Iterator[Depot]:
    """Yield a broker that has no streams."""
    with depot(tmp_path, "heir") as one:
        yield one


def test_a_prepared_stream_is_taken_with_its_cache(
    tmp_path: Path, heir: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    with depot(tmp_path, "silent") as silent:
        stream = fill(silent)
        heir.preparations.expect(["prices"])
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", synced.append)
        heir.preparations.prepare("prices", None)
        assert not synced  # a cache needs no sync
        assert heir.preparations.stream_of("prices") == stream
        monkeypatch.undo()
        cache = next(path for path in (tmp_path / "heir").iterdir() if path.is_dir())
        assert is_cached(cache)
        heir.take(stream, silent.id)
        assert heir.open("prices").last == 1
        assert heir.preparations.stream_of("prices") is None


def test_a_stream_that_is_not_expected_is_not_prepared(tmp_path: Path, heir: Depot) -> None:
    with depot(tmp_path, "silent") as silent:
        fill(silent)
        heir.preparations.prepare("prices", None)
        assert heir.preparations.stream_of("prices") is None


def test_what_was_prepared_is_forgotten_if_the_stream_is_not_taken(tmp_path: Path, heir: Depot) -> None:
    with depot(tmp_path, "silent") as silent:
        stream = fill(silent)
        heir.preparations.expect(["prices"])
        heir.preparations.prepare("prices", stream)
        heir.preparations.stop(keep=["prices"])
        assert heir.preparations.stream_of("prices") == stream
        heir.preparations.stop(keep=[])
        assert heir.preparations.stream_of("prices") is None
        assert not heir.preparations.expects("prices")


def test_memory_is_bounded(tmp_path: Path, heir: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparations, "MOST", -1)
    with depot(tmp_path, "silent") as silent:
        fill(silent)
        heir.preparations.expect(["prices"])
        heir.preparations.prepare("prices", None)
        assert heir.preparations.stream_of("prices") is None


def test_a_stream_that_does_not_exist_is_not_prepared(heir: Depot) -> None:
    heir.preparations.expect(["prices"])
    heir.preparations.prepare("prices", None)
    assert heir.preparations.stream_of("prices") is None
