"""zambezi.zeps.journal.compaction: of each key the last message stays, whatever happens meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.zeps.journal.streams import append, consistent, directory, held, kill
from zambezi.zeps.block import Block, deliver
from zambezi.zeps.journal import Journal, Policy, Store, compaction
from zambezi.zeps.journal.compaction import Compactor
from zambezi.zeps.journal.copying import copy_messages
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.extract import messages
from zambezi.zeps.journal.verify import Checked, verify
from zambezi.zeps.messages import Deliver, Publish

POLICY = Policy(sync="never", segment=400, batch=150, compact=True)
ANN = b"ann-------------"
DAY = 86400.0


def publish(journal: Journal, *pairs: tuple[str, bytes], now: float = 1.0) -> None:
    frames = [Publish(key, body).encode()[0] for key, body in pairs]
    block = deliver(frames, journal.last + 1)
    journal.append(block, now, [Count(ANN, 1, block.last)])


def compact(journal: Journal, now: float = 1.0) -> Compactor:
    compactor = Compactor(lambda: [journal])
    while compactor.step(1 << 30, now):
        pass
    return compactor


def fill(journal: Journal, count: int = 60, keys: int = 5) -> None:
    for number in range(count):
        pairs = [(f"k{(number * 3 + index) % keys}", bytes([number]) * (index * 20)) for index in range(1, 4)]
        publish(journal, *pairs, now=float(number))


def keys_of(found: dict[int, bytes]) -> dict[int, str]:
    return {at: Deliver.decode([octets[9 if octets[0] else 2 :]]).key for at, octets in found.items()}


def expected(before: dict[int, bytes], old: int) -> dict[int, bytes]:
    """Return the messages that stay if those up to a sequence are compacted."""
    last = {key: at for at, key in keys_of(before).items() if at <= old}
    return {at: octets for at, octets in before.items() if at > old or at in last.values()}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Store(tmp_path, policy=POLICY) as store:
        yield store.open("a")


def test_the_last_message_of_each_key_stays(journal: Journal) -> None:
    fill(journal)
    before = consistent(journal)
    active = journal.segments[-1].first
    times = {one.sequence: one.time for one in messages(journal, 0, journal.last)}
    compactor = compact(journal)
    after = consistent(journal)
    assert after == expected(before, active - 1)
    assert len(after) == 5 + journal.last - active + 1
    assert {one.sequence: one.time for one in messages(journal, 0, journal.last)} == {at: times[at] for at in after}
    assert len(journal.segments) == 2
    assert (journal.first, journal.last) == (1, 180)
    assert all(isinstance(one, Checked) for one in verify(journal))
    assert compactor.counters.removed == len(before) - len(after)
    assert journal.counts.get(ANN) == Count(ANN, 1, 180)
    assert not journal.to_compact(1.0)


@pytest.mark.parametrize("how", ["close", "kill"])
def test_a_compacted_stream_is_the_same_after_a_restart(how: str, tmp_path: Path) -> None:
    store = Store(tmp_path, policy=POLICY)
    journal = store.open("a")
    fill(journal)
    compact(journal)
    publish(journal, ("k1", b"new"))
    before = consistent(journal)
    if how == "kill":
        kill(store)
    else:
        store.close()
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        assert journal.problems == []
        assert consistent(journal) == before
        assert journal.counts.get(ANN) == Count(ANN, 1, 181)
        assert not journal.to_compact(1.0)
        fill(journal)
        compact(journal)
        assert len(journal.segments) == 2


pairs_of = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 90)), min_size=1, max_size=5)


@settings(max_examples=15)
@given(st.lists(pairs_of, min_size=1, max_size=25), st.integers(0, 2))
def test_every_read_is_right_with_gaps(blocks: list[list[tuple[str, int]]], runs: int) -> None:
    with directory() as path, Store(path, policy=POLICY) as store, Store(path, write=False) as other:
        journal = store.open("a")
        copy = other.open("a")
        for turn in range(runs + 1):
            for number, pairs in enumerate(blocks):
                publish(journal, *[(key, b"x" * size) for key, size in pairs], now=turn * 100.0 + number)
            before = consistent(journal)
            old = journal.segments[-1].first - 1 if journal.to_compact(1.0) else 0
            held(copy)
            compact(journal)
            assert consistent(journal) == (expected(before, old) if old else before)
            copy.refresh()
            assert consistent(copy) == consistent(journal)
        kept = consistent(journal)
        for after in range(journal.last + 1):
            assert held(journal, after=after, octets=1) == {at: one for at, one in kept.items() if at > after}
            limited = journal.reader(after).peek(1 << 20, credit=1)
            assert limited is None or limited.count == 1
        for time in range(100 * runs + len(blocks)):
            first = journal.before(time * 1_000_000) + 1
            later = [one.sequence for one in messages(journal, 0, journal.last) if one.time >= time * 1_000_000]
            assert min([at for at in kept if at >= first], default=None) == min(later, default=None)
        assert all(isinstance(one, Checked) for one in verify(journal))


def test_a_reader_goes_on_while_its_segment_is_replaced(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store, Store(tmp_path, write=False) as other:
        journal, copy = store.open("a"), other.open("a")
        fill(journal)
        copy.refresh()
        readers = [one.reader(after) for one in (journal, copy) for after in (0, 7, 50, 100)]
        spans = [reader.peek(100) for reader in readers]
        compact(journal)
        other._file_cache.clear()
        for reader, span in zip(readers, spans, strict=True):
            assert span is not None
            assert span.read().count == span.count  # the old file is still open
            reader.skip(span)
            following = reader.peek(1)
            assert following is not None
            assert following.read().sequences[0] == min(at for at in held(journal) if at > span.last)


def test_what_is_left_of_a_cut_or_a_trim_is_right(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        fill(journal)
        compact(journal)
        kept = consistent(journal)
        store.close()
        for sequence in range(0, 181, 25):
            for how in ("trim", "truncate"):
                shutil.copytree(tmp_path / "a", tmp_path / "copy" / "a", dirs_exist_ok=False)
                with Store(tmp_path / "copy", policy=POLICY) as other:
                    journal = other.open("a")
                    if how == "trim":
                        journal.trim(sequence + 1)
                    else:
                        journal.truncate(sequence)
                    wanted = {at: one for at, one in kept.items() if (at > sequence) == (how == "trim")}
                    assert held(journal) == wanted
                    assert [one for one in verify(journal) if not isinstance(one, Checked)] == []
                    append(journal, b"next")
                    assert journal.last == (181 if how == "trim" else max([0, *wanted]) + 1)
                with Store(tmp_path / "copy", policy=POLICY) as other:
                    journal = other.open("a")
                    assert list(held(journal))[:-1] == list(wanted)
                    assert journal.problems == []
                    assert journal.first == (sequence + 1 if how == "trim" else 1)
                shutil.rmtree(tmp_path / "copy")


def test_a_lost_index_of_a_compacted_segment_is_created_again(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        fill(journal)
        compact(journal)
        kept = consistent(journal)
        path = Path(journal.segments[0].path + ".idx")
    path.unlink()
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        assert (held(journal), journal.problems) == (kept, [])
        assert journal.removed == 180 - len(kept)


class Cut(Exception):
    """The process ends here."""


@settings(max_examples=25)
@given(st.integers(0, 120), st.booleans())
def test_a_kill_at_any_moment_loses_nothing(moment: int, twice: bool) -> None:
    """The process ends before the n-th call of the system that changes a file."""
    with directory() as path:
        store = Store(path, policy=POLICY)
        journal = store.open("a")
        fill(journal, 30)
        if twice:
            compact(journal)
            fill(journal, 30)
        before = consistent(journal)
        active = journal.segments[-1].first
        left = moment
        with pytest.MonkeyPatch.context() as patch:

            def dying(call: Callable[..., object]) -> Callable[..., object]:
                def run(*arguments: object, **options: object) -> object:
                    nonlocal left
                    left -= 1
                    if left < 0:
                        raise Cut
                    return call(*arguments, **options)

                return run

            for name in ("write", "fsync", "unlink", "rename"):
                patch.setattr(os, name, dying(getattr(os, name)))
            for name in ("unlink", "rename"):
                patch.setattr(Path, name, dying(getattr(Path, name)))
            with suppress(Cut):
                compact(journal)
        kill(store)
        with Store(path, policy=POLICY) as store, Store(path, write=False) as other:
            assert set(expected(before, active - 1)) <= set(held(other.open("a"))) <= set(before)
            journal = store.open("a")
            after = consistent(journal)
            assert (journal.problems, journal.counts.get(ANN)) == ([], Count(ANN, 1, journal.last))
            assert set(expected(before, active - 1)) <= set(after) <= set(before)
            assert all(isinstance(one, Checked) for one in verify(journal))
            compact(journal)
            assert consistent(journal) == expected(before, journal.segments[-1].first - 1)
            assert not list(Path(path).glob("a/.*"))


def test_a_full_disk_leaves_everything_as_it_was(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(journal)
    before = consistent(journal)
    names = sorted(path.name for path in journal.directory.iterdir())

    def full(descriptor: int, octets: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        compactor = compact(journal)
    assert consistent(journal) == before
    assert sorted(path.name for path in journal.directory.iterdir()) == names
    assert compactor.counters.failures == 1
    assert "No space left on device" in compactor.problems["a"]
    assert not compactor.step(1 << 20, 2.0)  # it waits
    assert compactor.counters.failures == 1
    while compactor.step(1 << 30, 100.0):
        pass
    assert (compactor.counters.runs, compactor.problems) == (1, {})


@pytest.mark.parametrize("change", ["trim", "truncate", "delete"])
def test_an_operator_who_removes_messages_meanwhile_wins(change: str, tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        fill(journal)
        compactor = Compactor(lambda: [journal])
        while not any(path.name.startswith(".") for path in journal.directory.iterdir()):
            assert compactor.step(1, 1.0)  # until the new files are being written
        if change == "trim":
            journal.trim(8)
        elif change == "truncate":
            journal.truncate(20)
        else:
            store.delete("a")
            journal = store.open("a")
            publish(journal, ("k", b"of another stream"))
        before = consistent(journal)
        while compactor.step(1 << 30, 1.0):
            pass
        assert compactor.counters.failures == 0
        assert set(consistent(journal)) <= set(before)
        assert journal.first == (8 if change == "trim" else 1)
        assert journal.last == {"trim": 180, "truncate": 20, "delete": 1}[change]
        assert not [path for path in journal.directory.iterdir() if path.name.startswith(".")]


def test_a_key_ends_some_time_after_a_message_without_a_body(journal: Journal) -> None:
    publish(journal, ("gone", b"1"), ("stays", b"2"), now=0.0)
    publish(journal, ("gone", b""), now=1.0)
    while len(journal.segments) < 3:
        publish(journal, ("other", b"x" * 50), now=2.0)
    compact(journal, now=3.0)
    assert list(keys_of(held(journal)).values())[:2] == ["stays", "gone"]
    for _ in range(20):
        publish(journal, ("other", b"x" * 50), now=DAY)
    compact(journal, now=DAY + 0.5)
    assert "gone" in keys_of(held(journal)).values()
    for _ in range(20):
        publish(journal, ("other", b"x" * 50), now=DAY + 2)
    compact(journal, now=DAY + 3)
    assert "gone" not in keys_of(held(journal)).values()
    assert "stays" in keys_of(held(journal)).values()


def test_the_last_message_of_the_old_part_stays_even_without_a_body(journal: Journal) -> None:
    for _ in range(10):
        publish(journal, ("k", b"x" * 100), now=0.0)
    publish(journal, ("k", b""), now=0.0)
    journal._rotate()
    compact(journal, now=10 * DAY)
    assert list(held(journal)) == [11]
    assert held(journal, after=3) == held(journal)


def test_retention_says_which_messages_are_old(tmp_path: Path) -> None:
    policy = Policy(sync="never", segment=400, compact=True, keep_seconds=100.0)
    with Store(tmp_path, policy=policy) as store:
        journal = store.open("a")
        for number in range(300):
            publish(journal, (f"k{number % 3}", b"x" * 20), now=float(number))
        journal.retain(300.0)
        assert journal.first == 1
        compact(journal, 300.0)
        kept = list(held(journal))
        assert kept[-100:] == list(range(201, 301))
        assert len(kept) < 100 + 3 + 30


def test_many_keys_are_compacted_in_parts(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MEMORY", 2000)
    for number in range(300):
        publish(journal, (f"k{number % 97}", b"x" * 20))
    before = consistent(journal)
    active = journal.segments[-1].first
    compact(journal)
    assert consistent(journal) == expected(before, active - 1)


def test_a_stream_whose_keys_are_all_different_is_read_once(journal: Journal) -> None:
    for number in range(100):
        publish(journal, (f"k{number}", b"x" * 20))
    segments = [segment.path for segment in journal.segments]
    compactor = compact(journal)
    assert (compactor.counters.runs, compactor.counters.removed) == (1, 0)
    assert [segment.path for segment in journal.segments] == segments
    compact(journal)
    assert compactor.counters.runs == 1


def test_a_copy_has_the_messages_that_stay(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("a")
        fill(journal)
        compact(journal)
        copy_messages(journal, lambda: None, store.open("b"))
        assert list(held(store.open("b"))) == list(range(1, journal.messages + 1))
        bodies = [Block(1, 1, 1, octets, 0).bodies[0][11:] for octets in held(journal).values()]
        assert [Block(1, 1, 1, octets, 0).bodies[0][11:] for octets in held(store.open("b")).values()] == bodies


def test_a_damaged_segment_is_not_compacted(journal: Journal) -> None:
    fill(journal)
    path = Path(journal.segments[1].path + ".log")
    octets = bytearray(path.read_bytes())
    octets[30] ^= 1
    path.write_bytes(octets)
    segments = list(journal.segments)
    compactor = compact(journal)
    assert journal.segments == segments
    assert "is damaged" in compactor.problems["a"]
