"""The `zambezi` command, also as `python -m zambezi`."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # the import of `signal` takes a while, and Ctrl-C can come in it


def run() -> int:
    """Run the command line of the process. Ctrl-C ends it in silence, at any moment."""
    # A command runs with Python's handler, so that it ends in good order (`cli.signals`). Before and after that, while
    # modules are imported and while the interpreter ends, the kernel ends the process: Python would print a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from zambezi.cli import main  # noqa: PLC0415 - after the line above

    return main()


if __name__ == "__main__":
    sys.exit(run())
