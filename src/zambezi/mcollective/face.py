"""The part that both faces share: it converts the arguments of programs for the shells, and results for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zambezi.mcollective.errors import McollectiveError
from zambezi.mcollective.messages import REPLY_TO, Frames
from zambezi.mcollective.middleware import DEFAULT_BOUND, DEFAULT_HEARTBEAT, DEFAULT_LIMITS
from zambezi.mcollective.rules import Rule, Rules
from zambezi.wire.text import as_bytes, as_text
from zambezi.zmtp.face import Sendable, SocketArguments, as_message
from zambezi.zmtp.frames import parts_of
from zambezi.zmtp.options import Options


def middleware_options(options: SocketArguments) -> Options:
    """Return the options of a middleware's socket: those given, and a middleware's defaults."""
    options.setdefault("limits", DEFAULT_LIMITS)
    options.setdefault("send_bound", DEFAULT_BOUND)
    options.setdefault("heartbeat", DEFAULT_HEARTBEAT)
    return Options(**options)


def rules_of(rules: Rules | Iterable[Rule | Mapping[str, object]] | None) -> Rules:
    """Return rules that were given as `Rules`, as a list of rules or tables, or not at all."""
    if rules is None or isinstance(rules, Rules):
        return rules if rules is not None else Rules()
    given = list(rules)
    return Rules(rule if isinstance(rule, Rule) else Rules.of([rule]).rules[0] for rule in given)


def topics_of(topics: tuple[str, ...]) -> Frames:
    """Return topics as bytes; raise `McollectiveError` for an empty one."""
    for topic in topics:
        if not topic:
            raise McollectiveError("a topic must be a text that is not empty")
    return tuple(map(bytes_of, topics))


def put_headers(reply_to: str | None, headers: Mapping[str, str] | None) -> dict[bytes, bytes]:
    """Return the X- headers of a PUT, as bytes."""
    found: dict[bytes, bytes] = {}
    if reply_to is not None:
        found[REPLY_TO] = bytes_of(reply_to)
    for key, value in (headers or {}).items():
        if not key.startswith("X-"):
            raise McollectiveError(f"a header of an application begins with X-, but {key!r} does not")
        found[bytes_of(key)] = bytes_of(value)
    return found


def bytes_of(text: str) -> bytes:
    """Return the bytes of a topic or a header; raise `McollectiveError` if it has none."""
    try:
        return as_bytes(text)
    except UnicodeEncodeError:
        raise McollectiveError(f"{text!r} has a surrogate that stands for no byte") from None


def body_of(body: Sendable) -> Frames:
    """Return the frames of a body."""
    return parts_of(as_message(body))


def texts_of(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return headers as texts, for programs."""
    return {as_text(key): as_text(value) for key, value in headers.items()}
