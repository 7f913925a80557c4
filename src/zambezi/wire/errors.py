"""The errors of encoding and decoding messages."""

from zambezi.errors import ZambeziError


class WireError(ZambeziError):
    """Base class: the bytes are not a message of the grammar, or the grammar cannot carry a value.

    `what` says what was wrong. `offset` is the place in the message's first frame, or None if a value of the program
    caused the error. `command` and `field` are the names in the declaration, or None while they are not known.
    """

    def __init__(
        self, what: str, offset: int | None = None, command: str | None = None, field: str | None = None
    ) -> None:
        super().__init__(what, offset, command, field)
        self.what = what
        self.offset = offset
        self.command = command
        self.field = field

    def __str__(self) -> str:
        where = ".".join(name for name in (self.command, self.field) if name is not None)
        return (
            (f"{where}: " if where else "")
            + self.what
            + (f" (at offset {self.offset})" if self.offset is not None else "")
        )


class Truncated(WireError):
    """The message is shorter than it declares, or than its grammar requires."""


class TrailingOctets(WireError):
    """Bytes, or frames, are left after the last field of the grammar."""


class TooMany(WireError):
    """A count is above the bound that the declaration of the field sets."""


class BadSignature(WireError):
    """The message does not start with the signature of the protocol."""


class UnknownCommand(WireError):
    """The signature is right, but the class that decodes has no such command.

    `id` is the command byte of the message.
    """

    def __init__(
        self,
        what: str,
        offset: int | None = None,
        command: str | None = None,
        field: str | None = None,
        id: int = -1,  # noqa: A002 - the declaration of a command calls it `id` too
    ) -> None:
        super().__init__(what, offset, command, field)
        self.id = id


class BadValue(WireError):
    """The specification does not allow this value in this field."""


class Unencodable(WireError):
    """A value of the program does not fit the field. `offset` is None, because nothing was received."""


def shown(value: object) -> str:
    """Return a value as text for an error: at most 60 characters."""
    try:
        text = ascii(value)
    except ValueError:  # an int of thousands of digits refuses to become text
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
