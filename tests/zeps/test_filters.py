"""zambezi.zeps.filters: filters of many patterns, and the table that finds their members."""

import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zeps import filters
from zambezi.zeps.errors import PatternError
from zambezi.zeps.filters import Filter, PatternTable
from zambezi.zeps.matchers import KeyTest, Matchers

KEYS = st.text("ab.", max_size=5).map(str.encode) | st.just(b"\xff\xfe")
PATTERNS = st.one_of(
    st.text("ab.", max_size=4),
    st.text("ab.", max_size=4).map("prefix:{}".format),
    st.text("ab.", max_size=4).map("exact:{}".format),
    st.text("ab.*?", max_size=4).map("glob:{}".format),
    st.sampled_from(["regex:a+", "regex:^b", "regex:\\.$", "regex:", "glob:*", "unheard:of", "\udcff"]),
)


def wants(patterns: Iterable[str], key: bytes) -> bool:
    """Match by each pattern, without a cache."""
    matchers = Matchers()
    return any(matchers.parse(pattern)(key) for pattern in patterns)


@pytest.mark.spec("ZEP-13")
@given(st.lists(PATTERNS, max_size=5), st.lists(KEYS, max_size=20))
def test_a_filter_is_the_union_of_its_patterns(patterns: list[str], keys: list[bytes]) -> None:
    wanted = Filter(patterns, Matchers())
    for key in [*keys, *keys]:
        assert wanted(key) == wants(patterns, key)
    assert Filter(patterns, Matchers()).matching(keys) == [
        index for index, key in enumerate(keys) if wants(patterns, key)
    ]
    assert wanted.patterns == frozenset(patterns)


@pytest.mark.parametrize(
    ("patterns", "everything"),
    [
        ([""], True),
        (["prefix:"], True),
        (["a", ""], True),
        ([], False),
        (["a"], False),
        (["exact:"], False),
        (["glob:*"], False),  # it matches everything too, but that is not detected
    ],
)
def test_a_filter_knows_that_it_wants_everything(patterns: list[str], everything: bool) -> None:
    assert Filter(patterns, Matchers()).everything is everything


def test_one_bad_pattern_spoils_a_filter() -> None:
    with pytest.raises(PatternError):
        Filter(["a", "regex:("], Matchers())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.frozensets(PATTERNS, max_size=4)),
        st.tuples(st.just("remove"), st.integers(0, 100)),
        st.tuples(st.just("find"), KEYS),
    ),
    max_size=40,
)


@pytest.mark.spec("ZEP-13")
@given(STEPS)
def test_a_table_finds_the_members_that_filters_would_find(steps: list[tuple[str, object]]) -> None:
    table: PatternTable[int] = PatternTable(Matchers())
    members: dict[int, frozenset[str]] = {}
    asked = [b"", b"a", b"ab.", b"b"]
    for number, (step, what) in enumerate(steps):
        if step == "add":
            assert isinstance(what, frozenset)
            members[number] = what
            table.add(number, what)
        elif step == "remove" and members:
            assert isinstance(what, int)
            member = sorted(members)[what % len(members)]
            table.remove(member, members.pop(member))
        elif step == "find":
            assert isinstance(what, bytes)
            asked.append(what)
        for key in asked:
            found = table.find(key)
            assert len(found) == len(set(found))
            assert set(found) == {member for member, patterns in members.items() if wants(patterns, key)}


@pytest.mark.spec("ZEP-13")
def test_a_key_that_was_matched_before_is_not_matched_again() -> None:
    matchers = Matchers()
    asked: list[bytes] = []

    def spy(rest: bytes) -> KeyTest:
        def test(key: bytes) -> bool:
            asked.append(key)
            return key == rest

        return test

    matchers.register("spy", spy)
    table: PatternTable[str] = PatternTable(matchers)
    table.add("ann", ["spy:a"])
    wanted = Filter(["spy:a"], matchers)
    for _ in range(3):
        assert table.find(b"a") == ("ann",)
        assert table.find(b"b") == ()
        assert wanted(b"a")
        assert not wanted(b"b")
    assert sorted(asked) == [b"a", b"a", b"b", b"b"]


@pytest.mark.parametrize("size", [8, 255])
def test_caches_are_bounded(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "_OF_FILTER", 1 << 20)
    monkeypatch.setattr(filters, "_OF_TABLE", 1 << 20)
    matchers = Matchers()
    wanted = Filter(["0"], matchers)
    table: PatternTable[int] = PatternTable(matchers)
    for member in range(100):
        table.add(member, ["0", f"exact:{member}"])
    tracemalloc.start()
    try:
        for number in range(20_000):
            key = b"%0*d" % (size, number)
            assert wanted(key)
            assert len(table.find(key)) == 100
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 6 << 20


def test_the_patterns_of_a_filter_have_a_limit_together() -> None:
    matchers = Matchers()
    heavy = [rf"regex:{number}\pL+" for number in range(5)]
    assert Filter(heavy[:4], matchers).weight > 4000
    with pytest.raises(PatternError, match="use simpler patterns, or several connections"):
        Filter(heavy, matchers)


def test_a_table_knows_the_weight_of_its_patterns() -> None:
    table: PatternTable[str] = PatternTable(Matchers())
    table.add("ann", ["regex:a+", "b", "exact:c"])
    weight = table.weight
    assert weight > 0
    table.add("bob", ["regex:d+e"])
    table.remove("bob", ["regex:d+e"])
    assert table.weight == weight
    assert not table.knows(b"aa")
    assert table.find(b"aa") == ("ann",)
    assert table.knows(b"aa")
