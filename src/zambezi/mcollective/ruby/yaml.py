"""A reader of the part of YAML that Ruby's own library (Psych) writes for plain values.

    blocks     mappings and lists by indentation; the empty ones are `{}` and `[]`
    scalars    plain, in single or double quotes, `|` and `>`; plain ones can be nil, true, integers, floats or :symbols
    tags       !binary, !!str, !ruby/symbol and !ruby/regexp

Everything else is refused: flow collections with contents, keys of several lines, comments, and tags of other classes.
Aliases are refused, as MCollective does: lists of aliases to lists of aliases can stand for any amount of memory.
Symbols and strings become str, `!binary` becomes bytes. Only the first document is read, as by Ruby.

Every line is read a bounded number of times, so the time is proportional to the size.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from zambezi.mcollective.ruby.values import MAX_DEPTH, MAX_DIGITS, MAX_VALUES, Pairs, Unreadable, Value

START: Final = b"---"
MAX_SIZE: Final = 1 << 22  # bytes of a document: the list of its lines can take thirty times as much memory
_INDENT: Final = re.compile(" *")
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029\ufeff]")
_TAG: Final = re.compile(r"(![^\s]*)(?: +|$)")
_ANCHOR: Final = re.compile(r"&[^\s]+(?: +|$)")
_BLOCK: Final = re.compile(r"([|>])(?:([1-9])?([-+])?|([-+])([1-9])) *")
_DOUBLE: Final = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*')
_SINGLE: Final = re.compile(r"[^']*(?:''[^']*)*")
_ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)")
_ESCAPES: Final = dict(zip('0abtnvfre "/\\N_LP', '\0\a\b\t\n\v\f\r\x1b "/\\\x85\xa0\u2028\u2029', strict=True))
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9](?:[,_]?[0-9])*)")
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?")
_WORDS: Final[dict[str, Value]] = (
    dict.fromkeys(("", "~", "null"), None)
    | dict.fromkeys(("true", "yes", "on"), True)
    | dict.fromkeys(("false", "no", "off"), False)
    | {".inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}
)
_LONGEST_WORD: Final = 5
_REFUSED: Final = {
    "*": "an alias",
    "[": "a list in brackets",
    "{": "a mapping in braces",
    "#": "a comment",
    "%": "a directive",
    "@": "a reserved character",
    "`": "a reserved character",
    "?": "a key of several lines",
}
_STRING_TAGS: Final = frozenset(("!", "!str", "!!str"))
_BINARY_TAGS: Final = frozenset(("!binary", "!!binary"))
_SYMBOL_TAGS: Final = frozenset(("!ruby/symbol", "!ruby/sym"))
_REGEXP_TAG: Final = "!ruby/regexp"


def is_yaml(octets: bytes) -> bool:
    """Return whether bytes begin like a YAML document of Ruby."""
    return octets.startswith(START)


def load(octets: bytes) -> Value:
    """Return the value of a YAML document; raise `Unreadable` if it is not of the known part, or exceeds a bound."""
    if not is_yaml(octets):
        raise Unreadable("these bytes are no YAML document: they do not begin with ---")
    if len(octets) > MAX_SIZE:
        raise Unreadable(f"the document has {len(octets)} bytes: at most {MAX_SIZE} are read")
    try:
        text = octets.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"byte {error.start} of {len(octets)} is not UTF-8") from None
    if found := _CONTROL.search(text):
        raise Unreadable(f"the character {found[0]!a} is not escaped")
    return _Reader(text).document()


class _Reader:
    """The lines of a document, and the number of the line to read next."""

    __slots__ = ("_lines", "_row", "_values")

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._row = 0
        self._values = 0
        for row, line in enumerate(self._lines[1:], 1):
            if line[:3] in ("---", "...") and line[3:4] in ("", " "):
                del self._lines[row:]  # the end of the first document
                break

    def document(self) -> Value:
        """Read the document."""
        first = self._lines[0][len(START) :]
        if first[:1] not in ("", " "):
            raise self._unreadable("--- must be followed by a space or a new line")
        value = self._node(first.strip(" "), -1, 0)
        if self._next_indent() >= 0:
            raise self._unreadable("the document ends before this line")
        return value

    # Blocks

    def _next_indent(self) -> int:
        """Go to the next line that is not blank, and return its indentation; -1 at the end."""
        lines = self._lines
        while self._row < len(lines):
            line = lines[self._row]
            indent = _INDENT.match(line).end()  # type: ignore[union-attr]  # it always matches
            if indent < len(line):
                return indent
            self._row += 1
        return -1

    def _block(self, indent: int, depth: int) -> Value:
        """Read the list, the mapping or the scalar that begins in this line, with this indentation."""
        self._count(depth)
        text = self._lines[self._row][indent:]
        if text == "-" or text.startswith("- "):
            return self._list(indent, depth)
        if _key_end(text):
            return self._mapping(indent, depth)
        return self._node(text.rstrip(" "), indent - 1, depth)

    def _list(self, indent: int, depth: int) -> Value:
        found: list[Value] = []
        while self._next_indent() == indent and self._lines[self._row][indent : indent + 2] in ("-", "- "):
            line = self._lines[self._row]
            text = line[indent + 1 :].strip(" ")
            if text == "-" or text.startswith("- ") or _key_end(text):
                # A list or a mapping begins in this line: read it as if it had a line of its own.
                inner = len(line.rstrip(" ")) - len(text)
                self._lines[self._row] = " " * inner + text
                found.append(self._block(inner, depth + 1))
            else:
                found.append(self._node(text, indent, depth + 1))
        self._check_indent(indent)
        return found

    def _mapping(self, indent: int, depth: int) -> Value:
        pairs = Pairs()
        while self._next_indent() == indent:
            text = self._lines[self._row][indent:]
            end = _key_end(text)
            if not end:
                if text == "-" or text.startswith("- "):
                    break  # the list around this mapping
                raise self._unreadable("a key and a colon are missing")
            self._count(depth)
            key, is_symbol = self._key(text[: end - 1].rstrip(" "))
            pairs.add(
                key, self._node(text[end:].strip(" "), indent, depth + 1, is_in_mapping=True), is_symbol=is_symbol
            )
        self._check_indent(indent)
        return pairs.values

    def _check_indent(self, indent: int) -> None:
        if self._next_indent() > indent:
            raise self._unreadable("this line is indented too far")

    def _key(self, text: str) -> tuple[Value, bool]:
        tag = _TAG.match(text)
        if tag is not None:
            if tag[1] not in _STRING_TAGS:
                raise self._unreadable(f"the tag {tag[1][:60]!a} is not known")
            text = text[tag.end() :]
        if text[:1] in ("'", '"'):
            return (_unescaped(text[1:-1], self) if text[0] == '"' else text[1:-1].replace("''", "'")), False
        self._check_start(text)
        return (_plain(text), text[:1] == ":" and len(text) > 1) if tag is None else (text, False)

    def _node(self, text: str, indent: int, depth: int, *, is_in_mapping: bool = False) -> Value:
        """Read a value: the rest of this line, or the lines after it that are indented more than `indent`."""
        self._count(depth)
        if anchor := _ANCHOR.match(text):
            text = text[anchor.end() :]
        tag = ""
        if found := _TAG.match(text):
            tag, text = found[1], text[found.end() :]
        if tag:
            return self._tagged(tag, text, indent)
        if not text:
            self._row += 1
            return self._below(indent, depth, is_in_mapping)
        if text in ("[]", "{}"):
            self._row += 1
            return [] if text == "[]" else {}
        value, is_plain = self._scalar(text, indent)
        return _plain(value) if is_plain else value

    def _below(self, indent: int, depth: int, is_in_mapping: bool) -> Value:
        """Read the block in the next lines; None if no line is indented enough."""
        below = self._next_indent()
        if below > indent:
            return self._block(below, depth)
        # Ruby does not indent a list in a mapping.
        if is_in_mapping and below == indent and self._lines[self._row][indent : indent + 2] in ("-", "- "):
            return self._block(below, depth)
        return None

    def _tagged(self, tag: str, text: str, indent: int) -> Value:
        if not text:
            self._row += 1
            value = ""
        else:
            value = self._scalar(text, indent)[0]
        if tag in _STRING_TAGS:
            return value
        if tag in _SYMBOL_TAGS:
            return value
        if tag in _BINARY_TAGS:
            try:
                return base64.b64decode(value)
            except (binascii.Error, ValueError):
                raise self._unreadable("a binary string is not base64") from None
        if tag == _REGEXP_TAG and value[:1] == "/" and "/" in value[1:]:
            return value[1 : value.rindex("/")]
        raise self._unreadable(f"the tag {tag[:60]!a} is not known")

    def _count(self, depth: int) -> None:
        self._values += 1
        if depth > MAX_DEPTH:
            raise self._unreadable(f"values are more than {MAX_DEPTH} levels deep")
        if self._values > MAX_VALUES:
            raise self._unreadable(f"there are more than {MAX_VALUES} values")

    # Scalars: each method goes to the line after the scalar

    def _scalar(self, text: str, indent: int) -> tuple[str, bool]:
        """Read a scalar; return its text, and whether it is plain."""
        if text[0] == '"':
            return _unescaped(self._quoted(text[1:], indent, _DOUBLE, '"'), self), False
        if text[0] == "'":
            return self._quoted(text[1:], indent, _SINGLE, "'").replace("''", "'"), False
        if text[0] in "|>":
            return self._literal(text, indent), False
        self._check_start(text)
        return self._continued(text, indent), True

    def _check_start(self, text: str) -> None:
        if text[:1] in _REFUSED and not (text[0] == "?" and text[1:2] not in ("", " ")):
            raise self._unreadable(f"{_REFUSED[text[0]]} is not supported")

    def _continued(self, text: str, indent: int) -> str:
        """Read the lines of a plain scalar, and join them: with a space, or a new line for each blank line."""
        parts = [text]
        self._row += 1
        blank = 0
        while self._row < len(self._lines):
            line = self._lines[self._row]
            start = _INDENT.match(line).end()  # type: ignore[union-attr]
            if start == len(line):
                blank += 1
            elif start > indent:
                parts.append("\n" * blank or " ")
                parts.append(line.strip(" "))
                blank = 0
            else:
                break
            self._row += 1
        value = "".join(parts)
        if " #" in value or ": " in value or value.endswith(":"):
            raise self._unreadable("a plain scalar contains a comment or a key")
        return value

    def _quoted(self, text: str, indent: int, inside: re.Pattern[str], quote: str) -> str:
        """Read up to the closing quote, and join the lines. Escapes stay as they are."""
        parts: list[str] = []
        blank = 0
        glue = ""
        while True:
            end = inside.match(text).end()  # type: ignore[union-attr]  # it always matches
            is_last = text[end : end + 1] == quote
            if is_last and text[end + 1 :].strip(" "):
                raise self._unreadable("there is text after a closing quote")
            is_joined = text[end:] == "\\"  # a backslash at the end of the line: no space
            part = text[:end] if is_last or is_joined else _trimmed(text)
            if not part and not is_last and not is_joined and parts:
                blank += 1
            else:
                parts += ["\n" * blank or glue, part] if parts else [part]
                blank, glue = 0, "" if is_joined else " "
            self._row += 1
            if is_last:
                return "".join(parts)
            if self._row >= len(self._lines):
                raise self._unreadable("a closing quote is missing")
            text = self._lines[self._row].lstrip(" \t")
            if text and len(self._lines[self._row]) - len(text) <= indent:
                raise self._unreadable("a line in quotes is not indented")

    def _literal(self, header: str, indent: int) -> str:
        """Read the lines of a block scalar: as they are (`|`), or with single line ends as spaces (`>`)."""
        found = _BLOCK.fullmatch(header)
        if found is None:
            raise self._unreadable(f"{header[:20]!a} is not the beginning of a block")
        chomp = found[3] or found[4]
        given = found[2] or found[5]
        self._row += 1
        start = self._row
        margin = max(indent, 0) + int(given) if given else 0
        lines = self._lines
        while self._row < len(lines):
            line = lines[self._row]
            first = _INDENT.match(line).end()  # type: ignore[union-attr]
            if first < len(line):
                margin = margin or first
                if first < margin or margin <= indent:
                    break
            self._row += 1
        content = [line[margin:] if margin else "" for line in lines[start : self._row]]
        kept = len(content)
        while kept and not content[kept - 1]:
            kept -= 1
        body = "\n".join(content[:kept]) if found[1] == "|" else _folded(content[:kept])
        if chomp == "-":
            return body
        if chomp == "+":
            ended = len(content) - kept - (self._row == len(lines))  # text after the last line end is no line
            return body + "\n" * (ended + (kept > 0))
        return body + "\n" if kept else ""

    def _unreadable(self, reason: str) -> Unreadable:
        return Unreadable(f"in line {self._row + 1} of {len(self._lines)}: {reason}")


def _key_end(text: str) -> int:
    """Return the position after the colon of the key that a line begins with; 0 if it begins with none."""
    start = 0
    if text[:1] == "!" and (tag := _TAG.match(text)):
        start = tag.end()
    first = text[start : start + 1]
    if first in ("'", '"'):
        end = (_DOUBLE if first == '"' else _SINGLE).match(text, start + 1).end()  # type: ignore[union-attr]
        rest = text[end + 1 : end + 3].lstrip(" ") if text[end : end + 1] == first else ""
        return text.index(":", end + 1) + 1 if rest[:1] == ":" and text[end + 1 : end + 3] in (":", ": ") else 0
    if first in ("", "|", ">", "&", "*", "[", "{", "#", "%", "@", "`"):
        return 0
    end = text.find(": ", start)
    if end < 0 and text.endswith(":"):
        end = len(text) - 1
    return end + 1 if end > start else 0


def _plain(text: str) -> Value:
    """Return the value that a plain scalar stands for."""
    if len(text) <= _LONGEST_WORD:
        word = text.lower()
        if word in _WORDS:
            return _WORDS[word]
    first = text[0]
    if first == ":" and len(text) > 1:
        name = text[1:]
        return name[1:-1] if len(name) > 1 and name[0] in "'\"" and name[-1] == name[0] else name
    if first in "0123456789-+." and len(text) <= MAX_DIGITS:
        if _INTEGER.fullmatch(text):
            return int(text.replace(",", "").replace("_", ""))
        if _FLOAT.fullmatch(text):
            return float(text)
    return text


def _trimmed(text: str) -> str:
    """Return a line without the blanks at its end, but with a blank that is escaped."""
    short = text.rstrip(" \t")
    escapes = len(short) - len(short.rstrip("\\"))
    return text[: len(short) + 1] if escapes % 2 else short


def _unescaped(text: str, reader: _Reader) -> str:
    if "\\" not in text:
        return text

    def character(found: re.Match[str]) -> str:
        escape = found[1]
        if len(escape) == 1:
            if escape in _ESCAPES:
                return _ESCAPES[escape]
        else:
            code = int(escape[1:], 16)
            if code < 0xD800 or 0xE000 <= code <= 0x10FFFF:
                return chr(code)
        raise reader._unreadable(f"{found[0]!a} is no escape")

    return _ESCAPE.sub(character, text)


def _folded(lines: list[str]) -> str:
    """Join the lines of a folded block. Lines that begin with a blank keep their line ends."""
    parts: list[str] = []
    blank = 0
    is_indented = False
    for line in lines:
        if not line:
            blank += 1
            continue
        is_now = line[0] in " \t"
        if parts:
            keeps = is_now or is_indented
            parts.append("\n" * (blank + 1) if keeps else "\n" * blank or " ")
        else:
            parts.append("\n" * blank)
        parts.append(line)
        blank, is_indented = 0, is_now
    return "".join(parts)
