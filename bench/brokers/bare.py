"""Programs without a protocol, which are measured like brokers: they show the limits of the machine."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.brokers.body import Case
from bench.brokers.drain import Tail, connect, expect
from bench.brokers.system import System

DONE: Final = b"done\n"
FOLLOW: Final = b"follow\n"


class BareProgram(System):
    """A program that writes its port to a file, and whose subscribers say `follow`. It has no clients in Python."""

    raw_weight = 40

    def missing(self) -> str:
        return ""

    def versions(self) -> dict[str, str]:
        return {}

    def find_port(self, directory: Path, port: int) -> int | None:
        file = directory / "port"
        return int(file.read_text()) if file.exists() else None

    def publisher(self, port: int) -> socket.socket:
        return connect(port)

    def follow(self, port: int, case: Case) -> Sequence[Tail]:
        socks = [connect(port) for _ in range(case.subscribers)]
        for sock in socks:
            sock.sendall(FOLLOW)
            expect(sock, DONE)
        return [Tail(sock) for sock in socks]

    def publish(self, port: int, case: Case, ready: Callable[[], object]) -> None:
        raise NotImplementedError

    def subscribe(self, port: int, case: Case, ready: Callable[[], object]) -> list[float]:
        raise NotImplementedError
