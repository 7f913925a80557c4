"""zambezi.zmtp.identities: identities that are claimed, assigned, refused and taken over."""

import random

import pytest

from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.identities import Identities
from zambezi.zmtp.patterns import Dealer
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.testing import Simulation


def peer(user: str = "") -> Peer:
    made = Peer(Dealer(Simulation()).transport, "inproc://nowhere")
    made.user = user
    return made


def test_a_peer_has_the_identity_that_it_claims() -> None:
    identities = Identities(random.Random(1))
    ann = peer()
    assert identities.identify(ann, b"ann")
    identities.add(ann)
    assert identities.peers == {b"ann": ann}
    identities.remove(ann)
    assert identities.peers == {}


def test_a_peer_without_an_identity_is_assigned_one_and_keeps_it() -> None:
    identities = Identities(random.Random(1))
    ann, bob = peer(), peer()
    for one in (ann, bob):
        assert identities.identify(one, b"")
    assert ann.identity != bob.identity
    assert {ann.identity[:1], bob.identity[:1]} == {b"\0"}
    before = ann.identity
    assert identities.identify(ann, b"")
    assert ann.identity == before


def test_an_identity_in_use_is_refused_in_the_handshake_and_after_it() -> None:
    identities = Identities(random.Random(1))
    ann = peer()
    assert identities.identify(ann, b"ann")
    identities.add(ann)
    with pytest.raises(ProtocolError, match="in use"):
        identities.admit({"identity": b"ann"})
    identities.admit({"identity": b"bob"})
    identities.admit({})
    assert not identities.identify(peer(), b"ann")


def test_an_identity_belongs_to_a_user() -> None:
    identities = Identities(random.Random(1), handover=True, by_user=True)
    ann = peer("ann")
    assert identities.identify(ann, b"desk")
    identities.add(ann)
    identities.admit({"identity": b"desk"})
    eve = peer("eve")
    assert identities.identify(eve, b"desk")  # her own desk: ann keeps hers
    identities.add(eve)
    assert ann.open
    again = peer("ann")
    assert identities.identify(again, b"desk")
    identities.add(again)
    identities.remove(ann)  # the end of the older connection does not remove the newer peer
    assert (identities.of("ann"), identities.of("eve"), identities.peers) == ({b"desk": again}, {b"desk": eve}, {})
    for one in (again, eve):
        identities.remove(one)
    assert not identities._users


def test_a_peer_with_another_key_does_not_take_over_an_identity() -> None:
    identities = Identities(random.Random(1), handover=True)
    ann, again, eve = peer(), peer(), peer()
    ann.key = again.key = b"a" * 32
    eve.key = b"e" * 32
    assert identities.identify(ann, b"ann")
    identities.add(ann)
    assert not identities.identify(eve, b"ann")
    assert ann.open
    assert identities.identify(again, b"ann")
