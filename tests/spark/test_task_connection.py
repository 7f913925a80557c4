"""zambezi.spark.task_connection: a blocking connection to one stream."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.spark.journal import numbered, write
from tests.zeps.serving import serving
from zambezi.spark.columns import find_messages
from zambezi.spark.errors import ConnectionLost, Refused
from zambezi.spark.task_connection import TaskConnection
from zambezi.zeps.messages import PingOk, Publish
from zambezi.zmtp.security import Null


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    write(tmp_path, "s", numbered(95, size=30))
    with serving(tmp_path) as (_, bound):
        yield bound


def test_published_messages_can_be_received(endpoint: str) -> None:
    with TaskConnection(endpoint, Null(), "out", 20.0) as connection:
        connection.send(*[Publish("k", b"%d" % number).encode()[0] for number in range(3)])
        connection.barrier()
        connection.subscribe("", 0)
        connection.credit(1 << 20)
        found: list[int] = []
        while len(found) < 3:
            found += find_messages(connection.receive()).sequences().tolist()
        assert found == [1, 2, 3]
        assert not connection.take_answer(PingOk)  # `barrier` has taken it


def test_a_refusal_of_the_broker_is_an_error(endpoint: str) -> None:
    with pytest.raises(Refused, match="there is no reserved stream"):
        TaskConnection(endpoint, Null(), "$nothing", 20.0)
    with TaskConnection(endpoint, Null(), "$streams", 20.0) as connection:
        connection.send(Publish("k", b"").encode()[0])
        with pytest.raises(Refused, match="cannot publish to it"):
            connection.barrier()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(64), b""])
def test_a_server_that_is_not_a_broker(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                connection.recv(100)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises((ConnectionLost, Refused)):
            TaskConnection(f"tcp://127.0.0.1:{server.getsockname()[1]}", Null(), "s", 5.0)
        thread.join(60)


def test_a_returned_buffer_is_not_overwritten(endpoint: str) -> None:
    with TaskConnection(endpoint, Null(), "s", 20.0) as connection:
        connection.subscribe("", 0)
        connection.credit(200)
        first = connection.receive()
        while not len(first):
            first = connection.receive()
        before = first.copy()
        connection.credit(1 << 20)
        connection.receive()
        assert np.array_equal(first, before)
