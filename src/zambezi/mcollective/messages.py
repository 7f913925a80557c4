"""The messages of MCollective over ZeroMQ, and their frames.

    message = [ delimiter ] VERB *( KEY VALUE ) [ delimiter *positional ]         (MCO-03)
    delimiter = an empty frame

The first delimiter is not in the text of the protocol, but the real connector, in Ruby, sends it and insists on it.
Both forms are accepted, and each side answers in the form that the other side uses. Header keys that begin with X-
belong to applications, all others to the protocol (MCO-12): the table below has the known ones.

A key that occurs twice keeps its first place and takes its last value, as in a Ruby hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from zambezi.mcollective.errors import Malformed
from zambezi.wire.text import quoted

Frames: TypeAlias = tuple[bytes, ...]

CONNECT: Final = b"CONNECT"
DISCONNECT: Final = b"DISCONNECT"
SUB: Final = b"SUB"
UNSUB: Final = b"UNSUB"
PUT: Final = b"PUT"
NOOP: Final = b"NOOP"
MESSAGE: Final = b"MESSAGE"
OK: Final = b"OK"
ERROR: Final = b"ERROR"

ID: Final = b"ID"
VERSION: Final = b"VERSION"
TTL: Final = b"TTL"
TOPIC: Final = b"TOPIC"
DESCRIPTION: Final = b"MESSAGE"  # the header of ERROR, which has the name of a verb

REPLY_TO: Final = b"X-REPLY-TO"
SINCE: Final = b"X-SINCE"
SEQUENCE: Final = b"X-SEQUENCE"
MISSED: Final = b"X-MISSED"
EXPECTED: Final = b"X-EXPECTED"
USER: Final = b"X-ZAMBEZI-USER"  # the user that PUT a MESSAGE, as the middleware has authenticated it

# The example in the text of the protocol has the first, the real connector the second, the title of the text the third.
VERSIONS: Final = (b"0.1", b"0.2", b"0.3")


@dataclass(frozen=True, slots=True)
class Grammar:
    """The headers and positional frames of a verb, beside ID and X- headers."""

    said_by: Literal["client", "middleware", "both"]
    headers: frozenset[bytes] = frozenset()
    required: frozenset[bytes] = frozenset()
    positional: Literal["none", "topics", "body"] = "none"


VERBS: Final[Mapping[bytes, Grammar]] = {
    CONNECT: Grammar("client", frozenset({VERSION, TTL})),
    DISCONNECT: Grammar("client"),
    SUB: Grammar("client", positional="topics"),
    UNSUB: Grammar("client", positional="topics"),
    PUT: Grammar("client", frozenset({TOPIC}), frozenset({TOPIC}), "body"),
    NOOP: Grammar("both"),
    MESSAGE: Grammar("middleware", frozenset({TOPIC}), frozenset({TOPIC}), "body"),
    OK: Grammar("middleware"),
    ERROR: Grammar("middleware", frozenset({DESCRIPTION})),
}


@dataclass(frozen=True, slots=True)
class Command:
    """A message in its parts. `positional` are the frames after the second empty frame."""

    verb: bytes
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    positional: Frames = ()
    delimited: bool = True

    @property
    def id(self) -> bytes | None:
        """The value of the header ID; None if there is none."""
        return self.headers.get(ID)

    def encode(self) -> Frames:
        """Return the frames. Without positional frames there is no second empty one: the real connector rejects it."""
        frames = [b"", self.verb] if self.delimited else [self.verb]
        for key, value in self.headers.items():
            frames += (key, value)
        if self.positional:
            frames.append(b"")
            frames += self.positional
        return tuple(frames)


def is_delimited(frames: Sequence[bytes]) -> bool:
    """Return whether a message has the empty first frame."""
    return not frames[0]


def decode(frames: Sequence[bytes]) -> Command:
    """Return the message in frames; raise `Malformed`, with the ID if it could be read."""
    delimited = not frames[0]
    at = 1 if delimited else 0
    if at == len(frames):
        raise Malformed("an empty message: the first frame, or the second after an empty one, must be the verb")
    verb = frames[at]
    headers: dict[bytes, bytes] = {}
    at += 1
    while at < len(frames) and frames[at]:
        if at + 1 == len(frames):
            raise Malformed(
                f"{quoted(verb)}: the header {quoted(frames[at])} has no value: headers are pairs of frames, and an "
                "empty frame must come between them and other frames",
                headers.get(ID),
            )
        headers[frames[at]] = frames[at + 1]
        at += 2
    return Command(verb, headers, tuple(frames[at + 1 :]), delimited)


def check(command: Command, said_by: Literal["client", "middleware"]) -> None:
    """Raise `Malformed` if the sender must not send a message, or its headers are wrong. (MCO-12, MCO-13)"""
    verb, headers = command.verb, command.headers
    grammar = VERBS.get(verb)
    if grammar is None:
        known = ", ".join(name.decode() for name, each in VERBS.items() if each.said_by in (said_by, "both"))
        raise Malformed(f"{quoted(verb)} is no verb; there are {known}", command.id)
    if grammar.said_by not in (said_by, "both"):
        raise Malformed(f"only the {grammar.said_by} sends {verb.decode()}", command.id)
    for key in headers:
        if key not in grammar.headers and key != ID and not key.startswith(b"X-"):
            raise Malformed(
                f"{verb.decode()} has no header {quoted(key)}: headers that do not begin with X- are reserved",
                command.id,
            )
    for key in grammar.required:
        if not headers.get(key):
            raise Malformed(f"{verb.decode()} needs the header {key.decode()}, with a value", command.id)
    if grammar.positional == "body" and not command.positional:
        raise Malformed(
            f"{verb.decode()} has no body: add an empty frame, then at least one frame, which can be empty", command.id
        )


def ok(id: bytes, delimited: bool, extra: Mapping[bytes, bytes] | None = None) -> Frames:  # noqa: A002
    """Return the frames of an OK. (MCO-04)"""
    return Command(OK, {ID: id, **(extra or {})}, (), delimited).encode()


def error(
    text: str,
    id: bytes | None,  # noqa: A002
    delimited: bool,
    extra: Mapping[bytes, bytes] | None = None,
) -> Frames:
    """Return the frames of an ERROR; it has no ID if it answers no command. (MCO-04, MCO-05)"""
    headers = {ID: id} if id is not None else {}
    headers[DESCRIPTION] = text.encode("utf-8", "backslashreplace")
    return Command(ERROR, {**headers, **(extra or {})}, (), delimited).encode()


def noop(delimited: bool) -> Frames:
    """Return the frames of a NOOP. (MCO-06)"""
    return (b"", NOOP) if delimited else (NOOP,)


def message_of(command: Command, extra: Mapping[bytes, bytes] | None = None) -> Frames:
    """Return the MESSAGE for a PUT, with its first empty frame: all its headers but ID, in their order. (MCO-11)"""
    headers = {key: value for key, value in command.headers.items() if key != ID}
    if extra:
        headers.update(extra)
    return Command(MESSAGE, headers, command.positional).encode()


def message_from(command: Command, user: bytes) -> Frames:
    """Return the MESSAGE for a PUT of a user, whom X-ZAMBEZI-USER names. A client's own such header is dropped."""
    headers = {USER: user} if user else {}
    headers.update((key, value) for key, value in command.headers.items() if key != USER)
    return message_of(Command(command.verb, headers, command.positional))


def number(message: Frames, sequence: int) -> Frames:
    """Return a MESSAGE (with its first empty frame) of a kept topic with X-SEQUENCE, which replaces a client's own."""
    at = 2
    while message[at]:
        at += 2
    if SEQUENCE in message[2:at:2]:
        return message_of(decode(message), {SEQUENCE: b"%d" % sequence})
    return (*message[:at], SEQUENCE, b"%d" % sequence, *message[at:])


def number_of(value: bytes | str) -> int | None:
    """Return the number in a header, or None. A number of very many digits is none: `int` would raise."""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None


def quick_topic(frames: Sequence[bytes]) -> bytes:
    """Return the topic of a PUT in one of the two forms that connectors send; empty if it is anything else.

    A faster twin of `decode` and `check`: in these forms the MESSAGE is the PUT with another verb.
    """
    if (
        len(frames) > 5
        and frames[1] == PUT
        and frames[2] == TOPIC
        and not frames[0]
        and (not frames[4] or (frames[4] == REPLY_TO and len(frames) > 7 and not frames[6]))
    ):
        return frames[3]
    return b""
