"""A broker in a process of its own, for the benchmarks of Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zambezi.zmtp.keys import KeyPair

_KEYS = KeyPair.generate(bytes(32))
_BROKER = """
import asyncio, sys
from zambezi.memory import keep_memory
from zambezi.zeps.broker import Broker
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.security import CurveServer, Null
keep_memory()
async def main():
    security = CurveServer(KeyPair.generate(bytes(32))) if sys.argv[2] == "curve" else Null()
    async with Broker(sys.argv[1], security=security) as broker:
        print(broker.bind("tcp://127.0.0.1:*"), flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@contextmanager
def broker(path: Path, *, curve: bool = False) -> Iterator[tuple[dict[str, str], int]]:
    """Run a broker; yield the options with which the source reaches it, and its process id."""
    command = [sys.executable, "-c", _BROKER, str(path), "curve" if curve else "null"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        options = {"endpoint": process.stdout.readline().strip()}
        yield options | ({"serverKey": _KEYS.public_z85} if curve else {}), process.pid
    finally:
        process.terminate()
        process.wait()
