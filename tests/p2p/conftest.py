"""The fixtures of the tests of `zambezi.p2p`."""

import pytest

from tests.faces import P2p


@pytest.fixture(params=["asyncio", "sync"])
def p2p(request: pytest.FixtureRequest) -> P2p:
    """The sockets, once those of `zambezi.p2p.asyncio`, and once those of `zambezi.p2p.sync`."""
    return P2p.of(request.param)
