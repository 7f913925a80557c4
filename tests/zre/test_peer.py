"""zambezi.zre.peer: the size of a peer."""

from uuid import UUID

from zambezi.zre.dialect import STABLE
from zambezi.zre.peer import Peer, together


def test_a_peer_is_small_and_shares_what_it_can() -> None:
    one, other = (Peer(UUID(int=number).bytes, "tcp://10.0.0.1:1", STABLE, 0.0) for number in (1, 2))
    assert not hasattr(one, "__dict__")
    assert one.uuid == UUID(int=1)
    assert one.headers is other.headers
    assert one.groups is other.groups
    assert together(("A", "B")) is together(("A", "B"))
