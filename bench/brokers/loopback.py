"""The limit: the same bytes sent to subscribers by `send` and by `sendfile` on loopback, without a broker.

`python -m bench.brokers.loopback DIRECTORY send|sendfile` waits for subscribers, which only connect, and for a
publisher, which only says how much to send. So it is measured like a broker. The bytes are those of Zambezi's DELIVER
messages.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.brokers.bare import DONE, BareProgram
from bench.brokers.body import END, KEY, Case
from bench.brokers.drain import PATIENCE, expect
from zambezi.zeps.layout import frame_header
from zambezi.zeps.messages import Deliver

BLOCK: Final = 256 * 1024  # bytes of one send, as many as a busy broker reads at once
SLICE: Final = 1 << 20  # bytes of a file for one subscriber, before the next gets them


class _Loopback(BareProgram):
    def command(self, directory: Path, port: int) -> list[str]:
        return [sys.executable, "-m", "bench.brokers.loopback", str(directory), self.name.split()[-1]]

    def prepare(self, case: Case, sock: socket.socket) -> Sequence[bytes]:
        sock.sendall(b"prepare %d %d\n" % (case.count, case.size))
        expect(sock, DONE)
        return [b"go\n"]

    def frame(self, key: str, body: bytes) -> bytes:
        raise NotImplementedError

    def confirm(self, sock: socket.socket, case: Case) -> None:
        expect(sock, DONE)


class BareSend(_Loopback):
    name = "bare send"


class BareSendfile(_Loopback):
    name = "bare sendfile"


def _messages(case: Case) -> tuple[bytes, int, bytes]:
    """Return a block, how often to send it, and the last bytes to send."""

    def framed(body: bytes) -> bytes:
        message = Deliver(1, KEY, body).encode()[0]
        return frame_header(len(message)) + message

    one = framed(b"x" * case.size)
    many = max(1, BLOCK // len(one))
    blocks, left = divmod(case.count - 1, many)
    return one * many, blocks, one * left + framed(END.rjust(case.size, b"x"))


def _send(followers: Sequence[socket.socket], case: Case) -> None:
    block, blocks, last = _messages(case)
    for _ in range(blocks):
        for sock in followers:
            sock.sendall(block)
    for sock in followers:
        sock.sendall(last)


def _store(path: Path, case: Case) -> None:
    block, blocks, last = _messages(case)
    with path.open("wb") as file:
        for _ in range(blocks):
            file.write(block)
        file.write(last)


def _sendfile(followers: Sequence[socket.socket], path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        descriptor = file.fileno()
        for start in range(0, size, SLICE):
            stop = min(start + SLICE, size)
            for sock in followers:
                offset = start
                while offset < stop:
                    offset += os.sendfile(sock.fileno(), descriptor, offset, stop - offset)


def _serve(directory: Path, kind: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    (directory / "port.new").write_text(str(listener.getsockname()[1]))
    (directory / "port.new").rename(directory / "port")
    followers: list[socket.socket] = []
    case = Case(0)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is listener:
                    new = sock.accept()[0]
                    new.settimeout(None)
                    selector.register(new, selectors.EVENT_READ)
                    continue
                words = sock.recv(100).split()
                if not words:
                    selector.unregister(sock)
                    sock.close()
                    continue
                if words[0] == b"follow":
                    followers.append(sock)
                    selector.unregister(sock)
                elif words[0] == b"prepare":
                    case = Case(int(words[1]), int(words[2]))
                    if kind == "sendfile":
                        _store(directory / "messages", case)
                elif kind == "sendfile":
                    _sendfile(followers, directory / "messages")
                else:
                    _send(followers, case)
                sock.sendall(DONE)


if __name__ == "__main__":
    socket.setdefaulttimeout(PATIENCE)
    _serve(Path(sys.argv[1]), sys.argv[2])
