"""`zambezi journal import`: exactly what was exported comes back, once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zambezi import cli
from zambezi.zeps.block import deliver
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.extract import messages
from zambezi.zeps.layout import BODY_LENGTH, PUBLISH

START = 1_700_000_000.123457
PAIRS = [
    (b"plain", b"text"),
    (b"", b""),
    (b"\xff\xfe", b"\x00\xff" * 200),
    ("\x1bk\N{BLACK STAR}".encode(), b'"\\\n\x1b'),
    (b"k" * 255, b"x" * 70_000),
    (b"surrogate", b"\xed\xa0\x80"),
    (b"\\x1b", b"[]"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with Store(tmp_path / "data", policy=Policy(sync="never", segment=1000)) as store:
        journal = store.open("prices")
        for number, (key, body) in enumerate(PAIRS * 3):
            frame = PUBLISH + bytes((len(key),)) + key + BODY_LENGTH.pack(len(body)) + body
            journal.append(deliver([frame], journal.last + 1), START + number)
    return tmp_path / "data"


def run(data: Path, *arguments: str) -> int:
    return cli.main(["journal", *arguments, "--data", str(data)])


def found(journal: Journal) -> list[tuple[bytes, bytes]]:
    return [(one.key, one.body) for one in messages(journal, 0, journal.last)]


@pytest.mark.parametrize("suffix", ["jsonl", "zeps"])
def test_a_round_trip(suffix: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / f"prices.{suffix}")
    assert run(data, "export", "prices", file) == 0
    assert run(data, "import", "copy", file) == 0
    assert f"21 messages of {file} imported to copy" in capsys.readouterr().err
    assert run(data, "import", "copy", file) == 0
    assert "0 messages" in (said := capsys.readouterr().err)
    assert "21 messages skipped, imported before" in said
    with Store(data, write=False) as store:
        assert found(store.open("copy")) == found(store.open("prices")) == PAIRS * 3
        assert store.open("copy").first_time > START * 1e6 + 1e9


def test_times_come_back_if_asked(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "prices.jsonl")
    assert run(data, "export", "prices", file) == 0
    assert run(data, "import", "copy", file, "--times") == 0
    with Store(data, write=False) as store:
        copy, original = store.open("copy"), store.open("prices")
        times = [one.time for one in messages(original, 0, original.last)]
        assert [one.time for one in messages(copy, 0, copy.last)] == times
    assert run(data, "export", "copy", file, "--format", "zeps", "--force") == 0
    assert run(data, "import", "other", file, "--format", "zeps", "--times") == 2
    assert "has no times" in capsys.readouterr().err


def test_a_wrong_file_imports_nothing(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wrong.jsonl"
    file.write_text(json.dumps({"key": "k", "body": "1"}) + '\n{"key": "k", "body": 2}\n')
    assert run(data, "import", "new", str(file)) == 1
    assert capsys.readouterr().err == f"zambezi: {file}:2:14: 'body' must be text\n"
    cut = tmp_path / "cut.zeps"
    run(data, "export", "prices", str(cut))
    cut.write_bytes(cut.read_bytes()[:-1])
    capsys.readouterr()
    assert run(data, "import", "new", str(cut)) == 1
    assert f"{cut}, byte " in capsys.readouterr().err
    assert run(data, "import", "new", str(tmp_path / "missing")) == 1
    assert run(data, "import", "$new", str(file)) == 2
    assert run(tmp_path / "nowhere", "import", "new", str(file)) == 1
    with Store(data, write=False) as store:
        assert store.names() == ["prices"]
