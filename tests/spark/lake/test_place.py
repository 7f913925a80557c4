"""zambezi.spark.lake.place: directories and object stores, with the same calls."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from zambezi.spark.lake.place import Place
from zambezi.spark.lake.problems import TableError


def test_files_of_a_directory(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/a%20b")
    assert place.uri == str(tmp_path / "a b")
    place.write("d/x", b"1")
    place.put("d/y", b"2")
    place.put("d/y", b"3")
    assert (place.read("d/x"), place.read("d/y"), place.read("d/z")) == (b"1", b"3", None)
    assert place.names("d") == ["x", "y"]
    assert place.names("nothing") == []
    place.remove("d/x")
    assert pickle.loads(pickle.dumps(place)).names("d") == ["y"]


def test_variables_of_other_programs_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PAGER", "less")
    monkeypatch.setenv("AWS_REGION", "here")
    options = Place("s3://bucket/prefix").options
    assert "AWS_PAGER" not in options
    assert Place("s3://bucket/prefix", options).options["AWS_REGION"] == "here"  # as an executor opens it


def test_options_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://h")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("GOOGLE_BUCKET", "b")
    place = Place("s3://bucket/prefix/", {"AWS_ACCESS_KEY_ID": "other"})
    assert place.uri == "s3://bucket/prefix"
    assert {name: place.options.get(name) for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "GOOGLE_BUCKET")} == {
        "AWS_ENDPOINT_URL": "http://h",
        "AWS_ACCESS_KEY_ID": "other",
        "GOOGLE_BUCKET": None,
    }
    assert place.options["aws_conditional_put"] == "etag"
    assert Place("gs://bucket").options["GOOGLE_BUCKET"] == "b"
    assert Place("relative/path").options == {}


def test_a_place_that_can_be_written_stays_as_it_is(tmp_path: Path) -> None:
    Place(str(tmp_path / "a")).check_writable()
    assert list((tmp_path / "a").iterdir()) == []


def test_a_full_disk_is_told_and_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zambezi.spark.lake.place.sync", full)
    with pytest.raises(TableError, match="the disk is full: make room, or choose another place"):
        Place(str(tmp_path / "a")).check_writable()
    assert list((tmp_path / "a").iterdir()) == []


def test_unknown_options_are_refused() -> None:
    assert Place("s3://bucket", {"max_retries": "1"}).options["max_retries"] == "1"
    with pytest.raises(TableError, match=r"s3://bucket: the store has no option 'endpiont'; did you mean endpoint\?"):
        Place("s3://bucket", {"endpiont": "http://h"})
