"""libzmq's own ZMQ_PEER, through ctypes: pyzmq's wheels have no draft sockets.

It needs a libzmq that was built with drafts. The environment variable ZAMBEZI_LIBZMQ names its file.
"""

import ctypes
import errno
import os
import time
from types import TracebackType
from typing import Self, TypeVar

VARIABLE = "ZAMBEZI_LIBZMQ"
PATIENCE = 60.0

_PEER = 19
_LINGER, _SEND_BOUND, _RECEIVE_BOUND, _RECEIVE_TIME, _SEND_TIME, _LAST_ENDPOINT = 17, 23, 24, 27, 28, 32
AT_ONCE, MORE = 1, 2
_BOUND = 100_000

_Result = TypeVar("_Result")


class LibzmqError(Exception):
    """An error of libzmq; `number` is its errno."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


class _Message(ctypes.Structure):
    _fields_ = (("octets", ctypes.c_ubyte * 64),)
    _align_ = 8


def missing() -> str:
    """Return why no ZMQ_PEER is available, or an empty text if one is."""
    path = os.environ.get(VARIABLE)
    if not path:
        return f"{VARIABLE} does not name a libzmq that has the draft sockets"
    try:
        has = ctypes.CDLL(path).zmq_has
    except (OSError, AttributeError) as error:
        return f"{VARIABLE}: {error}"
    has.argtypes = [ctypes.c_char_p]
    return "" if has(b"draft") == 1 else f"{VARIABLE}: {path} was built without the draft sockets"


class LibzmqPeer:
    """A ZMQ_PEER in a context of its own. The default of its timeouts is `PATIENCE`."""

    def __init__(self, library: str, linger: float = 0.0) -> None:
        zmq = self._zmq = _declared(ctypes.CDLL(library, use_errno=True))
        self._message = _Message()
        self._by_reference = ctypes.byref(self._message)
        self._wait = -1.0  # the last timeout that was set on the socket
        self._context = self._checked(zmq.zmq_ctx_new())
        self._socket = self._checked(zmq.zmq_socket(self._context, _PEER))
        for option, value in (
            (_LINGER, int(linger * 1000)),
            (_SEND_BOUND, _BOUND),
            (_RECEIVE_BOUND, _BOUND),
            (_SEND_TIME, int(PATIENCE * 1000)),
        ):
            self._set(option, value)

    def bind(self, endpoint: str = "tcp://127.0.0.1:*") -> str:
        """Bind, and return the endpoint as bound. If the address is still in use, wait until it is free."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._checked(self._zmq.zmq_bind(self._socket, endpoint.encode()) == 0)
            except LibzmqError as error:
                if error.number != errno.EADDRINUSE or time.monotonic() > deadline:
                    raise
                time.sleep(0.002)
            else:
                break
        bound, size = ctypes.create_string_buffer(256), ctypes.c_size_t(256)
        self._checked(self._zmq.zmq_getsockopt(self._socket, _LAST_ENDPOINT, bound, ctypes.byref(size)) == 0)
        return bound.value.decode()

    def connect(self, endpoint: str) -> int:
        """Connect, and return the routing id of the peer."""
        routing_id: int = self._checked(self._zmq.zmq_connect_peer(self._socket, endpoint.encode()))
        return routing_id

    def send(self, routing_id: int, data: bytes, flags: int = 0) -> None:
        zmq, message = self._zmq, self._by_reference
        self._checked(zmq.zmq_msg_init_buffer(message, data, len(data)) == 0)
        zmq.zmq_msg_set_routing_id(message, routing_id)
        if zmq.zmq_msg_send(message, self._socket, flags) < 0:
            error = self._error()
            zmq.zmq_msg_close(message)
            raise error

    def recv(self, timeout: float = PATIENCE) -> tuple[int, bytes]:
        """Return the routing id of the next message's sender, and the message."""
        if timeout != self._wait:
            self._set(_RECEIVE_TIME, int(timeout * 1000))
            self._wait = timeout
        zmq, message = self._zmq, self._by_reference
        zmq.zmq_msg_init(message)
        if zmq.zmq_msg_recv(message, self._socket, 0) < 0:
            error = self._error()
            zmq.zmq_msg_close(message)
            raise error
        data = ctypes.string_at(zmq.zmq_msg_data(message), zmq.zmq_msg_size(message))
        routing_id: int = zmq.zmq_msg_routing_id(message)
        zmq.zmq_msg_close(message)
        return routing_id, data

    def close(self) -> None:
        """Close; queued messages have the `linger` of the socket to go out."""
        if self._socket is not None:
            self._zmq.zmq_close(self._socket)
            self._zmq.zmq_ctx_term(self._context)
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _set(self, option: int, value: int) -> None:
        number = ctypes.c_int(value)
        size = ctypes.sizeof(number)
        self._checked(self._zmq.zmq_setsockopt(self._socket, option, ctypes.byref(number), size) == 0)

    def _checked(self, result: _Result) -> _Result:
        if not result:
            raise self._error()
        return result

    def _error(self) -> LibzmqError:
        number = self._zmq.zmq_errno()
        return LibzmqError(number, self._zmq.zmq_strerror(number).decode())


def _declared(zmq: ctypes.CDLL) -> ctypes.CDLL:
    pointer, text, number, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    routing_id = ctypes.c_uint32
    for name, result, arguments in (
        ("zmq_errno", number, ()),
        ("zmq_strerror", text, (number,)),
        ("zmq_ctx_new", pointer, ()),
        ("zmq_ctx_term", number, (pointer,)),
        ("zmq_socket", pointer, (pointer, number)),
        ("zmq_close", number, (pointer,)),
        ("zmq_bind", number, (pointer, text)),
        ("zmq_connect_peer", routing_id, (pointer, text)),
        ("zmq_setsockopt", number, (pointer, number, pointer, size)),
        ("zmq_getsockopt", number, (pointer, number, pointer, pointer)),
        ("zmq_msg_init", number, (pointer,)),
        ("zmq_msg_init_buffer", number, (pointer, text, size)),
        ("zmq_msg_send", number, (pointer, pointer, number)),
        ("zmq_msg_recv", number, (pointer, pointer, number)),
        ("zmq_msg_close", number, (pointer,)),
        ("zmq_msg_data", pointer, (pointer,)),
        ("zmq_msg_size", size, (pointer,)),
        ("zmq_msg_set_routing_id", number, (pointer, routing_id)),
        ("zmq_msg_routing_id", routing_id, (pointer,)),
    ):
        function = getattr(zmq, name)
        function.restype, function.argtypes = result, arguments
    return zmq
