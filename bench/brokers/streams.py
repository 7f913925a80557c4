"""Redis Streams: an append-only file with an fsync every second, publishers that pipeline XADD, readers with XREAD.

Each reader asks for up to a thousand entries after its last one. Snapshots and the rewriting of the file are off,
because they would only cost time.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

from bench.brokers.body import END, KEY, Case, delays, paced_blocking
from bench.brokers.drain import Amiss, connect
from bench.brokers.system import System, answers

try:
    import redis

    INSTALLED = True
except ImportError:
    INSTALLED = False

MOST: Final = 1000  # entries of one answer
PIPELINE: Final = 500
_HEAD: Final = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]*\r\n\*(\d+)\r\n")
_LAST: Final = re.compile(rb"\$\d+\r\n(\d+-\d+)\r\n\*2\r\n\$1\r\nb\r\n\$\d+\r\n(\d{10})[^\r]*\r\n\Z")


class _Reader:
    """A connection that asks for more entries as soon as it has a whole answer.

    It does not count entries: an answer begins with their number, and each body has its own number.
    """

    def __init__(self, sock: socket.socket, size: int) -> None:
        self.sock = sock
        self._keep = size + 100
        self._had = 0
        self._due = -1
        self._head = b""
        self._tail = b""
        self._ask(b"0")

    def _ask(self, after: bytes) -> None:
        self._head = self._tail = b""
        self._due = -1
        self.sock.sendall(
            b"*8\r\n$5\r\nXREAD\r\n$5\r\nCOUNT\r\n$%d\r\n%d\r\n$5\r\nBLOCK\r\n$1\r\n0\r\n$7\r\nSTREAMS\r\n$%d\r\n%b\r\n"
            % (len(str(MOST)), MOST, len(KEY), KEY.encode())
            + b"$%d\r\n%b\r\n" % (len(after), after)
        )

    def feed(self, data: memoryview) -> bool:
        if self._due < 0:
            self._head += bytes(data[:100])
            head = _HEAD.match(self._head)
            if head is None:
                if self._head.startswith(b"-"):
                    raise Amiss(self._head.decode())
                return False
            self._due = self._had + int(head[1])
        self._tail = (self._tail + bytes(data[-self._keep :]))[-self._keep :]
        last = _LAST.search(self._tail)
        if last is not None and int(last[2]) + 1 == self._due:
            self._had = self._due
            if self._tail.endswith(END + b"\r\n"):
                return True
            self._ask(last[1])
        return False


class RedisStreams(System):
    name = "Redis Streams"
    fsync: ClassVar[str] = "everysec"
    lines = 2
    raw_weight = 6
    client_weight = 6

    def missing(self) -> str:
        if shutil.which("redis-server") is None:
            return "redis-server is not installed"
        return "redis-py is not installed: pip install 'zambezi[bench]'" if not INSTALLED else ""

    def versions(self) -> dict[str, str]:
        shown = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
        return {"redis-server": shown.split("v=")[1].split()[0], "redis-py": redis.__version__}

    def command(self, directory: Path, port: int) -> list[str]:
        settings = {
            "port": port,
            "bind": "127.0.0.1",
            "dir": directory,
            "appendonly": "yes",
            "appendfsync": self.fsync,
            "auto-aof-rewrite-percentage": 0,
            "save": "",
            "maxclients": 2000,
        }
        return ["redis-server", *(word for key, value in settings.items() for word in (f"--{key}", str(value)))]

    def find_port(self, directory: Path, port: int) -> int | None:
        return port if answers(port) else None

    # Raw

    def publisher(self, port: int) -> socket.socket:
        return connect(port)

    def frame(self, key: str, body: bytes) -> bytes:
        name = key.encode()
        head = b"*5\r\n$4\r\nXADD\r\n$%d\r\n%b\r\n$1\r\n*\r\n$1\r\nb\r\n" % (len(name), name)
        return head + b"$%d\r\n%b\r\n" % (len(body), body)

    def follow(self, port: int, case: Case) -> Sequence[_Reader]:
        return [_Reader(connect(port), case.size) for _ in range(case.subscribers)]

    # With the Python client

    def publish(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        with redis.Redis(port=port) as client:
            client.ping()
            bodies = case.bodies()
            ready()
            if case.rate:
                for body in paced_blocking(case):
                    client.xadd(KEY, {"b": body})
                return
            while part := list(islice(bodies, PIPELINE)):
                pipeline = client.pipeline(transaction=False)
                for body in part:
                    pipeline.xadd(KEY, {"b": body})
                pipeline.execute()

    def subscribe(self, port: int, case: Case, ready: Callable[[], object]) -> list[float]:
        ages: list[float] = []

        def take() -> None:
            after: Any = "0"
            with redis.Redis(port=port) as client:
                while True:
                    for _, entries in client.xread({KEY: after}, count=MOST, block=0):
                        for _, fields in entries:
                            body = fields[b"b"]
                            if case.rate:
                                ages.extend(delays(body))
                            if body.endswith(END):
                                return
                        after = entries[-1][0]

        threads = [threading.Thread(target=take, daemon=True) for _ in range(case.subscribers)]
        for thread in threads:
            thread.start()
        ready()
        for thread in threads:
            thread.join()
        return ages
