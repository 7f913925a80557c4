"""A lawful client in a process of its own, so that the work of an attacker does not delay it.

    python -m tests.campaign.lawful PORT

It publishes and PINGs every 50 ms, until its input ends. Then it writes the time and the duration of each answer, as
JSON. The times are those of the system's monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from tests.campaign.raw import PING_OK, attach, publish
from tests.zmtp.stranger import hello
from zambezi.zeps.messages import AttachOk, Ping
from zambezi.zmtp.frames import encode

EVERY = 0.05
PATIENCE = 90.0
STREAM = "lawful"
ATTACH_OK = AttachOk().encode()[0]


class LawfulClient:
    """A connection that publishes and waits for the confirmation."""

    def __init__(self, port: int, stream: str = STREAM, patience: float = PATIENCE) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), patience)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.sendall(hello() + attach(stream))
        self._read_until(ATTACH_OK)

    def _read_until(self, wanted: bytes) -> None:
        buffer = b""
        while wanted not in buffer:
            octets = self._sock.recv(1 << 16)
            if not octets:
                raise ConnectionError("the server closed the connection of a lawful client")
            buffer += octets

    def confirm(self) -> float:
        """Publish a message, and return the seconds until it was confirmed."""
        began = time.monotonic()
        self._sock.sendall(publish("key", b"x" * 20) + encode(Ping().encode()))
        self._read_until(PING_OK)
        return time.monotonic() - began


def main(port: int) -> None:
    answers: list[tuple[float, float]] = []
    problem = ""
    try:
        client = LawfulClient(port)
        print("ready", flush=True)
        while True:
            began = time.monotonic()
            answers.append((began, client.confirm()))
            if select.select([sys.stdin], [], [], max(0.0, began + EVERY - time.monotonic()))[0]:
                break
    except OSError as error:
        problem = str(error) or type(error).__name__
    print(json.dumps({"answers": answers, "problem": problem}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
