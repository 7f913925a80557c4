"""zambezi.zeps.broker.turns: work that waits in line."""

from collections import deque
from collections.abc import Callable

import pytest

from zambezi.zeps.broker.turns import TURN, Turns, keys_in_slice


class Loop:
    """An event loop whose turns the test takes."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], object]] = deque()
        self.turns = Turns(self.soon.append)

    def turn(self) -> None:
        for _ in range(len(self.soon)):
            self.soon.popleft()()


def test_work_is_done_in_order_and_a_little_in_each_turn() -> None:
    loop = Loop()
    done: list[str] = []

    def piece(name: str, cost: int) -> Callable[[], int]:
        def work() -> int:
            done.append(name)
            return cost

        return work

    loop.turns.wait(piece("a", TURN - 1))
    loop.turns.wait(piece("b", TURN))
    loop.turns.wait(piece("c", 0))
    assert done == []
    loop.turn()
    assert done == ["a", "b"]
    assert len(loop.turns) == 1
    loop.turn()
    assert done == ["a", "b", "c"]
    assert not loop.soon


def test_work_that_fails_does_not_hold_up_the_rest() -> None:
    loop = Loop()
    done: list[str] = []

    def fail() -> int:
        raise ValueError("x")

    def work() -> int:
        done.append("work")
        return 1

    loop.turns.wait(fail)
    loop.turns.wait(work)
    with pytest.raises(ValueError, match="x"):
        loop.turn()
    loop.turn()
    assert done == ["work"]


def test_heavy_patterns_get_few_keys() -> None:
    assert keys_in_slice(1) > keys_in_slice(1000) > 1
    assert keys_in_slice(1 << 40) == 1
