"""zambezi.zeps.sync: threads that share a client. `test_asyncio` tests what is the same for both faces."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.zeps.faces import QUICK
from tests.zeps.scripted import Serving
from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi.zeps.errors import ClientClosed, TimedOut
from zambezi.zeps.sync import Client, Stream


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path) as serving:
        yield serving


def wait_for_more(stream: Stream, publishing: list[Future[None]]) -> None:
    """Wait until more messages are confirmed, or all are published."""
    before = stream.counters.confirmed
    wait_until(lambda: stream.counters.confirmed > before or all(one.done() for one in publishing))


@pytest.mark.spec("ZEP-15")
def test_threads_that_publish_lose_nothing_when_connections_break(broker: Serving) -> None:
    each = 10_000
    with Client.connect(broker.endpoint, backoff=QUICK) as client, ThreadPoolExecutor() as pool:
        stream = client.stream("s", bound=1 << 20)

        def publish(name: str) -> None:
            for number in range(each):
                stream.publish(name, b"%d" % number)

        publishing = [pool.submit(publish, name) for name in "abc"]
        while not all(one.done() for one in publishing):
            broker.cut()
            wait_for_more(stream, publishing)
        for one in publishing:
            one.result()
        stream.flush(PATIENCE)
        found = list(stream.subscribe(since="earliest", until="now"))
        assert [one.sequence for one in found] == list(range(1, len(found) + 1))
        for name in "abc":
            mine = [int(one.body) for one in found if one.key == name]
            assert mine == list(range(each)), "once, and in order"
        assert stream.counters.published == stream.counters.confirmed == 3 * each


@pytest.mark.parametrize("turn", range(5))
def test_threads_that_publish_while_the_client_closes_get_an_error_or_are_counted(broker: Serving, turn: int) -> None:
    """The publisher knows of each message whether it was accepted; and of all accepted ones, whether confirmed."""
    client = Client.connect(broker.endpoint)
    stream = client.stream("s")
    accepted = [0, 0]

    def publish(which: int) -> None:
        with contextlib.suppress(ClientClosed):
            while True:
                stream.publish("k", b"x")
                accepted[which] += 1

    threads = [threading.Thread(target=publish, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: min(accepted) > 1000 * turn)
    with contextlib.suppress(TimedOut):
        client.close()
    for thread in threads:
        thread.join()
    counters = stream.counters
    assert sum(accepted) == counters.confirmed + counters.unconfirmed
    assert stream.unconfirmed == counters.unconfirmed
