"""Z85: bytes as printable text (ZeroMQ RFC 32).

Four bytes, read as one big-endian number, become five characters of an 85-character alphabet that is safe in source
code and on command lines. Keys are displayed, stored and configured in this form: 32 bytes are 40 characters.

    >>> encode(bytes.fromhex("864FD26FB559F75B"))
    'HelloWorld'
    >>> decode("HelloWorld").hex()
    '864fd26fb559f75b'

Errors give positions and never quote the text around them, because the text may be a secret key.
"""

from __future__ import annotations

from typing import Final

from zambezi.errors import ZambeziError

ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

_DIGITS: Final = {character: digit for digit, character in enumerate(ALPHABET)}
_GROUP_OCTETS: Final = 4
_GROUP_CHARACTERS: Final = 5
_GROUP_LIMIT: Final = 1 << 32


class Z85Error(ZambeziError):
    """The input cannot be converted to or from Z85. `position` is an index into the input."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(f"Z85: {problem} at position {position}")
        self.problem = problem
        self.position = position


def encode(octets: bytes) -> str:
    """Return the Z85 text of `octets`, whose length must be a multiple of 4."""
    excess = len(octets) % _GROUP_OCTETS
    if excess:
        raise Z85Error(
            f"{len(octets)} bytes are not a multiple of {_GROUP_OCTETS}: incomplete group",
            len(octets) - excess,
        )
    characters: list[str] = []
    for start in range(0, len(octets), _GROUP_OCTETS):
        number = int.from_bytes(octets[start : start + _GROUP_OCTETS], "big")
        group = []
        for _ in range(_GROUP_CHARACTERS):
            number, digit = divmod(number, len(ALPHABET))
            group.append(ALPHABET[digit])
        characters.extend(reversed(group))
    return "".join(characters)


def decode(text: str) -> bytes:
    """Return the bytes of the Z85 `text`, whose length must be a multiple of 5."""
    excess = len(text) % _GROUP_CHARACTERS
    if excess:
        raise Z85Error(
            f"{len(text)} characters are not a multiple of {_GROUP_CHARACTERS}: incomplete group",
            len(text) - excess,
        )
    octets = bytearray()
    for start in range(0, len(text), _GROUP_CHARACTERS):
        number = 0
        for position in range(start, start + _GROUP_CHARACTERS):
            digit = _DIGITS.get(text[position])
            if digit is None:
                raise Z85Error(f"{text[position]!a} is not a Z85 character", position)
            number = number * len(ALPHABET) + digit
        # Five characters can encode up to 85^5 - 1, which is more than four bytes hold.
        if number >= _GROUP_LIMIT:
            raise Z85Error("a group encodes more than 2^32 - 1", start)
        octets += number.to_bytes(_GROUP_OCTETS, "big")
    return bytes(octets)
