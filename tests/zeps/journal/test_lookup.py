"""zambezi.zeps.journal.lookup: the last message of a key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.zeps.journal.streams import directory, held
from tests.zeps.journal.test_compaction import POLICY, compact, fill, keys_of, publish
from zambezi.zeps.journal import Policy, Store, lookup
from zambezi.zeps.journal.keytable import KEYS
from zambezi.zeps.journal.lookup import LastSearch, last_message

if TYPE_CHECKING:
    import pytest


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "aa", "", "ab"]), min_size=1, max_size=6), min_size=1, max_size=40),
    st.booleans(),
    st.booleans(),
)
def test_it_is_the_one_that_a_replay_would_find(blocks: list[list[str]], compacted: bool, restarted: bool) -> None:
    with directory() as path:
        store = Store(path, policy=POLICY)
        journal = store.open("s")
        for number, keys in enumerate(blocks):
            publish(journal, *[(key, b"aa%d" % number) for key in keys], now=float(number))
            if compacted and number % 10 == 9:
                compact(journal, float(number))
        if restarted:
            store.close()
            store = Store(path, policy=POLICY)
            journal = store.open("s")
        last = {key: at for at, key in keys_of(held(journal)).items()}
        for key in ("a", "b", "aa", "", "ab", "other", "x" * 255):
            found = last_message(journal, key.encode())
            assert (found.sequence if found is not None else None) == last.get(key)
            if found is not None:
                assert found.octets == held(journal)[found.sequence]
                assert found.body == b"aa%d" % (found.time // 1_000_000)
        store.close()


def test_a_compacted_stream_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("s")
        fill(journal, 200, keys=50)
        compact(journal, 200.0)
        assert len(list(journal.directory.glob(f"*{KEYS}"))) == len(journal.segments) - 1
        read = 0

        def counted(*arguments: object, **options: object) -> list[object]:
            nonlocal read
            read += 1
            return []

        monkeypatch.setattr("zambezi.zeps.journal.lookup.read_pieces", counted)
        assert last_message(journal, b"k7") is not None
        assert last_message(journal, b"not there") is None
        assert read == 2  # the last segment, which has no table yet


def test_without_a_table_the_stream_is_read_backwards_a_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "_AT_ONCE", 3)
    with Store(tmp_path, policy=Policy(sync="never", segment=400)) as store:
        journal = store.open("s")
        fill(journal)
        last = {key: at for at, key in keys_of(held(journal)).items()}
        segments = len(journal.segments)
        assert segments > 6
        steps: dict[str, int] = {}
        for key in (*last, "missing"):
            search = LastSearch(journal, key.encode())
            steps[key] = 1
            while not search.step():
                steps[key] += 1
            assert (search.found.sequence if search.found is not None else None) == last.get(key)
        assert steps["missing"] >= segments // 3
        assert min(steps.values()) == 1
        assert not list(journal.directory.glob(f"*{KEYS}"))


def test_a_search_goes_on_after_the_stream_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_AT_ONCE", 1)
    with Store(tmp_path, policy=Policy(sync="never", segment=400)) as store:
        journal = store.open("s")
        fill(journal)
        search = LastSearch(journal, b"missing")
        assert not search.step()
        journal.truncate(journal.segments[2].first)
        for _ in range(10):
            if search.step():
                break
        assert search.found is None


def test_a_truncated_stream_has_no_old_table(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        journal = store.open("s")
        fill(journal)
        compact(journal)
        after = journal.segments[0].last - 3
        journal.truncate(after)
        publish(journal, ("new", b"1"))
        last = {key: at for at, key in keys_of(held(journal)).items()}
        for key in ("k0", "k1", "k2", "k3", "k4", "new"):
            found = last_message(journal, key.encode())
            assert (found.sequence if found is not None else None) == last.get(key)
