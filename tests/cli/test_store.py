"""`zambezi store`: copy, list, verify and restore, with a directory as the store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.zeps.journal.streams import append
from zambezi import cli
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.journal.verify import Damage, verify
from zambezi.zeps.store.commands import Failed
from zambezi.zeps.store.shell import ObjectStore

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

InTerminal: TypeAlias = Callable[..., tuple[list[str], str]]
START = 1_700_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with Store(path, policy=Policy(segment=300)) as store:
        prices = store.open("prices")
        for number in range(10):
            append(prices, b"body %d" % number, b"\xff\x00", now=START + number, key=f"k{number % 3}")
        append(store.open("[b]\x1b"), b"x" * 2900)
    return path


def run(*arguments: str | Path) -> int:
    return cli.main(["store", *map(str, arguments)])


def test_a_data_directory_is_copied_and_restored(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    assert run("copy", store, "--data", data) == 0
    assert "prices: 20 messages copied" in capsys.readouterr().out
    assert run("copy", store, "--data", data) == 0
    assert "prices: 0 messages copied" in capsys.readouterr().out
    assert run("verify", store) == 0
    assert "prices: 20 messages in" in capsys.readouterr().out
    restored = tmp_path / "restored"
    assert run("restore", store, "--data", restored) == 0
    with Store(data, write=False) as one, Store(restored, write=False) as other:
        assert one.names() == other.names()
        for name in one.names():
            was, now = one.open(name), other.open(name)
            assert (was.incarnation, was.first, was.last) == (now.incarnation, now.first, now.last)
            assert (was.first_time, was.last_time) == (now.first_time, now.last_time)
            assert not [found for found in verify(now) if isinstance(found, Damage)]
    assert run("restore", store, "--data", restored) == 0
    assert "prices: no damage" in capsys.readouterr().out


def test_a_list_fits_into_a_terminal(data: Path, tmp_path: Path, in_terminal: InTerminal) -> None:
    assert run("copy", tmp_path / "store", "--data", data) == 0
    lines, _ = in_terminal("store", "list", str(tmp_path / "store"))
    del lines[: next(index for index, line in enumerate(lines) if line.startswith("stream "))]  # the title
    head, *rows = lines
    assert head.split() == ["stream", "messages", "first", "last", "size", "newest", "segments"]
    assert "2023-11-14 22:13:29Z" in rows[1]
    assert rows[2:] == ["no room for: incarnation (--json shows all columns)"]


def test_damage_at_the_end_of_a_stream_is_repaired(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker that opens the stream would cut off its damaged end."""
    store = tmp_path / "store"
    assert run("copy", store, "--data", data) == 0
    with Store(data, write=False) as before:
        journal = before.open("prices")
        incarnation, last, log = journal.incarnation, journal.last, Path(journal.segments[-1].path + ".log")
    octets = bytearray(log.read_bytes())
    octets[-1] ^= 1
    log.write_bytes(octets)
    assert run("restore", store, "--data", data) == 0
    assert "is restored" in capsys.readouterr().out
    with Store(data) as after:
        journal = after.open("prices")
        assert (journal.incarnation, journal.last) == (incarnation, last)
        assert not [found for found in verify(journal) if isinstance(found, Damage)]


def test_copy_and_restore_report_as_json(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    assert run("copy", store, "prices", "--data", data, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"stream": "prices", "copied": 20}
    restored = tmp_path / "restored"
    for count in (20, 0):
        assert run("restore", store, "--data", restored, "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert found == {"stream": "prices", "restored": count, "repaired": [], "damage": []}
    with Store(data) as changed:
        changed.delete("prices")
        append(changed.open("prices"), b"another stream of the same name")
    assert run("copy", store, "prices", "--data", data, "--json") == 1
    assert "incarnation" in json.loads(capsys.readouterr().out)["error"]


def test_a_list_is_a_table_or_json(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    run("copy", store, "--data", data)
    capsys.readouterr()
    assert run("list", store) == 0
    assert r"[b]\x1b" in capsys.readouterr().out
    assert run("list", store, "prices", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["stream"], found["first"], found["last"]) == ("prices", 1, 20)


def test_damage_is_found(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    run("copy", store, "prices", "--data", data)
    chunk = max(store.glob("streams/prices/*/chunks/*"), key=lambda path: path.stat().st_size)
    octets = bytearray(chunk.read_bytes())
    octets[20] ^= 1
    chunk.write_bytes(octets)
    (chunk.parent / "readme").write_text("")
    capsys.readouterr()
    assert run("verify", store) == 1
    output = capsys.readouterr().out
    assert "does not match its CRC" in output
    assert "readme is not an object" in output
    assert "damage in 2 places" in output
    assert run("verify", store, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["stream"], len(told["damage"])) == ("prices", 2)


def test_what_cannot_be_done_is_said(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", tmp_path / "nothing") == 1
    assert "there is no such directory" in capsys.readouterr().err
    assert run("copy", tmp_path / "nothing", "--data", tmp_path / "no data") == 1
    assert "is no data directory" in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()
    assert run("list", tmp_path) == 1
    assert "not the prefix of a store" in capsys.readouterr().err
    store = tmp_path / "store"
    run("copy", store, "prices", "--data", data)
    assert run("list", store, "--option", "x") == 2
    assert "NAME=VALUE" in capsys.readouterr().err
    for arguments, told in (
        (("list", store, "no"), "has no stream 'no'; it has 'prices'"),
        (("copy", store, "no", "--data", data), "has no stream 'no'"),
        (("list", "ftp://x/y"), "is no store"),
    ):
        assert run(*arguments) == 1
        assert told in capsys.readouterr().err


def test_a_list_of_a_store_that_does_not_answer_gives_up_soon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectStore, "_ask", lambda _store, _request: Failed("down"))
    monkeypatch.setattr("zambezi.cli.store.LOOK", 0.0)
    assert cli.main(["store", "list", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"zambezi: {tmp_path} does not answer: down\n"
