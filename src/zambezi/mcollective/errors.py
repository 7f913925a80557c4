"""The errors of the middleware, the connector and the fleet."""

from __future__ import annotations

from zambezi.errors import ZambeziError


class McollectiveError(ZambeziError):
    """The base of everything that this package raises."""


class Malformed(McollectiveError):
    """A message that is not in the grammar. `id` is the value of its ID header, where there was one to be read."""

    def __init__(self, reason: str, id: bytes | None = None) -> None:  # noqa: A002 - the header's own name
        super().__init__(reason)
        self.id = id


class RuleError(McollectiveError):
    """A rule of the configuration that cannot be understood."""


class ArchiveError(McollectiveError):
    """What was PUT could not be kept, or what was kept could not be read."""


class CommandRefused(McollectiveError):
    """The middleware answered ERROR; the text is its own."""


class Unconfirmed(McollectiveError):
    """The connection was lost before the answer came: the command may have been done, or not."""


class AgentError(McollectiveError):
    """An agent that is not made as agents are, or a call that it cannot take."""


class ActionFailed(McollectiveError):
    """To be raised by an action: the text is what the caller is told."""
