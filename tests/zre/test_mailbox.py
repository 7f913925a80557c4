"""zambezi.zre.mailbox: a DEALER to each peer, in memory, on a clock that the test moves."""

from collections.abc import Iterator

import pytest

from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.patterns import Router
from zambezi.zmtp.security import Null
from zambezi.zmtp.testing import Simulation, received
from zambezi.zre.mailbox import Dealers

IDENTITY = b"\x01" + bytes(16)


class Mailboxes:
    def __init__(self, sim: Simulation, bound: Bound) -> None:
        self.dealers = Dealers(sim, Options(identity=IDENTITY, send_bound=bound), lambda _: Null())
        self.routers = [Router(sim, Options()) for _ in range(2)]
        self.endpoints = [router.bind(f"inproc://mailbox-{id(self)}-{n}") for n, router in enumerate(self.routers)]


@pytest.fixture
def mailboxes(sim: Simulation) -> Iterator[Mailboxes]:
    made = Mailboxes(sim, Bound(3, 1000))
    yield made
    for transport in (made.dealers.transport, *(router.transport for router in made.routers)):
        transport.close(0)
    sim.run()


def test_each_peer_gets_its_own_messages_with_our_identity(sim: Simulation, mailboxes: Mailboxes) -> None:
    dealers = mailboxes.dealers
    for key, endpoint in zip((b"a", b"b"), mailboxes.endpoints, strict=True):
        dealers.open(key, endpoint)
    assert dealers.send(b"a", (b"one",))
    assert dealers.send(b"b", (b"two", b"frames"))
    sim.run()
    assert received(mailboxes.routers[0]) == [[IDENTITY, b"one"]]
    assert received(mailboxes.routers[1]) == [[IDENTITY, b"two", b"frames"]]


def test_messages_to_a_peer_that_is_not_connected_wait_up_to_the_bound(sim: Simulation, mailboxes: Mailboxes) -> None:
    dealers = mailboxes.dealers
    dealers.open(b"a", "inproc://mailbox-nobody")
    for number in range(3):
        assert dealers.has_room(b"a")
        assert dealers.send(b"a", (b"%d" % number,))
    assert not dealers.has_room(b"a")
    assert not dealers.drained(b"a")
    assert not dealers.is_lost(b"a")
    late = Router(sim, Options())
    late.bind("inproc://mailbox-nobody")
    sim.run()
    assert received(late) == [[IDENTITY, b"0"], [IDENTITY, b"1"], [IDENTITY, b"2"]]
    assert dealers.drained(b"a")
    late.close(0)
    sim.run()


def test_a_bound_in_bytes_holds_too(mailboxes: Mailboxes) -> None:
    mailboxes.dealers.open(b"a", "inproc://mailbox-nobody")
    assert mailboxes.dealers.send(b"a", (bytes(600), bytes(600)))
    assert not mailboxes.dealers.has_room(b"a")
    assert mailboxes.dealers.send(b"a", (bytes(800),))  # a message of the node itself
    assert not mailboxes.dealers.send(b"a", (b"",))


def test_a_dealer_can_be_given_to_the_peer_that_is_found_there(sim: Simulation, mailboxes: Mailboxes) -> None:
    dealers = mailboxes.dealers
    dealers.open(b"seed", mailboxes.endpoints[0])
    dealers.send(b"seed", (b"hello",))
    dealers.adopt(b"seed", b"a")
    dealers.send(b"a", (b"again",))
    dealers.send(b"seed", (b"to nobody",))
    sim.run()
    assert received(mailboxes.routers[0]) == [[IDENTITY, b"hello"], [IDENTITY, b"again"]]
    assert len(dealers.transport.connectors) == 1


def test_a_dealer_that_is_shut_sends_nothing_more_and_is_forgotten(sim: Simulation, mailboxes: Mailboxes) -> None:
    dealers = mailboxes.dealers
    dealers.open(b"a", mailboxes.endpoints[0])
    sim.run()
    dealers.shut(b"a")
    dealers.shut(b"a")
    assert dealers.send(b"a", (b"too late",))  # there is no DEALER, so no queue is full
    assert dealers.drained(b"a")
    dealers.open(b"b", "inproc://mailbox-nobody")
    dealers.send(b"b", (b"queued",))
    dealers.shut(b"b")
    sim.advance(1)
    assert received(mailboxes.routers[0]) == []
    assert [*dealers.transport.connectors, *dealers.transport.links, *dealers._peers] == []


def test_messages_to_a_dealer_do_not_pile_up(sim: Simulation, mailboxes: Mailboxes) -> None:
    mailboxes.dealers.open(b"a", mailboxes.endpoints[0])
    sim.run()
    for _ in range(100):
        assert mailboxes.routers[0].try_send((IDENTITY, b"the wrong way"))
        sim.run()
    peer = mailboxes.dealers.transport.connected_to(mailboxes.endpoints[0])
    assert not peer.paused
    assert not peer.held


@pytest.mark.parametrize("identity", [b"\x01" + b"a", b""])
def test_on_lost_is_called_for_a_lost_connection_and_not_after_shut(
    sim: Simulation, mailboxes: Mailboxes, identity: bytes
) -> None:
    lost: list[bytes] = []
    dealers = mailboxes.dealers
    dealers.on_lost = lost.append
    mailbox = Router(sim, Options(identity=identity))
    dealers.open(b"a", mailbox.bind("inproc://mailbox-lost"))
    dealers.open(b"b", mailboxes.endpoints[0])
    dealers.open(b"c", "inproc://mailbox-nobody")
    sim.run()
    dealers.shut(b"b")
    sim.run()
    assert lost == []
    mailbox.close(0)
    sim.advance(5)  # a failed attempt to connect is not a lost connection
    assert lost == [b"a"]


def test_a_malformed_endpoint_raises(mailboxes: Mailboxes) -> None:
    with pytest.raises(EndpointError):
        mailboxes.dealers.open(b"a", "tcp://nowhere")
    assert not mailboxes.dealers._peers
