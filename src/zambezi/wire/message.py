"""Declarations of messages.

A specification describes a message by a line of ABNF:

    join = signature %d4 version sequence group status

Here it is a class, with the same names in the same order:

    class Zre(Message, signature=0xAAA1):
        version: int = constant(number_1, 2)
        sequence: int = field(number_2)

    class Join(Zre, id=4):
        group: str = field(string)
        status: int = field(number_1)

A class with a signature is a family: the messages of one protocol, or of one dialect of it. A class with an id is a
command of the family that it derives from. A class inherits the fields of its base, and they come first; so a protocol
declares once the fields that all its commands begin with. A class with neither signature nor id names a part of a
family. Each family has its own registry of commands, so two dialects can share a signature.

The first frame of a message is the signature in two bytes, the id in one byte, then the fields. The exception is a last
field of type msg: its frames follow the first frame as frames of their own. So a message encodes to a tuple of frames,
nearly always of one.

Each class is a frozen dataclass with slots. The standard library provides constructor, equality, hash, repr, pattern
matching, pickling and `dataclasses.replace`; the metaclass adds the order of the fields on the wire and enters the
command in its family. The slots are the reason for a metaclass: Python cannot add them to a class that exists, so
dataclass() makes the class a second time, and only the second class may be entered. (For that reason a message class
cannot use super() in its methods.)

`decode` of a family finds the command by its id. `decode` of any other class does the same, and then requires that
class. A field type that meets wrong bytes raises a WireError with the offset; the message adds the names of command
and field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Self, TypeVar, cast, dataclass_transform, overload

from zambezi.wire.errors import (
    BadSignature,
    BadValue,
    TrailingOctets,
    Truncated,
    UnknownCommand,
    WireError,
    shown,
)
from zambezi.wire.types import FieldType, Msg, Octets, OctetType

T = TypeVar("T")

_TYPE = "zambezi.wire.type"
_CONSTANT = "zambezi.wire.constant"
_HEAD = 3


@overload
def field(kind: FieldType[T]) -> T: ...
@overload
def field(kind: FieldType[T], *, default: T) -> T: ...
def field(kind: FieldType[T], **options: Any) -> Any:
    """Declare a field of a message: its type on the wire and, optionally, a default for the constructor."""
    return dataclasses.field(metadata={_TYPE: kind}, **options)


def constant(kind: OctetType[T], value: T, *, init: Literal[False] = False) -> T:
    """Declare a field that always has this value: encoding writes it, and decoding refuses any other value.

    `init` exists for type checkers: it tells them that the constructor does not take the field.
    """
    options: dict[str, Any] = {"default": value, "init": init, "repr": False, "compare": False}
    return cast("T", dataclasses.field(metadata={_TYPE: kind, _CONSTANT: True}, **options))


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A field, at its place in the order of the wire."""

    name: str
    kind: OctetType[Any]
    constant: Any = None


@dataclass_transform(frozen_default=True, field_specifiers=(field, constant))
class MessageType(type):
    """The type of message classes. It reads a declaration, and enters the command in its family."""

    _signature: bytes | None
    _id: int | None
    _commands: dict[int, MessageType]
    _steps: tuple[Step, ...]
    _content: str | None
    _frozen: tuple[tuple[str, FieldType[Any]], ...]

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        signature: int | None = None,
        id: int | None = None,  # noqa: A002 - reads like the grammar in a declaration
    ) -> MessageType:
        made = super().__new__(cls, name, bases, namespace)
        if not bases or "__dataclass_fields__" in namespace:
            return made
        made = cast("MessageType", dataclasses.dataclass(frozen=True, slots=True)(made))
        made._declare(signature, id)
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: object) -> None:
        super().__init__(name, bases, namespace)

    def _declare(cls, signature: int | None, number: int | None) -> None:
        declared = dataclasses.fields(cast("Any", cls))
        for each in declared:
            if _TYPE not in each.metadata:
                raise TypeError(f"{cls.__name__}.{each.name} has no wire type: declare it with field()")
        fields: list[tuple[dataclasses.Field[Any], FieldType[Any]]] = [
            (each, each.metadata[_TYPE]) for each in declared
        ]
        if any(isinstance(kind, Msg) for _, kind in fields[:-1]):
            raise TypeError(f"{cls.__name__}: a msg can only be the last field")
        cls._steps = tuple(
            Step(each.name, kind, each.default if _CONSTANT in each.metadata else None)
            for each, kind in fields
            if isinstance(kind, OctetType)
        )
        cls._content = fields[-1][0].name if fields and isinstance(fields[-1][1], Msg) else None
        cls._frozen = tuple((each.name, kind) for each, kind in fields if type(kind).freeze is not FieldType.freeze)
        cls._id = number
        if signature is not None:
            if cls._signature is not None:
                raise TypeError(f"{cls.__name__}: a family cannot derive from another family")
            if not 0 <= signature <= 0xFFFF:
                raise TypeError(f"{cls.__name__}: a signature has two bytes, so it is at most 0xffff")
            cls._signature = signature.to_bytes(2)
            cls._commands = {}
        if number is not None:
            cls._enter(number)

    def _enter(cls, number: int) -> None:
        if cls._signature is None:
            raise TypeError(f"{cls.__name__} has an id but no family: derive it from a class with a signature")
        if not 0 <= number <= 0xFF:
            raise TypeError(f"{cls.__name__}: an id has one byte, so it is 0 to 255")
        taken = cls._commands.setdefault(number, cls)
        if taken is not cls:
            raise TypeError(f"{cls.__name__}: {taken.__name__} already has the id {number}")

    @property
    def signature(cls) -> int | None:
        """The signature of the family, or None if the class belongs to no family."""
        return None if cls._signature is None else int.from_bytes(cls._signature)

    @property
    def id(cls) -> int | None:
        """The id of the command, or None if the class is not a command."""
        return cls._id

    @property
    def commands(cls) -> dict[int, MessageType]:
        """The commands that derive from this class, by id."""
        return {number: command for number, command in cls._commands.items() if cls in command.__mro__}


