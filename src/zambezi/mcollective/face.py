"""What the two faces of the middleware and of the connector have in common: how things are given to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zambezi.mcollective.connector_engine import octets_of
from zambezi.mcollective.errors import McollectiveError
from zambezi.mcollective.messages import Frames
from zambezi.mcollective.middleware import DEFAULT_BOUND, DEFAULT_HEARTBEAT, DEFAULT_LIMITS
from zambezi.mcollective.rules import Rule, Rules
from zambezi.wire.text import as_text
from zambezi.zmtp.face import Sendable, SocketArguments, as_message
from zambezi.zmtp.frames import parts_of
from zambezi.zmtp.options import Options


def middleware_options(options: SocketArguments) -> Options:
    """The options of the socket, with a middleware's defaults."""
    options.setdefault("limits", DEFAULT_LIMITS)
    options.setdefault("send_bound", DEFAULT_BOUND)
    options.setdefault("heartbeat", DEFAULT_HEARTBEAT)
    return Options(**options)


def rules_of(rules: Rules | Iterable[Rule | Mapping[str, object]] | None) -> Rules:
    """Rules, however they are given."""
    if rules is None or isinstance(rules, Rules):
        return rules if rules is not None else Rules()
    given = list(rules)
    return Rules(rule if isinstance(rule, Rule) else Rules.of([rule]).rules[0] for rule in given)


def topics_of(topics: tuple[str, ...]) -> Frames:
    """Topics as octets."""
    for topic in topics:
        if not topic:
            raise McollectiveError("a topic is a text that is not empty")
    return tuple(map(octets_of, topics))


def body_of(body: Sendable) -> Frames:
    """The frames of a body."""
    return parts_of(as_message(body))


def texts_of(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Headers as they are shown to programs."""
    return {as_text(key): as_text(value) for key, value in headers.items()}
