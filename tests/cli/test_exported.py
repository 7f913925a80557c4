"""zambezi.cli.exported: messages in files, and what is wrong with a line."""

from __future__ import annotations

import io

import pytest

from zambezi.cli.errors import InputError
from zambezi.cli.exported import ExportedMessage, parse_line, read_lines


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"key": "k", "body": "b"}', ExportedMessage(b"k", b"b")),
        (b'{"key_hex": "ff00", "body_hex": ""}\n', ExportedMessage(b"\xff\x00", b"")),
        (b'{"sequence": 7, "key": "", "body": "\\u00e9", "time": null}', ExportedMessage(b"", b"\xc3\xa9")),
        (
            b'{"key": "k", "body": "", "time": "1970-01-01T00:00:01.000002+00:00"}',
            ExportedMessage(b"k", b"", 1_000_002),
        ),
        (b'{"key": "k", "body": "", "time": "1970-01-01T01:00:00+01:00"}', ExportedMessage(b"k", b"", 0)),
    ],
)
def test_a_line_is_a_message(line: bytes, message: ExportedMessage) -> None:
    assert parse_line(line, "f", 1) == message


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"key": "k", "body": }', "f:3:22: it is not JSON: Expecting value"),
        (b'{"key": "\xff", "body": "b"}', "f:3:10: it is not UTF-8"),
        (b"[1]", "f:3:1: it must be a JSON object"),
        (b"[" * 100_000, "f:3:1: its values are nested too deep"),
        (b'{"body": "b"}', "f:3:1: it must have either 'key' or 'key_hex'"),
        (b'{"body": "b", "key": "k", "key_hex": ""}', "f:3:15: it must have either 'key' or 'key_hex'"),
        (b'{"key": 7, "body": "b"}', "f:3:2: 'key' must be text"),
        (b'{"key": "k", "body_hex": "0"}', "f:3:14: 'body_hex' must be bytes in hexadecimal"),
        (b'{"key": "k", "body": null}', "f:3:14: 'body' must be text"),
        (b'{"body": "", "key": "%s"}' % (b"x" * 256), "f:3:14: the key has 256 bytes, and the most is 255"),
        (b'{"key": "k", "body": "", "time": "noon"}', "f:3:26: 'time' must be a time with its zone"),
        (b'{"key": "k", "body": "", "time": "2026-01-31T12:00:00"}', "f:3:26: 'time' must be a time with its zone"),
        (b'{"key": "k", "body": "", "time": 7}', "f:3:26: 'time' must be a time with its zone"),
        (b'{"key": "\\ud800", "body": "b"}', "f:3:2: 'key' must be text"),
    ],
)
def test_a_wrong_line_is_told_with_its_place(line: bytes, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_line(line, "f", 3)
    assert str(caught.value).startswith(problem)


def test_empty_lines_are_passed_over_and_counted() -> None:
    file = io.BytesIO(b'\n{"key": "k", "body": "1"}\r\n\n{"key": "k"}\n')
    found = read_lines(file, "f")
    assert next(found).body == b"1"
    with pytest.raises(InputError, match=r"^f:4:1: "):
        next(found)
