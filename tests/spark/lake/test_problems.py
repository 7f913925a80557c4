"""zambezi.spark.lake.problems: one line that names the cause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.lake.tables import add, opened, rows
from tests.zeps.store.weed import Weed, running_weed
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.problems import TableError, explained
from zambezi.spark.lake.table import LakeTable
from zambezi.spark.lake.writing import write_files


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(ZeroDivisionError), explained("x"):
        _ = 1 // 0


@pytest.fixture(scope="module")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weed]:
    with running_weed(tmp_path_factory.mktemp("weed")) as running:
        yield running


@pytest.mark.xdist_group("weed")
@pytest.mark.parametrize(
    ("change", "bucket", "cause"),
    [
        ({"secret_access_key": "x"}, "", "the secret key is wrong: check the credentials"),
        ({"access_key_id": "x"}, "", "the store does not know the access key: check the credentials"),
        ({}, "s3://nowhere/archive", "there is no such bucket: make it, or correct the URL"),
        ({"endpoint": "http://127.0.0.1:1"}, "", "nobody listens at the endpoint of the store: start the store, or"),
        ({"allow_http": "false"}, "", "only https:// is allowed: set allow_http=true to use http://"),
    ],
)
def test_an_object_store_that_refuses(weed: Weed, change: dict[str, str], bucket: str, cause: str) -> None:
    url = bucket or weed.url("archive")
    with pytest.raises(TableError) as caught:
        LakeTable(Place(url, weed.options | change), "archive")
    line = str(caught.value)
    assert line.startswith(f"{url}: {cause}")
    assert "http://127.0.0.1:" in line
    assert not [words for words in ("\n", "Generic", "Kernel", "os error", "{") if words in line]


@pytest.mark.xdist_group("weed")
def test_a_table_in_an_object_store(weed: Weed) -> None:
    table = opened(weed.url("one"), weed.options)
    add(table, "a", [1, 2], offsets={"a": 2})
    again = LakeTable(Place(weed.url("one"), weed.options), "archive")
    assert again.state is not None
    assert again.state.offsets == {"a": 2}
    other = opened(weed.url("one"), weed.options)
    add(again, "a", [3])
    with pytest.raises(TableError, match="has added a batch meanwhile"):
        add(other, "a", [3])
    assert len(again.files()) == 2
    assert again.place.read("nothing") is None
    again.place.put("_zambezi/results/r.json", b"{}")
    assert again.place.read("_zambezi/results/r.json") == b"{}"
    with pytest.raises(TableError, match="the secret key is wrong"):
        write_files(Place(weed.url("one"), weed.options | {"secret_access_key": "x"}), [rows("a", [1])])


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        with pytest.raises(TableError, match="file, not a directory"):
            opened(tmp_path / name)
    with pytest.raises(TableError, match="foo://x/y: it must be a directory, or a URL with s3, "):
        Place("foo://x/y")
