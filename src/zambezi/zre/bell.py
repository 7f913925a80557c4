"""The bell of a node: a file descriptor that is readable while events wait, for programs that poll several things."""

from __future__ import annotations

import contextlib
import os
import weakref


class Bell:
    """A pipe that contains one byte while the bell rings."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._rings = False
        weakref.finalize(self, _close, self._reader, self._writer)

    def fileno(self) -> int:
        """Return the descriptor to poll. It is open as long as the node exists."""
        return self._reader

    def ring(self) -> None:
        """Make the descriptor readable."""
        if not self._rings:
            self._rings = True
            os.write(self._writer, b"\0")

    def silence(self) -> None:
        """Make the descriptor unreadable."""
        if self._rings:
            self._rings = False
            with contextlib.suppress(BlockingIOError):  # the program has read the byte itself
                os.read(self._reader, 1)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
