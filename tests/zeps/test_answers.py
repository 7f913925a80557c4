"""zambezi.zeps.answers: caches of keys are bounded, each and all together."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.zeps.stage import PLENTY, Stage
from zambezi.zeps.answers import Answers, Memory
from zambezi.zeps.filters import Filter, PatternTable
from zambezi.zeps.matchers import Matchers


@given(st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=3), st.booleans())))
def test_a_cache_answers_as_it_was_told_and_is_bounded(said: list[tuple[int, bytes, bool]]) -> None:
    memory = Memory(1500)
    every: list[Answers[int]] = [Answers(700, memory) for _ in range(6)]
    truth: dict[tuple[int, bytes], int] = {}
    for turn, (which, key, clear) in enumerate(said):
        answers = every[which]
        if clear:
            answers.clear()
        elif key not in answers:
            answers.remember(key, turn)
            truth[which, key] = turn
            assert answers[key] == turn
        assert memory.octets == sum(one.octets for one in every) <= 1500
        assert all(one.octets <= 700 for one in every)
        assert all(one[key] == truth[number, key] for number, one in enumerate(every) for key in one)


def test_the_cache_that_has_not_grown_for_longest_is_cleared_first() -> None:
    memory = Memory(1000)
    one, two, three = (Answers[bool](10_000, memory) for _ in range(3))
    for number in range(2):
        one.remember(b"%d" % number, True)
        two.remember(b"%d" % number, True)
    one.remember(b"2", True)
    three.remember(b"0", True)
    three.remember(b"1", True)
    assert [len(answers) for answers in (one, two, three)] == [3, 0, 2]


def test_filters_and_tables_share_one_bound() -> None:
    matchers = Matchers()
    matchers.memory = Memory(100_000)
    filters = [Filter([f"glob:{number}*"], matchers) for number in range(100)]
    table: PatternTable[int] = PatternTable(matchers)
    table.add(1, ["glob:1*"])
    for key in (b"%d" % number for number in range(1000)):
        assert [one(key) for one in filters[:20]] == [key.startswith(b"%d" % number) for number in range(20)]
        assert table.find(key) == ((1,) if key.startswith(b"1") else ())
        assert memory_of(filters, table) == matchers.memory.octets <= 100_000


def memory_of(filters: list[Filter], table: PatternTable[int]) -> int:
    return sum(one._seen.octets for one in filters) + table._seen.octets


def test_subscriptions_of_many_clients_remember_no_more_than_the_bound(tmp_path: Path) -> None:
    matchers = Matchers()
    matchers.memory = Memory(50_000)
    with Stage(tmp_path, matchers=matchers) as stage:
        publisher = stage.client("prices")
        publisher.publish_many([f"key{number}" for number in range(1000)])
        for number in range(10):
            client = stage.client("prices", credit=PLENTY)
            for one in range(5):
                client.subscribe(f"glob:key*{number}{one}")
            assert len(client.keys) >= 45
            assert 0 < matchers.memory.octets <= 50_000
