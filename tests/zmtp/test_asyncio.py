"""zambezi.zmtp.asyncio: tasks, and their cancellation. `test_faces` has the tests that both faces share."""

import asyncio
import gc
import itertools
import warnings

from tests.zmtp.waiting import PATIENCE, eventually, in_loop, waiting_calls
from zambezi.zmtp.asyncio import Dealer, Router, Socket
from zambezi.zmtp.options import Bound

_names = itertools.count()


def name() -> str:
    return f"inproc://asyncio-{next(_names)}"


@in_loop
async def test_a_flood_from_one_peer_does_not_starve_another() -> None:
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
                # At most the messages of one read from the other peer, while this message was on its way.
                assert between < 10_000
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        await flood.close(0)


# Cancellation


@in_loop
async def test_a_cancelled_receive_loses_nothing() -> None:
    async with Router() as router, Dealer(identity=b"me") as dealer:
        dealer.connect(router.bind(name()))
        for turns in range(6):
            receiving = asyncio.create_task(router.recv())
            await asyncio.sleep(0)
            await dealer.send(b"%d" % turns)
            for _ in range(turns):
                await asyncio.sleep(0)
            receiving.cancel()
            try:
                message = await receiving
            except asyncio.CancelledError:
                message = await router.recv(PATIENCE)
            assert message == [b"me", b"%d" % turns]


@in_loop
async def test_a_cancelled_call_passes_its_wake_up_on_to_the_next() -> None:
    async with Router() as router, Dealer(identity=b"me") as dealer:
        dealer.connect(router.bind(name()))
        await dealer.send(b"warm")
        await router.recv(PATIENCE)
        first, second = (asyncio.create_task(router.recv()) for _ in range(2))
        await eventually(lambda: waiting_calls(router) == 2)
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
async def test_a_cancelled_send_sends_nothing() -> None:
    async with Dealer(send_bound=Bound(1, 1000)) as dealer, Router() as router:
        where = name()
        dealer.connect(where)
        await dealer.send(b"first")
        waiting = asyncio.create_task(dealer.send(b"cancelled"))
        await eventually(lambda: waiting_calls(dealer) == 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        router.bind(where)
        await dealer.send(b"second", PATIENCE)
        assert [(await router.recv(PATIENCE))[1] for _ in range(2)] == [b"first", b"second"]


@in_loop
async def test_a_cancelled_close_goes_on_and_can_be_awaited_again() -> None:
    async with Router() as router:
        where = name()
        dealer = Dealer()
        dealer.connect(where)
        await dealer.send(b"x")
        closing = asyncio.create_task(dealer.close(None))
        await eventually(lambda: dealer.closed)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        router.bind(where)
        await dealer.close()
        assert (await router.recv(PATIENCE))[1] == b"x"


# Forgotten sockets


@in_loop
async def test_a_program_that_forgets_to_close_a_socket_is_warned() -> None:
    socket: Socket | None = Dealer()
    assert socket is not None
    endpoint = socket.bind(name())
    assert repr(socket) == f"<Dealer {endpoint}>"
    transport = socket._transport
    transport.on_event = lambda _: None  # the only reference from the connections back to the socket
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        socket = None
        gc.collect()
    transport.close(0)
    assert any("unclosed <Dealer inproc" in str(warning.message) for warning in caught)
