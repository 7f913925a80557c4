"""zambezi.zmtp.backoff: delays that grow, with jitter."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.errors import ZmtpError


class Constant(random.Random):
    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def random(self) -> float:
        return self._value


def test_the_delay_doubles_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 1.0)
    delays = [backoff.delay(attempt, Constant(0.0)) for attempt in range(1, 8)]
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0])


def test_jitter_takes_off_at_most_half() -> None:
    assert Backoff(1.0, 8.0).delay(3, Constant(0.999)) == pytest.approx(4.0 * (1 - 0.999 / 2))


@given(st.floats(1e-3, 60), st.floats(1, 100), st.integers(1, 10_000), st.integers())
def test_jitter_stays_within_its_bounds(first: float, factor: float, attempt: int, seed: int) -> None:
    backoff = Backoff(first, first * factor)
    full = min(backoff.longest, first * 2.0 ** min(attempt - 1, 200))
    assert full / 2 <= backoff.delay(attempt, random.Random(seed)) <= full


def test_two_clients_do_not_retry_together() -> None:
    chance = random.Random(1)
    assert len({Backoff().delay(1, chance) for _ in range(100)}) == 100


@pytest.mark.parametrize(("first", "longest"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0)])
def test_an_invalid_backoff_is_refused(first: float, longest: float) -> None:
    with pytest.raises(ZmtpError, match="0 < first <= longest"):
        Backoff(first, longest)
