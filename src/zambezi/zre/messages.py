"""The grammar of 36/ZRE: the stable protocol, and the draft that came before it as a dialect.

The two differ in the bytes after the command's id. The stable protocol has its version there, 2. The draft has the
sequence there, whose first byte is 0 in HELLO, because HELLO has sequence 1. So the fourth byte of a HELLO tells its
dialect, and every later message of that peer is in the same dialect. (DIA-01)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zambezi.wire import (
    Dictionary,
    Message,
    constant,
    dictionary,
    field,
    msg,
    number_1,
    number_2,
    string,
    strings,
)
from zambezi.zre import bounds

_groups = strings.at_most(bounds.GROUPS)
_headers = dictionary.at_most(bounds.HEADERS)


class Stable(Message, signature=0xAAA1):
    """The stable protocol: the fields with which all its commands begin. (SIG-01, SIG-02)"""

    version: int = constant(number_1, 2)
    sequence: int = field(number_2)


class Hello(Stable, id=1):
    """Greet a peer so that it can connect back to us. (HEL-01)"""

    endpoint: str = field(string)
    groups: Sequence[str] = field(_groups, default=())
    status: int = field(number_1, default=0)
    name: str = field(string, default="")
    headers: Mapping[str, str] = field(_headers, default=Dictionary())


class Whisper(Stable, id=2):
    """Send a message to a peer."""

    content: Sequence[bytes] = field(msg)


class Shout(Stable, id=3):
    """Send a message to a group."""

    group: str = field(string)
    content: Sequence[bytes] = field(msg)


class Join(Stable, id=4):
    """Join a group; the status is the one after joining."""

    group: str = field(string)
    status: int = field(number_1)


class Leave(Stable, id=5):
    """Leave a group; the status is the one after leaving."""

    group: str = field(string)
    status: int = field(number_1)


class Ping(Stable, id=6):
    """Ping a peer that has gone silent."""


class PingOk(Stable, id=7):
    """Reply to a peer's ping."""


class Elect(Stable, id=8):
    """Claim to become the leader of a group, or support a claim. Zyre's; 36/ZRE does not define it."""

    group: str = field(string)
    challenger: str = field(string)


class Leader(Stable, id=9):
    """Tell who leads a group. Zyre's; 36/ZRE does not define it."""

    group: str = field(string)
    leader: str = field(string)


class Goodbye(Stable, id=10):
    """Leave the mesh. Zyre's; 36/ZRE does not define it."""


class Draft(Message, signature=0xAAA1):
    """The draft dialect: it has no version, and HELLO has an address instead of an endpoint."""

    sequence: int = field(number_2)


class DraftHello(Draft, id=1):
    """Greet a peer; the endpoint is tcp://ipaddress:mailbox. (DIA-02)"""

    ipaddress: str = field(string)
    mailbox: int = field(number_2)
    groups: Sequence[str] = field(_groups, default=())
    status: int = field(number_1, default=0)
    headers: Mapping[str, str] = field(_headers, default=Dictionary())


class DraftWhisper(Draft, id=2):
    """Send a message to a peer."""

    content: Sequence[bytes] = field(msg)


class DraftShout(Draft, id=3):
    """Send a message to a group."""

    group: str = field(string)
    content: Sequence[bytes] = field(msg)


class DraftJoin(Draft, id=4):
    """Join a group; the status is the one after joining."""

    group: str = field(string)
    status: int = field(number_1)


class DraftLeave(Draft, id=5):
    """Leave a group; the status is the one after leaving."""

    group: str = field(string)
    status: int = field(number_1)


class DraftPing(Draft, id=6):
    """Ping a peer that has gone silent."""


class DraftPingOk(Draft, id=7):
    """Reply to a peer's ping."""


class DraftElect(Draft, id=8):
    """Claim to become the leader of a group, or support a claim, as in the stable dialect."""

    group: str = field(string)
    challenger: str = field(string)


class DraftLeader(Draft, id=9):
    """Tell who leads a group, as in the stable dialect."""

    group: str = field(string)
    leader: str = field(string)


class DraftGoodbye(Draft, id=10):
    """Leave the mesh, as in the stable dialect."""
