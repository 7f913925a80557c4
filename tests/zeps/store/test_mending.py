"""zambezi.zeps.store.mending: damaged batches of a journal are restored from the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zeps.journal.streams import append, held
from zambezi.zeps.errors import StoreError
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.journal.verify import Checked, verify

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

from zambezi.zeps.store.catalog import check_format, find_stream
from zambezi.zeps.store.copying import copy_stream
from zambezi.zeps.store.mending import mend_journal
from zambezi.zeps.store.shell import ObjectStore

POLICY = Policy(segment=300, batch=100, sync="never")


def damage(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_damaged_batches_are_restored_and_the_others_are_not_touched(tmp_path: Path) -> None:
    remote = ObjectStore(str(tmp_path / "store"))
    remote.run(check_format(create=True))
    with Store(tmp_path / "data", policy=POLICY) as data:
        journal = data.open("prices")
        for number in range(20):
            append(journal, b"%03d" % number * 20, b"%03d" % number)
        before = held(journal)
        copy_stream(remote, journal)
        paths = [Path(segment.path + ".log") for segment in journal.segments]
    for path in (paths[0], paths[2], paths[-1]):
        damage(path, 50)
    stream = remote.run(find_stream("prices"))
    assert stream is not None
    with Store(tmp_path / "data", policy=POLICY, write=False) as data:
        journal = data.open("prices")
        lines = list(mend_journal(remote, stream, journal))
        assert len(lines) == 3
        assert all("is restored" in line for line in lines)
        assert held(journal) == before
        assert all(isinstance(one, Checked) for one in verify(journal))
        assert list(mend_journal(remote, stream, journal)) == []
        damage(Path(journal.segments[0].path + ".idx"), 3)
        assert "use `zambezi journal repair` first" in next(mend_journal(remote, stream, journal))


def test_another_stream_is_not_touched(tmp_path: Path) -> None:
    remote = ObjectStore(str(tmp_path / "store"))
    remote.run(check_format(create=True))
    for name in ("one", "other"):
        with Store(tmp_path / name) as data:
            journal = data.open("prices")
            append(journal, b"1")
            if name == "one":
                copy_stream(remote, journal)
                continue
            stream = remote.run(find_stream("prices"))
            assert stream is not None
            with pytest.raises(StoreError, match="may stand for other messages"):
                list(mend_journal(remote, stream, journal))
