"""Results of pipelines: the console reads only what is safe to read, and says what is wrong with the rest."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from zambezi.console import results
from zambezi.console.results import LARGEST, PROBLEMS, Results

TABLE: dict[str, Any] = {"kind": "table", "title": "Busy keys", "columns": ["key"], "rows": [["a"]], "notes": []}


def write(directory: Path, name: str, content: object, pipeline: str = "traffic", time: float = 1.0) -> None:
    about = {"pipeline": pipeline, "time": time}
    whole = {**about, **content} if isinstance(content, dict) else content
    (directory / f"{name}.json").write_text(json.dumps(whole))


def verdict(healthy: bool | None, *reasons: str) -> dict[str, Any]:
    told = [{"about": "a", "kind": "silent", "reason": reason, "since": ""} for reason in reasons]
    return {"kind": "verdict", "healthy": healthy, "verdict": "", "judged": "2 streams", "reasons": told}


def described(directory: Path, pipeline: str = "", stamp: str = "") -> dict[str, Any]:
    found = Results(str(directory))
    found.read()
    return found.describe(pipeline, stamp)


def test_the_list_has_the_verdicts_and_the_worst_is_first(tmp_path: Path) -> None:
    write(tmp_path, "traffic-verdict", verdict(True), time=9)
    write(tmp_path, "mesh-verdict", verdict(False, "door was silent", "lamp was silent"), "network-health", time=5)
    write(tmp_path, "join", TABLE, "join", time=7)
    told = described(tmp_path)
    assert [(one["pipeline"], one["healthy"], one["time"], one["why"]) for one in told["pipelines"]] == [
        ("network-health", False, 5.0, "door was silent"),
        ("traffic", True, 9.0, "2 streams"),
        ("join", None, 7.0, ""),
    ]
    assert told["pipelines"][0]["reasons"] == 2
    assert (told["chosen"], [one["name"] for one in told["results"]]) == ("network-health", ["mesh-verdict"])


def test_a_page_gets_the_results_of_one_pipeline_and_only_when_they_change(tmp_path: Path) -> None:
    write(tmp_path, "traffic-verdict", {**verdict(True), "order": "only tables have one"})
    write(tmp_path, "traffic-keys", {**TABLE, "order": 1})
    write(tmp_path, "traffic-streams", {**TABLE, "order": 0})
    write(tmp_path, "join", TABLE, "join")
    found = Results(str(tmp_path))
    found.read()
    told = found.describe("traffic")
    assert [one["name"] for one in told["results"]] == ["traffic-verdict", "traffic-streams", "traffic-keys"]
    assert "results" not in found.describe("traffic", told["stamp"])
    assert [one["name"] for one in found.describe("join", told["stamp"])["results"]] == ["join"]
    write(tmp_path, "traffic-keys", {**TABLE, "title": "Other keys"})
    found.read()
    assert found.describe("traffic", told["stamp"])["results"][1]["title"] == "Other keys"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"pipeline": "traffic", "time": NaN}', "has NaN, which is no number"),
        ('{"pipeline": "traffic", "time": 1e999}', "has a number that is too large"),
        (f'{{"pipeline": "traffic", "time": {"9" * 5000}}}', "has a number that is too large"),
        ('{"time": 1}', "has no name of a pipeline"),
        ('{"pipeline": "traffic", "time": "now"}', "has no time"),
        ('{"pipeline": "traffic", "time": 1e20}', "has no time"),
        ('{"pipeline": "traffic", "time": 1, "kind": "film"}', "kind must be one of verdict, plots, table"),
        ('{"pipeline": "traffic", "time": 1, "kind": "plots", "plots": [1]}', "plots must be a list of objects"),
        (
            json.dumps({"pipeline": "t", "time": 1, **TABLE, "rows": [[1, 2]]}),
            "rows must be a list of lists, each with",
        ),
        (json.dumps({"pipeline": "t", "time": 1, **verdict(True), "healthy": "yes"}), "healthy must be true, false or"),
        (json.dumps({"pipeline": "t", "time": 1, **TABLE, "order": "x"}), "order must be a whole number"),
        (" " * (LARGEST + 1), "is larger than 1 MiB"),
        ("\xff", "is not JSON"),
    ],
)
def test_a_file_that_is_no_result_is_told_and_the_others_are_shown(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "bad.json").write_text(content, encoding="latin-1")
    write(tmp_path, "good", TABLE)
    told = described(tmp_path)
    assert [one["name"] for one in told["results"]] == ["good"]
    (shown,) = told["problems"]
    assert shown.startswith(f"bad.json: {problem}")


def test_nothing_outside_of_the_directory_is_read(tmp_path: Path) -> None:
    inside = tmp_path / "results"
    inside.mkdir()
    write(tmp_path, "secret", TABLE)
    (inside / "link.json").symlink_to(tmp_path / "secret.json")
    os.mkfifo(inside / "pipe.json")  # opening one for reading would wait for a writer
    (inside / "folder.json").mkdir()
    told = described(inside, "../secret")
    assert told["pipelines"] == []
    assert sorted(one.split(": ")[0] for one in told["problems"]) == ["folder.json", "link.json", "pipe.json"]


def test_the_number_and_size_of_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MOST_FILES", 20)
    for number in range(25):
        (tmp_path / f"{number}.json").write_text("{")
        os.utime(tmp_path / f"{number}.json", (number, number))
    problems = described(tmp_path)["problems"]
    assert problems[0].startswith("24.json")
    assert problems[PROBLEMS:] == [
        "and 10 more files that are no results",
        "5 older files are not read: the limits are 20 files and 8 MiB",
    ]
    monkeypatch.setattr(results, "MOST_BYTES", 3)
    assert "22 older files" in described(tmp_path)["problems"][-1]


def test_without_a_directory_there_are_no_results(tmp_path: Path) -> None:
    found = Results("")
    asyncio.run(found.look())
    assert found.describe() == {"on": False, "pipelines": [], "problems": []}
    (problem,) = described(tmp_path / "missing")["problems"]
    assert problem == "the directory of results cannot be read: No such file or directory"
