"""zambezi.zeps.journal.positions: the file of positions, its recovery, and what happens to it with its stream."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.zeps.journal.streams import append, directory, kill
from zambezi.zeps.errors import JournalError, JournalFull
from zambezi.zeps.journal import Policy, Store, positions
from zambezi.zeps.journal.file_cache import FileCache
from zambezi.zeps.journal.positions import (
    COMPACT,
    FILE,
    GROUP,
    LARGEST_PAYLOAD,
    READER,
    Content,
    Position,
    Positions,
    read_positions,
    walk,
)
from zambezi.zeps.journal.verify import Damage, Unfinished, verify

BILLING = Position(READER, "billing", 41, 0, 1_700_000_000_000_000, bytes(range(16)), "ann")
WORKERS = Position(GROUP, "workers", 7, 9, 0, payload=b"8 is done")
POLICY = Policy(sync="never")


def opened(path: str | Path, last: int = 1000) -> Positions:
    return Positions(Path(path), last, FileCache(8).with_descriptors)


def states(found: Positions | Content) -> dict[tuple[int, str], int]:
    known = found.states if isinstance(found, Content) else found._states
    return {key: state.position for key, state in known.items()}


def test_the_format_of_a_record() -> None:
    head = "aab0" + "00000036" + "14f0a005"
    fixed = "01" + "00" + "0000000000000029" + "0000000000000000" + "00060a24181e4000" + bytes(range(16)).hex()
    assert BILLING.pack()[10:] == bytes.fromhex(fixed) + b"\x07billing" + b"\x03ann"
    assert BILLING.pack()[:10].hex() == head
    assert BILLING.size == len(BILLING.pack())


def test_a_payload_can_be_extended(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.write([WORKERS, BILLING])
    size = (tmp_path / FILE).stat().st_size
    for more in (b", 9 too", b", 10 too"):
        first.extend([WORKERS._replace(position=8, highest=10, payload=more)])
    assert (tmp_path / FILE).stat().st_size < size + 2 * 80
    expected = WORKERS._replace(position=8, highest=10, payload=b"8 is done, 9 too, 10 too")
    assert first.get(GROUP, "workers") == expected
    assert first._live == expected.size + BILLING.size
    first.close()
    again = opened(tmp_path)
    assert again.get(GROUP, "workers") == expected
    again.write([WORKERS])
    again.close()
    assert opened(tmp_path).get(GROUP, "workers") == WORKERS


def test_more_payload_for_a_state_that_is_damaged_is_ignored(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.write([WORKERS])
    first.extend([WORKERS._replace(payload=b"more")])
    first.close()
    octets = bytearray((tmp_path / FILE).read_bytes())
    octets[20] ^= 1
    (tmp_path / FILE).write_bytes(octets)
    assert opened(tmp_path).get(GROUP, "workers") is None


def test_positions_are_read_again(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.write([BILLING, WORKERS])
    first.write([BILLING._replace(position=42)])
    first.write([Position(READER, "workers", 3)])
    first.close()
    again = opened(tmp_path)
    assert again.get(READER, "billing") == BILLING._replace(position=42)
    assert again.get(GROUP, "workers") == WORKERS
    assert again.get(READER, "workers") == Position(READER, "workers", 3)
    assert [one.name for one in again.all(READER)] == ["billing", "workers"]
    assert (again.count(READER), again.count(GROUP), len(again)) == (2, 1, 3)
    assert not again.problems


def test_a_removed_name_stays_removed(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.write([BILLING, WORKERS])
    first.remove([BILLING.key, (READER, "nobody")])
    assert first.get(READER, "billing") is None
    assert first.count(READER) == 0
    assert states(opened(tmp_path)) == {WORKERS.key: 7}


def test_a_stream_without_readers_has_no_file(tmp_path: Path) -> None:
    opened(tmp_path).remove([BILLING.key])
    assert not (tmp_path / FILE).exists()


@given(st.data())
def test_a_file_that_is_cut_at_any_byte_has_all_records_before_it(data: st.DataObject) -> None:
    writes = data.draw(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 100), st.binary(max_size=20)), min_size=1, max_size=8)
    )
    records = [Position(READER, name, sequence, payload=payload) for name, sequence, payload in writes]
    with directory() as path:
        first = opened(path)
        for record in records:
            first.write([record])
        first.close()
        file = Path(path) / FILE
        cut = data.draw(st.integers(0, file.stat().st_size))
        os.truncate(file, cut)
        again = opened(path)
        ends = [sum(record.size for record in records[: n + 1]) for n in range(len(records))]
        whole = [record for record, end in zip(records, ends, strict=True) if end <= cut]
        assert states(again) == {record.key: record.position for record in whole}
        assert not again.problems
        # The next record follows the last whole one.
        again.write([Position(READER, "d", 5)])
        assert states(opened(path)) == {**{record.key: record.position for record in whole}, (READER, "d"): 5}


@given(st.binary(max_size=200), st.integers(0, 2))
def test_damage_costs_only_the_records_in_it(garbage: bytes, place: int) -> None:
    with directory() as path:
        records = [Position(READER, name, 5) for name in "abc"]
        pieces = [record.pack() for record in records]
        damaged = b"".join([*pieces[:place], garbage, *pieces[place:]])
        (Path(path) / FILE).write_bytes(damaged)
        again = opened(path)
        assert {key for key, _ in ((name, 0) for _, name in states(again))} == set("abc")
        assert len(again.problems) == bool(garbage)
        if garbage:
            assert (Path(path) / FILE).read_bytes() == b"".join(pieces)  # written anew


def test_damage_and_an_unfinished_end_are_found() -> None:
    octets = BILLING.pack() + b"garbage" + WORKERS.pack() + b"\xaa\xb0 torn"
    found = Content(octets)
    assert states(found) == {BILLING.key: 41, WORKERS.key: 7}
    assert found.damaged == [(BILLING.size, 7)]
    assert found.torn == 7
    assert [one.state is None for one in walk(octets)] == [False, True, False, True]


@pytest.mark.parametrize(
    "broken",
    [
        Position(READER, "billing", 1).pack()[:-1],
        b"\xaa\xb0" + b"\xff" * 40,
        b"\xaa\xb0" + bytes(100),
        bytes(1 << 20),
        b"\xaa\xb0" * 1000,
    ],
    ids=["cut", "ones", "zeros", "hole", "marks"],
)
def test_bytes_that_are_no_record_are_cut_off(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / FILE).write_bytes(WORKERS.pack() + broken)
    assert states(opened(tmp_path)) == {WORKERS.key: 7}
    assert (tmp_path / FILE).stat().st_size == WORKERS.size


def test_names_and_payloads_have_a_bound(tmp_path: Path) -> None:
    found = opened(tmp_path)
    for wrong in (
        Position(READER, "", 1),
        Position(READER, "n" * 256, 1),
        Position(READER, "\ud800", 1),
        Position(GROUP, "g", 1, payload=bytes(LARGEST_PAYLOAD + 1)),
    ):
        with pytest.raises(JournalError):
            found.write([BILLING, wrong])
    assert len(found) == 0
    largest = Position(GROUP, "n" * 255, 1, user="u" * 255, payload=bytes(LARGEST_PAYLOAD))
    found.write([largest])
    assert opened(tmp_path).get(GROUP, "n" * 255) == largest


def test_old_records_are_removed_while_others_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "COMPACT", 500)
    found = opened(tmp_path)
    found.write([WORKERS])
    number = 20
    for position in range(number + 1):
        found.write([BILLING._replace(position=position)])
    sync = os.fsync

    def write_meanwhile(descriptor: int) -> None:
        sync(descriptor)
        if found.get(READER, "late") is None:
            found.write([Position(READER, "late", 3)])

    monkeypatch.setattr(os, "fsync", write_meanwhile)
    found.compact()
    expected = {WORKERS.key: 7, BILLING.key: number, (READER, "late"): 3}
    assert states(found) == expected
    assert (tmp_path / FILE).stat().st_size == sum(one.size for one in found._states.values())
    found.write([BILLING])
    assert states(opened(tmp_path)) == expected | {BILLING.key: 41}
    found.compact()  # does nothing: the file is small again
    assert states(opened(tmp_path)) == expected | {BILLING.key: 41}


def test_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = opened(tmp_path)
    found.write([BILLING])
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, octets, offset: write(descriptor, octets[:5], offset))
    with pytest.raises(JournalFull, match="No space left"):
        found.write([BILLING._replace(position=50), WORKERS])
    with pytest.raises(JournalFull):
        found.remove([BILLING.key])
    monkeypatch.undo()
    assert states(found) == {BILLING.key: 41}
    found.write([WORKERS])
    assert states(opened(tmp_path)) == {BILLING.key: 41, WORKERS.key: 7}


def test_the_disk_has_what_was_synced(tmp_path: Path) -> None:
    found = opened(tmp_path)
    assert (found.written, found.synced) == (0, 0)
    found.write([BILLING])
    assert (found.written, found.synced) == (1, 0)
    found.sync()
    assert found.synced == 1
    found.release()  # the file is opened again when it is needed
    found.write([WORKERS])
    found.sync()
    assert found.synced == 2
    assert states(opened(tmp_path)) == {BILLING.key: 41, WORKERS.key: 7}


def test_a_position_never_refers_to_messages_that_the_stream_does_not_have(tmp_path: Path) -> None:
    found = opened(tmp_path)
    found.write([BILLING, WORKERS, Position(READER, "slow", 2)])
    again = opened(tmp_path, last=8)
    assert states(again) == {BILLING.key: 8, WORKERS.key: 7, (READER, "slow"): 2}
    known = again.get(GROUP, "workers")
    assert known is not None
    cut = b"C" + bytes((0, 0, 0, 8)) + bytes((0, 0, 0, 0, 0, 0, 0, 8))
    assert (known.highest, known.payload) == (8, WORKERS.payload + cut)  # it mentioned sequence 9
    assert states(read_positions(tmp_path)) == {BILLING.key: 8, WORKERS.key: 7, (READER, "slow"): 2}


def test_positions_go_with_their_stream(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        prices = store.open("prices")
        append(prices, *[b"x"] * 50)
        prices.positions.write([BILLING])
        assert prices.is_dirty
        prices.sync()
        assert prices.positions.synced == 1
        prices.trim(45)
        assert states(prices.positions) == {BILLING.key: 41}
        prices.truncate(46)
        assert states(prices.positions) == {BILLING.key: 41}
        prices.truncate(44)
        prices.positions.write([BILLING._replace(position=44)])
    with Store(tmp_path, policy=POLICY) as store:
        prices = store.open("prices")
        assert states(prices.positions) == {BILLING.key: 44}
        store.delete("prices")
        assert len(store.open("prices").positions) == 0


def test_truncate_moves_positions_back_for_good(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        prices = store.open("prices")
        append(prices, *[b"x"] * 50)
        prices.positions.write([BILLING])
        prices.truncate(10)
        append(prices, *[b"y"] * 50)
        kill(store)
    with Store(tmp_path, policy=POLICY) as store:
        assert states(store.open("prices").positions) == {BILLING.key: 10}


def test_a_killed_process_has_lost_nothing(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        prices = store.open("prices")
        append(prices, *[b"x"] * 50)
        prices.positions.write([BILLING])
        kill(store)
    with Store(tmp_path, policy=POLICY) as store:
        assert states(store.open("prices").positions) == {BILLING.key: 41}


def test_a_failed_sync_of_positions_stops_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        prices = store.open("prices")
        prices.positions.write([Position(READER, "billing", 0)])

        def fail(_: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(JournalError, match="could not be synced"):
            prices.sync()
        assert "positions of readers" in prices.failed


def test_a_closed_file_is_not_written(tmp_path: Path) -> None:
    found = opened(tmp_path)
    found.write([BILLING])
    found.close()
    (tmp_path / FILE).unlink()  # another stream of the same name can be there now
    with pytest.raises(JournalError, match="closed"):
        found.write([WORKERS])
    found.compact()
    assert not (tmp_path / FILE).exists()


def test_ten_thousand_names_are_found_and_removed(tmp_path: Path) -> None:
    found = opened(tmp_path)
    tracemalloc.start()
    found.write([Position(READER, f"reader-{number}", number % 1000) for number in range(10_000)])
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 5_000_000
    assert found.lowest(READER) == 0
    assert found.lowest(GROUP) is None
    assert found.count(READER) == len(opened(tmp_path)) == 10_000
    assert (tmp_path / FILE).stat().st_size < COMPACT
    found.remove([(READER, f"reader-{number}") for number in range(10_000)])
    assert found.count(READER) == len(opened(tmp_path)) == 0


def test_verify_finds_damaged_positions(tmp_path: Path) -> None:
    with Store(tmp_path, policy=POLICY) as store:
        prices = store.open("prices")
        assert not list(verify(prices))
        (prices.directory / FILE).write_bytes(BILLING.pack() + b"?" + WORKERS.pack() + b"torn")
        damage, unfinished = list(verify(prices))
        assert isinstance(damage, Damage)
        assert damage.offset == BILLING.size
        assert isinstance(unfinished, Unfinished)
        assert unfinished.octets == 4
