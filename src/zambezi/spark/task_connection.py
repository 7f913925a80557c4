"""A blocking connection to one stream of a broker, for tasks. It transfers bytes by the megabyte.

The clients in `zambezi.zeps` return single messages. A task does not need them: the bytes from the socket are the bytes
of the journal, and become columns directly; the bytes to the socket were made from columns. So this is a socket, the
ZMTP engine for the handshake, and as little as possible after that. On an encrypted connection each message is
encrypted by itself; there the engine decrypts and encrypts them.

A connection that breaks raises `ConnectionLost` and cannot be used again. The caller knows its position in the stream,
and makes a new connection.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections import deque
from types import TracebackType
from typing import Final, Self, TypeVar

import numpy as np

from zambezi.spark.columns import Numbers, Octets, complete_size, split_frames
from zambezi.spark.errors import ConnectionLost, Refused, Superseded
from zambezi.wire import WireError
from zambezi.zeps.layout import DELIVER, LONG, SHORT, frame_header
from zambezi.zeps.messages import (
    ONCE,
    Attach,
    AttachOk,
    Credit,
    Detach,
    Fenced,
    Invalid,
    Mark,
    Ping,
    PingOk,
    Resume,
    ResumeOk,
    Subscribe,
    Zeps,
    extensions_of,
)
from zambezi.zmtp import commands
from zambezi.zmtp.connection import Closed, Connection, Event, Failed, Ready
from zambezi.zmtp.endpoint import Ipc, Tcp, parse
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.frames import COMMAND, Batch, encode_command
from zambezi.zmtp.security import Security

_log: Final = logging.getLogger("zambezi.spark")

Z = TypeVar("Z", bound=Zeps)

BUFFER: Final = 2 << 20
CREDIT: Final = 8 << 20
_WRITE_SIZE: Final = 1 << 18
_MESSAGES_PER_WRITE: Final = 1024  # on an encrypted connection
_MAX_MESSAGE_SIZE: Final = (1 << 31) - 1  # bytes that fit into an Arrow column


class TaskConnection:
    """A connection that is attached to one stream."""

    def __init__(self, endpoint: str, security: Security, stream: str, timeout: float) -> None:
        self._name = f"{endpoint}, stream {stream!a}"
        self._timeout = timeout
        self._buffer = bytearray(BUFFER)
        self._filled = 0
        self._consumed = 0  # bytes at the beginning of the buffer that were returned to the caller
        self._decrypted: deque[bytes] = deque()  # messages of an encrypted connection
        self._answers: list[bytes] = []  # messages of the broker other than DELIVER
        self.tolerates_refusals = False  # whether a refused message is only logged
        self._counts = False  # whether the broker counts the messages of publishers
        self._sock = self._connect(endpoint)
        try:
            self._connection = Connection("DEALER", time.monotonic(), security=security)
            self._handshake()
            self.send(Attach(stream=stream).encode()[0])
            self.wait_for_answer(AttachOk)
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
            raise ConnectionLost(f"{self._name}: {error.strerror or error}") from None

    def _handshake(self) -> None:
        connection = self._connection
        self._write(connection.take_output())
        while True:
            events = connection.receive(self._read(65536), time.monotonic())
            self._write(connection.take_output())
            for event in events:
                if isinstance(event, Failed):
                    raise Refused(f"{self._name}: {event.reason}")
                if isinstance(event, Ready):
                    self._counts = ONCE in extensions_of(event.properties)
                    return

    # Sending

    def send(self, *messages: bytes) -> None:
        """Send messages that have no frame headers."""
        self._write(self._connection.encode(messages, True))

    def send_encoded(self, octets: bytes, starts: Numbers) -> None:
        """Send messages that have frame headers, as `columns.encode_publish` returns them."""
        if not self._connection.sealed:
            view = memoryview(octets)
            for start in range(0, len(view), _WRITE_SIZE):
                self._write(view[start : start + _WRITE_SIZE])  # in parts, because the timeout is for each write
            return
        for start in range(0, len(starts) - 1, _MESSAGES_PER_WRITE):
            self.send(*split_frames(octets, starts[start : start + _MESSAGES_PER_WRITE + 1]))

    def subscribe(self, pattern: str, latest: int) -> None:
        """Send SUBSCRIBE."""
        self.send(Subscribe(pattern, latest).encode()[0])

    def credit(self, size: int) -> None:
        """Allow the broker to send this many more bytes."""
        self.send(Credit(size).encode()[0])

    def resume(self, publisher: bytes, epoch: int, confirmed: int) -> ResumeOk | None:
        """Publish as a publisher from now on; return where it stands, or None if the broker does not count messages."""
        if not self._counts:
            return None
        self.send(Resume(publisher, epoch, confirmed).encode()[0])
        return self.wait_for_answer(ResumeOk)

    def publish(self, octets: bytes, starts: Numbers, mark: bytes) -> None:
        """Send PUBLISH messages that have frame headers, after a mark of their publisher."""
        if self._counts:
            self.send(Mark(mark).encode()[0])
        self.send_encoded(octets, starts)

    def barrier(self) -> None:
        """Wait until all messages published on this connection are in the journal."""
        self.send(Ping().encode()[0])
        self.wait_for_answer(PingOk)

    def _write(self, octets: bytes | memoryview) -> None:
        try:
            self._sock.sendall(octets)
        except OSError as error:
            raise self._lost(error) from None

    # Receiving

    def wait_for_answer(self, kind: type[Z]) -> Z:
        """Wait for an answer of this kind, and discard DELIVER messages before it. Raise if the answer is INVALID."""
        while (answer := self.take_answer(kind)) is None:
            if self._next_messages() is None:
                self._fill_buffer()
        return answer

    def take_answer(self, kind: type[Z]) -> Z | None:
        """Discard received answers up to the first of this kind, and return it; None if there is none.

        Raise if the broker sent INVALID or FENCED, or closed the stream.
        """
        while self._answers:
            message = Zeps.decode(self._answers.pop(0))
            if isinstance(message, kind):
                return message
            if isinstance(message, Invalid) and self.tolerates_refusals and kind is PingOk:
                _log.warning("%s: a row was refused: %s", self._name, message.reason)
                continue
            if isinstance(message, Invalid):
                raise Refused(f"{self._name}: {message.reason}")
            if isinstance(message, Fenced):
                raise Superseded(f"{self._name}: another attempt of this task publishes the rows now")
            if isinstance(message, Detach):
                raise ConnectionLost(f"{self._name}: the broker has closed the stream")
        return None

    def receive(self) -> Octets:
        """Wait until the broker sends something, and return the DELIVER messages in it, if any.

        They are valid until the next call.
        """
        self._fill_buffer()
        return self.buffered()

    def buffered(self) -> Octets:
        """Return complete DELIVER messages with frame headers that were received and not returned yet.

        Other messages between them are kept for `take_answer`; ZMTP commands are answered.
        """
        while (messages := self._next_messages()) is not None:
            if len(messages):
                return messages
        return np.empty(0, np.uint8)

    def _next_messages(self) -> Octets | None:
        """Return the DELIVER messages that are next in the buffer.

        Return an empty array if another message was next, and None if the buffer has no complete message.
        """
        if self._connection.sealed:
            return self._next_decrypted()
        rest = np.frombuffer(memoryview(self._buffer)[self._consumed : self._filled], np.uint8)
        size = complete_size(rest)
        if size:
            self._consumed += size
            return rest[:size]
        return rest[:0] if self._take_other_frame(rest) else None

    def _next_decrypted(self) -> Octets | None:
        if not self._decrypted:
            return None
        if self._decrypted[0][:3] != DELIVER:
            self._keep_answer(self._decrypted.popleft())
            return np.empty(0, np.uint8)
        messages = []
        while self._decrypted and self._decrypted[0][:3] == DELIVER:
            message = self._decrypted.popleft()
            messages += [frame_header(len(message)), message]
        return np.frombuffer(b"".join(messages), np.uint8)

    def _take_other_frame(self, rest: Octets) -> bool:
        """Take one frame that is not DELIVER from the buffer. Return False if it is not complete."""
        head = rest[:LONG].tobytes()
        if len(head) < SHORT:
            return False
        start, size = SHORT, head[1]
        if head[0] & 2:
            if len(head) < LONG:
                return False
            start, size = LONG, int.from_bytes(head[1:], "big")
            if size > _MAX_MESSAGE_SIZE:
                raise ConnectionLost(f"{self._name}: a message of {size} bytes is too large for Spark")
        if len(rest) < start + size:
            return False
        body = rest[start : start + size].tobytes()
        self._consumed += start + size
        if head[0] & COMMAND:
            self._answer_command(body)
        elif body[:3] == DELIVER:
            raise ConnectionLost(f"{self._name}: the broker sent a damaged DELIVER")
        else:
            self._keep_answer(body)
        return True

    def _keep_answer(self, message: bytes) -> None:
        try:
            Zeps.decode(message)
        except WireError as error:
            raise ConnectionLost(f"{self._name}: the broker sent a message that is not ZEPS: {error}") from None
        self._answers.append(message)

    def _answer_command(self, body: bytes) -> None:
        try:
            name, data = commands.split(body)
            if name == commands.PING:
                _, context = commands.read_ping(data)
                self._write(encode_command(commands.command(commands.PONG, context)))
        except ProtocolError as error:
            raise ConnectionLost(f"{self._name}: {error}") from None

    def _fill_buffer(self) -> None:
        """Read all bytes that the socket has now. Wait if it has none."""
        if self._connection.sealed:
            self._decrypt(self._connection.receive(self._read(1 << 18), time.monotonic()))
            self._write(self._connection.take_output())
            return
        if self._consumed:
            rest = self._buffer[self._consumed : self._filled]
            # The caller may still use the bytes that were returned, so this is a new buffer.
            self._buffer = rest + bytearray(max(BUFFER, len(self._buffer)) - len(rest))
            self._filled, self._consumed = len(rest), 0
        if self._filled == len(self._buffer):
            self._buffer = self._buffer + bytearray(len(self._buffer))
        view = memoryview(self._buffer)
        before = self._filled
        try:
            count = self._sock.recv_into(view[self._filled :])
            while count:
                self._filled += count
                if self._filled == len(view):
                    return
                # The socket may have more already, and few large reads are faster than many small ones. (A socket with
                # a timeout is in non-blocking mode: `recv_into` waits, and `readv` does not.)
                try:
                    count = os.readv(self._sock.fileno(), [view[self._filled :]])
                except BlockingIOError:
                    return
        except OSError as error:
            raise self._lost(error) from None
        finally:
            view.release()
        if self._filled == before:  # otherwise the last words of the broker come first
            raise ConnectionLost(f"{self._name}: the broker closed the connection")

    def _decrypt(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Closed | Failed):
                raise ConnectionLost(f"{self._name}: {event.reason}")
            if isinstance(event, Batch):
                self._decrypted += event.frames

    def _read(self, size: int) -> bytes:
        try:
            octets = self._sock.recv(size)
        except OSError as error:
            raise self._lost(error) from None
        if not octets:
            raise ConnectionLost(self._connection.explain_loss(f"{self._name}: the broker closed the connection"))
        return octets

    def _lost(self, error: OSError) -> ConnectionLost:
        if isinstance(error, TimeoutError):
            return ConnectionLost(f"{self._name}: the broker sent nothing for {self._timeout:g} seconds")
        return ConnectionLost(f"{self._name}: {error.strerror or error}")

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
