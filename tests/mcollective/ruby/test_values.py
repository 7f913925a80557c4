"""The pairs of a hash."""

from __future__ import annotations

from zambezi.mcollective.ruby.values import Pairs


def test_the_value_of_a_symbol_is_kept() -> None:
    pairs = Pairs()
    pairs.add("a", 1, is_symbol=False)
    pairs.add("a", 2, is_symbol=True)
    pairs.add("a", 3, is_symbol=False)
    pairs.add("b", 4, is_symbol=False)
    pairs.add("b", 5, is_symbol=False)
    assert pairs.values == {"a": 2, "b": 5}


def test_keys_that_python_does_not_have_are_left_out() -> None:
    pairs = Pairs()
    pairs.add([], 1, is_symbol=False)
    pairs.add({}, 1, is_symbol=False)
    assert pairs.values == {}
