"""zambezi.zre.peer: the size of a peer, and the parts of endpoints, which peers can make up."""

from uuid import UUID

import pytest

from zambezi.zre.dialect import STABLE
from zambezi.zre.peer import Peer, host_of, port_of, together


@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [
        ("tcp://10.0.0.1:50000", "10.0.0.1", 50000),
        ("tcp://[::1]:5", "::1", 5),
        ("tcp://gate.example:7", "gate.example", 7),
        ("inproc://memory-1/2/3", "memory-1", None),
        ("tcp://", "", None),
        ("tcp://[", "", None),
        ("tcp://a:99999", "a", None),
        ("tcp://\u2100:1", "", None),
        ("", "", None),
    ],
)
def test_the_parts_of_an_endpoint(endpoint: str, host: str, port: int | None) -> None:
    assert (host_of(endpoint), port_of(endpoint)) == (host, port)


def test_a_peer_is_small_and_shares_what_it_can() -> None:
    one, other = (Peer(UUID(int=number).bytes, "tcp://10.0.0.1:1", STABLE, 0.0) for number in (1, 2))
    assert not hasattr(one, "__dict__")
    assert one.uuid == UUID(int=1)
    assert one.headers is other.headers
    assert one.groups is other.groups
    assert together(("A", "B")) is together(("A", "B"))
