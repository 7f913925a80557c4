"""zambezi.mcollective.fleet: requests, replies, and the nodes that have answered."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.mcollective.agents import Agent
from zambezi.mcollective.errors import AgentError
from zambezi.mcollective.fleet import Call, Outcome, Reply, Request, Roster, agents_of, node_topic, reply_topic

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.text(), st.text(), st.text(), st.dictionaries(st.text(), JSON, max_size=3), st.text())
def test_a_request_comes_back_as_it_was(
    id_: str, agent: str, action: str, arguments: dict[str, object], who: str
) -> None:
    request = Request(id_, agent, action, arguments, who)
    assert Request.decode(request.encode()) == request
    assert Reply.decode(request.encode()) is None


@given(st.text(), st.text(), st.sampled_from(["ok", "error", "refused"]), JSON, st.text())
def test_a_reply_comes_back_as_it_was(id: str, node: str, status: str, result: object, error: str) -> None:  # noqa: A002
    reply = Reply(id, node, status, result, error, 0.5)  # type: ignore[arg-type]
    assert Reply.decode(reply.encode()) == reply
    assert Request.decode(reply.encode()) is None


@given(st.one_of(st.binary(), JSON.map(lambda value: json.dumps(value).encode())))
def test_messages_of_others_are_ignored(body: bytes) -> None:
    assert Request.decode(body) is None
    assert Reply.decode(body) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"zambezi":2,"request":"1","agent":"a","action":"b"}',
        b'{"zambezi":1,"request":1,"agent":"a","action":"b"}',
        b'{"zambezi":1,"request":"1","agent":"a"}',
        b'{"zambezi":1,"request":"1","agent":"a","action":"b","arguments":[]}',
        b"[" * 100_000,
    ],
)
def test_half_a_request_is_no_request(body: bytes) -> None:
    assert Request.decode(body) is None


def test_the_topics_are_those_of_mcollective() -> None:
    request = Request("1", "uptime", "report")
    assert Call(request).topics("mcollective") == ["mcollective uptime"]
    assert Call(request, ["b", "a", "b"]).topics("x") == ["x nodes a", "x nodes b"]
    assert node_topic("mcollective", "node3") == "mcollective nodes node3"
    assert reply_topic("mcollective", "laptop", 4711) == "mcollective reply laptop 4711"


def test_a_call_knows_the_silent_nodes() -> None:
    call = Call(Request("1", "a", "b"), ["n1", "n2"])
    assert call.take(Reply("1", "n1", "ok", 7).encode()) == Reply("1", "n1", "ok", 7)
    assert call.take(Reply("1", "n1", "ok", 8).encode()) is None  # one answer each
    assert call.take(Reply("2", "n2", "ok").encode()) is None  # of another call
    assert call.take(b"\x04\x08marshal") is None
    assert call.strangers == 3
    assert (call.complete, call.silent) == (False, ["n2"])
    assert not call.outcome.ok
    call.take(Reply("1", "n2", "error", error="no").encode())
    assert (call.complete, call.silent) == (True, [])
    assert not call.outcome.ok
    assert list(call.outcome.replies) == ["n1", "n2"]


def test_a_call_without_expected_nodes_is_never_complete() -> None:
    call = Call(Request("1", "a", "b"))
    call.take(Reply("1", "n1", "ok").encode())
    assert not call.complete
    assert call.outcome.ok


def test_a_ping_tells_which_nodes_have_an_agent() -> None:
    outcome = Outcome(
        {
            "n1": Reply("1", "n1", "ok", {"agents": {"a": {}, "b": {}}}),
            "n2": Reply("1", "n2", "ok", {"agents": {"b": {}}}),
            "n3": Reply("1", "n3", "ok", "nonsense"),
        }
    )
    assert outcome.having("a") == ["n1"]
    assert outcome.having("b") == ["n1", "n2"]
    assert agents_of(outcome.replies["n3"]) == []


def test_every_node_has_the_agent_by_which_it_is_found() -> None:
    with pytest.raises(AgentError, match="every node's own"):
        Roster([Agent("discovery", "", {})])
