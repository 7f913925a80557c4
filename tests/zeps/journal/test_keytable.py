"""zambezi.zeps.journal.keytable: the batches that can have a key."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.zeps.journal.streams import directory
from zambezi.zeps.journal.keytable import KEYS, KeyTable, batches_of
from zambezi.zeps.journal.segment import write_pieces


def written(path: Path, batches: list[list[bytes]]) -> str:
    table = KeyTable()
    for number, keys in enumerate(batches):
        table.add(number, keys)
    write_pieces(Path(f"{path}/1{KEYS}"), table.pieces())
    return f"{path}/1"


@given(st.lists(st.lists(st.binary(max_size=3), max_size=5), max_size=30))
def test_every_batch_with_a_key_is_found(batches: list[list[bytes]]) -> None:
    with directory() as path:
        stem = written(Path(path), batches)
        for key in {key for keys in batches for key in keys}:
            assert batches_of(stem, key, set()) == [number for number, keys in enumerate(batches) if key in keys]
        assert batches_of(stem, b"another", set()) == []


def test_a_table_that_is_missing_or_damaged_is_none(tmp_path: Path) -> None:
    assert batches_of(str(tmp_path / "2"), b"k", set()) is None
    stem = written(tmp_path, [[b"k", b"l"], [b"k"]])
    octets = Path(stem + KEYS).read_bytes()
    for wrong in (
        b"",
        octets[:10],
        octets[:-1],
        octets + b"x",
        b"X" + octets[1:],
        octets[:-1] + bytes((octets[-1] ^ 1,)),
    ):
        Path(stem + KEYS).write_bytes(wrong)
        assert batches_of(stem, b"k", set()) is None


def test_a_segment_with_too_many_batches_has_no_table(tmp_path: Path) -> None:
    table = KeyTable()
    table.add(1 << 24, [b"k"])
    assert list(table.pieces()) == []
