"""The fixtures of the tests of `zambezi.zmtp`."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faces import Zmtp
from tests.zmtp.line import Line
from tests.zmtp.waiting import wait_until
from zambezi.zmtp.io_thread import IoThread


@pytest.fixture(params=["asyncio", "sync"])
def zmtp(request: pytest.FixtureRequest) -> Zmtp:
    """The sockets, once those of `zambezi.zmtp.asyncio`, and once those of `zambezi.zmtp.sync`."""
    return Zmtp.of(request.param)


@pytest.fixture
def io() -> Iterator[IoThread]:
    thread = IoThread()
    yield thread
    thread.stop()


@pytest.fixture
def line(io: IoThread) -> Iterator[Line]:
    line = Line(io)
    yield line
    line.close()
    wait_until(lambda: line.watch._epoll is None)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8, "worker") as pool:
        yield pool
