"""zambezi.mcollective.bounds: what clients can ask for, and what is counted."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

from tests.mcollective.stage import E, Stage
from zambezi.mcollective.bounds import Bounds, Counters
from zambezi.zmtp import transport


def test_bounds_are_given_by_name_and_do_not_change() -> None:
    with pytest.raises(TypeError):
        Bounds(5)  # type: ignore[call-arg]
    with pytest.raises(FrozenInstanceError):
        Bounds().topics = 5  # type: ignore[misc]


def test_a_middleware_counts_what_every_socket_counts_and_more() -> None:
    names = [field.name for field in fields(Counters)]
    assert set(names) > {field.name for field in fields(transport.Counters)}
    assert all(getattr(Counters(), name) == 0 for name in names)


@pytest.mark.parametrize(
    ("bounds", "topics", "allowed"),
    [
        (Bounds(topics=2), [b"a", b"b"], True),
        (Bounds(topics=2), [b"a", b"b", b"c"], False),
        (Bounds(topics_of_client=1), [b"a"], True),
        (Bounds(topics_of_client=1), [b"a", b"b"], False),
        (Bounds(topic_bytes=3), [b"abc"], True),
        (Bounds(topic_bytes=3), [b"abcd"], False),
    ],
)
def test_each_bound_is_the_greatest_value_that_is_allowed(bounds: Bounds, topics: list[bytes], allowed: bool) -> None:
    (answer,) = Stage(bounds=bounds).client().say(E, b"SUB", b"ID", b"1", E, *topics)
    assert answer[1] == (b"OK" if allowed else b"ERROR")
