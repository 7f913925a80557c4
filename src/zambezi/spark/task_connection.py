"""A connection to one stream of a broker, for tasks: it blocks, and deals in octets by the megabyte.

The clients in `zambezi.zeps` hand out messages. A task of Spark wants none of that: what comes from the socket is what
the journal has, and becomes columns as it is; what goes out was made of columns. So this is a socket, the ZMTP engine
for the handshake, and as little as possible after it. Where the connection is encrypted each message is in a box of its
own; then the engine opens and makes them.

A line that breaks is done with: `ConnectionLost`. Those who use it know where they were, and make another.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from types import TracebackType
from typing import Final, Self

import numpy as np

from zambezi.spark.columns import Numbers, Octets, frames, whole
from zambezi.spark.errors import ConnectionLost, Refused
from zambezi.wire import WireError
from zambezi.zeps.layout import DELIVER, LONG, SHORT, frame_header
from zambezi.zeps.messages import (
    Attach,
    AttachOk,
    Credit,
    Detach,
    Invalid,
    Ping,
    PingOk,
    Subscribe,
    Zeps,
)
from zambezi.zmtp import commands
from zambezi.zmtp.connection import Closed, Connection, Event, Failed, Ready
from zambezi.zmtp.endpoint import Ipc, Tcp, parse
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.frames import COMMAND, Batch, encode_command
from zambezi.zmtp.security import Security

BUFFER: Final = 2 << 20
CREDIT: Final = 8 << 20
_PIECE: Final = 1 << 18
_BOXES: Final = 1024
_LARGEST: Final = (1 << 31) - 1  # octets that fit into an Arrow column


class TaskConnection:
    """One connection, attached to one stream."""

    def __init__(self, endpoint: str, security: Security, stream: str, timeout: float) -> None:
        self._told = f"{endpoint}, stream {stream!a}"
        self._timeout = timeout
        self._buffer = bytearray(BUFFER)
        self._filled = 0
        self._passed = 0  # octets at the beginning of the buffer that were handed out
        self._boxed: deque[bytes] = deque()  # messages out of boxes
        self._said: list[bytes] = []  # what came and is no DELIVER
        self._sock = self._connect(endpoint)
        try:
            self._connection = Connection("DEALER", time.monotonic(), security=security)
            self._shake_hands()
            self.say(Attach(stream=stream).encode()[0])
            self.expect(AttachOk)
        except BaseException:
            self._sock.close()
            raise

    def _connect(self, endpoint: str) -> socket.socket:
        target = parse(endpoint)
        try:
            if isinstance(target, Ipc):
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                sock.settimeout(self._timeout)
                try:
                    sock.connect(target.address)
                except OSError:
                    sock.close()
                    raise
                return sock
            assert isinstance(target, Tcp)
            sock = socket.create_connection((target.host, target.first), self._timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            raise ConnectionLost(f"{self._told}: {error.strerror or error}") from None

    def _shake_hands(self) -> None:
        connection = self._connection
        self._write(connection.take_output())
        while True:
            events = connection.receive(self._read(65536), time.monotonic())
            self._write(connection.take_output())
            for event in events:
                if isinstance(event, Failed):
                    raise Refused(f"{self._told}: {event.reason}")
                if isinstance(event, Ready):
                    return

    # Out

    def say(self, *messages: bytes) -> None:
        """Send messages without frame headers."""
        self._write(self._connection.encode(messages, True))

    def send(self, octets: bytes, starts: Numbers) -> None:
        """Send messages that have their frame headers, as `columns.publish` makes them."""
        if not self._connection.sealed:
            view = memoryview(octets)
            for start in range(0, len(view), _PIECE):
                self._write(view[start : start + _PIECE])  # in pieces, for the timeout is for each
            return
        for start in range(0, len(starts) - 1, _BOXES):
            self.say(*frames(octets, starts[start : start + _BOXES + 1]))

    def subscribe(self, pattern: str, latest: int) -> None:
        self.say(Subscribe(pattern, latest).encode()[0])

    def credit(self, octets: int) -> None:
        self.say(Credit(octets).encode()[0])

    def barrier(self) -> None:
        """Wait until all that was published on this line is in the journal."""
        self.say(Ping().encode()[0])
        self.expect(PingOk)

    def _write(self, octets: bytes | memoryview) -> None:
        try:
            self._sock.sendall(octets)
        except OSError as error:
            raise self._lost(error) from None

    # In

    def expect(self, kind: type[Zeps]) -> None:
        """Wait for an answer of this kind; INVALID is an error. DELIVER messages that come before it are left out."""
        while not self.heard(kind):
            if self._step() is None:
                self._fill()

    def heard(self, kind: type[Zeps]) -> bool:
        """Whether an answer of this kind has come. INVALID, or that the broker goes, is an error."""
        found = False
        while self._said and not found:
            message = Zeps.decode(self._said.pop(0))
            if isinstance(message, Invalid):
                raise Refused(f"{self._told}: {message.reason}")
            if isinstance(message, Detach):
                raise ConnectionLost(f"{self._told}: the broker has closed the stream")
            found = isinstance(message, kind)
        return found

    def read(self) -> Octets:
        """Wait for something, and give what came of DELIVER messages: valid until the next call. It may be nothing."""
        self._fill()
        return self.receive()

    def receive(self) -> Octets:
        """The DELIVER messages that are in the buffer and were not handed out yet, whole and with frame headers.

        What stands between them is kept for `heard`, or answered.
        """
        while (found := self._step()) is not None:
            if len(found):
                return found
        return np.empty(0, np.uint8)

    def _step(self) -> Octets | None:
        """What is next in the buffer: DELIVER messages, nothing if it was an answer; None if no more is there."""
        if self._connection.sealed:
            return self._step_boxed()
        window = np.frombuffer(memoryview(self._buffer)[self._passed : self._filled], np.uint8)
        size = whole(window)
        if size:
            self._passed += size
            return window[:size]
        return window[:0] if self._other(window) else None

    def _step_boxed(self) -> Octets | None:
        if not self._boxed:
            return None
        if self._boxed[0][:3] != DELIVER:
            self._hear(self._boxed.popleft())
            return np.empty(0, np.uint8)
        messages = []
        while self._boxed and self._boxed[0][:3] == DELIVER:
            message = self._boxed.popleft()
            messages += [frame_header(len(message)), message]
        return np.frombuffer(b"".join(messages), np.uint8)

    def _other(self, window: Octets) -> bool:
        """Take one frame that is no DELIVER, if it is there as a whole."""
        head = window[:LONG].tobytes()
        if len(head) < SHORT:
            return False
        start, size = SHORT, head[1]
        if head[0] & 2:
            if len(head) < LONG:
                return False
            start, size = LONG, int.from_bytes(head[1:], "big")
            if size > _LARGEST:
                raise ConnectionLost(f"{self._told}: a message of {size} octets is more than Spark can take")
        if len(window) < start + size:
            return False
        body = window[start : start + size].tobytes()
        self._passed += start + size
        if head[0] & COMMAND:
            self._command(body)
        elif body[:3] == DELIVER:
            raise ConnectionLost(f"{self._told}: a DELIVER came that is damaged")
        else:
            self._hear(body)
        return True

    def _hear(self, message: bytes) -> None:
        try:
            Zeps.decode(message)
        except WireError as error:
            raise ConnectionLost(f"{self._told}: what came is no answer of a broker: {error}") from None
        self._said.append(message)

    def _command(self, body: bytes) -> None:
        try:
            name, data = commands.split(body)
            if name == commands.PING:
                _, context = commands.read_ping(data)
                self._write(encode_command(commands.command(commands.PONG, context)))
        except ProtocolError as error:
            raise ConnectionLost(f"{self._told}: {error}") from None

    def _fill(self) -> None:
        """Read what there is, and wait if there is nothing."""
        if self._connection.sealed:
            self._unbox(self._connection.receive(self._read(1 << 18), time.monotonic()))
            self._write(self._connection.take_output())
            return
        if self._passed:
            rest = self._buffer[self._passed : self._filled]
            # What was handed out may still be looked at: a new buffer, not the old one with other octets.
            self._buffer = rest + bytearray(max(BUFFER, len(self._buffer)) - len(rest))
            self._filled, self._passed = len(rest), 0
        if self._filled == len(self._buffer):
            self._buffer = self._buffer + bytearray(len(self._buffer))
        view = memoryview(self._buffer)
        try:
            count = self._sock.recv_into(view[self._filled :])
            while count:
                self._filled += count
                if self._filled == len(view):
                    return
                # More may be there already: few large windows are faster than many small ones. (A socket that has a
                # timeout does not block by itself: it is `recv_into` that waits, and `readv` does not.)
                try:
                    count = os.readv(self._sock.fileno(), [view[self._filled :]])
                except BlockingIOError:
                    return
        except OSError as error:
            raise self._lost(error) from None
        finally:
            view.release()
        raise ConnectionLost(f"{self._told}: the broker closed the connection")

    def _unbox(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Closed | Failed):
                raise ConnectionLost(f"{self._told}: {event.reason}")
            if isinstance(event, Batch):
                self._boxed += event.frames

    def _read(self, size: int) -> bytes:
        try:
            octets = self._sock.recv(size)
        except OSError as error:
            raise self._lost(error) from None
        if not octets:
            raise ConnectionLost(self._connection.explain_loss(f"{self._told}: the broker closed the connection"))
        return octets

    def _lost(self, error: OSError) -> ConnectionLost:
        if isinstance(error, TimeoutError):
            return ConnectionLost(f"{self._told}: the broker said nothing for {self._timeout:g} seconds")
        return ConnectionLost(f"{self._told}: {error.strerror or error}")

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
