"""zambezi.zmtp.subscriptions: the table, compared with a naive one."""

from collections import Counter
from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from zambezi.zmtp.subscriptions import Subscriptions

PREFIXES = st.binary(max_size=4).map(lambda octets: bytes(octet % 2 + 97 for octet in octets))
PEOPLE = st.sampled_from(["ann", "bob", "eve"])


class AgainstANaiveTable(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table: Subscriptions[str] = Subscriptions()
        self.naive: Counter[tuple[bytes, str]] = Counter()

    def anybody(self, prefix: bytes) -> bool:
        return any(count and subscribed == prefix for (subscribed, _), count in self.naive.items())

    @rule(prefix=PREFIXES, who=PEOPLE)
    def add(self, prefix: bytes, who: str) -> None:
        first = not self.anybody(prefix)
        self.naive[prefix, who] += 1
        assert self.table.add(prefix, who) is first

    @rule(prefix=PREFIXES, who=PEOPLE)
    def cancel(self, prefix: bytes, who: str) -> None:
        had = self.naive[prefix, who] > 0
        self.naive[prefix, who] -= had
        assert self.table.cancel(prefix, who) is (had and not self.anybody(prefix))

    @rule(who=PEOPLE)
    def remove(self, who: str) -> None:
        theirs = {prefix for (prefix, subscriber), count in self.naive.items() if count and subscriber == who}
        for prefix in theirs:
            self.naive[prefix, who] = 0
        assert self.table.remove(who) == sorted(prefix for prefix in theirs if not self.anybody(prefix))

    @rule(topic=PREFIXES)
    def match(self, topic: bytes) -> None:
        expected = {who for (prefix, who), count in self.naive.items() if count and topic.startswith(prefix)}
        found = self.table.match(topic)
        assert set(found) == expected
        assert len(found) == len(expected)

    @invariant()
    def counts_distinct_prefixes(self) -> None:
        assert len(self.table) == len({prefix for (prefix, _), count in self.naive.items() if count})


TestAgainstANaiveTable = AgainstANaiveTable.TestCase


@given(st.lists(PREFIXES), PREFIXES)
def test_removed_subscriptions_leave_nothing_behind(prefixes: list[bytes], topic: bytes) -> None:
    table: Subscriptions[str] = Subscriptions()
    for prefix in prefixes:
        table.add(prefix, "ann")
    table.remove("ann")
    assert table.match(topic) == []
    assert len(table) == 0
    assert vars(table) == vars(Subscriptions())


class Counted(bytes):
    """A prefix that counts how often a table asks for its length."""

    asked: ClassVar[int] = 0

    def __len__(self) -> int:
        Counted.asked += 1
        return super().__len__()


def test_removing_a_subscriber_costs_its_own_prefixes_only() -> None:
    table: Subscriptions[int] = Subscriptions()
    for subscriber in range(400):
        for number in range(100):
            table.add(Counted(b"%d.%d" % (subscriber, number)), subscriber)
    Counted.asked = 0
    for subscriber in range(400):
        table.remove(subscriber)
    assert Counted.asked == 400 * 100
    assert vars(table) == vars(Subscriptions())


def test_the_subscriber_with_the_most_prefixes_is_found() -> None:
    table: Subscriptions[str] = Subscriptions()
    assert table.busiest() is None
    for prefix, who in ((b"a", "ann"), (b"a", "eve"), (b"b", "eve"), (b"a", "ann")):
        table.add(prefix, who)
    assert table.busiest() == "eve"
    assert (table.count("ann"), table.count("eve"), table.count("bob"), table.size) == (1, 2, 0, 3)
    table.cancel(b"b", "eve")
    assert (table.count("eve"), table.size) == (1, 2)
