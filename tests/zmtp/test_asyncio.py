"""zambezi.zmtp.asyncio: calls that wait, and what happens to them."""

import asyncio
import gc
import itertools
import warnings
from pathlib import Path

import pytest

from tests.zmtp.stranger import Stranger, hello
from tests.zmtp.waiting import PATIENCE, eventually, in_loop, next_of
from zambezi.zmtp.asyncio import Dealer, Pub, Router, Socket, Sub, XPub, XSub
from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Limits
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
    return f"inproc://asyncio-{next(_names)}"


SMALL = Bound(10, 10_000)
EAGER = Backoff(0.01, 0.05)


# Messages


@pytest.mark.parametrize("transport", ["tcp", "tcp6", "ipc", "inproc"])
@in_loop
async def test_request_and_reply(transport: str, tmp_path: Path) -> None:
    where = {"tcp": "tcp://127.0.0.1:*", "tcp6": "tcp://[::1]:*", "ipc": f"ipc://{tmp_path}/s", "inproc": name()}
    async with Router() as router, Dealer(identity=b"me") as dealer:
        dealer.connect(router.bind(where[transport]))
        for message in ([b""], [b"a", b"", b"c"], [b"x" * 1_000_000]):
            await dealer.send(message)
            assert await router.recv(PATIENCE) == [b"me", *message]
            await router.send([b"me", *message])
            assert await dealer.recv(PATIENCE) == message


@in_loop
async def test_a_batch_is_the_messages_one_by_one() -> None:
    messages: list[list[bytes]] = [[b"%d" % number] * (1 + number % 3) for number in range(5000)]
    async with Router() as router, Dealer(identity=b"me") as dealer:
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
async def test_publish_and_subscribe() -> None:
    async with XPub() as pub, Sub() as sub, XSub() as xsub:
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
async def test_what_cannot_be_sent_is_told_at_once() -> None:
    async with Router(unroutable="error") as router, Sub() as sub, Pub() as pub:
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


# Bounds


@in_loop
async def test_a_full_queue_makes_send_wait_and_room_lets_it_go_on() -> None:
    async with Dealer(send_bound=SMALL) as dealer, Router() as router:
        where = name()
        dealer.connect(where)
        await dealer.send_batch([b"x"] * 10)
        waiting = asyncio.create_task(dealer.send(b"last"))
        more = asyncio.create_task(dealer.send_batch([b"y"] * 25))
        await asyncio.sleep(0)
        with pytest.raises(TimedOut):
            await dealer.send(b"never", timeout=0.01)
        assert not waiting.done()
        router.bind(where)
        await asyncio.gather(waiting, more)
        got = [(await router.recv(PATIENCE))[1] for _ in range(36)]
        assert sorted(got) == sorted([b"x"] * 10 + [b"last"] + [b"y"] * 25)
        assert b"never" not in got


@in_loop
async def test_the_policies_error_and_drop() -> None:
    async with Dealer(send_bound=SMALL, on_full="error", linger=0) as strict:
        strict.connect(name())
        await strict.send_batch([b"x"] * 10)
        with pytest.raises(QueueFull):
            await strict.send(b"x")
    async with Dealer(send_bound=SMALL, on_full="drop", linger=0) as careless:
        careless.connect(name())
        await careless.send_batch([b"x"] * 15)
        await careless.send(b"x")
        assert careless.counters.dropped == 6


@in_loop
async def test_a_flood_from_one_does_not_starve_another() -> None:
    async with Router(receive_bound=Bound(1000, 1 << 20)) as router, Dealer(identity=b"flood") as flood:
        endpoint = router.bind("tcp://127.0.0.1:*")
        flood.connect(endpoint)
        flooding = asyncio.create_task(flood.send_batch([b"x" * 100] * 50_000))
        await router.recv(PATIENCE)
        async with Dealer(identity=b"drip") as drip:
            drip.connect(endpoint)
            for number in range(20):
                await drip.send(b"%d" % number)
                between = 0
                while await router.recv(PATIENCE) != [b"drip", b"%d" % number]:
                    between += 1
                # What one read brought from the other, at most, while the message was on its way.
                assert between < 10_000
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        await flood.close(0)


# Giving up


@in_loop
async def test_a_receive_that_is_cancelled_or_late_eats_nothing() -> None:
    async with Router() as router, Dealer(identity=b"me") as dealer:
        dealer.connect(router.bind(name()))
        with pytest.raises(TimedOut, match=r"within 0[.]01 s") as caught:
            await router.recv(0.01)
        assert isinstance(caught.value, TimeoutError)
        with pytest.raises(TimedOut):
            await router.recv_batch(0)
        for cancelled_after in range(6):
            receiving = asyncio.create_task(router.recv())
            await asyncio.sleep(0)
            await dealer.send(b"%d" % cancelled_after)
            for _ in range(cancelled_after):
                await asyncio.sleep(0)
            receiving.cancel()
            try:
                message = await receiving
            except asyncio.CancelledError:
                message = await router.recv(PATIENCE)
            assert message == [b"me", b"%d" % cancelled_after]


@in_loop
async def test_a_wake_up_that_meets_a_cancelled_call_goes_to_the_next() -> None:
    async with Router() as router, Dealer(identity=b"me") as dealer:
        dealer.connect(router.bind(name()))
        await dealer.send(b"warm")
        await router.recv(PATIENCE)
        first, second = (asyncio.create_task(router.recv()) for _ in range(2))
        await asyncio.sleep(0)
        wake = router._shell.on_readable

        def wake_and_cancel() -> None:
            wake()
            first.cancel()  # it has been woken, but has not run yet

        router._shell.on_readable = wake_and_cancel
        await dealer.send(b"x")
        async with asyncio.timeout(PATIENCE):
            assert await second == [b"me", b"x"]
        assert first.cancelled()


