"""zambezi.zmtp.memory: inproc connections within one reactor, and between threads."""

import asyncio
import itertools
import threading

import pytest

from tests.zmtp.waiting import in_loop
from zambezi.zmtp import asyncio as aio
from zambezi.zmtp import sync
from zambezi.zmtp.errors import EndpointError
from zambezi.zmtp.events import Connected, Disconnected
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.patterns import Dealer, Router
from zambezi.zmtp.testing import Simulation, closed, history, received

_names = itertools.count()


@pytest.fixture
def name() -> str:
    return f"inproc://memory-{next(_names)}"


def test_a_name_is_bound_once(sim: Simulation, name: str) -> None:
    first, second = Router(sim, Options()), Router(sim, Options())
    assert first.bind(name) == name
    with pytest.raises(EndpointError, match="bound already in this process"):
        second.bind(name)
    first.close(0)
    assert second.bind(name) == name


def test_a_connect_before_the_bind_waits_for_it(sim: Simulation, name: str) -> None:
    clients = [Dealer(sim, Options(identity=b"%d" % number)) for number in range(3)]
    for client in clients:
        client.connect(name)
        client.try_send(b"x")
    sim.advance(100)
    hub = Router(sim, Options())
    hub.bind(name)
    sim.run()
    assert sorted(received(hub)) == [[b"%d" % number, b"x"] for number in range(3)]


def test_a_socket_that_closes_while_it_waits_is_forgotten(sim: Simulation, name: str) -> None:
    client = Dealer(sim, Options())
    client.connect(name)
    client.close(0)
    hub = Router(sim, Options())
    hub.bind(name)
    sim.advance(10)
    assert not hub.peers


@pytest.mark.parametrize("leave", ["close", "disconnect"])
def test_a_socket_that_leaves_while_it_is_accepted_is_gone(sim: Simulation, name: str, leave: str) -> None:
    hub = Router(sim, Options())
    hub.bind(name)
    client = Dealer(sim, Options())
    events = history(client)
    client.connect(name)
    if leave == "close":
        client.close(None)
        assert closed(client)
    else:
        client.disconnect(name, None)
    sim.advance(10)
    assert not hub.peers
    assert not hub.transport.links
    assert not client.transport.links
    assert not [event for event in events if isinstance(event, Connected)]


def test_a_listener_that_closes_while_it_accepts_is_found_again_later(sim: Simulation, name: str) -> None:
    first, second = Router(sim, Options()), Router(sim, Options())
    first.bind(name)
    client = Dealer(sim, Options(identity=b"c"))
    client.connect(name)
    client.try_send(b"x")
    first.close(0)
    second.bind(name)
    sim.advance(1)
    assert received(second) == [[b"c", b"x"]]


def test_a_receiver_without_room_fills_the_queue_of_the_sender(sim: Simulation, name: str) -> None:
    hub = Router(sim, Options(receive_bound=Bound(3, 1000)))
    hub.bind(name)
    client = Dealer(sim, Options(identity=b"c", send_bound=Bound(5, 1000)))
    client.connect(name)
    sim.run()
    sent = 0
    while client.try_send(b"%d" % sent):
        sent += 1
        sim.run()
        assert sent < 100
    got = received(hub)
    sim.run()
    assert client.try_send(b"room again")
    sim.run()
    while messages := received(hub):
        got += messages
        sim.run()
    assert got == [[b"c", b"%d" % number] for number in range(sent)] + [[b"c", b"room again"]]


def test_a_message_over_the_bound_goes_through_an_empty_queue(sim: Simulation, name: str) -> None:
    hub = Router(sim, Options(receive_bound=Bound(3, 10)))
    hub.bind(name)
    client = Dealer(sim, Options(identity=b"c", send_bound=Bound(3, 10)))
    client.connect(name)
    for _ in range(3):
        client.try_send(b"x" * 1000)
        sim.run()
        assert received(hub) == [[b"c", b"x" * 1000]]


def test_delivered_messages_can_be_read_after_the_sender_has_gone(sim: Simulation, name: str) -> None:
    hub = Router(sim, Options())
    hub.bind(name)
    events = history(hub)
    client = Dealer(sim, Options(identity=b"c"))
    client.connect(name)
    client.try_send((b"x", b"y"))
    client.close(None)
    sim.run()
    assert closed(client)
    assert Disconnected(name, "", b"c", "the peer closed the connection") in events
    assert received(hub) == [[b"c", b"x", b"y"]]


