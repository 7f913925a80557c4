"""Nodes of ours beside nodes with the habits of Zyre."""

import time
from collections.abc import Callable

from tests.interop.libzmq import PATIENCE
from tests.interop.zyre import Zyre
from zambezi.zre import events
from zambezi.zre.events import Event
from zambezi.zre.messages import Shout
from zambezi.zre.sync import Node


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def story(node: Node, until_enter_of: Zyre) -> list[Event]:
    """Return the events until a node with the habits of Zyre enters."""
    found = [node.recv(PATIENCE)]
    while not (isinstance(found[-1], events.Enter) and found[-1].peer == until_enter_of.uuid):
        found.append(node.recv(PATIENCE))
    return found


def until_shouted(zyre: Zyre, content: bytes) -> None:
    until(lambda: any(isinstance(one, Shout) and list(one.content) == [content] for one in zyre.received))


def test_one_that_returns_on_its_port_with_another_uuid_is_met_again() -> None:
    zyre = Zyre(groups=("CHAT",))
    with Node("ours", interface="lo", seeds=[zyre.endpoint], evasive=1.0) as node:
        story(node, zyre)
        for number in range(3):
            zyre.die()
            last, zyre = zyre, Zyre(endpoint=zyre.endpoint, groups=("CHAT",))
            happened = [event for event in story(node, zyre) if isinstance(event, events.Enter | events.Exit)]
            assert happened == [
                events.Exit(last.uuid, "zyre", "another node has its endpoint now"),
                events.Enter(zyre.uuid, "zyre", zyre.endpoint, {}),
            ]
            assert isinstance(node.recv(PATIENCE), events.Join)
            content = b"message %d" % number
            assert node.shout("CHAT", content) == 1
            until_shouted(zyre, content)
            assert [peer.uuid for peer in node.peers] == [zyre.uuid]
            assert list(zyre.peers) == [node.uuid]
    zyre.die()


def test_an_impostor_at_the_endpoint_of_a_live_one_changes_nothing() -> None:
    with (
        Zyre(groups=("CHAT",)) as zyre,
        Node("ours", interface="lo", seeds=[zyre.endpoint], evasive=1.0) as node,
        Zyre("impostor") as impostor,
    ):
        story(node, zyre)
        impostor.endpoint = zyre.endpoint
        impostor.greet(node.endpoint, node.uuid)
        until(lambda: node.counters.refused_claims)
        assert [peer.uuid for peer in node.peers] == [zyre.uuid]
        assert node.shout("CHAT", b"hello") == 1
        until_shouted(zyre, b"hello")
        assert list(zyre.peers) == [node.uuid]
