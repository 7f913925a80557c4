"""The output of a command, up to a bound: a command that never stops must not fill the memory."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from typing import IO, Final

from zambezi.zeps.client.publisher import LARGEST

OUTPUT: Final = LARGEST  # bytes; no reply can be larger
ERRORS: Final = 65_536  # the last bytes that are kept
_PIECE: Final = 65_536


def communicate(process: subprocess.Popen[bytes], body: bytes) -> tuple[bytes, bytes]:
    """Write the input of a command, and return its output and its errors when it has ended.

    A command that writes more than `OUTPUT` bytes is killed, and the last line of its errors says so. Of the errors
    the last `ERRORS` bytes are kept.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = bytearray(), bytearray()
    readers = [
        threading.Thread(target=_read_output, args=(process, process.stdout, output), daemon=True),
        threading.Thread(target=_read_errors, args=(process.stderr, errors), daemon=True),
    ]
    for reader in readers:
        reader.start()
    with suppress(BrokenPipeError), process.stdin:  # a command need not read its input
        process.stdin.write(body)
    for reader in readers:
        reader.join()
    process.wait()
    if len(output) > OUTPUT:
        return b"", bytes(errors) + b"\nthe command has written more than %d bytes, and was killed" % OUTPUT
    return bytes(output), bytes(errors)


def _read_output(process: subprocess.Popen[bytes], pipe: IO[bytes], output: bytearray) -> None:
    with pipe:
        while piece := os.read(pipe.fileno(), _PIECE):
            output += piece
            if len(output) > OUTPUT:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                return


def _read_errors(pipe: IO[bytes], errors: bytearray) -> None:
    with pipe:
        while piece := os.read(pipe.fileno(), _PIECE):
            errors += piece
            del errors[:-ERRORS]
