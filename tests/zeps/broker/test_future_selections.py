"""zambezi.zeps.broker.future_selections: subscriptions that begin at a future time."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.zeps.stage import PLENTY, Stage
from zambezi.zeps.broker.cursor import Selection
from zambezi.zeps.broker.future_selections import FutureSelections
from zambezi.zeps.filters import Filter
from zambezi.zeps.matchers import Matchers

WANTED = Filter([""], Matchers())


@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), max_size=30), st.lists(st.integers(0, 25), max_size=5))
def test_each_begins_at_its_time_unless_it_is_gone(given: list[tuple[int, bool]], times: list[int]) -> None:
    dated = FutureSelections()
    ones = [Selection(WANTED, 99, due) for due, _ in given]
    for one in ones:
        dated.add(one)
    for one, (_, leaves) in zip(ones, given, strict=True):
        if leaves:
            dated.discard(one)
            dated.discard(one)
    for after, time in enumerate(times):
        waiting = [one for one in ones if one.due]
        dated.begin(time, after)
        for one, (due, leaves) in zip(ones, given, strict=True):
            if one in waiting:
                begun = due <= time and not leaves
                assert (one.due, one.after) == ((0, after) if begun else (due, 99))
    assert len(dated) == sum(1 for one, (_, leaves) in zip(ones, given, strict=True) if one.due and not leaves)


def test_a_block_does_not_ask_selections_of_a_far_future(tmp_path: Path) -> None:
    asked: list[int] = []

    class Watched(Selection):
        __slots__ = ()

        def __setattr__(self, name: str, value: object) -> None:
            if name == "after":
                asked.append(1)
            super().__setattr__(name, value)

    with Stage(tmp_path) as stage:
        publisher = stage.client("prices")
        stream = stage.stream("prices")
        far = [Watched(WANTED, 0, int((stage.now + 1000 + number) * 1_000_000)) for number in range(100)]
        for one in far:
            stream.future_selections.add(one)
        asked.clear()
        publisher.publish("a")
        assert not asked
        stage.now += 1000.0
        publisher.publish("b")
        assert len(asked) == 1
        assert (far[0].due, far[0].after) == (0, 1)


def test_a_client_that_leaves_takes_its_future_selections_along(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.client("prices")
        for _ in range(20):
            client = stage.client("prices", credit=PLENTY)
            for _ in range(5):
                client.subscribe_since(stage.now + 1000)
            assert len(stage.stream("prices").future_selections) == 5
            client.close()
        assert len(stage.stream("prices").future_selections) == 0
