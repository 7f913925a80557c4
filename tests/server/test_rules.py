"""Who may do what."""

from zambezi.server.config import Rule
from zambezi.server.rules import Rules


def test_without_rules_all_may_do_everything() -> None:
    assert Rules().allow("", "publish", "prices")
    assert Rules().topics == []


def test_what_some_rule_allows_is_allowed_and_nothing_else() -> None:
    rules = Rules([Rule(keys=["ann"], publish=["prices"]), Rule(keys=["a*"], subscribe=["*"])])
    assert rules.allow("ann", "publish", "prices")
    assert not rules.allow("ann", "publish", "other")
    assert rules.allow("ann", "subscribe", "other")
    assert not rules.allow("abe", "publish", "prices")
    assert not any(rules.allow("bob", action, "prices") for action in ("publish", "subscribe", "create"))


def test_users_can_be_kept_to_their_own() -> None:
    rules = Rules([Rule(publish=["of-{user}"])])
    assert rules.allow("ann", "publish", "of-ann")
    assert not rules.allow("ann", "publish", "of-bob")
    assert not rules.allow("*", "publish", "of-bob"), "a name is no pattern"
    assert rules.allow("[x]", "publish", "of-[x]")


def test_the_middleware_gets_its_part() -> None:
    topics = Rules([Rule(keys=["ann", "bob"], put=["mcollective *"], sub=["x"])]).topics
    assert [(rule.user, rule.put, rule.sub) for rule in topics] == [
        ("ann", ("mcollective *",), ("x",)),
        ("bob", ("mcollective *",), ("x",)),
    ]
