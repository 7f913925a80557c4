"""Calls to a fleet, without I/O: the topics, the JSON of requests and replies, and the nodes that have answered.

The topics are those of MCollective's own connector:

    COLLECTIVE AGENT                 a request to every node with that agent
    COLLECTIVE nodes IDENTITY        a request to one node
    COLLECTIVE reply IDENTITY PID    the replies to one caller, which names this topic in X-REPLY-TO

A request and a reply are JSON (docs/fleet.md). A Ruby daemon cannot read them, and logs a warning with a backtrace for
each; so the default collective is not that of Ruby daemons, and they never get one. Messages of Ruby daemons have other
contents, and are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from zambezi.mcollective.agents import Action, Agent
from zambezi.mcollective.errors import AgentError

FORMAT: Final = 1
COLLECTIVE: Final = "zambezi"  # not "mcollective", which is that of Ruby daemons
DISCOVERY: Final = "discovery"
PING: Final = "ping"


def agent_topic(collective: str, agent: str) -> str:
    """Return the topic of all nodes with an agent."""
    return f"{collective} {agent}"


def node_topic(collective: str, node: str) -> str:
    """Return the topic of one node."""
    return f"{collective} nodes {node}"


def reply_topic(collective: str, caller: str, process: int) -> str:
    """Return the topic of the replies to a caller."""
    return f"{collective} reply {caller} {process}"


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a node: to run an action of an agent."""

    id: str
    agent: str
    action: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    caller: str = ""  # as the caller names itself
    user: str = ""  # that the middleware has authenticated; it is not part of the encoded request

    def encode(self) -> bytes:
        return _encode(
            {
                "zambezi": FORMAT,
                "request": self.id,
                "agent": self.agent,
                "action": self.action,
                "arguments": dict(self.arguments),
                "caller": self.caller,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> Request | None:
        """Return the request in a message; None if it contains none in our format."""
        found = _decode(body, "request")
        if found is None:
            return None
        id, agent, action = (found.get(key) for key in ("request", "agent", "action"))  # noqa: A001
        arguments = found.get("arguments", {})
        if not (isinstance(id, str) and isinstance(agent, str) and isinstance(action, str)):
            return None
        if not isinstance(arguments, dict):
            return None
        return cls(id, agent, action, arguments, str(found.get("caller", "")))


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of a node. `status` is "ok", "error" (the action failed) or "refused" (it did not run)."""

    id: str
    node: str
    status: Literal["ok", "error", "refused"]
    result: Any = None
    error: str = ""
    took: float = 0.0  # seconds
    user: str = ""  # that the middleware has authenticated; `node` is only a claim, and the user is not encoded

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def encode(self) -> bytes:
        return _encode(
            {
                "zambezi": FORMAT,
                "reply": self.id,
                "node": self.node,
                "status": self.status,
                "result": self.result,
                "error": self.error,
                "took": round(self.took, 6),
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> Reply | None:
        """Return the reply in a message; None if it contains none in our format."""
        found = _decode(body, "reply")
        if found is None:
            return None
        id, node, status = (found.get(key) for key in ("reply", "node", "status"))  # noqa: A001
        took = found.get("took", 0.0)
        if not (isinstance(id, str) and isinstance(node, str) and isinstance(took, int | float)):
            return None
        if status not in ("ok", "error", "refused"):
            return None
        return cls(id, node, status, found.get("result"), str(found.get("error", "")), float(took))


def _encode(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _decode(body: bytes, kind: str) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("zambezi") != FORMAT or kind not in found:
        return None
    return found


class Call:
    """One request to many nodes, and the replies so far.

    The request goes to each of `nodes`; if that is None, to all nodes that have the agent, and the caller waits for the
    replies of those in `expected`.
    """

    def __init__(self, request: Request, nodes: Iterable[str] | None = None, expected: Iterable[str] = ()) -> None:
        self.request = request
        self.nodes = None if nodes is None else sorted(set(nodes))
        self.expected = set(expected if self.nodes is None else self.nodes)
        self.replies: dict[str, Reply] = {}
        self.strangers = 0  # messages that were not replies to this call

    def topics(self, collective: str) -> list[str]:
        """Return the topics to which the request goes."""
        if self.nodes is None:
            return [agent_topic(collective, self.request.agent)]
        return [node_topic(collective, node) for node in self.nodes]

    def take(self, body: bytes, user: str = "") -> Reply | None:
        """Add the reply in a message of a user, and return it.

        Return None if it is no reply to this call, or the second of a node.
        """
        reply = Reply.decode(body)
        if reply is None or reply.id != self.request.id or reply.node in self.replies:
            self.strangers += 1
            return None
        reply = self.replies[reply.node] = replace(reply, user=user)
        return reply

    @property
    def complete(self) -> bool:
        """Whether all expected nodes have answered. If none was expected, further replies can always come."""
        return bool(self.expected) and self.expected <= self.replies.keys()

    @property
    def silent(self) -> list[str]:
        """The expected nodes that have not answered."""
        return sorted(self.expected - self.replies.keys())

    @property
    def outcome(self) -> Outcome:
        """The outcome of the call so far."""
        return Outcome(dict(sorted(self.replies.items())), tuple(self.silent))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call: the replies by node, and the nodes that did not answer in time."""

    replies: Mapping[str, Reply]
    silent: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all expected nodes answered, and every answer is "ok"."""
        return not self.silent and all(reply.ok for reply in self.replies.values())

    def having(self, agent: str) -> list[str]:
        """Return the nodes that have an agent, if this is the outcome of a ping."""
        return [node for node, reply in self.replies.items() if agent in agents_of(reply)]


def agents_of(reply: Reply) -> list[str]:
    """Return the names of the agents in the answer to a ping."""
    agents = reply.result.get("agents") if isinstance(reply.result, dict) else None
    return sorted(map(str, agents)) if isinstance(agents, dict) else []


class Roster:
    """The agents of a node."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        self.agents = {agent.name: agent for agent in agents}
        if DISCOVERY in self.agents:
            raise AgentError(f"{DISCOVERY} is every node's own agent: choose another name")

    def find(self, request: Request) -> Action:
        """Return the action that a request names; raise `AgentError` if there is none."""
        agent = self.agents.get(request.agent)
        if agent is None:
            raise AgentError(f"there is no agent {request.agent!r} here; there are {', '.join(self.names) or 'none'}")
        action = agent.actions.get(request.action)
        if action is None:
            raise AgentError(
                f"the agent {agent.name} has no action {request.action!r}; it has {', '.join(agent.actions)}"
            )
        return action

    @property
    def names(self) -> list[str]:
        """The names of the agents, sorted."""
        return sorted(self.agents)

    def presence(self) -> dict[str, object]:
        """Return the answer to a ping: the agents, and their actions and parameters."""
        return {
            "agents": {
                name: {
                    "summary": agent.summary,
                    "actions": {
                        each.name: {"summary": each.summary, "parameters": each.signature}
                        for each in agent.actions.values()
                    },
                }
                for name, agent in sorted(self.agents.items())
            }
        }
