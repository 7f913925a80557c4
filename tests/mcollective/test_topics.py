"""zambezi.mcollective.topics: a topic exists while it has clients, and one of them pays for it."""

from __future__ import annotations

from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.session import Replay, Session
from zambezi.mcollective.topics import Topics


def client(name: bytes) -> Session:
    return Session(None, name, "", "10.0.0.1", 0.0)


def test_a_topic_exists_while_it_has_clients() -> None:
    topics = Topics(Bounds(), lambda name: name == b"kept")
    ann, bob = client(b"ann"), client(b"bob")
    topics.join(ann, b"a")
    topics.join(bob, b"a")
    topics.join(bob, b"kept")
    assert [(topic.name, topic.kept) for topic in topics.by_name.values()] == [(b"a", False), (b"kept", True)]
    topics.leave(ann, b"a")
    assert topics.by_name[b"a"].payer is bob
    topics.leave(bob, b"a")
    topics.leave(bob, b"a")  # a second time does nothing
    topics.leave(bob, b"kept")
    assert (topics.by_name, topics.quota.topics) == ({}, 0)


def test_a_topic_whose_only_client_waits_for_its_replay_exists() -> None:
    topics = Topics(Bounds(), lambda _: True)
    ann = client(b"ann")
    replay = Replay({b"a", b"b"}, iter(()))
    for name in (b"a", b"b"):
        topics.join_after(ann, name, replay)
    assert (list(topics.by_name), list(ann.replays), ann.topics) == ([b"a", b"b"], [replay], {})
    topics.leave(ann, b"a")
    assert (list(ann.replays), replay.topics) == ([replay], {b"b"})
    topics.leave(ann, b"b")
    assert (ann.replays, ann.replaying, topics.by_name) == ({}, {}, {})


def test_topics_that_a_client_has_already_are_no_new_ones() -> None:
    topics = Topics(Bounds(topics_of_client=2, topics=3), lambda _: False)
    ann, bob = client(b"ann"), client(b"bob")
    for name in (b"a", b"b"):
        topics.join(ann, name)
    assert topics.refusal(ann, (b"a", b"b")) == ""
    assert topics.refusal(ann, (b"c",)) == "one client can subscribe to 2 topics at most"
    assert topics.refusal(bob, (b"a", b"c")) == ""
    assert topics.refusal(bob, (b"c", b"d")) == "the middleware has 2 topics, and no room for more"