@in_loop
async def test_several_receivers_share_one_batch() -> None:
    async with Router() as router, Dealer(identity=b"me") as dealer:
        dealer.connect(router.bind(name()))
        receivers = [asyncio.create_task(router.recv(PATIENCE)) for _ in range(10)]
        await asyncio.sleep(0)
        await dealer.send_batch([b"%d" % number for number in range(10)])
        got = await asyncio.gather(*receivers)
        assert sorted(message[1] for message in got) == [b"%d" % number for number in range(10)]


@in_loop
async def test_a_send_that_is_cancelled_sends_nothing() -> None:
    async with Dealer(send_bound=Bound(1, 1000)) as dealer, Router() as router:
        where = name()
        dealer.connect(where)
        await dealer.send(b"first")
        waiting = asyncio.create_task(dealer.send(b"cancelled"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        router.bind(where)
        await dealer.send(b"second", PATIENCE)
        assert [(await router.recv(PATIENCE))[1] for _ in range(2)] == [b"first", b"second"]


# Closing


@in_loop
async def test_closing_wakes_all_who_wait() -> None:
    dealer = Dealer(send_bound=Bound(1, 1000))
    dealer.connect(name())
    await dealer.send(b"fills the queue")

    async def iterate() -> str:
        async for _ in dealer:
            pass
        async for _ in dealer.events():
            pass
        return "ended"

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
    iterating = asyncio.create_task(iterate())
    await asyncio.sleep(0)
    await dealer.close(0)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [SocketClosed] * 5
    assert await iterating == "ended"
    assert dealer.closed
    assert dealer.counters.abandoned == 1


@in_loop
async def test_a_closed_socket_says_so() -> None:
    dealer = Dealer()
    await dealer.close()
    await dealer.close()
    for call in (dealer.recv, dealer.recv_batch, lambda: dealer.send(b"x"), lambda: dealer.send_batch([b"x"])):
        with pytest.raises(SocketClosed):
            await call()
    for act in (dealer.bind, dealer.connect, dealer.unbind, dealer.disconnect):
        with pytest.raises(SocketClosed):
            act("inproc://x")
    sub = Sub()
    await sub.close()
    for change in (sub.subscribe, sub.unsubscribe):
        with pytest.raises(SocketClosed):
            change(b"")
    assert repr(dealer) == "<Dealer closed>"


@in_loop
async def test_closing_delivers_what_is_queued() -> None:
    async with Router() as router:
        dealer = Dealer()
        dealer.connect(router.bind("tcp://127.0.0.1:*"))
        await dealer.send_batch([b"x" * 1000] * 5000)
        closing = asyncio.create_task(dealer.close(None))
        for _ in range(5000):
            await router.recv(PATIENCE)
        await closing
        assert dealer.counters.abandoned == 0


@in_loop
async def test_leaving_by_an_exception_does_not_wait() -> None:
    dealer = Dealer(linger=None)

    async def fail() -> None:
        async with dealer:
            dealer.connect(name())
            await dealer.send(b"nobody will ever take this")
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert dealer.counters.abandoned == 1


@in_loop
async def test_a_close_that_is_cancelled_goes_on_and_can_be_awaited_again() -> None:
    async with Router() as router:
        where = name()
        dealer = Dealer()
        dealer.connect(where)
        await dealer.send(b"x")
        closing = asyncio.create_task(dealer.close(None))
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        router.bind(where)
        await dealer.close()
        assert (await router.recv(PATIENCE))[1] == b"x"


@in_loop
async def test_a_socket_that_is_forgotten_open_is_warned_about() -> None:
    socket: Socket | None = Dealer()
    assert socket is not None
    endpoint = socket.bind(name())
    assert repr(socket) == f"<Dealer {endpoint}>"
    transport = socket._transport
    transport.on_event = lambda _: None  # the only way from the connections back to the socket
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        socket = None
        gc.collect()
    transport.close(0)
    assert any("unclosed <Dealer inproc" in str(warning.message) for warning in caught)


# What happens


@in_loop
async def test_events_are_kept_and_bounded() -> None:
    async with Router() as router:
        endpoint = router.bind(name())
        assert await router.next_event() == Listening(endpoint)
        for _ in range(600):
            async with Dealer(identity=b"d", linger=0) as dealer:
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
async def test_a_restarted_server_is_found_again() -> None:
    async with Dealer(identity=b"me", backoff=EAGER) as dealer:
        endpoint = "tcp://127.0.0.1:*"
        for number in range(3):
            async with Router() as router:
                endpoint = router.bind(endpoint)
                if not number:
                    dealer.connect(endpoint)
                await dealer.send(b"%d" % number)
                assert await router.recv(PATIENCE) == [b"me", b"%d" % number]
            retrying = await next_of(dealer, Retrying)
            assert retrying.endpoint == endpoint
            assert retrying.reason


@in_loop
async def test_a_key_in_the_directory_is_all_that_a_client_needs(tmp_path: Path) -> None:
    server, ann = (KeyPair.generate(seed=bytes([number]) * 32) for number in (1, 2))
    guard = Authenticator(keys=Keyring(tmp_path))
    async with (
        Router(security=CurveServer(server), authenticator=guard) as router,
        Dealer(security=CurveClient(server.public, ann), backoff=EAGER) as dealer,
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
async def test_strangers_who_do_not_speak_are_shown_the_door_and_others_served() -> None:
    async with Router(limits=Limits(handshake_time=0.2)) as router, Dealer(identity=b"good") as good:
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
