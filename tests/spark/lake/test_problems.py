"""zambezi.spark.lake.problems: one line that names the cause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.lake.tables import add, opened, rows
from tests.zeps.store.weed import Weed, running_weed
from zambezi.spark.lake.place import Place
from zambezi.spark.lake.problems import TableError, cause_of, explained
from zambezi.spark.lake.table import LakeTable
from zambezi.spark.lake.writing import write_files

S3 = "Generic S3 error\n  \x1b[31m↳\x1b[0m Error performing list request\n  ↳ Error performing GET http://h/b\n  ↳ "


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "Generic LocalFileSystem error\n ↳ Unable to copy data to file\n ↳ No space left on device (os error 28)",
            "the disk is full (No space left on device (os error 28))",
        ),
        (
            "[Errno 13] Permission denied: '/x'",
            "no permission to read or write there ([Errno 13] Permission denied: '/x')",
        ),
        (
            S3 + "403 Forbidden\n ↳ <Error><Code>SignatureDoesNotMatch</Code></Error>",
            "the store refuses the credentials: the secret key is wrong (Generic S3 error: SignatureDoesNotMatch)",
        ),
        (
            S3 + "403 Forbidden",
            "the store denies access: check the credentials and their rights (Generic S3 error: 403 Forbidden)",
        ),
        (S3 + "500 Internal Server Error", "Generic S3 error: 500 Internal Server Error"),
        ("Something else\n   0: <unknown>\n   1: clone3", "Something else"),
        ("", "OSError"),
    ],
)
def test_causes(text: str, cause: str) -> None:
    assert cause_of(OSError(text)) == cause


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
        ({"secret_access_key": "x"}, "", "the store refuses the credentials: the secret key is wrong"),
        ({"access_key_id": "x"}, "", "the store does not know the access key: check the credentials"),
        ({}, "s3://nowhere/archive", "there is no such bucket"),
        ({"endpoint": "http://127.0.0.1:1", "max_retries": "0"}, "", "the store cannot be reached: check its endpoint"),
    ],
)
def test_an_object_store_that_refuses(weed: Weed, change: dict[str, str], bucket: str, cause: str) -> None:
    url = bucket or weed.url("archive")
    with pytest.raises(TableError) as caught:
        LakeTable(Place(url, weed.options | change), "archive")
    assert str(caught.value).startswith(f"{url}: {cause} (")
    assert "\n" not in str(caught.value)


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
