"""What can be wrong with the octets of a message, or with the values that should become octets."""

from zambezi.errors import ZambeziError


class WireError(ZambeziError):
    """Base class: octets that are not a message of the grammar, or a value that the grammar cannot carry.

    `what` says what was wrong. `offset` is the place in the message's first frame, or None if the error
    arose from a value. `command` and `field` are the names in the declaration, or None where not yet known.
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
    """The message ends before what it declares, or before what its grammar asks for."""


class TrailingOctets(WireError):
    """Octets, or frames, are left after the last field of the grammar."""


class BadSignature(WireError):
    """The message does not start with the signature of the protocol."""


class UnknownCommand(WireError):
    """The signature is right, but the command is none of those that were asked for.

    `id` is the command octet that came.
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
    """A field was read, but the specification does not allow its value there."""


class Unencodable(WireError):
    """A value given by the program does not fit the field; nothing was received, so `offset` is None."""


def shown(value: object) -> str:
    """A value for the text of an error: never long, whatever was given."""
    try:
        text = ascii(value)
    except ValueError:  # an int of thousands of digits refuses to become text
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
