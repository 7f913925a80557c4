"""zambezi.zeps.store.shell: a directory and `weed` do what the engines need of a store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.zeps.store.shelf import PLACE, piece
from tests.zeps.store.simulation import messages_of
from zambezi.zeps.errors import StoreError, StoreFull
from zambezi.zeps.store import shell
from zambezi.zeps.store.catalog import check_format
from zambezi.zeps.store.chunk import UNCHANGED
from zambezi.zeps.store.commands import (
    DONE,
    EXISTS,
    MISSING,
    Answer,
    Delete,
    Failed,
    Get,
    List,
    Names,
    Procedure,
    Put,
    Request,
    ask_all,
    put,
)
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import LogSettings, State, StreamLog
from zambezi.zeps.store.takeover import take_over


def test_a_store_does_what_the_engines_need(real_store: ObjectStore) -> None:
    execute = real_store.execute
    assert execute(Put("a/1", b"one")) is DONE
    assert execute(Put("a/1", b"two")) is EXISTS
    assert execute(Get("a/1")) == b"one"
    assert execute(Put("a/1", b"three", create=False)) is DONE
    assert execute(Get("a/1", 2, 2)) == b"re"
    assert execute(Get("a/1", 3, 100)) == b"ee"
    assert execute(Get("a/1", 100, 5)) == b""  # a shorter object stands there now
    assert execute(Get("a/1", 2, 0)) == b""
    assert execute(Get("a/2")) is MISSING
    assert execute(Get("a/2", 5, 5)) is MISSING
    assert execute(Put("a/b/1", b"")) is DONE
    assert execute(Put("ab/1", b"")) is DONE
    found = execute(List("a"))
    assert [(one.key, one.size) for one in found] == [("a/1", 5), ("a/b/1", 0)]
    assert execute(List("nothing")) == []
    assert sorted(execute(Names("a"))) == ["b"]
    assert execute(Delete(("a/1", "a/9"))) is DONE
    assert execute(Delete(("a/9",))) is DONE
    assert execute(Get("a/1")) is MISSING
    assert real_store.run(ask_all([Get(f"ab/{number}") for number in range(3)])) == [MISSING, b"", MISSING]


def test_one_of_many_that_put_the_same_key_succeeds(real_store: ObjectStore) -> None:
    results: list[object] = []
    failed: list[object] = []  # puts of a store that is too busy to answer: the key may be there, so they are repeated

    def put(number: int) -> None:
        for _ in range(10):
            result = real_store.execute(Put("key", b"%d" % number))
            if not isinstance(result, Failed):
                results.append(result)
                return
            failed.append(result)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    done = results.count(DONE)
    assert done == 1 or (failed and not done)
    assert results.count(EXISTS) == 8 - done


def test_two_brokers_take_a_stream_from_each_other(real_store: ObjectStore) -> None:
    settings = LogSettings(commit=0.0, chunks=3)
    logs = [StreamLog(PLACE, bytes([number]) * 16, b"I" * 16, settings) for number in (1, 2)]
    for turn in range(6):
        log = logs[turn % 2]
        log.take(0.0)
        settle(real_store, log)
        assert log.last == turn * 2
        log.append(piece(log.last + 1, b"%d" % (log.last + 1)))
        settle(real_store, log)
        log.append(piece(log.last + 1, b"%d" % (log.last + 1)))
        settle(real_store, log)
        other = logs[(turn + 1) % 2]
        if other.is_owner:
            other.append(piece(other.last + 1, b"0"))
            settle(real_store, other)
            assert other.state is State.DEPOSED
    found = real_store.run(read_all())
    assert [number for _, (_, number) in found] == list(range(1, 13))
    assert real_store.run(take_over(PLACE, b"x" * 16, UNCHANGED)).last == 12


def settle(store: ObjectStore, log: StreamLog) -> None:
    """Run an engine until it has nothing to do."""
    now = 0.0
    while tickets := log.requests(now):
        for number, request in tickets:
            log.answer(number, store.execute(request), now)
        now = max(now, log.next_time or 0.0)


def read_all() -> Procedure[list[tuple[int, tuple[bytes, int]]]]:
    reader = LogReader(PLACE)
    yield from reader.refresh()
    found: list[tuple[int, tuple[bytes, int]]] = []
    while (read := (yield from reader.read(len(found), 1000))) is not None:
        found += [one for one in messages_of(read) if one[0] > len(found)]
    return found


def test_a_store_that_does_not_answer_is_reported() -> None:
    options = {"endpoint": "http://127.0.0.1:1", "access_key_id": "k", "secret_access_key": "s", "region": "r"}
    store = ObjectStore("s3://bucket/prefix", options | {"allow_http": "true"})
    answer = store.execute(Get("key"))
    assert isinstance(answer, Failed)
    assert "\n" not in answer.reason
    with pytest.raises(StoreError, match="s3://bucket/prefix does not answer"):
        store.run(ask_all([Get("key")]), patience=0.0)


@pytest.mark.parametrize("url", ["ftp://host/x", "s3://"])
def test_a_url_that_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match=url.partition(":")[0]):
        ObjectStore(url)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(StoreError, match="the store has no option 'no_such_option'"):
        ObjectStore("s3://bucket/x", {"no_such_option": "1"})


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be opened"):
        ObjectStore(str(tmp_path / "file" / "store"))


def test_requests_are_executed_together_if_the_store_is_slow(real_store: ObjectStore) -> None:
    keys = [f"key{number}" for number in range(5)]
    for key in keys:
        real_store.execute(Put(key, key.encode()))
    asked: list[str] = []
    execute = real_store.execute

    def slow(request: Request) -> Answer:
        asked.append(threading.current_thread().name)
        if len(asked) == 2:
            threading.Event().wait(2 * shell._QUICK)
        return execute(request)

    real_store.execute = slow  # type: ignore[method-assign]
    assert real_store.execute_all([Get(key) for key in keys]) == [key.encode() for key in keys]
    assert len([name for name in asked if name.startswith("zambezi-store")]) >= 3
    assert real_store.execute_all([]) == []


def test_a_refused_request_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(str(tmp_path))
    monkeypatch.setattr(store, "_execute", failing("status code: 403 Forbidden: <Code>AccessDenied</Code>"))
    with pytest.raises(StoreError, match="refuses a request: the store denies access: check the credentials"):
        store.run(ask_all([Get("key")]), patience=1e9)


def test_a_store_without_room_is_not_asked_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = ObjectStore(str(tmp_path))
    monkeypatch.setattr(shell, "FULL", 1.9)  # less than the longest pause
    monkeypatch.setattr("zambezi.zeps.store.shell.time.sleep", lambda _seconds: None)
    monkeypatch.setattr(store, "_ask", lambda _request: Failed("no space left", is_full=True))
    with pytest.raises(StoreFull, match="has no room: no space left"):
        store.run(put("key", b"one"), patience=1e9)
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path} does not answer, and is asked again: no space left"
    ]
    monkeypatch.setattr(shell, "FULL", 1e9)
    assert store.is_full
    monkeypatch.undo()
    store.run(put("key", b"one"))
    assert not store.is_full


def test_a_problem_stays_until_its_own_request_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(store, "_execute", failing("no space left on device"))
        store.execute(Put("large", b"1"))
    assert store.execute(Put("small", b"1")) is DONE
    assert store.problem == "no space left on device"
    assert store.execute(Put("large", b"1")) is DONE
    assert store.problem == ""


def failing(text: str) -> Callable[[Request], Answer]:
    """Return a function that raises an error for each request."""

    def fail(_request: Request) -> Answer:
        raise OSError(text)

    return fail


def test_puts_are_measured_and_reads_are_not(tmp_path: Path) -> None:
    store = ObjectStore(str(tmp_path))
    store.execute(Put("k", b"x"))
    assert store.execute(Put("k", b"x", create=True)) is EXISTS
    store.execute(Get("k"))
    assert store.puts.count == 2
    assert store.puts.seconds > 0


def test_a_directory_that_was_moved_away_is_not_made_again(tmp_path: Path) -> None:
    directory, moved = tmp_path / "store", tmp_path / "moved"
    store = ObjectStore(str(directory))
    store.run(check_format(create=True))
    assert store.execute(Put("a/1", b"one")) is DONE
    directory.rename(moved)
    requests: list[Request] = [Put("a/2", b"two"), Get("a/1"), List("a"), Names("a"), Delete(("a/1",))]
    for request in requests:
        answer = store.execute(request)
        assert isinstance(answer, Failed)
        assert "was it unmounted" in answer.reason
    assert not directory.exists()
    directory.mkdir()  # as a mount point
    assert isinstance(store.execute(Put("a/2", b"two")), Failed)
    assert not list(directory.iterdir())
    directory.rmdir()
    moved.rename(directory)
    assert store.execute(Put("a/2", b"two")) is DONE
    assert store.execute(Get("a/1")) == b"one"


def test_a_directory_that_is_lost_during_a_request_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "store"
    store = ObjectStore(str(directory))
    store.run(check_format(create=True))
    execute = store._execute

    def lose(request: Request) -> Answer:
        directory.rename(tmp_path / "moved")
        return execute(request)

    monkeypatch.setattr(store, "_execute", lose)
    assert isinstance(store.execute(Get("a/1")), Failed)  # not MISSING


def test_a_directory_is_not_made_to_read_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no such directory"):
        ObjectStore(str(tmp_path / "none"), create=False)
    assert not (tmp_path / "none").exists()
