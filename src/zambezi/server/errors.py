"""The errors of putting a server together."""

from __future__ import annotations

from collections.abc import Sequence

from zambezi.errors import ZambeziError


class ServerError(ZambeziError):
    """A server cannot be put together as it was told."""


class ConfigError(ServerError):
    """A configuration has mistakes: one line for each."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = list(mistakes)


class KeyDirectoryError(ServerError):
    """A key directory lacks something."""
