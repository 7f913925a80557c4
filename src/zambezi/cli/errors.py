"""The errors of command lines."""

from __future__ import annotations

from zambezi.errors import ZambeziError


class OptionsError(ZambeziError):
    """Options that contradict each other, or of which one is missing."""
