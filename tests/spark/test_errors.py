"""zambezi.spark.errors: the error for streams that do not exist."""

from __future__ import annotations

import pytest

from zambezi.spark.errors import no_such_stream


@pytest.mark.parametrize(
    ("missing", "known", "told"),
    [
        (["reading"], [], "there is no stream 'reading': there are none"),
        (["reading"], ["zeta", "alarms"], "there is no stream 'reading': there are 'alarms', 'zeta'"),
        (["reading"], ["readings"], "there is no stream 'reading': similar names are 'readings'"),
        (
            ["reading"],
            ["readings", "alarms"],
            "there is no stream 'reading': similar names are 'readings' (of 2 streams)",
        ),
        (
            ["redings", "x"],
            ["reading", "alarms", "readings"],
            "there is no stream 'redings', 'x': similar names are 'readings', 'reading' (of 3 streams)",
        ),
        (["\x1b[m"], ["a"], r"there is no stream '\x1b[m': there are 'a'"),
    ],
)
def test_a_few_names_are_told(missing: list[str], known: list[str], told: str) -> None:
    assert str(no_such_stream(missing, known)) == told


def test_of_many_names_the_first_or_the_most_similar_are_told() -> None:
    known = {f"room.{number:04}" for number in range(2000)}
    first = ", ".join(f"'room.{number:04}'" for number in range(10))
    assert str(no_such_stream(["x"], known)) == f"there is no stream 'x': there are {first} and 1,990 more"
    eleven = sorted(known)[:11]
    assert str(no_such_stream(["x"], eleven)).endswith("'room.0009' and 1 more")
    assert str(no_such_stream(["x"], eleven[:10])).endswith("'room.0009'")
    similar = str(no_such_stream(["room-0042"], known))
    assert similar.startswith("there is no stream 'room-0042': similar names are 'room.0042', ")
    assert similar.count("'room.") == 10
    assert similar.endswith(" (of 2,000 streams)")
