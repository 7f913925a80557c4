"""zambezi.cli.counts: numbers of things in sentences."""

import pytest

from zambezi.cli.counts import so_many


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 messages"), (1, "1 message"), (2, "2 messages"), (1234, "1,234 messages")]
)
def test_one_thing_is_singular(number: int, said: str) -> None:
    assert so_many(number, "message") == said
