"""The sockets of libzmq, through pyzmq, with timeouts; and their monitors."""

import errno
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import zmq
from zmq.utils.monitor import recv_monitor_message

PATIENCE = 60.0
MILLISECONDS = int(PATIENCE * 1000)

HANDSHAKE_FAILED = (
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
    zmq.Event.HANDSHAKE_FAILED_AUTH,
)


class Theirs:
    """A context of libzmq. Its sockets have the timeout `PATIENCE`, and do not linger."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._kept: list[zmq.Socket[bytes]] = []  # the context alone would not keep them alive

    def socket(self, kind: int, **options: int | bytes) -> zmq.Socket[bytes]:
        """Return a socket. Options have their names in pyzmq, in lower case."""
        sock = self.context.socket(kind)
        self._kept.append(sock)
        sock.linger = 0
        sock.rcvtimeo = sock.sndtimeo = MILLISECONDS
        for name, value in options.items():
            setattr(sock, name, value)
        return sock

    def bind(self, sock: zmq.Socket[bytes], endpoint: str = "tcp://127.0.0.1:*") -> str:
        """Bind, and return the endpoint as bound. If the address is still in use, wait until it is free."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                sock.bind(endpoint)
            except zmq.ZMQError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                    raise
                time.sleep(0.002)
            else:
                return sock.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.context.destroy(linger=0)


class Monitor:
    """The events of a libzmq socket. Create the monitor before the socket binds or connects."""

    def __init__(self, sock: zmq.Socket[bytes]) -> None:
        self._pair = sock.get_monitor_socket()

    def wait_for(self, *wanted: zmq.Event) -> tuple[zmq.Event, int]:
        """Return the next of these events and its value; ignore others."""
        deadline = time.monotonic() + PATIENCE
        seen = []
        while (left := deadline - time.monotonic()) > 0 and self._pair.poll(int(left * 1000)):
            event, value = self._next()
            if event in wanted:
                return event, value
            seen.append(event)
        raise AssertionError(f"none of {wanted} happened, only {seen}")

    def so_far(self) -> list[zmq.Event]:
        """Return all events that have happened, without waiting."""
        events = []
        while self._pair.poll(0):
            events.append(self._next()[0])
        return events

    def _next(self) -> tuple[zmq.Event, int]:
        message = recv_monitor_message(self._pair)
        return zmq.Event(message["event"]), int(message["value"])


def subscribed(publish: Callable[[bytes], object], subscriber: Callable[[], list[bytes] | None]) -> None:
    """Publish `MARK` until the subscriber receives it.

    The subscriber subscribed to `MARK` last, so the publisher has all its subscriptions by then. `subscriber` returns a
    message, or None if none arrives within a few milliseconds.
    """
    deadline = time.monotonic() + PATIENCE
    number = 0
    while True:
        number += 1
        last = MARK + number.to_bytes(4, "big")
        publish(last)
        message = subscriber()
        if message is not None:
            break
        assert time.monotonic() < deadline, "the subscription did not arrive"
    # Older marks may still be under way; the newest is the last one.
    while message != [last]:
        message = subscriber()
        assert message is None or message[0].startswith(MARK)
        assert time.monotonic() < deadline, "the last mark was lost"


# The last prefix in the order in which libzmq sends its subscriptions to a publisher.
MARK = b"\xff\xffmark"


def polled(sock: zmq.Socket[bytes]) -> list[bytes] | None:
    """Return the next message of a libzmq socket, or None."""
    return sock.recv_multipart() if sock.poll(10) else None


def told(publisher: Callable[[], list[bytes] | None], sock: zmq.Socket[bytes]) -> list[bytes]:
    """Return the next subscription that our publisher receives.

    A SUB of libzmq sends its subscriptions to a new connection only when the program uses the socket again.
    """
    deadline = time.monotonic() + PATIENCE
    while (message := publisher()) is None:
        assert time.monotonic() < deadline, "the subscription did not arrive"
        sock.poll(0)
    return message
