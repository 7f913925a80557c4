"""zambezi.spark.task_connection: a blocking connection to one stream."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.journal import numbered, write
from tests.zeps.serving import serving
from zambezi.spark import task_connection
from zambezi.spark.columns import find_messages
from zambezi.spark.errors import ConnectionLost, Refused, Silent, SparkError
from zambezi.spark.task_connection import TaskConnection
from zambezi.zeps.messages import Publish
from zambezi.zeps.ranges import request
from zambezi.zmtp.security import Null


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    write(tmp_path, "s", numbered(95, size=30))
    with serving(tmp_path) as (_, bound):
        yield bound


def test_answers_to_requests_are_received(endpoint: str) -> None:
    with TaskConnection(endpoint, Null(), "out", 20.0) as connection:
        connection.send(*[Publish("k", b"%d" % number).encode()[0] for number in range(3)])
        connection.barrier()
    with TaskConnection(endpoint, Null(), "$ranges", 20.0) as connection:
        connection.credit(1 << 20)
        connection.send(request("read", stream="out"))
        key, body = connection.wait_for_delivery()
        assert key == b"block"
        assert find_messages(bytes(body[36:])).sequences().tolist() == [1, 2, 3]
        key, body = connection.wait_for_delivery()
        assert (key, bytes(body)) == (b"end", b'{"result":"all"}')


def test_credit_is_given_back(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_connection, "CREDIT", 200)
    with TaskConnection(endpoint, Null(), "$ranges", 20.0) as connection:
        connection.credit(200)
        for _ in range(5):
            connection.send(request("read", stream="s"))
            assert [connection.wait_for_delivery()[0] for _ in range(2)] == [b"block", b"end"]


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


def test_a_message_that_is_too_large_fails_before_it_is_read(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_connection, "MAX_MESSAGE_SIZE", 2000)
    with TaskConnection(endpoint, Null(), "$ranges", 20.0) as connection:
        connection.credit(1 << 20)
        connection.send(request("read", stream="s"))
        with pytest.raises(SparkError, match=r"a message of \d+ bytes is too large for Spark"):
            connection.wait_for_delivery()


def test_a_broker_that_is_silent(endpoint: str) -> None:
    with TaskConnection(endpoint, Null(), "$ranges", 0.05) as connection, pytest.raises(Silent, match=r"0\.05 seconds"):
        connection.wait_for_delivery()
