"""zambezi.zeps.letters: dead letters."""

from __future__ import annotations

import pytest

from zambezi.zeps.errors import ZepsError
from zambezi.zeps.letters import Letter

LETTER = Letter("orders", 41, "ann \udcff", "workers", 5)


@pytest.mark.parametrize("body", [b"", b"two\nlines", bytes(range(256))])
def test_a_letter_is_read_again(body: bytes) -> None:
    assert Letter.parse(LETTER.pack(body)) == (LETTER, body)


@pytest.mark.parametrize("octets", [b"", b"\xff\n", b"[]\n", b"{}\n", b'{"stream": 1}', b"[" * 100_000])
def test_other_bodies_are_no_letters(octets: bytes) -> None:
    with pytest.raises(ZepsError, match="no dead letter"):
        Letter.parse(octets)
