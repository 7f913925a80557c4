"""zambezi.cli.data_directory: the streams of a directory. `test_journal` covers the commands that use it."""

from pathlib import Path

import pytest

from zambezi.cli.data_directory import journals_in, nothing_in
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal import Store


def test_a_missing_stream_is_an_error_that_lists_the_others(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        assert "name that with --data DIR" in nothing_in(store)
        assert list(journals_in(store, [])) == []
        store.make("prices")
        assert [journal.name for journal in journals_in(store, [])] == ["prices"]
        with pytest.raises(JournalError, match="has no stream 'other'; it has prices"):
            list(journals_in(store, ["other"]))
