"""The two sides of every test here: our sockets, of either face, and the sockets of libzmq."""

from collections.abc import Iterator

import pytest

from tests.interop.faces import Ours
from tests.interop.libzmq import Theirs


@pytest.fixture(params=["asyncio", "sync"])
def ours(request: pytest.FixtureRequest) -> Iterator[Ours]:
    with Ours(request.param) as sockets:
        yield sockets


@pytest.fixture
def theirs() -> Iterator[Theirs]:
    with Theirs() as sockets:
        yield sockets
