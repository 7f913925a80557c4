"""zambezi.zre.asyncio: what an event loop adds. See test_faces for the rest."""

import asyncio

from tests.zmtp.waiting import in_loop
from zambezi.zre import Exit, MemoryNetwork
from zambezi.zre.asyncio import Node


@in_loop
async def test_a_task_that_is_cancelled_has_taken_no_event_from_the_others() -> None:
    network = MemoryNetwork()
    async with Node("ann", network=network) as ann:
        waiting = [asyncio.create_task(ann.recv()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        async with Node("bob", network=network), Node("cid", network=network):
            entered = await asyncio.gather(*waiting[1:])
            assert {event.name for event in entered} == {"bob", "cid"}
        assert waiting[0].cancelled()
        assert [type(await ann.recv(60)) for _ in range(2)] == [Exit, Exit]
