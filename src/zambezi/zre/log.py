"""ZRE/LOG: the nodes of a mesh report what they do to a collector. It is the extension protocol of the draft."""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from uuid import UUID

from zambezi.wire import Message, WireError, choice, field, number_1, number_2, number_8, string

SERVICE: Final = "X-ZRELOG"
TEXT_LIMIT: Final = 255


class Level(IntEnum):
    """The severity of a log. (LOG-04)"""

    ERROR = 1
    WARNING = 2
    INFO = 3


class What(IntEnum):
    """The event of a log, as the reporting node sees it. (LOG-04)"""

    JOIN = 1
    LEAVE = 2
    ENTER = 3
    EXIT = 4
    SEND = 5
    RECV = 6


class ZreLog(Message, signature=0xAAA2):
    """The family of ZRE/LOG: every message begins AA A2. (LOG-03)"""


class Log(ZreLog, id=1):
    """One log. (LOG-04, LOG-05)"""

    level: Level = field(choice(number_1, Level))
    event: What = field(choice(number_1, What))
    node: int = field(number_2)
    peer: int = field(number_2)
    time: int = field(number_8)
    data: str = field(string)


def hash_of(uuid: UUID | None) -> int:
    """Return the number that stands for a UUID in a log, or zero for none. Different UUIDs can have the same."""
    return 0 if uuid is None else binascii.crc_hqx(uuid.bytes, 0xFFFF)


def cut(text: str) -> str:
    """Return as much of a text as a log can hold, in whole characters."""
    return text.encode("utf-8", "replace")[:TEXT_LIMIT].decode("utf-8", "ignore")


@dataclass(frozen=True, slots=True)
class Record:
    """A log that was received, with its bytes as they came."""

    log: Log
    octets: bytes

    @property
    def key(self) -> str:
        """The routing key under which it is stored: LEVEL.EVENT.NODE."""
        return f"{self.log.level.name}.{self.log.event.name}.{self.log.node:04x}"


def read(octets: bytes) -> Record | None:
    """Return the log in a message; None if it contains none, and must be discarded in silence. (LOG-03)"""
    try:
        message = ZreLog.decode(octets)
    except WireError:
        return None
    return Record(message, octets) if isinstance(message, Log) else None
