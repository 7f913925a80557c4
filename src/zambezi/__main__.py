"""The `zambezi` command, also as `python -m zambezi`."""

from __future__ import annotations

import sys

_INTERRUPTED = 130  # the status that a shell reports for a process that SIGINT ended


def run() -> int:
    """Run the command line of the process. Ctrl-C ends it in silence, also while its modules are imported."""
    try:
        from zambezi.cli import main  # noqa: PLC0415 - an import takes a while, and Ctrl-C can come in it

        return main()
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(run())
