"""The states of a session, and the commands that each state accepts.

    state      ATTACH    SUBSCRIBE  CREDIT  PUBLISH  PING     PING-OK  DETACH     DETACH-OK
    new        -> open   invalid    invalid invalid  invalid  -        -> closed  invalid
    attaching  everything waits until the stream is created
    open       invalid   yes        yes     yes      barrier  -        -> closed  invalid
    leaving    invalid   -          -       yes      barrier  -        -> closed  -> closed
    dismissed  -         -          -       -        -        -        -> closed  -> closed
    parting    everything is ignored: the client has sent DETACH, and PINGs before it are not answered yet
    closed     everything is ignored

and the commands of extensions, whose functions are in `extensions`:

    state      RESUME   MARK     TIMES    CLAIM    ACK      JOIN     DONE     GIVE-BACK  KEEP
    new        invalid  invalid  invalid  invalid  invalid  invalid  invalid  invalid    invalid
    open       once     yes      first    once     yes      first    yes      yes        yes
    leaving    -        yes      -        -        yes      -        yes      yes        -
    dismissed  -        -        -        -        -        -        -        -          -

(`-` means ignored; ATTACH leads to `attaching` if the stream does not exist and must be created.) The session answers a
message that is not allowed, not valid or not possible with INVALID and a reason, and the connection stays open.
(ZEP-01, ZEP-08) Only a client that sends `FAULTS` messages which are not ZEPS is disconnected.

A session is dismissed if the stream had no room for its messages. Further messages would be in the stream without the
dropped ones before them, and a PING-OK would confirm the dropped ones. So the client must send them again on another
connection.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from zambezi.wire import WireError
from zambezi.zeps.broker.client_connection import Multipart
from zambezi.zmtp.frames import Oversize

_OF_SERVERS: Final = frozenset(
    ["AttachOk", "SubscribeOk", "Deliver", "Invalid", "ResumeOk", "Fenced", "ClaimOk", "Taken", "JoinOk", "Deliveries"]
)


class SessionState(Enum):
    """The states of a session. The table is in the docstring of this module."""

    NEW = "new"
    ATTACHING = "attaching"
    OPEN = "open"
    LEAVING = "leaving"
    DISMISSED = "dismissed"
    PARTING = "parting"
    CLOSED = "closed"

    __hash__ = object.__hash__  # in C: each message is looked up by the state


def misplaced(state: SessionState, name: str) -> str:
    """Return the reason of an INVALID to a command that is not allowed in a state."""
    if name in _OF_SERVERS:
        return f"only servers send {name}"
    if state is SessionState.NEW:
        return f"{name} came before ATTACH; attach to a stream first"
    return f"{name} is not allowed here: a connection attaches once, and answers only requests"


def forbidden(user: str, stream: str, own: bool) -> str:
    """Return the reason of an INVALID to a PUBLISH that a user may not send to a stream; `own`: nor may any other."""
    if stream.startswith("$"):
        return f"{stream} is a reserved stream: clients cannot publish to it"
    if own:
        return f"only the server itself publishes to its stream {stream}"
    return f"{user} may not publish to the stream {stream}"


def undecodable(frame: bytes, error: WireError, limit: int) -> tuple[str, str]:
    """Return the kind and the reason of an INVALID to a message that cannot be decoded. `limit` is the most bytes."""
    if isinstance(frame, Multipart):
        return "multipart", "a message of ZEPS must have one frame"
    if isinstance(frame, Oversize):
        return "oversize", f"a message of {frame.size} bytes is over the limit of {limit} bytes"
    return "malformed", str(error)
