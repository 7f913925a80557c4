"""zambezi.zmtp.testing: the simulation, in memory and over loopback."""

import socket

import pytest

from zambezi.zmtp.events import Connected
from zambezi.zmtp.patterns import Dealer, Router
from zambezi.zmtp.testing import Simulation, closed, history, received


def test_the_reactor_keeps_the_order_of_time() -> None:
    reactor = Simulation(0.0)
    seen: list[str] = []
    reactor.call_at(2.0, seen.append, "later")
    reactor.call_at(1.0, reactor.call_soon, seen.append, "soon after")
    reactor.call_at(1.0, seen.append, "at the same time")
    reactor.call_at(1.5, seen.append, "never").cancel()
    reactor.call_at(9.0, seen.append, "not yet")
    reactor.run_until(3.0)
    assert seen == ["soon after", "at the same time", "later"]
    assert reactor.time() == 3.0
    assert reactor.alarms == [9.0]


def test_a_test_can_define_host_names() -> None:
    reactor = Simulation()
    found: list[object] = []
    reactor.names["here"] = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))]
    for host in ("here", "nowhere"):
        reactor.resolve(host, 1, found.append)
    assert found == []
    reactor.run()
    assert found[0] == reactor.names["here"]
    assert isinstance(found[1], OSError)


def test_kernel_sockets_are_waited_for_while_the_clock_stands_still() -> None:
    with Simulation() as sim:
        router, dealer = Router(sim), Dealer(sim)
        events = history(router)
        dealer.connect(router.bind("tcp://127.0.0.1:*"))
        dealer.try_send(b"hello")
        sim.until(lambda: router.readable)
        assert sim.time() == 1000.0
        assert [message[1:] for message in received(router)] == [[b"hello"]]
        assert any(isinstance(event, Connected) for event in events)
        assert sim.watched
        dealer.close(0)
        router.close(0)
        sim.until(lambda: closed(dealer) and closed(router))
    assert not sim.watched


def test_waiting_for_a_condition_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.zmtp.testing.PATIENCE", 0.01)
    with pytest.raises(AssertionError, match="did not hold within"):
        Simulation().until(lambda: False)
