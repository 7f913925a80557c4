"""The grammar of ZEPS, version 1, and of its extensions.

    C:ATTACH     S:ATTACH-OK       opens a stream, first and once per connection
    C:SUBSCRIBE  S:SUBSCRIBE-OK    asks for messages by pattern, from a point on
    C:CREDIT                       allows the server to send so many more bytes of DELIVER
    C:PUBLISH                      adds a message to the stream
    S:DELIVER                      hands a message to a subscriber
    PING         PING-OK           from either side
    DETACH       DETACH-OK         ends the peering, from either side
    S:INVALID                      says what was wrong

The extension "once" (docs/protocol.md). A client uses it if the broker lists it in its READY:

    C:RESUME     S:RESUME-OK       asks how many messages of a publisher the stream has; every further PUBLISH counts
    C:MARK                         keeps a few bytes of the publisher with its count
    S:FENCED                       says that the publisher has a newer epoch, on another connection

The extension "times":

    C:TIMES                        asks for the times of messages
    S:TIMES                        tells the times of the DELIVER messages that follow, up to the next TIMES

The extension "positions":

    C:CLAIM      S:CLAIM-OK        reads under a name, and asks for the position that the name has
    C:ACK                          moves the position; PING-OK confirms it
    S:TAKEN                        says that another client has the name

The extension "shared":

    C:JOIN       S:JOIN-OK         reads as a member of a group: each message goes to one member
    S:DELIVERIES                   tells which of the DELIVER messages that follow were delivered before
    C:DONE                         acknowledges messages; PING-OK confirms it
    C:GIVE-BACK                    gives messages back, now or for later
    C:KEEP                         says that the client still works on messages

`zambezi.zeps.block` encodes and decodes many DELIVER and PUBLISH messages at once, without these classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zambezi.wire import Message, chunk, constant, field, number_1, number_2, number_4, number_8, string

PROTOCOL: Final = "ZEPS"
VERSION: Final = 1

# The values of `latest` in SUBSCRIBE that are not the last known sequence.
EARLIEST: Final = 0  # from the first message on
LATEST: Final = (1 << 63) - 1  # live only
TIME: Final = 1 << 63  # the low 63 bits are milliseconds since 1970

REASON: Final = 255  # bytes of the reason of an INVALID

EXTENSIONS: Final = "X-ZEPS-Extensions"  # the property of READY in which a broker lists its extensions
ONCE: Final = "once"
TIMES: Final = "times"
ADMIN: Final = "admin"
POSITIONS: Final = "positions"
REQUESTS: Final = "requests"
SHARED: Final = "shared"
RANGES: Final = "ranges"
BROKERS: Final = "brokers"
PUBLISHER: Final = 16  # bytes of a publisher's id
MARK: Final = 16  # bytes of a mark
MEMBER: Final = 16  # bytes of the id of a member
OWNER: Final = 16  # bytes of the id of a client that claims a reader
REFUSE: Final = 0  # the modes of CLAIM: not if another client has the name;
TAKE: Final = 1  # also if another client has it;
AGAIN: Final = 2  # only if no other client has had it since this one
MOST: Final = (1 << 62) - 1  # the highest count


class Zeps(Message, signature=0xAAA5):
    """The beginning of every command: the signature."""


class Attach(Zeps, id=1):
    """Client opens a stream. (ZEP-01)"""

    protocol: str = constant(string, PROTOCOL)
    version: int = constant(number_2, VERSION)
    stream: str = field(string)


class AttachOk(Zeps, id=2):
    """Server grants the client access."""


class Subscribe(Zeps, id=3):
    """Client subscribes to a set of topics. (ZEP-02)"""

    pattern: str = field(string)
    latest: int = field(number_8)


class SubscribeOk(Zeps, id=4):
    """Server confirms the subscription."""


class Credit(Zeps, id=5):
    """Client sends credit to the server, in bytes. (ZEP-03)"""

    credit: int = field(number_8)


class Publish(Zeps, id=6):
    """Client publishes a new message to the open stream. (ZEP-04)"""

    key: str = field(string)
    body: bytes = field(chunk)


class Deliver(Zeps, id=7):
    """Server delivers a message to the client. (ZEP-05)"""

    sequence: int = field(number_8)
    key: str = field(string)
    body: bytes = field(chunk)


class Ping(Zeps, id=8):
    """Client or server sends a heartbeat; PING-OK to a client confirms all that it published before. (ZEP-06)"""


class PingOk(Zeps, id=9):
    """Client or server answers a heartbeat."""


class Detach(Zeps, id=10):
    """Client or server closes the peering. (ZEP-07)"""


class DetachOk(Zeps, id=11):
    """The other side confirms the close."""


class Invalid(Zeps, id=12):
    """Server tells client that it sent an invalid message. (ZEP-08)"""

    reason: str = field(string)


class Resume(Zeps, id=13):
    """Client asks where a publisher stands, and publishes as this publisher from now on."""

    publisher: bytes = field(chunk)  # 16 bytes
    epoch: int = field(number_4)  # 0: the next one
    confirmed: int = field(number_8)  # messages that the client knows to be in the stream


class ResumeOk(Zeps, id=14):
    """Server says where the publisher stands. All messages that it counts are as safe as PING-OK makes them."""

    epoch: int = field(number_4)
    count: int = field(number_8)
    marked: int = field(number_8)  # the count at the last mark
    mark: bytes = field(chunk)  # 16 bytes; zeros if there was none
    refused: int = field(number_4)  # of the counted messages, how many are not in the stream


class Mark(Zeps, id=15):
    """Client marks the point that it has reached, with bytes of its choice."""

    mark: bytes = field(chunk)  # 16 bytes


class Fenced(Zeps, id=16):
    """Server takes the publisher away from the client: it has a newer epoch now."""

    epoch: int = field(number_4)


class Times(Zeps, id=17):
    """Client asks for the times of messages, or server tells them. `zambezi.zeps.times` packs and unpacks them."""

    times: bytes = field(chunk)  # pairs of a sequence and a time, of 8 bytes each; from a client, none


class Claim(Zeps, id=18):
    """Client reads under a name from now on."""

    name: str = field(string)
    owner: bytes = field(chunk)  # 16 bytes
    latest: int = field(number_8)  # where a new reader begins, as in SUBSCRIBE
    mode: int = field(number_1)  # REFUSE, TAKE or AGAIN


class ClaimOk(Zeps, id=19):
    """Server says where the reader stands: subscribe after `position`. All of it is as safe as PING-OK makes it."""

    position: int = field(number_8)
    missed: int = field(number_8)  # messages before it that are not acknowledged, and not kept any more


class Ack(Zeps, id=20):
    """Client acknowledges the message with a sequence, and all before it. PING-OK confirms it."""

    sequence: int = field(number_8)


class Taken(Zeps, id=21):
    """Server tells a client that another one has the name, or has had it meanwhile."""

    holder: str = field(string)  # the other client; empty if it is not known


class Join(Zeps, id=22):
    """Client reads as a member of a group. Zeros and an empty `dead` stand for what the group has already."""

    group: str = field(string)
    member: bytes = field(chunk)  # 16 bytes
    pattern: str = field(string)
    latest: int = field(number_8)  # where a new group begins, as in SUBSCRIBE
    in_flight: int = field(number_4)  # messages that the member can have without acknowledging them
    wait: int = field(number_4)  # milliseconds that a member has to acknowledge a message
    limit: int = field(number_4)  # deliveries of a message
    dead: str = field(string)  # the stream for messages that have reached the limit


class JoinOk(Zeps, id=23):
    """Server says what the group has. Messages follow when there is credit."""

    wait: int = field(number_4)
    limit: int = field(number_4)
    dead: str = field(string)


class Done(Zeps, id=24):
    """Client acknowledges messages. PING-OK confirms it."""

    sequences: bytes = field(chunk)  # 8 bytes each


class GiveBack(Zeps, id=25):
    """Client gives messages back: they are delivered again, after a delay."""

    delay: int = field(number_4)  # milliseconds
    seen: int = field(number_1)  # 0: the program has not seen the messages, and this delivery does not count
    sequences: bytes = field(chunk)  # 8 bytes each


class Deliveries(Zeps, id=26):
    """Server tells which of the following DELIVER messages were delivered before. A new run of sequences begins."""

    deliveries: bytes = field(chunk)  # a sequence of 8 bytes, and the deliveries with this one in 4 bytes


class Keep(Zeps, id=27):
    """Client still works on messages: their time begins again."""

    sequences: bytes = field(chunk)  # 8 bytes each


def extensions_of(properties: Mapping[str, bytes]) -> list[str]:
    """Return the extensions that a broker lists in the properties of its READY."""
    listed = properties.get(EXTENSIONS.lower(), b"").decode("ascii", "replace")
    return [name.strip() for name in listed.split(",")]


def invalid(reason: str) -> bytes:
    """Return an INVALID with a reason that it can carry: printable, and not too long."""
    shown = "".join(char if char.isprintable() else "?" for char in reason)
    encoded = shown.encode("utf-8", "replace")
    if len(encoded) > REASON:
        encoded = encoded[: REASON - 3].decode("utf-8", "ignore").encode() + b"..."
    return Invalid(encoded.decode()).encode()[0]
