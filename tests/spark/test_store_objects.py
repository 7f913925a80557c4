"""zambezi.spark.store_objects: which bytes of a store a task reads, and what it does when objects are gone."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

from tests.spark.backends import read_sequences
from tests.spark.journal import BEGINNING
from tests.spark.test_store_backend import fill, whole_stream
from zambezi.spark import store_backend, store_objects
from zambezi.spark.backend import Request, SequenceRange
from zambezi.spark.errors import DamagedLog, DataLoss
from zambezi.spark.store_backend import StoreBackend
from zambezi.spark.store_objects import is_read_as_a_whole
from zambezi.zeps.store.commands import Get, Put
from zambezi.zeps.store.commands import Request as Command
from zambezi.zeps.store.reader import Part
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings


def part(size: int, first: int = 1, last: int = 100) -> Part:
    return Part("key", size, first, last, size, 0, 0, is_segment=True)


@pytest.mark.parametrize(
    ("size", "after", "last", "is_whole"),
    [
        (1000, 99, 100, True),  # a small object costs as much as a part of it
        (8 << 20, 0, 100, True),
        (8 << 20, 0, 51, True),
        (8 << 20, 0, 49, False),
        (8 << 20, 60, 200, False),
        (64 << 20, 0, 100, False),
    ],
)
def test_objects_are_read_as_a_whole_if_most_of_them_is_wanted(
    size: int, after: int, last: int, is_whole: bool
) -> None:
    assert is_read_as_a_whole(part(size), after, last) is is_whole


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with the stream `s`: 95 messages in chunks, ten to a batch."""
    path = str(tmp_path / "store")
    fill(path, tmp_path / "data", 95, LogSettings(commit=0.0, chunk=600, chunks=1000))
    return path


def test_a_small_object_is_one_request(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = StoreBackend(url, {})
    wanted = whole_stream(backend)
    chunks = [path for path in Path(url).glob("streams/s/*/chunks/*") if path.stat().st_size > 200]
    assert len(chunks) > 3
    read_sequences(backend, wanted)  # the footers of the tail are known now
    asked: list[str] = []
    execute = ObjectStore.execute

    def noted(store: ObjectStore, command: Command) -> object:
        if isinstance(command, Get):
            asked.append(command.key)
        return execute(store, command)

    monkeypatch.setattr(ObjectStore, "execute", noted)
    assert read_sequences(backend, wanted) == list(range(1, 96))
    assert len(asked) == len(chunks)


@pytest.mark.parametrize("verify", [False, True])
def test_large_objects_are_read_in_ranges(url: str, verify: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_objects, "WHOLE_SIZE", 1)
    monkeypatch.setattr(store_objects, "GET_SIZE", 100)
    monkeypatch.setattr(store_objects, "READ_SIZE", 50)
    backend = StoreBackend(url, {}, verify=verify)
    assert read_sequences(backend, whole_stream(backend)) == list(range(1, 96))


def test_the_rest_of_an_object_that_was_merged_is_read_from_where_it_is_now(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_backend, "_AHEAD", 1)
    backend = StoreBackend(url, {})
    reading = backend.read([whole_stream(backend)], Request())
    first = next(reading)
    assert not isinstance(first[1], DataLoss)
    merge(url, tmp_path)
    assert not list(Path(url).glob("streams/s/*/chunks/*03"))
    found = [one for _, one in [first, *reading] if not isinstance(one, DataLoss)]
    times = [time for one in found for time in one.batches.times]
    assert times == [(BEGINNING + number) * 10**6 for number in range(10)]


def merge(url: str, tmp_path: Path) -> None:
    """Merge all chunks to segments, with a message more."""
    fill(url, tmp_path / "data", 1, LogSettings(commit=0.0, chunk=600, chunks=1, segment=2000))


@pytest.mark.parametrize("bare", [False, True])
def test_an_object_that_is_listed_and_cannot_be_read_ends_the_task(
    url: str, bare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = StoreBackend(url, {})
    state = backend.streams(["s"])["s"]
    largest = max(Path(url).glob("streams/s/*/chunks/*"), key=lambda path: path.stat().st_size)
    execute = ObjectStore.execute

    def damaged(store: ObjectStore, command: Command) -> object:
        answer = execute(store, command)
        assert not isinstance(command, Put)
        if isinstance(command, Get) and command.key.endswith(largest.name) and isinstance(answer, (bytes, memoryview)):
            return bytes(len(answer))
        return answer

    monkeypatch.setattr(ObjectStore, "execute", damaged)
    with pytest.raises(DamagedLog, match="`zambezi store verify` says more"):
        list(StoreBackend(url, {}).read([SequenceRange("s", state.incarnation, 0, state.last)], Request(bare=bare)))
