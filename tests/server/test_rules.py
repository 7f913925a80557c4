"""Who may do what."""

from zambezi.server.config import Rule
from zambezi.server.rules import Rules


def test_without_rules_all_may_do_everything() -> None:
    assert Rules().allow("", "publish", "prices")


def test_the_first_rule_that_names_a_key_counts() -> None:
    rules = Rules([Rule(keys=["ann"], publish=["prices"]), Rule(keys=["a*"], publish=["*"], subscribe=["*"])])
    assert rules.allow("ann", "publish", "prices")
    assert not rules.allow("ann", "publish", "other")
    assert not rules.allow("ann", "subscribe", "prices")
    assert rules.allow("abe", "publish", "other")


def test_a_key_that_no_rule_names_may_do_nothing() -> None:
    rules = Rules([Rule(keys=["ann"], publish=["*"])])
    assert not any(rules.allow("bob", action, "prices") for action in ("publish", "subscribe", "create", "put", "sub"))


def test_names_are_patterns() -> None:
    rules = Rules([Rule(put=["mcollective *"])])
    assert rules.allow("anybody", "put", "mcollective discovery")
    assert not rules.allow("anybody", "put", "other discovery")
