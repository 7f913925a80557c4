"""libzmq, by way of pyzmq, on the other side: sockets that never wait for ever, and what their monitors tell."""

import errno
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import zmq
from zmq.utils.monitor import recv_monitor_message

PATIENCE = 20.0
MILLISECONDS = int(PATIENCE * 1000)

HANDSHAKE_FAILED = (
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
    zmq.Event.HANDSHAKE_FAILED_AUTH,
)


class Theirs:
    """A context of libzmq's. Its sockets give up after `PATIENCE`, and do not linger."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._kept: list[zmq.Socket[bytes]] = []  # the context would let go of them before they are closed

    def socket(self, kind: int, **options: int | bytes) -> zmq.Socket[bytes]:
        """A socket; options by their names in pyzmq, in lower case."""
        sock = self.context.socket(kind)
        self._kept.append(sock)
        sock.linger = 0
        sock.rcvtimeo = sock.sndtimeo = MILLISECONDS
        for name, value in options.items():
            setattr(sock, name, value)
        return sock

    def bind(self, sock: zmq.Socket[bytes], endpoint: str = "tcp://127.0.0.1:*") -> str:
        """Bind; the endpoint as bound. One that a socket closed a moment ago is waited for."""
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
    """What happens to the connections of a socket of theirs. To be made before it binds or connects."""

    def __init__(self, sock: zmq.Socket[bytes]) -> None:
        self._pair = sock.get_monitor_socket()

    def wait_for(self, *wanted: zmq.Event) -> tuple[zmq.Event, int]:
        """The next of these events and its value; others are passed over."""
        deadline = time.monotonic() + PATIENCE
        seen = []
        while (left := deadline - time.monotonic()) > 0 and self._pair.poll(int(left * 1000)):
            event, value = self._next()
            if event in wanted:
                return event, value
            seen.append(event)
        raise AssertionError(f"{wanted} did not happen, but {seen}")

    def so_far(self) -> list[zmq.Event]:
        """All events that are there, without waiting."""
        events = []
        while self._pair.poll(0):
            events.append(self._next()[0])
        return events

    def _next(self) -> tuple[zmq.Event, int]:
        message = recv_monitor_message(self._pair)
        return zmq.Event(message["event"]), int(message["value"])


def subscribed(publish: Callable[[bytes], object], subscriber: Callable[[], list[bytes] | None]) -> None:
    """Publish `MARK` until the subscriber, which subscribed to it last, gets it: all its subscriptions are there then.

    `subscriber` gives a message, or None if there is none within a few milliseconds.
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
    # Older marks may be under way still; the newest is the end of them.
    while message != [last]:
        message = subscriber()
        assert message is None or message[0].startswith(MARK)
        assert time.monotonic() < deadline, "the last mark was lost"


# The last prefix in the order in which libzmq tells its subscriptions to a publisher.
MARK = b"\xff\xffmark"


def polled(sock: zmq.Socket[bytes]) -> list[bytes] | None:
    """The next message of a socket of theirs, or None."""
    return sock.recv_multipart() if sock.poll(10) else None


def told(publisher: Callable[[], list[bytes] | None], sock: zmq.Socket[bytes]) -> list[bytes]:
    """The next subscription that our publisher hears of.

    A SUB of theirs subscribes at a new connection when the program next uses it, and not before.
    """
    deadline = time.monotonic() + PATIENCE
    while (message := publisher()) is None:
        assert time.monotonic() < deadline, "the subscription did not arrive"
        sock.poll(0)
    return message