def test_messages_that_waited_for_the_connection_arrive_with_it(sim: Simulation, name: str) -> None:
    hub, client = Router(sim, Options()), Dealer(sim, Options(identity=b"c"))
    hub.bind(name)
    peer = client.connect(name)
    client.try_send(b"x")
    client.try_send((b"y", b"z"))
    turns = []
    hub.on_readable = lambda: turns.append((peer.connected, hub.peers[b"c"].connected))
    sim.run()
    assert turns == [(True, True)]  # both ends know each other before the first message arrives
    assert received(hub) == [[b"c", b"x"], [b"c", b"y", b"z"]]
    assert peer.drained


def test_a_receiver_without_room_for_the_first_messages_is_not_sent_more(sim: Simulation, name: str) -> None:
    hub, client = Router(sim, Options(receive_bound=Bound(1, 1000))), Dealer(sim, Options(identity=b"c"))
    hub.bind(name)
    peer = client.connect(name)
    client.try_send(b"1")
    sim.run()
    client.try_send(b"2")
    sim.run()
    assert not peer.drained
    assert received(hub) == [[b"c", b"1"]]
    sim.run()
    assert received(hub) == [[b"c", b"2"]]
    sim.run()
    assert peer.drained


def test_messages_to_a_socket_that_refuses_the_identity_stay_in_the_queue(sim: Simulation, name: str) -> None:
    hub = Router(sim, Options())
    hub.bind(name)
    first, second = Dealer(sim, Options(identity=b"c")), Dealer(sim, Options(identity=b"c"))
    first.connect(name)
    sim.run()
    second.connect(name)
    second.try_send(b"x")
    sim.run()
    assert received(hub) == []
    first.close(0)
    sim.advance(60)
    assert received(hub) == [[b"c", b"x"]]


def test_a_handler_that_raises_for_the_first_message_stops_no_others(sim: Simulation, name: str) -> None:
    hub, client = Router(sim, Options()), Dealer(sim, Options(identity=b"c"))
    hub.bind(name)
    client.connect(name)
    client.try_send(b"x")

    def fail() -> None:
        raise RuntimeError("a mistake in the program")

    hub.on_readable = fail
    with pytest.raises(RuntimeError):
        sim.run()
    hub.on_readable = lambda: None
    client.try_send(b"y")
    sim.run()
    assert received(hub) == [[b"c", b"x"], [b"c", b"y"]]


def test_between_two_loops_in_two_threads(name: str) -> None:
    count = 2000
    failures: list[BaseException] = []

    async def echo() -> None:
        async with aio.Router() as hub:
            hub.bind(name)
            for _ in range(count):
                await hub.send(await hub.recv(60))

    def serve() -> None:
        try:
            asyncio.run(echo())
        except BaseException as error:
            failures.append(error)
            raise

    async def ask() -> list[list[bytes]]:
        async with aio.Dealer() as client:
            client.connect(name)
            await client.send_batch([b"%d" % number for number in range(count)])
            return [await client.recv(60) for _ in range(count)]

    server = threading.Thread(target=serve)
    server.start()
    answers = asyncio.run(ask())
    server.join(60)
    assert not failures
    assert answers == [[b"%d" % number] for number in range(count)]


@in_loop
async def test_between_a_loop_and_threads() -> None:
    name = f"inproc://memory-{next(_names)}"
    count, threads = 300, 4

    def ask(number: int) -> list[list[bytes]]:
        with sync.Dealer(identity=b"%d" % number) as client:
            client.connect(name)
            answers = []
            for question in range(count):
                client.send(b"%d" % question)
                answers.append(client.recv(60))
            return answers

    async with aio.Router() as hub:
        hub.bind(name)

        async def echo() -> None:
            async for message in hub:
                await hub.send(message)

        serving = asyncio.create_task(echo())
        answers = await asyncio.gather(*(asyncio.to_thread(ask, number) for number in range(threads)))
    await serving
    assert answers == [[[b"%d" % question] for question in range(count)]] * threads


def test_between_threads_without_any_loop(name: str) -> None:
    with sync.Router() as hub, sync.Dealer(identity=b"c") as client:
        client.connect(name)
        hub.bind(name)
        client.send([b"a", b"b"])
        assert hub.recv(60) == [b"c", b"a", b"b"]
        hub.send([b"c", b"d"])
        assert client.recv(60) == [b"d"]
