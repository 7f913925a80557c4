"""Bytes to values and back: the grammar of a protocol, declared once.

A protocol is a family of messages with a signature. A command is a class with an id, and declares its fields in the
order of the specification's ABNF:

>>> from zambezi.wire import Message, field, number_2, string
>>> class Chat(Message, signature=0xAAA9):
...     pass
>>> class Say(Chat, id=1):
...     sequence: int = field(number_2)
...     text: str = field(string)
>>> Say(7, "hello").encode()
(b'\\xaa\\xa9\\x01\\x00\\x07\\x05hello',)
>>> Chat.decode(b"\\xaa\\xa9\\x01\\x00\\x07\\x05hello")
Say(sequence=7, text='hello')

`zambezi.wire.message` explains how it works. Bytes or values that do not fit the grammar raise a `WireError`.
"""

from zambezi.wire.errors import (
    BadSignature,
    BadValue,
    TooMany,
    TrailingOctets,
    Truncated,
    Unencodable,
    UnknownCommand,
    WireError,
)
from zambezi.wire.message import Message, constant, field
from zambezi.wire.types import (
    Dictionary,
    Octets,
    choice,
    chunk,
    dictionary,
    longstr,
    msg,
    number_1,
    number_2,
    number_4,
    number_8,
    string,
    strings,
)

__all__ = [
    "BadSignature",
    "BadValue",
    "Dictionary",
    "Message",
    "Octets",
    "TooMany",
    "TrailingOctets",
    "Truncated",
    "Unencodable",
    "UnknownCommand",
    "WireError",
    "choice",
    "chunk",
    "constant",
    "dictionary",
    "field",
    "longstr",
    "msg",
    "number_1",
    "number_2",
    "number_4",
    "number_8",
    "string",
    "strings",
]
