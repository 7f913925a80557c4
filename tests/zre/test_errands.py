"""zambezi.zre.errands: the outputs of an engine are carried out, in order."""

from typing import cast

from tests.zre.test_engine import BOB, IDENTITY, NOW, engine, hello
from zambezi.zmtp.errors import EndpointError
from zambezi.zre import events
from zambezi.zre.beacon import Beacon
from zambezi.zre.errands import Errands
from zambezi.zre.hub import Hub
from zambezi.zre.mailbox import Dealers
from zambezi.zre.reporter import Reporter
from zambezi.zre.unread import Unread


class Sockets:
    """Notes what is done, in place of the sockets of a node. A call in `fails` does not succeed."""

    def __init__(self, fails: str = "") -> None:
        self.done: list[str] = []
        self._fails = fails

    def open(self, key: bytes, contact: str) -> None:
        self.done.append(f"open {contact}")
        if self._fails == "open":
            raise EndpointError("no such host")

    def send(self, key: bytes, frames: object) -> bool:
        self.done.append("send")
        return self._fails != "send"

    def shut(self, key: bytes) -> None:
        self.done.append("shut")

    def note(self, event: events.Event) -> None:
        self.done.append(f"report {type(event).__name__}")

    def entered(self, uuid: object) -> None:
        self.done.append("entered")

    def ended(self, uuid: object) -> None:
        self.done.append("ended")


def errands(sockets: Sockets, reports: bool = False) -> tuple[Errands, Unread]:
    ours, unread = engine(), Unread(1000)
    made = Errands(
        ours,
        cast("Dealers", sockets),
        lambda _: sockets.done.append("broadcast"),
        unread,
        cast("Reporter", sockets) if reports else None,
    )
    ours.start(49152, NOW)
    ours.receive(IDENTITY, hello(), NOW)
    return made, unread


def test_what_the_engine_says_is_done_in_order() -> None:
    sockets = Sockets()
    made, unread = errands(sockets)
    assert made.run(stopping=False) == (True, False)
    assert sockets.done == ["broadcast", "open tcp://10.0.0.2:50001", "send"]
    assert [type(event) for event in unread] == [events.Enter]
    assert made.run(stopping=False) == (False, False)


def test_a_program_that_stops_gets_no_events() -> None:
    made, unread = errands(Sockets())
    assert made.run(stopping=True) == (False, False)
    assert not unread


def test_a_peer_that_cannot_be_connected_or_does_not_read_ends() -> None:
    for fails in ("open", "send"):
        sockets = Sockets(fails)
        made, unread = errands(sockets)
        assert made.run(stopping=False) == (True, True)
        assert sockets.done[-1] == "shut"
        assert [type(event) for event in unread] == [events.Enter, events.Exit]


def test_hubs_and_log_services_are_told_of_events() -> None:
    sockets = Sockets()
    made, _ = errands(sockets, reports=True)
    made.hub = cast("Hub", sockets)
    made.run(stopping=False)
    assert sockets.done[-2:] == ["report Enter", "entered"]
    made._engine.receive_beacon(Beacon(BOB, 0).encode(), "10.0.0.2", NOW)
    made.run(stopping=False)
    assert sockets.done[-3:] == ["shut", "report Exit", "ended"]
