"""A blocking connection to one stream of a broker, for tasks. It transfers bytes by the megabyte.

The clients in `zambezi.zeps` return single messages. A task does not need them: the broker sends blocks of the journal,
which become columns directly; the bytes to the socket were made from columns. So this is a socket, the ZMTP engine for
the handshake, and as little as possible after that. On an encrypted connection the engine decrypts and encrypts.

A connection that breaks raises `ConnectionLost` and cannot be used again. The caller knows its position in the stream,
and makes a new connection.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections import deque
from types import TracebackType
from typing import Final, Self, TypeVar

from zambezi.spark.columns import MAX_MESSAGE_SIZE, Numbers, too_large
from zambezi.spark.errors import ConnectionLost, Refused, Silent, SparkError, Superseded
from zambezi.spark.publish_columns import split_frames
from zambezi.wire import WireError
from zambezi.zeps.layout import BODY_LENGTH, DELIVER, DELIVER_KEY, LONG, LONG_FLAG, SEQUENCE, SHORT
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
_LEAST: Final = 0.05  # seconds of a timeout; a socket with a timeout of 0 would not wait
_WRITE_SIZE: Final = 1 << 18
_MESSAGES_PER_WRITE: Final = 1024  # on an encrypted connection


class TaskConnection:
    """A connection that is attached to one stream."""

    def __init__(
        self, endpoint: str, security: Security, stream: str, timeout: float, *, first_timeout: float | None = None
    ) -> None:
        """Connect and attach. `first_timeout` is the timeout until that is done, if it is another one."""
        # Reserved streams are not what a person has asked for.
        self._name = endpoint if stream.startswith("$") else f"{endpoint}, stream {stream!a}"
        self._timeout = max(_LEAST, timeout if first_timeout is None else first_timeout)
        self._buffer = bytearray(BUFFER)
        self._filled = 0
        self._consumed = 0  # bytes at the beginning of the buffer that were returned to the caller
        self._decrypted: deque[bytes] = deque()  # messages of an encrypted connection
        self._delivered = 0  # bytes of DELIVER messages since the last CREDIT
        self.tolerates_refusals = False  # whether a refused message is only logged
        self._counts = False  # whether the broker counts the messages of publishers
        self._sock = self._connect(endpoint)
        try:
            self._connection = Connection("DEALER", time.monotonic(), security=security)
            self._handshake()
            self.send(Attach(stream=stream).encode()[0])
            self.wait_for_answer(AttachOk)
            self._timeout = max(_LEAST, timeout)
            self._sock.settimeout(self._timeout)
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

    def send_encoded(self, octets: memoryview, starts: Numbers) -> None:
        """Send messages that have frame headers, as `encode_publish` returns them."""
        if not self._connection.sealed:
            for start in range(0, len(octets), _WRITE_SIZE):
                self._write(octets[start : start + _WRITE_SIZE])  # in parts, because the timeout is for each write
            return
        for start in range(0, len(starts) - 1, _MESSAGES_PER_WRITE):
            self.send(*split_frames(octets, starts[start : start + _MESSAGES_PER_WRITE + 1]))

    def credit(self, size: int) -> None:
        """Allow the broker to send this many more bytes."""
        self.send(Credit(size).encode()[0])

    def resume(self, publisher: bytes, epoch: int, confirmed: int) -> ResumeOk | None:
        """Publish as a publisher from now on; return where it stands, or None if the broker does not count messages."""
        if not self._counts:
            return None
        self.send(Resume(publisher, epoch, confirmed).encode()[0])
        return self.wait_for_answer(ResumeOk)

    def publish(self, octets: memoryview, starts: Numbers, mark: bytes) -> None:
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
        """Wait for an answer of this kind, and discard others. Raise if the answer is INVALID, FENCED or DETACH."""
        while True:
            message = self._decode(self._next_message())
            if isinstance(message, kind):
                return message
            if isinstance(message, Invalid) and self.tolerates_refusals and kind is PingOk:
                _log.warning("%s: a row was refused: %s", self._name, message.reason)
                continue
            self._raise_if_bad(message)

    def wait_for_delivery(self) -> tuple[bytes, memoryview]:
        """Wait for a DELIVER; return its key and its body, which are valid until the next call."""
        while True:
            message = self._next_message()
            if bytes(message[: len(DELIVER)]) == DELIVER:
                self._delivered += len(message)
                if self._delivered >= CREDIT // 2:
                    self.credit(self._delivered)
                    self._delivered = 0
                return _key_and_body(message)
            self._raise_if_bad(self._decode(message))

    def _decode(self, message: memoryview) -> Zeps:
        try:
            return Zeps.decode(bytes(message))
        except WireError as error:
            raise ConnectionLost(f"{self._name}: the broker sent a message that is not ZEPS: {error}") from None

    def _raise_if_bad(self, message: Zeps) -> None:
        if isinstance(message, Invalid):
            raise Refused(f"{self._name}: {message.reason}")
        if isinstance(message, Fenced):
            raise Superseded(f"{self._name}: another attempt of this task publishes the rows now")
        if isinstance(message, Detach):
            raise ConnectionLost(f"{self._name}: the broker has closed the stream")

    def _next_message(self) -> memoryview:
        """Wait for the next message, without its frame header; it is valid until the next call. Answer commands."""
        if self._connection.sealed:
            while not self._decrypted:
                self._decrypt(self._connection.receive(self._read(BUFFER), time.monotonic()))
                self._write(self._connection.take_output())
            return memoryview(self._decrypted.popleft())
        while True:
            flags, message = self._next_frame()
            if not flags & COMMAND:
                return message
            self._answer_command(bytes(message))

    def _next_frame(self) -> tuple[int, memoryview]:
        self._fill(SHORT)
        flags = self._buffer[self._consumed]
        start, size = SHORT, self._buffer[self._consumed + 1]
        if flags & LONG_FLAG:
            self._fill(LONG)
            start, size = LONG, SEQUENCE.unpack_from(self._buffer, self._consumed + 1)[0]
            if size > MAX_MESSAGE_SIZE:
                raise SparkError(f"{self._name}: {too_large(size)}")
        self._fill(start + size)
        begin = self._consumed + start
        self._consumed = begin + size
        return flags, memoryview(self._buffer)[begin : begin + size]

    def _fill(self, size: int) -> None:
        """Wait until the buffer has so many bytes that were not returned."""
        if self._filled - self._consumed >= size:
            return
        if self._consumed + size > len(self._buffer):
            # What was returned is not used any more: the same memory is used again.
            rest = self._buffer[self._consumed : self._filled]
            if size > len(self._buffer):
                self._buffer = bytearray(size + BUFFER)
            self._buffer[: len(rest)] = rest
            self._filled, self._consumed = len(rest), 0
        with memoryview(self._buffer) as view:
            while self._filled - self._consumed < size:
                try:
                    count = self._sock.recv_into(view[self._filled :])
                except OSError as error:
                    raise self._lost(error) from None
                if not count:
                    raise ConnectionLost(f"{self._name}: the broker closed the connection")
                self._filled += count

    def _answer_command(self, body: bytes) -> None:
        try:
            name, data = commands.split(body)
            if name == commands.PING:
                _, context = commands.read_ping(data)
                self._write(encode_command(commands.command(commands.PONG, context)))
        except ProtocolError as error:
            raise ConnectionLost(f"{self._name}: {error}") from None

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
            return Silent(f"{self._name}: the broker sent nothing for {self._timeout:g} seconds")
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


def _key_and_body(deliver: memoryview) -> tuple[bytes, memoryview]:
    body = DELIVER_KEY + deliver[DELIVER_KEY - 1] + BODY_LENGTH.size
    return bytes(deliver[DELIVER_KEY : body - BODY_LENGTH.size]), deliver[body:]
