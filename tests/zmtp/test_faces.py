"""zambezi.zmtp.asyncio and zambezi.zmtp.sync: everything that both faces have in common.

`test_asyncio` has the tests of tasks and their cancellation, `test_sync` those of threads and processes. The tests here
also cover `zambezi.zmtp.errors` and `zambezi.zmtp.events`: the errors and the events that a program meets.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.faces import Zmtp
from tests.zmtp.stranger import Stranger, hello
from tests.zmtp.waiting import PATIENCE, eventually, in_loop, next_of, waiting_calls
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Heartbeat, Limits
from zambezi.zmtp.errors import (
    EndpointError,
    MessageError,
    QueueFull,
    SocketClosed,
    TimedOut,
    Unroutable,
    ZmtpError,
)
from zambezi.zmtp.events import Connected, Disconnected, HandshakeFailed, Listening, Retrying
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Bound
from zambezi.zmtp.security import CurveClient, CurveServer

_names = itertools.count()


def name() -> str:
    return f"inproc://faces-{next(_names)}"


SMALL = Bound(10, 10_000)
EAGER = Backoff(0.01, 0.05)


# Messages


@pytest.mark.parametrize("transport", ["tcp", "tcp6", "ipc", "inproc"])
@in_loop
async def test_request_and_reply(zmtp: Zmtp, transport: str, tmp_path: Path) -> None:
    where = {"tcp": "tcp://127.0.0.1:*", "tcp6": "tcp://[::1]:*", "ipc": f"ipc://{tmp_path}/s", "inproc": name()}
    async with zmtp.Router() as router, zmtp.Dealer(identity=b"me") as dealer:
        dealer.connect(router.bind(where[transport]))
        for message in ([b""], [b"a", b"", b"c"], [b"x" * 1_000_000]):
            await dealer.send(message)
            assert await router.recv(PATIENCE) == [b"me", *message]
            await router.send([b"me", *message])
            assert await dealer.recv(PATIENCE) == message


@in_loop
async def test_single_sends_and_batches_keep_the_order(zmtp: Zmtp) -> None:
    messages: list[list[bytes]] = [[b"%d" % number] * (1 + number % 3) for number in range(5000)]
    async with zmtp.Router() as router, zmtp.Dealer(identity=b"me") as dealer:
        dealer.connect(router.bind("tcp://127.0.0.1:*"))
        await dealer.send_batch(messages[:2000])
        for message in messages[2000:2500]:
            await dealer.send(message)
        await dealer.send_batch(messages[2500:])
        got: list[list[bytes]] = []
        for step in itertools.cycle(range(7)):
            if len(got) == len(messages):
                break
            if step < 4:
                got.append((await router.recv(PATIENCE))[1:])
            else:
                batch = await router.recv_batch(PATIENCE)
                assert batch.sender == b"me"
                got += list(batch)
        assert got == messages
        await router.send_to(b"me", messages)
        answers: list[list[bytes]] = []
        while len(answers) < len(messages):
            answers += list(await dealer.recv_batch(PATIENCE))
        assert answers == messages


@in_loop
async def test_publish_and_subscribe(zmtp: Zmtp) -> None:
    async with zmtp.XPub() as pub, zmtp.Sub() as sub, zmtp.XSub() as xsub:
        endpoint = pub.bind("tcp://127.0.0.1:*")
        sub.subscribe(b"a")
        sub.connect(endpoint)
        xsub.connect(endpoint)
        await xsub.send(b"\x01b")
        assert sorted([await pub.recv(PATIENCE), await pub.recv(PATIENCE)]) == [[b"\x01a"], [b"\x01b"]]
        for topic in (b"a1", b"b1"):
            await pub.send(topic)
        assert await sub.recv(PATIENCE) == [b"a1"]
        assert await xsub.recv(PATIENCE) == [b"b1"]
        sub.unsubscribe(b"a")
        assert await pub.recv(PATIENCE) == [b"\x00a"]


@in_loop
async def test_wrong_messages_and_endpoints_raise_at_once(zmtp: Zmtp) -> None:
    async with zmtp.Router(unroutable="error") as router, zmtp.Sub() as sub, zmtp.Pub() as pub:
        with pytest.raises(Unroutable):
            await router.send([b"nobody", b"x"])
        with pytest.raises(MessageError, match="identity"):
            await router.send(b"x")
        with pytest.raises(MessageError):
            await router.send("text")  # type: ignore[arg-type]
        with pytest.raises(ZmtpError, match="SUB socket does not send"):
            await sub.send(b"x")
        with pytest.raises(ZmtpError, match="PUB socket does not receive"):
            await pub.recv()
        with pytest.raises(EndpointError, match="is no endpoint"):
            router.bind("somewhere")
        with pytest.raises(EndpointError, match="connect needs one host"):
            router.connect("tcp://*:5555")


@in_loop
async def test_several_receivers_share_one_batch(zmtp: Zmtp) -> None:
    async with zmtp.Router() as router, zmtp.Dealer(identity=b"me") as dealer:
        dealer.connect(router.bind(name()))
        receivers = [asyncio.create_task(router.recv(PATIENCE)) for _ in range(10)]
        await eventually(lambda: waiting_calls(router) == 10)
        await dealer.send_batch([b"%d" % number for number in range(10)])
        got = await asyncio.gather(*receivers)
        assert sorted(message[1] for message in got) == [b"%d" % number for number in range(10)]


@in_loop
async def test_a_port_is_free_as_soon_as_close_or_unbind_returns(zmtp: Zmtp) -> None:
    endpoint = "tcp://127.0.0.1:*"
    for _ in range(20):
        async with zmtp.Router() as router:
            endpoint = router.bind(endpoint)
            router.unbind(endpoint)
            assert router.bind(endpoint) == endpoint


# Bounds and time


@in_loop
async def test_a_full_queue_makes_send_wait_until_it_has_room(zmtp: Zmtp) -> None:
    async with zmtp.Dealer(send_bound=SMALL) as dealer, zmtp.Router() as router:
        where = name()
        dealer.connect(where)
        await dealer.send_batch([b"x"] * 10)
        waiting = [
            asyncio.create_task(dealer.send(b"last")),
            asyncio.create_task(dealer.send_batch([b"y"] * 25)),
        ]
        await eventually(lambda: waiting_calls(dealer) == 2)
        with pytest.raises(TimedOut, match=r"within 0[.]01 s") as caught:
            await dealer.send(b"never", timeout=0.01)
        assert isinstance(caught.value, TimeoutError)
        assert not any(task.done() for task in waiting)
        router.bind(where)
        await asyncio.gather(*waiting)
        got = [(await router.recv(PATIENCE))[1] for _ in range(36)]
        assert Counter(got) == {b"x": 10, b"last": 1, b"y": 25}


@in_loop
async def test_a_full_queue_raises_or_drops_if_the_socket_says_so(zmtp: Zmtp) -> None:
    async with zmtp.Dealer(send_bound=SMALL, on_full="error", linger=0) as strict:
        strict.connect(name())
        await strict.send_batch([b"x"] * 10)
        with pytest.raises(QueueFull):
            await strict.send(b"x")
    async with zmtp.Dealer(send_bound=SMALL, on_full="drop", linger=0) as careless:
        careless.connect(name())
        await careless.send_batch([b"x"] * 15)
        await careless.send(b"x")
        assert careless.counters.dropped == 6


@in_loop
async def test_a_receive_that_times_out_loses_nothing(zmtp: Zmtp) -> None:
    async with zmtp.Router() as router, zmtp.Dealer(identity=b"me") as dealer:
        with pytest.raises(TimedOut, match=r"within 0[.]01 s") as caught:
            await router.recv(0.01)
        assert isinstance(caught.value, TimeoutError)
        with pytest.raises(TimedOut):
            await router.recv_batch(0)
        dealer.connect(router.bind("tcp://127.0.0.1:*"))
        for number in range(200):
            await dealer.send(b"%d" % number)
            try:
                message = await router.recv(0)
            except TimedOut:
                message = await router.recv(PATIENCE)
            assert message == [b"me", b"%d" % number]


# Closing


@in_loop
async def test_closing_wakes_all_waiting_calls(zmtp: Zmtp) -> None:
    dealer = zmtp.Dealer(send_bound=Bound(1, 1000))
    dealer.connect(name())
    await dealer.send(b"fills the queue")

    async def iterate() -> list[object]:
        return [[message async for message in dealer], [event async for event in dealer.events()]]

    iterating = asyncio.create_task(iterate())
    calls = [
        asyncio.create_task(call)
        for call in (
            dealer.recv(),
            dealer.recv_batch(),
            dealer.send(b"x"),
            dealer.send_batch([b"x"]),
            dealer.next_event(),
        )
    ]
    await eventually(lambda: waiting_calls(dealer) == 6)
    await dealer.close(0)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [SocketClosed] * 5
    assert await iterating == [[], []]
    assert dealer.closed
    assert repr(dealer) == "<Dealer closed>"
    assert dealer.counters.abandoned == 1


@in_loop
async def test_every_method_of_a_closed_socket_raises(zmtp: Zmtp) -> None:
    sub = zmtp.Sub()
    await sub.close()
    await sub.close()
    calls: list[Callable[[], Awaitable[object]]] = [
        sub.recv,
        sub.recv_batch,
        sub.next_event,
        lambda: sub.send(b"x"),
        lambda: sub.send_batch([b"x"]),
    ]
    for call in calls:
        with pytest.raises(SocketClosed):
            await call()
    for act in (sub.bind, sub.connect, sub.unbind, sub.disconnect):
        with pytest.raises(SocketClosed):
            act(name())
    for change in (sub.subscribe, sub.unsubscribe):
        with pytest.raises(SocketClosed):
            change(b"")


@in_loop
async def test_closing_delivers_queued_messages(zmtp: Zmtp) -> None:
    async with zmtp.Router() as router:
        dealer = zmtp.Dealer()
        dealer.connect(router.bind("tcp://127.0.0.1:*"))
        await dealer.send_batch([b"x" * 1000] * 5000)
        closing = asyncio.create_task(dealer.close(None))
        got = 0
        while got < 5000:
            got += len(await router.recv_batch(PATIENCE))
        await closing
        assert dealer.counters.abandoned == 0


@in_loop
async def test_leaving_by_an_exception_does_not_wait(zmtp: Zmtp) -> None:
    dealer = zmtp.Dealer(linger=None)

    async def fail() -> None:
        async with dealer:
            dealer.connect(name())
            await dealer.send(b"no peer will ever receive this")
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert dealer.counters.abandoned == 1


# Events, and peers of all kinds


@in_loop
async def test_events_tell_the_story_of_a_connection(zmtp: Zmtp) -> None:
    async with zmtp.Router() as router:
        endpoint = router.bind("tcp://127.0.0.1:*")
        assert await router.next_event() == Listening(endpoint)
        async with zmtp.Dealer(identity=b"me", backoff=EAGER) as dealer:
            dealer.connect(endpoint)
            assert (await next_of(router, Connected)).identity == b"me"
            await router.close()
            assert (await next_of(dealer, Disconnected)).reason == "the peer closed the connection"
            assert (await next_of(dealer, Retrying)).attempt == 1


@in_loop
async def test_the_last_thousand_events_are_kept(zmtp: Zmtp) -> None:
    async with zmtp.Router() as router:
        endpoint = router.bind(name())
        assert await router.next_event() == Listening(endpoint)
        for _ in range(600):
            async with zmtp.Dealer(identity=b"d", linger=0) as dealer:
                dealer.connect(endpoint)
                await next_of(dealer, Connected)
        await eventually(lambda: not router._transport.links)
        events = []
        while True:
            try:
                events.append(await router.next_event(0))
            except TimedOut:
                break
        assert len(events) == 1000
        assert isinstance(events[-1], Disconnected)


@in_loop
async def test_a_dealer_reconnects_to_a_restarted_server(zmtp: Zmtp) -> None:
    async with zmtp.Dealer(identity=b"me", backoff=EAGER) as dealer:
        endpoint = "tcp://127.0.0.1:*"
        for number in range(3):
            async with zmtp.Router() as router:
                endpoint = router.bind(endpoint)
                if not number:
                    dealer.connect(endpoint)
                await dealer.send(b"%d" % number)
                assert await router.recv(PATIENCE) == [b"me", b"%d" % number]
            retrying = await next_of(dealer, Retrying)
            assert retrying.endpoint == endpoint
            assert retrying.reason


@in_loop
async def test_a_key_in_the_directory_admits_a_client(zmtp: Zmtp, tmp_path: Path) -> None:
    server, ann = (KeyPair.generate(seed=bytes([number]) * 32) for number in (1, 2))
    guard = Authenticator(keys=Keyring(tmp_path))
    async with (
        zmtp.Router(security=CurveServer(server), authenticator=guard) as router,
        zmtp.Dealer(security=CurveClient(server.public, ann), backoff=EAGER) as dealer,
    ):
        dealer.connect(router.bind("tcp://127.0.0.1:*"))
        await dealer.send(b"let me in")
        assert "400" in (await next_of(dealer, HandshakeFailed)).reason
        (tmp_path / "ann.pub").write_text(ann.public_z85)
        assert (await router.recv(PATIENCE))[1] == b"let me in"
        assert (await next_of(router, Connected)).user == "ann"
        (tmp_path / "ann.pub").unlink()
        assert "no longer allowed" in (await next_of(router, Disconnected)).reason


@in_loop
async def test_peers_that_do_not_finish_the_handshake_are_disconnected_and_others_served(zmtp: Zmtp) -> None:
    async with zmtp.Router(limits=Limits(handshake_time=0.2)) as router, zmtp.Dealer(identity=b"good") as good:
        endpoint = router.bind("tcp://127.0.0.1:*")
        strangers = [Stranger.calling(endpoint) for _ in range(20)]
        for number, stranger in enumerate(strangers):
            stranger.say(hello()[: number * 3])
        good.connect(endpoint)
        await good.send(b"x")
        assert await router.recv(PATIENCE) == [b"good", b"x"]
        await eventually(lambda: router.counters.handshakes_failed == 20)
        await good.send(b"y")
        assert await router.recv(PATIENCE) == [b"good", b"y"]
        for stranger in strangers:
            stranger.close()


@in_loop
async def test_a_silent_peer_is_disconnected(zmtp: Zmtp) -> None:
    async with zmtp.Router(heartbeat=Heartbeat(0.05)) as router:
        with Stranger.calling(router.bind("tcp://127.0.0.1:*")) as silent:
            silent.say(hello(identity=b"silent"))
            assert "after a PING" in (await next_of(router, Disconnected)).reason


@in_loop
async def test_a_subscriber_that_does_not_read_does_not_delay_another(zmtp: Zmtp) -> None:
    async with zmtp.Pub(send_bound=Bound(100, 1 << 20)) as pub, zmtp.Sub() as sub:
        endpoint = pub.bind("tcp://127.0.0.1:*")
        with Stranger.calling(endpoint, small=True) as deaf:
            deaf.say(hello("SUB") + b"\x00\x01\x01")
            sub.subscribe(b"")
            sub.connect(endpoint)
            await eventually(lambda: len(pub._shell.subscriptions.match(b"x")) == 2)  # type: ignore[attr-defined]
            for number in range(1000):
                await pub.send([b"%d" % number, b"x" * 10_000])
                assert (await sub.recv(PATIENCE))[0] == b"%d" % number
            await eventually(lambda: pub.counters.dropped)
        await pub.close(0)
