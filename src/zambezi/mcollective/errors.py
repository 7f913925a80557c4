"""The errors of the middleware, the connector and the fleet."""

from __future__ import annotations

from zambezi.errors import ZambeziError


class McollectiveError(ZambeziError):
    """The base class of all errors of this package."""


class Malformed(McollectiveError):
    """A message is not in the grammar. `id` is the value of its ID header; None if it could not be read."""

    def __init__(self, reason: str, id: bytes | None = None) -> None:  # noqa: A002 - the header's own name
        super().__init__(reason)
        self.id = id


class RuleError(McollectiveError):
    """A rule of the configuration is malformed."""


class ArchiveError(McollectiveError):
    """An archive could not store a message, or could not read one."""


class CommandRefused(McollectiveError):
    """The middleware answered a command with ERROR. The text is the middleware's."""


class Unconfirmed(McollectiveError):
    """The connection was lost before the answer came: the middleware can have carried out the command or not."""


class AgentError(McollectiveError):
    """A class is not a valid agent, or a call names no action of it or has wrong arguments."""


class ActionFailed(McollectiveError):
    """An action failed. Actions raise this; the caller gets the text."""
