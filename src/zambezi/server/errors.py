"""The errors of starting a server."""

from __future__ import annotations

from collections.abc import Sequence

from zambezi.errors import ZambeziError


class ServerError(ZambeziError):
    """A server cannot start as it is configured."""


class ConfigError(ServerError):
    """A configuration has mistakes; the text has one line for each."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = list(mistakes)


class SettingError(ServerError):
    """A valid setting cannot be used on this machine now. `path` names the setting, as in ("server", "data")."""

    def __init__(self, path: tuple[str, ...], problem: str) -> None:
        super().__init__(f"{'.'.join(path)}: {problem}")
        self.path = path
        self.problem = problem


class KeyDirectoryError(ServerError):
    """A key directory is incomplete."""
