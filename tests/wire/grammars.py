"""Declarations of real protocols, for the tests of the wire layer.

They are written from the specifications. The packages of the protocols have their own declarations, but the tests of
this layer must not depend on the layers above it.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from zambezi.wire import (
    Dictionary,
    Message,
    choice,
    chunk,
    constant,
    dictionary,
    field,
    longstr,
    msg,
    number_1,
    number_2,
    number_4,
    number_8,
    string,
    strings,
)


class Zre(Message, signature=0xAAA1):
    """36/ZRE, stable."""

    version: int = constant(number_1, 2)
    sequence: int = field(number_2)


class Hello(Zre, id=1):
    endpoint: str = field(string)
    groups: Sequence[str] = field(strings, default=())
    status: int = field(number_1, default=0)
    name: str = field(string, default="")
    headers: Mapping[str, str] = field(dictionary, default=Dictionary())


class Whisper(Zre, id=2):
    content: Sequence[bytes] = field(msg)


class Shout(Zre, id=3):
    group: str = field(string)
    content: Sequence[bytes] = field(msg)


class Membership(Zre):
    """JOIN and LEAVE have the same fields."""

    group: str = field(string)
    status: int = field(number_1)


class Join(Membership, id=4):
    pass


class Leave(Membership, id=5):
    pass


class Ping(Zre, id=6):
    pass


class PingOk(Zre, id=7):
    pass


class Draft(Message, signature=0xAAA1):
    """36/ZRE, draft: the same signature, no version."""

    sequence: int = field(number_2)


class DraftHello(Draft, id=1):
    ipaddress: str = field(string)
    mailbox: int = field(number_2)
    groups: Sequence[str] = field(strings)
    status: int = field(number_1)
    headers: Mapping[str, str] = field(dictionary)


class Level(IntEnum):
    ERROR = 1
    WARNING = 2
    INFO = 3


class ZreLog(Message, signature=0xAAA2):
    """ZRE/LOG."""


class Log(ZreLog, id=1):
    level: Level = field(choice(number_1, Level))
    event: int = field(number_1)
    node: int = field(number_2)
    peer: int = field(number_2)
    time: int = field(number_8)
    data: str = field(string)


class Zeps(Message, signature=0xAAA5):
    """ZEPS, in part."""


class Attach(Zeps, id=1):
    protocol: str = constant(string, "ZEPS")
    version: int = constant(number_2, 1)
    stream: str = field(string)


class Deliver(Zeps, id=7):
    sequence: int = field(number_8)
    key: str = field(string)
    body: bytes = field(chunk)


class Everything(Message, signature=0x0001):
    """Each type once."""


class All(Everything, id=255):
    one: int = field(number_1)
    two: int = field(number_2)
    four: int = field(number_4)
    eight: int = field(number_8)
    short: str = field(string)
    long: str = field(longstr)
    texts: Sequence[str] = field(strings)
    pairs: Mapping[str, str] = field(dictionary)
    octets: bytes = field(chunk)
    frames: Sequence[bytes] = field(msg)
