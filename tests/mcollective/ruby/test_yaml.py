"""The reader of YAML: documents that Ruby wrote, and those of an attacker."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interop.ruby_bodies import YAML
from zambezi.mcollective.ruby.values import MAX_DEPTH, MAX_VALUES, Unreadable
from zambezi.mcollective.ruby.yaml import load

# YAML.dump of a list in Ruby 3.1 (Psych 4.0.3), and its values
RECORDED = r"""---
-
- true
- -5
- 1000000000000000000000000000000
- 1.5
- .inf
- 1.0e+100
- ''
- " "
- a b
- 'yes'
- "~"
- '1'
- '1_000'
- ":sym"
- "&a"
- 'a: b'
- 'a #b'
- it's
- say "hi"
- "tab\tx"
- |-
  a
  b
- |
  a
  b
- "a\n\n"
- |2-

  a
- |2-
    lead
  b
- "trail \nb"
- |
  a
    b
- "\0\x01"
- ü
- "\L"
- "\U0001F600"
- !binary |-
  //4=
- 'word word word word word word word word word word word word word word word word
  word word word word '
- "word word word word word word word word word word word word word word word word
  word \nmore
  more "
- word word word word word word word word word word word word word word word word word
  word word x
- a\b
- :a
- :a b
- !ruby/symbol
- :a:b
- :[]=
- []
- {}
- - []
- - - 1
    - - 2
      - 3
  - 4
- a:
    b:
      c:
      - 1
      - d: 2
- 1: 2
  1.5: 4
  x y: 1
  'a: b': 2
  :s y: 3
  '': 4
  "- x": 5
- - :a: 1
    :b:
    - 1
    - 2
  - :c: {}
- !ruby/regexp /a.b/i
- "---"
- !!str '<<'
- http://a.b/c?d=e&f
- 1e3
- "\uFEFFx"
- "\e[0m"
- :body: |
    --- ping
    ...
