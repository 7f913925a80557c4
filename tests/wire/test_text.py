"""zambezi.wire.text: any bytes as text and back, and in a form that is fit for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.wire.text import as_bytes, as_text, printable, quoted


@given(st.binary(max_size=100))
def test_every_byte_survives(data: bytes) -> None:
    assert as_bytes(as_text(data)) == data


def test_a_surrogate_that_stands_for_no_byte_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        as_bytes("\ud800")


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_what_is_printable_has_no_commands_for_a_terminal(data: bytes | str) -> None:
    assert printable(data).isprintable()


@given(st.binary(max_size=2000))
def test_what_is_quoted_is_one_short_line(data: bytes) -> None:
    text = quoted(data)
    assert text.isprintable()
    assert len(text) <= 700
    assert text.endswith("...") is (len(data) > 60)
