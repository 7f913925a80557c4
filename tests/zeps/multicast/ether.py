"""A network in memory: all members of a group receive its datagrams, unless a test loses them."""

from collections.abc import Callable, Sequence

import pytest

from zambezi.zeps.multicast import group_subscription, reception, sender
from zambezi.zeps.multicast.feed import Pieces
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.receiver import Receive
from zambezi.zmtp.reactor import Reactor

GROUP = "udp://239.77.1.1:5680?rate=1G"


class Ether:
    """All groups of a test."""

    def __init__(self) -> None:
        self.ears: dict[Ear, tuple[str, int]] = {}
        self.sent: list[bytes] = []
        self.loses: Callable[[bytes], bool] = lambda _: False

    def outlet(self, group: Group) -> "Mouth":
        return Mouth(self, group)

    def receiver(self, reactor: Reactor, group: Group, receive: Receive) -> "Ear":
        ear = Ear(self, reactor, receive)
        self.ears[ear] = group.endpoint
        return ear

    def carry(self, datagram: bytes, endpoint: tuple[str, int]) -> None:
        self.sent.append(datagram)
        for ear, where in list(self.ears.items()):
            if where == endpoint and not self.loses(datagram):
                ear.hear(datagram)


class Mouth:
    def __init__(self, ether: Ether, group: Group) -> None:
        self._ether = ether
        self._endpoint = group.endpoint

    def send(self, datagrams: Sequence[Pieces]) -> int:
        for datagram in datagrams:
            self._ether.carry(b"".join(datagram), self._endpoint)
        return 0

    def close(self) -> None:
        """Do nothing."""


class Ear:
    def __init__(self, ether: Ether, reactor: Reactor, receive: Receive) -> None:
        self._ether = ether
        self._reactor = reactor
        self._receive = receive
        self.paused = False

    def hear(self, datagram: bytes) -> None:
        self._reactor.call_soon(self._arrive, datagram)

    def _arrive(self, datagram: bytes) -> None:
        if self in self._ether.ears and not self.paused:
            self._receive([datagram])

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def close(self) -> None:
        self._ether.ears.pop(self, None)


@pytest.fixture
def ether(monkeypatch: pytest.MonkeyPatch) -> Ether:
    """The network of a test. Its times are short: a group is tried again soon."""
    made = Ether()
    monkeypatch.setattr(sender, "UdpSender", made.outlet)
    monkeypatch.setattr(sender, "mtu_of", lambda _: 1400)
    monkeypatch.setattr(group_subscription, "join_group", made.receiver)
    monkeypatch.setattr(reception, "FIRST_PENALTY", 0.01)
    monkeypatch.setattr(reception, "MOST_PENALTY", 0.05)
    return made
