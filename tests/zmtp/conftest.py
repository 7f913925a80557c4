"""The fixtures of the tests of `zambezi.zmtp`."""

import pytest

from tests.faces import Zmtp


@pytest.fixture(params=["asyncio", "sync"])
def zmtp(request: pytest.FixtureRequest) -> Zmtp:
    """The sockets, once those of `zambezi.zmtp.asyncio`, and once those of `zambezi.zmtp.sync`."""
    return Zmtp.of(request.param)
