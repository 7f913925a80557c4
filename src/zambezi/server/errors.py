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


class SettingError(ServerError):
    """A setting that is right by itself cannot be had on this machine now. `path` names it, as in ("zeps", "data")."""

    def __init__(self, path: tuple[str, ...], problem: str) -> None:
        super().__init__(f"{'.'.join(path)}: {problem}")
        self.path = path
        self.problem = problem


class KeyDirectoryError(ServerError):
    """A key directory lacks something."""