- a:
"""
VALUES: list[Any] = [
    *(None, True, -5, 10**30, 1.5, math.inf, 1e100),
    *("", " ", "a b", "yes", "~", "1", "1_000", ":sym", "&a", "a: b", "a #b", "it's", 'say "hi"', "tab\tx"),
    *("a\nb", "a\nb\n", "a\n\n", "\na", "  lead\nb", "trail \nb", "a\n  b\n", "\0\x01", "ü", "\u2028", "\U0001f600"),
    *(b"\xff\xfe", "word " * 20, "word " * 17 + "\nmore more ", "word " * 19 + "x", "a\\b"),
    *("a", "a b", "", "a:b", "[]=", [], {}, [[]], [[1, [2, 3]], 4]),
    {"a": {"b": {"c": [1, {"d": 2}]}}},
    {1: 2, 1.5: 4, "x y": 1, "a: b": 2, "s y": 3, "": 4, "- x": 5},
    [{"a": 1, "b": [1, 2]}, {"c": {}}],
    *("a.b", "---", "<<", "http://a.b/c?d=e&f", "1e3", "\ufeffx", "\x1b[0m", {"body": "--- ping\n...\n"}, {"a": None}),
]


def test_values_that_ruby_wrote() -> None:
    found = load(RECORDED.encode())
    assert isinstance(found, list)
    for value, expected in zip(found, VALUES, strict=True):
        assert value == expected


@pytest.mark.parametrize(
    ("document", "value"),
    [
        ("---", None),
        ("--- ping\n", "ping"),
        ("--- ping\n...\n", "ping"),
        ("--- \n- 1\n", [1]),  # Ruby 1.8 writes a space
        ("--- |\n  a\n  b\n", "a\nb\n"),
        ('--- "a\\nb"\n', "a\nb"),
        ('--- "a \\\n  b"\n', "a b"),
        ('--- "a\n\n  b"\n', "a\nb"),
        ("--- 'a\n\n  b'\n", "a\nb"),
        ("--- a\n  b\n\n  c\n", "a b\nc"),
        ("--- >\n  a\n  b\n\n  c\n   d\n  e\n", "a b\nc\n d\ne\n"),
        ("--- >-\n  a\n  b\n", "a b"),
        ("--- |+\n  a\n\n", "a\n\n"),
        ("--- &1 a\n", "a"),
        ('---\n:"a b": 1\n', {"a b": 1}),
        ("--- 1\n--- 2\n", 1),  # only the first document
        ("---\n- 1,000\n- 0\n- 012\n", [1000, 0, "012"]),
        ("---\nagent: 2\n:agent: 1\n", {"agent": 1}),
        ("---\n:agent: 1\nagent: 2\n", {"agent": 1}),
    ],
)
def test_values(document: str, value: Any) -> None:
    assert load(document.encode()) == value


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"a: 1", "do not begin with ---"),
        (b"--- \xff", "byte 4 of 5 is not UTF-8"),
        (b"--- a\0b", "is not escaped"),
        (b"---x", "followed by a space or a new line"),
        (b"---\n- &1 []\n- *1\n", "line 3 of 4: an alias is not supported"),
        (b"--- [1, 2]", "a list in brackets"),
        (b"--- {a: 1}", "a mapping in braces"),
        (b"---\n? a\n: b\n", "a key of several lines"),
        (b"---\n# a\n- 1\n", "a comment"),
        (b"--- a #b", "a comment or a key"),
        (b"--- !ruby/object:Gem::Installer\ni: x\n", "the tag '!ruby/object:Gem::Installer' is not known"),
        (b"--- !binary |-\n  \xc3\xbc\n", "not base64"),
        (b"--- 'a", "a closing quote is missing"),
        (b"--- 'a' b", "text after a closing quote"),
        (b'--- "\\q"', "is no escape"),
        (b'--- "\\uD83D"', "is no escape"),
        (b"--- |x\n", "not the beginning of a block"),
        (b"---\na: 1\n  b: 2\n", "a comment or a key"),
        (b"---\n- 1\n   - 2\nx", "the document ends before this line|a comment or a key"),
        (b"---\na: 1\nb\n", "a key and a colon are missing"),
        (b"---\na: 'x\ny'\n", "a line in quotes is not indented"),
    ],
)
def test_refused(document: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        load(document)


def test_depth_is_bounded() -> None:
    def nested(levels: int) -> bytes:
        return b"---\n" + b"- " * levels + b"1\n"

    load(nested(MAX_DEPTH))
    for bomb in (
        nested(MAX_DEPTH + 1),
        nested(100_000),
        b"---\n" + b"".join(b" " * level + b"a:\n" for level in range(500)),
        b"---\n" + b"- a:\n" + b"".join(b" " * level + b"- a:\n" for level in range(4, 500, 4)),
    ):
        with pytest.raises(Unreadable, match=f"more than {MAX_DEPTH} levels"):
            load(bomb)


def test_the_number_of_values_is_bounded() -> None:
    with pytest.raises(Unreadable, match=f"more than {MAX_VALUES} values"):
        load(b"---\n" + b"- 1\n" * MAX_VALUES)


@pytest.mark.parametrize(
    "piece",
    [b"\n", b"- ", b"  - a\n", b"'a' ", b'"\\n" ', b"a\n\n  ", b": ", b"!a ", b"&a ", b"|\n", b"''", b"\\"],
)
def test_long_documents_are_read_or_refused_before_the_test_times_out(piece: bytes) -> None:
    for start in (b"---\n", b"--- ", b"--- '", b'--- "', b"--- |\n  ", b"--- >\n  ", b"---\na: 'x\n  "):
        with contextlib.suppress(Unreadable):
            load(start + piece * (300_000 // len(piece)))  # quadratic time would be minutes


@given(st.sampled_from(sorted(YAML)), st.data())
def test_a_changed_byte_gives_a_value_or_the_error(name: str, data: st.DataObject) -> None:
    octets = bytearray(YAML[name])
    position = data.draw(st.integers(0, len(octets) - 1))
    octets[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with contextlib.suppress(Unreadable):
        load(bytes(octets))


@given(st.text("-:'\"|>!&*[]{}#?% \n\tab1~\\\u00fc", max_size=60))
def test_random_text_gives_a_value_or_the_error(text: str) -> None:
    with contextlib.suppress(Unreadable):
        load(b"---" + text.encode())
