"""zambezi.zeps.journal.importing: an import can be interrupted and repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zeps.stage import replace_method
from zambezi.zeps.errors import JournalFull
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.extract import messages
from zambezi.zeps.journal.importing import import_messages

FILE = b"digest----------"
MANY = [(b"k%d" % (number % 3), bytes([number % 256]) * number, 1000 + number // 4) for number in range(200)]


def found(journal: Journal) -> list[tuple[bytes, bytes, int]]:
    return [(one.key, one.body, one.time) for one in messages(journal, 0, journal.last)]


def test_an_import_goes_on_where_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.zeps.journal.importing._BATCH", 100)
    with Store(tmp_path, policy=Policy(sync="never", segment=2000)) as store:
        journal = store.open("s")
        append, left = journal.append, 20

        def failing(*arguments: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise JournalFull("no room")
            append(*arguments)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            replace_method(patch, journal, "append", failing)
            with pytest.raises(JournalFull):
                import_messages(journal, MANY, FILE, 5.0)
        half = journal.last
        assert 0 < half < len(MANY)
    with Store(tmp_path, policy=Policy(sync="never", segment=2000)) as store:
        journal = store.open("s")
        assert import_messages(journal, MANY, FILE, 5.0) == (len(MANY) - half, half)
        assert found(journal) == MANY
        assert import_messages(journal, MANY, FILE, 5.0) == (0, len(MANY))
        assert import_messages(journal, MANY[:1], b"another---------", 5.0) == (1, 0)


def test_messages_without_a_time_get_the_present_one(tmp_path: Path) -> None:
    with Store(tmp_path, policy=Policy(sync="never")) as store:
        journal = store.open("s")
        import_messages(journal, [(b"k", b"1", 0), (b"k", b"2", 0)], FILE, 5.0)
        assert [time for _, _, time in found(journal)] == [5_000_000] * 2