class Message(metaclass=MessageType):
    """Base class of all messages. The head of the module explains how to declare one."""

    __slots__ = ()

    _signature: ClassVar[bytes | None] = None
    _id: ClassVar[int | None] = None
    _commands: ClassVar[dict[int, MessageType]] = {}
    _steps: ClassVar[tuple[Step, ...]] = ()
    _content: ClassVar[str | None] = None
    _frozen: ClassVar[tuple[tuple[str, FieldType[Any]], ...]] = ()

    def __post_init__(self) -> None:
        if self._id is None:
            raise TypeError(f"{type(self).__name__} is not a command: its declaration has no id")
        for name, kind in self._frozen:
            try:
                value = kind.freeze(getattr(self, name))
            except WireError as problem:
                _place(problem, type(self), name)
                raise
            object.__setattr__(self, name, value)

    def encode(self) -> tuple[bytes, ...]:
        """Return the frames of the message: the first one, then those of its msg if it has one.

        Raises `Unencodable` if a value does not fit its field.
        """
        assert self._signature is not None
        assert self._id is not None
        parts = [self._signature, self._id.to_bytes()]
        for step in self._steps:
            try:
                parts.append(step.kind.encode(getattr(self, step.name)))
            except WireError as problem:
                _place(problem, type(self), step.name)
                raise
        content: tuple[bytes, ...] = getattr(self, self._content) if self._content is not None else ()
        return (b"".join(parts), *content)

    @classmethod
    def decode(cls, frames: Octets | Iterable[Octets]) -> Self:
        """Return the message that is in these frames, or in this single frame.

        Raises a `WireError`, and nothing else, if the bytes are not a message of this class.
        """
        octets, content = _split(frames)
        command = cls._command_of(octets)
        try:
            return command._read(octets, content)
        except WireError as problem:
            _place(problem, command)
            raise

    @classmethod
    def _command_of(cls, octets: bytes) -> type[Self]:
        if cls._signature is None:
            raise TypeError(f"{cls.__name__} has no signature: call decode of a family or of one of its commands")
        if octets[:2] != cls._signature[: len(octets)]:
            raise BadSignature(f"a message starts with {cls._signature.hex()}, but this one with {octets[:2].hex()}", 0)
        if len(octets) < _HEAD:
            raise Truncated(f"a message has at least {_HEAD} bytes, but this one has {len(octets)}", len(octets))
        command = cls._commands.get(octets[2])
        if command is None or not issubclass(command, cls):
            raise UnknownCommand(f"{cls.__name__} has no command {octets[2]}", 2, id=octets[2])
        return command

    @classmethod
    def _read(cls, octets: bytes, content: tuple[bytes, ...]) -> Self:
        values = []
        offset = _HEAD
        for step in cls._steps:
            try:
                value, end = step.kind.read(octets, offset)
                if step.constant is None:
                    values.append(value)
                elif value != step.constant:
                    raise BadValue(f"the value must be {shown(step.constant)}, not {shown(value)}", offset)
            except WireError as problem:
                _place(problem, cls, step.name)
                raise
            offset = end
        if offset != len(octets):
            raise TrailingOctets(f"{len(octets) - offset} bytes are left after the last field", offset)
        if cls._content is not None:
            values.append(content)
        elif content:
            raise TrailingOctets(f"{len(content)} frames are left after the last field", offset)
        return cls(*values)


def _place(problem: WireError, command: type, name: str | None = None) -> None:
    """Add the names of command and field to an error that does not have them yet."""
    problem.command = problem.command or command.__name__
    problem.field = problem.field or name


def _split(frames: Octets | Iterable[Octets]) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the first frame, and the frames after it."""
    if isinstance(frames, Octets):
        return bytes(frames), ()
    octets = tuple(map(bytes, frames))
    if not octets:
        raise Truncated("a message has at least one frame, but this one has none", 0)
    return octets[0], octets[1:]
