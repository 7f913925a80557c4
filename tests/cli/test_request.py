"""`zambezi request`, as people at a terminal use it."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.zeps.serving import serving
from tests.zmtp.waiting import PATIENCE
from zambezi import cli
from zambezi.zeps.sync import Client


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """A broker, and a program that answers requests with their body in capitals, or with an error."""
    with serving(tmp_path) as (_, endpoint), Client.connect(endpoint) as client:
        client.create("words")

        def serve() -> None:
            for request in requests:
                if request.body == b"never":
                    continue
                if request.body:
                    request.reply(request.body.upper())
                else:
                    request.fail("there is nothing to say")

        with client.stream("words").serve("up") as requests:
            thread = threading.Thread(target=serve)
            thread.start()
            yield endpoint
            requests.close()
            thread.join(PATIENCE)


def test_the_reply_is_printed(
    endpoint: str, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    at = ["--endpoint", endpoint]
    assert cli.main(["request", "words", "up", "hello", *at]) == 0
    assert capsysbinary.readouterr().out == b"HELLO"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"from\nstdin\xff")))
    assert cli.main(["request", "words", "up", *at]) == 0
    assert capsysbinary.readouterr().out == b"FROM\nSTDIN\xff"
    (tmp_path / "file").write_bytes(b"from a file")
    assert cli.main(["request", "words", "up", "--file", str(tmp_path / "file"), *at]) == 0
    assert capsysbinary.readouterr().out == b"FROM A FILE"


def test_a_request_without_a_reply_is_told_in_one_line(
    endpoint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ["--endpoint", endpoint]
    assert cli.main(["request", "words", "down", "hello", *at]) == 1
    told = "zambezi: no server of 'words' answers requests with the key 'down'\n"
    assert capsys.readouterr().err == told
    assert cli.main(["request", "words", "up", "", *at]) == 1
    assert capsys.readouterr().err == "zambezi: there is nothing to say\n"
    assert cli.main(["request", "words", "up", "never", "--timeout", "0.01", *at]) == 1
    assert "no reply to 'up' came within 0.01 s" in capsys.readouterr().err
    monkeypatch.setattr("zambezi.cli.notices.QUIET", 0.0)
    assert cli.main(["request", "words", "up", "never", "--timeout", "0.2", *at]) == 1
    assert "zambezi: warning: waiting for a reply of words, for up to 0.2 s" in capsys.readouterr().err
    assert cli.main(["request", "words", "up", "x", "--file", "y", *at]) == 2
    assert "either BODY or --file" in capsys.readouterr().err
