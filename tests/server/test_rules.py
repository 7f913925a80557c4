"""The permissions of clients."""

from zambezi.server.config import Rule
from zambezi.server.rules import Rules


def test_without_rules_every_client_may_do_everything() -> None:
    assert Rules().allow("", "publish", "prices")
    assert Rules().topics == []


def test_with_rules_a_client_may_do_only_what_one_of_them_allows() -> None:
    rules = Rules([Rule(keys=["ann"], publish=["prices"]), Rule(keys=["a*"], subscribe=["*"])])
    assert rules.allow("ann", "publish", "prices")
    assert not rules.allow("ann", "publish", "other")
    assert rules.allow("ann", "subscribe", "other")
    assert not rules.allow("abe", "publish", "prices")
    assert not any(rules.allow("bob", action, "prices") for action in ("publish", "subscribe", "create"))


def test_a_rule_can_limit_each_user_to_streams_of_their_own() -> None:
    rules = Rules([Rule(publish=["of-{user}"])])
    assert rules.allow("ann", "publish", "of-ann")
    assert not rules.allow("ann", "publish", "of-bob")
    assert not rules.allow("*", "publish", "of-bob"), "the name of a user is not a pattern"
    assert rules.allow("[x]", "publish", "of-[x]")


def test_the_middleware_gets_the_rules_for_topics() -> None:
    topics = Rules([Rule(keys=["ann", "bob"], put=["mcollective *"], sub=["x"])]).topics
    assert [(rule.user, rule.put, rule.sub) for rule in topics] == [
        ("ann", ("mcollective *",), ("x",)),
        ("bob", ("mcollective *",), ("x",)),
    ]
