"""zambezi.mcollective.rules: which user can do what."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.mcollective.errors import RuleError
from zambezi.mcollective.rules import Rule, Rules


def test_without_rules_everything_is_allowed() -> None:
    assert Rules().allow("", "PUT", b"anything")


def test_with_rules_nothing_is_allowed_but_what_they_say() -> None:
    rules = Rules([Rule("ann", put=("a", "b *"), sub=("c",))])
    assert rules.allow("ann", "PUT", b"a")
    assert rules.allow("ann", "PUT", b"b anything at all")
    assert rules.allow("ann", "SUB", b"c")
    assert not rules.allow("ann", "SUB", b"a")
    assert not rules.allow("ann", "PUT", b"b")
    assert not rules.allow("ann", "PUT", b"aa")
    assert not rules.allow("bob", "PUT", b"a")
    assert not rules.allow("", "SUB", b"c")


def test_the_rules_of_all_patterns_that_fit_a_user_add_up() -> None:
    rules = Rules([Rule("*", sub=("news",)), Rule("node-?", sub=("jobs",))])
    assert rules.allow("node-1", "SUB", b"news")
    assert rules.allow("node-1", "SUB", b"jobs")
    assert not rules.allow("node-12", "SUB", b"jobs")
    assert rules.allow("", "SUB", b"news")


def test_a_user_stands_for_itself_and_for_nothing_else() -> None:
    rules = Rules([Rule("*", sub=("nodes {user}",))])
    assert rules.allow("a.b", "SUB", b"nodes a.b")
    assert not rules.allow("a.b", "SUB", b"nodes axb")
    assert not rules.allow("*", "SUB", b"nodes anybody")
    assert rules.allow("*", "SUB", b"nodes *")


def test_any_bytes_can_be_allowed() -> None:
    assert Rules([Rule(put=("*",))]).allow("", "PUT", b"\xff\n\0")


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=10))
def test_patterns_are_those_of_the_shell(pattern: str, topic: str) -> None:
    expected = re.compile(fnmatch.translate(pattern)).match(topic) is not None
    assert Rules([Rule(put=(pattern,))]).allow("", "PUT", topic.encode()) == expected


def test_what_was_decided_is_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.mcollective.rules._REMEMBERED", 10)
    rules = Rules([Rule(put=("1*",))])
    for number in range(100):
        assert rules.allow("", "PUT", b"%d" % number) == str(number).startswith("1")
        assert rules.allow(str(number), "PUT", b"1")
        assert len(rules._decided) <= 10
        assert len(rules._by_user) <= 10


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"who": "ann"}, "rule 2 has an unknown key 'who'"),
        ({"user": 7}, "rule 2: user"),
        ({"user": ""}, "rule 2: user"),
        ({"put": "a"}, "rule 2: put must be a list"),
        ({"sub": [1]}, "rule 2: sub must be a list"),
    ],
)
def test_a_rule_that_cannot_be_understood_is_named(table: dict[str, object], words: str) -> None:
    with pytest.raises(RuleError, match=words):
        Rules.of([{"user": "ann", "put": ["*"]}, table])
