"""zambezi.zeps.journal.trim: a stream begins at the message that the operator named."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.zeps.journal.streams import append, block, consistent, directory, kill
from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi.zeps.errors import JournalError, OutOfRange
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.verify import Checked, verify

ANN = b"ann-------------"
POLICY = Policy(sync="never", segment=400, batch=150)


def fill(store: Store) -> dict[int, bytes]:
    journal = store.open("a")
    for number in range(12):
        bodies = [b"x" * (10 + 7 * number), b"y" * 20, b"z"]
        made = block(journal.last + 1, bodies)
        journal.append(made, 1.0 + number, [Count(ANN, 1, made.last)])
    return consistent(journal)


@given(st.integers(1, 37))
def test_the_messages_before_a_sequence_are_removed(first: int) -> None:
    with directory() as path, Store(path, policy=POLICY) as store:
        before = fill(store)
        journal = store.open("a")
        reader = journal.reader(0)
        reader.peek(1 << 20)
        journal.trim(first)
        assert journal.first == first
        assert consistent(journal) == {sequence: octets for sequence, octets in before.items() if sequence >= first}
        assert all(isinstance(one, Checked) for one in verify(journal))
        append(journal, b"new")
        assert journal.last == 37
        assert journal.counts.get(ANN) == Count(ANN, 1, 36)
        store.close()
        with Store(path, policy=POLICY) as again:
            journal = again.open("a")
            assert (journal.first, journal.last, journal.problems) == (first, 37, [])
            assert journal.counts.get(ANN) == Count(ANN, 1, 36)


@given(st.integers(2, 30))
def test_a_trim_that_was_interrupted_is_finished(first: int) -> None:
    """The new segment has its name, and the old one is still there."""
    with directory() as path, directory() as spare:
        store = Store(path, policy=POLICY)
        before = fill(store)
        shutil.copytree(path, spare, dirs_exist_ok=True)
        store.open("a").trim(first)
        kill(store)
        oldest = max(file for file in Path(spare).glob("a/*.log") if int(file.stem) <= first)  # no revisions
        for suffix in (".log", ".idx", ".cnt"):
            copy = Path(path) / "a" / f"{oldest.stem}{suffix}"
            if not copy.exists():
                shutil.copy(oldest.with_suffix(suffix), copy)
        with Store(path, policy=POLICY) as store:
            journal = store.open("a")
            assert journal.first == first
            assert consistent(journal) == {sequence: octets for sequence, octets in before.items() if sequence >= first}


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_trim_that_was_killed_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int) -> None:
    """The process dies when so many files of the new segment have their names."""
    store = Store(tmp_path, policy=POLICY)
    before = fill(store)
    named: list[Path] = []
    rename = Path.rename

    def rename_some(path: Path, target: str) -> Path:
        if len(named) == done:
            raise KeyboardInterrupt
        named.append(path)
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename_some)
        with pytest.raises(KeyboardInterrupt):
            store.open("a").trim(5)
    kill(store)
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        assert (journal.first, consistent(journal)) == (1, before)
        firsts = {segment.first for segment in journal.segments}
        assert list((tmp_path / "a").glob(".*")) == []
        assert {int(path.stem) for path in (tmp_path / "a").glob("0*")} == firsts


def test_a_stream_cannot_begin_after_its_end(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        fill(store)
        for first in (0, 38):
            with pytest.raises(OutOfRange, match=f"cannot begin at {first}"):
                store.open("a").trim(first)
        store.open("a").trim(37)
        assert consistent(store.open("a")) == {}
        append(store.open("a"), b"next")
        assert list(consistent(store.open("a"))) == [37]


def test_a_trim_can_be_ended(tmp_path: Path) -> None:
    def stop() -> None:
        journal.sync()  # a sync need not wait for the trim
        if list((tmp_path / "a").glob(".*.idx.new")):
            raise JournalError("stop")

    with Store(tmp_path, policy=POLICY) as store:
        before = fill(store)
        journal = store.open("a")
        with pytest.raises(JournalError, match="stop"):
            journal.trim(5, check=stop)
        assert list((tmp_path / "a").glob(".*")) == []
        remaining = consistent(journal)
        assert remaining == {sequence: octets for sequence, octets in before.items() if sequence >= journal.first}
        assert journal.first < 5


def test_a_stream_that_is_deleted_is_not_trimmed_any_more(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        fill(store)
        journal = store.open("a")
        deleter = Thread(target=store.delete, args=["a"])

        def delete() -> None:
            if not deleter.ident:
                deleter.start()
            wait_until(lambda: journal._is_abandoned)

        with pytest.raises(JournalError, match="was deleted while it was trimmed"):
            journal.trim(5, check=delete)
        deleter.join(PATIENCE)
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".reserve"]


def test_retention_waits_until_a_trim_is_over(tmp_path: Path) -> None:
    """Both remove the oldest segment. Retention runs on another thread, while the trim copies the end of it."""

    def retain() -> None:
        assert journal.is_trimming
        assert journal.retain(1e9) == 0
        with pytest.raises(JournalError, match="is being trimmed: truncate it when that is done"):
            journal.truncate(30)

    with Store(tmp_path, policy=POLICY) as store:
        before = fill(store)
        journal = store.open("a")
        journal.policy = replace(POLICY, keep_bytes=900)
        journal.trim(5, check=retain)
        assert consistent(journal) == {sequence: octets for sequence, octets in before.items() if sequence >= 5}
        assert journal.retain(1e9) > 0
