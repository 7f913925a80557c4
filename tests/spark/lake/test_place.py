"""zambezi.spark.lake.place: directories and object stores, with the same calls."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

from zambezi.spark.lake.place import Place

if TYPE_CHECKING:
    import pytest


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
