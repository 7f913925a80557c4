"""zambezi.zeps.sync: the same as for asyncio, from threads."""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.zeps.client.scripted import Serving
from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi.zeps.errors import BrokerError, ClientClosed, QueueFull, TimedOut, ZepsError
from zambezi.zeps.sync import Client, Stream, Subscription
from zambezi.zmtp import Backoff

QUICK = Backoff(0.01, 0.05)
NOWHERE = "tcp://127.0.0.1:1"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path) as serving:
        yield serving


@pytest.fixture
def client(broker: Serving) -> Iterator[Client]:
    with Client.connect(broker.endpoint, backoff=QUICK) as client:
        yield client


def wait_for_more(stream: Stream, publishing: list[Future[None]]) -> None:
    """Until something more is confirmed, or all is published."""
    before = stream.counters.confirmed
    wait_until(lambda: stream.counters.confirmed > before or all(one.done() for one in publishing))


def fill(stream: Stream, count: int, start: int = 0) -> None:
    stream.publish_many([(f"k{number % 10}", b"%d" % number) for number in range(start, start + count)])
    stream.flush(PATIENCE)


def bodies(subscription: Subscription) -> list[int]:
    return [int(message.body) for message in subscription]


def test_what_is_published_is_read(client: Client) -> None:
    stream = client.stream("prices")
    stream.publish("tea", b"4.20")
    stream.publish("coffee", bytearray(b"3.10"))
    stream.publish_nowait("tea", memoryview(b"4.30"))
    stream.publish_many([("milk", b"1.00"), ("tea", b"4.40")])
    stream.flush(PATIENCE)
    found = list(stream.subscribe(since="earliest", until="now"))
    assert [(one.sequence, one.key, one.body, one.stream) for one in found] == [
        (1, "tea", b"4.20", "prices"),
        (2, "coffee", b"3.10", "prices"),
        (3, "tea", b"4.30", "prices"),
        (4, "milk", b"1.00", "prices"),
        (5, "tea", b"4.40", "prices"),
    ]
    assert stream.unconfirmed == 0
    assert stream.counters.confirmed == 5


def test_a_client_in_the_process_of_its_broker(tmp_path: Path) -> None:
    with Serving(tmp_path, "inproc://zeps-sync") as broker, Client.connect(broker.endpoint) as client:
        stream = client.stream("s")
        fill(stream, 5000)
        assert bodies(stream.subscribe(since="earliest", until="now")) == list(range(5000))


def test_a_live_subscriber_sees_what_is_published_after_it(client: Client) -> None:
    stream = client.stream("s")
    fill(stream, 10)
    with stream.subscribe() as subscription:
        fill(stream, 5, start=10)
        assert [int(subscription.recv(PATIENCE).body) for _ in range(5)] == [10, 11, 12, 13, 14]
        with pytest.raises(TimedOut, match="attached"):
            subscription.recv(0.01)


def test_patterns_and_places(client: Client) -> None:
    stream = client.stream("s")
    fill(stream, 100)
    assert bodies(stream.subscribe("k3", since=50, until="now")) == [53, 63, 73, 83, 93]
    assert bodies(stream.subscribe("exact:k3", since="earliest", until=40)) == [3, 13, 23, 33]


def test_who_breaks_off_goes_on_where_it_was(client: Client) -> None:
    stream = client.stream("s")
    fill(stream, 100)
    subscription = stream.subscribe(since="earliest", until="now")
    found = [message.sequence for message in itertools.islice(subscription, 10)]
    found.append(subscription.recv(PATIENCE).sequence)
    found += subscription.recv_batch(PATIENCE).sequences()
    for batch in subscription.batches():
        found += batch.sequences()
    assert found == list(range(1, 101))
    with pytest.raises(ClientClosed, match="end"):
        subscription.recv(PATIENCE)
    with pytest.raises(ClientClosed, match="end"):
        subscription.recv_batch(PATIENCE)


@pytest.mark.spec("ZEP-15")
def test_threads_that_publish_lose_nothing_when_connections_break(broker: Serving, client: Client) -> None:
    stream = client.stream("s", bound=1 << 20)
    each = 10_000

    def publish(name: str) -> None:
        for number in range(each):
            stream.publish(name, b"%d" % number)

    with ThreadPoolExecutor() as pool:
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
        assert list(dict.fromkeys(mine)) == list(range(each)), "in order, and nothing is missing"
    assert len(found) - 3 * each <= stream.counters.republished
    assert stream.counters.published == stream.counters.confirmed == 3 * each


@pytest.mark.spec("ZEP-10")
@pytest.mark.parametrize("pattern", ["", "k3"])
def test_a_subscriber_misses_nothing_when_connections_break(broker: Serving, client: Client, pattern: str) -> None:
    stream = client.stream("s")
    expected = [number for number in range(3000) if not pattern or number % 10 == 3]
    subscription = stream.subscribe(pattern, since="earliest", window=5000)

    def publish() -> None:
        for start in range(0, 3000, 100):
            fill(stream, 100, start)

    publishing = threading.Thread(target=publish)
    publishing.start()
    found: list[int] = []
    while len(found) < len(expected):
        found.append(int(subscription.recv(PATIENCE).body))
        if len(found) % (len(expected) // 5) == 1:
            broker.cut()
    publishing.join()
    # The publisher's connections break too, so that some may be there twice; the subscriber sees what the journal has.
    assert list(dict.fromkeys(found)) == expected[: len(dict.fromkeys(found))]
    assert subscription.counters.reconnects > 0
    assert subscription.counters.missed == 0
    subscription.close()


def test_a_broker_that_is_restarted_is_found_again(broker: Serving, client: Client) -> None:
    stream = client.stream("s")
    subscription = stream.subscribe(since="earliest")
    fill(stream, 100)
    broker.stop()
    for number in range(100, 200):
        stream.publish("k", b"%d" % number)
    with pytest.raises(TimedOut, match="not connected"):
        stream.flush(0.05)
    broker.start()
    stream.flush(PATIENCE)
    assert [int(subscription.recv(PATIENCE).body) for _ in range(200)] == list(range(200))
    assert stream.counters.republished == 0


def test_threads_that_share_a_subscription_get_each_message_once(client: Client) -> None:
    stream = client.stream("s")
    fill(stream, 5000)
    subscription = stream.subscribe(since="earliest", until="now", window=4000)
    with ThreadPoolExecutor() as pool:
        shares = [list(share) for share in pool.map(bodies, [subscription] * 3)]
    assert sorted(itertools.chain(*shares)) == list(range(5000))
    assert all(share == sorted(share) for share in shares)


def test_what_the_broker_tells(client: Client) -> None:
    fill(client.stream("one"), 10)
    assert [(info.stream, info.last) for info in client.streams(PATIENCE)] == [("one", 10)]
    assert "one" in {info.stream for info in client.clients(PATIENCE)}
    assert sum(entry.count for entry in client.index("one", timeout=PATIENCE)) == 10
    with pytest.raises(BrokerError, match="two"):
        client.index("two", timeout=PATIENCE)


def test_a_broker_that_a_node_finds(broker: Serving) -> None:
    found: dict[UUID, str] = {}

    class Node:
        def services(self, service: str) -> dict[UUID, str]:
            return found

    with Client.connect(Node()) as client:
        stream = client.stream("s")
        stream.publish("k", b"")
        with pytest.raises(TimedOut, match="no broker was found"):
            stream.flush(0.01)
        found[uuid4()] = broker.endpoint
        stream.flush(PATIENCE)


@pytest.mark.spec("ZEP-15")
def test_strategies_at_the_bound() -> None:
    client = Client.connect(NOWHERE, bound=1000)
    waiting = client.stream("a")
    waiting.publish("k", bytes(900))
    with pytest.raises(TimedOut, match="no room"):
        waiting.publish("k", bytes(900), timeout=0.01)
    with pytest.raises(TimedOut, match="no room for 2 of 2"):
        waiting.publish_many([("k", bytes(900))] * 2, timeout=0.01)
    with pytest.raises(QueueFull):
        waiting.publish_nowait("k", bytes(900))
    raising = client.stream("b", on_full="raise")
    raising.publish("k", bytes(900))
    with pytest.raises(QueueFull):
        raising.publish("k", bytes(900))
    dropping = client.stream("c", on_full="drop-oldest")
    for _ in range(10):
        dropping.publish("k", bytes(900))
    assert (dropping.counters.dropped, dropping.unconfirmed) == (9, 1)
    with pytest.raises(TimedOut, match="1 messages"):
        client.close(0)


def test_who_waits_is_told_that_the_client_is_closed() -> None:
    client = Client.connect(NOWHERE, bound=100)
    stream = client.stream("s")
    stream.publish("k", bytes(80))
    subscription = stream.subscribe()
    calls: list[Callable[[], object]] = [
        lambda: stream.publish("k", bytes(80)),
        stream.flush,
        client.streams,
        subscription.recv,
        subscription.ready,
    ]
    with ThreadPoolExecutor(len(calls) + 1) as pool:
        waiting = [pool.submit(call) for call in calls]
        iterating = pool.submit(bodies, subscription)
        wait_until(lambda: client._questions)
        with pytest.raises(TimedOut):
            client.close(0)
        for call in waiting:
            assert isinstance(call.exception(PATIENCE), ClientClosed)
        assert iterating.result(PATIENCE) == []


def test_close_confirms_what_is_under_way(broker: Serving) -> None:
    with Client.connect(broker.endpoint) as client:
        stream = client.stream("s")
        for number in range(5000):
            stream.publish_nowait("k", b"%d" % number)
    assert stream.counters.confirmed == 5000
    with pytest.raises(ClientClosed):
        stream.publish("k", b"")
    with pytest.raises(ClientClosed):
        stream.subscribe()
    with pytest.raises(ClientClosed):
        client.stream("t")
    with pytest.raises(ClientClosed):
        client.streams()
    client.close()


@pytest.mark.parametrize("turn", range(5))
def test_threads_that_publish_while_it_is_closed_are_told_or_counted(broker: Serving, turn: int) -> None:
    """Of each message it is known whether it was taken; and of all that were, whether they were confirmed."""
    client = Client.connect(broker.endpoint)
    stream = client.stream("s")
    taken = [0, 0]

    def publish(which: int) -> None:
        with contextlib.suppress(ClientClosed):
            while True:
                stream.publish("k", b"x")
                taken[which] += 1

    threads = [threading.Thread(target=publish, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: min(taken) > 1000 * turn)
    with contextlib.suppress(TimedOut):
        client.close()
    for thread in threads:
        thread.join()
    counters = stream.counters
    assert sum(taken) == counters.confirmed + counters.unconfirmed
    assert stream.unconfirmed == counters.unconfirmed


def test_who_leaves_by_an_error_keeps_it() -> None:
    def fail() -> None:
        with Client.connect(NOWHERE) as client:
            client.stream("s").publish("k", b"")
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        fail()
    assert any("not confirmed" in note for note in caught.value.__notes__)


def test_a_client_that_is_forgotten_says_so() -> None:
    def forget() -> None:
        Client.connect(NOWHERE).stream("s")
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed <Client"):
        forget()


def test_mistakes_are_told_at_once() -> None:
    with Client.connect(NOWHERE) as client:
        stream = client.stream("s")
        with pytest.raises(ZepsError, match="in use"):
            client.stream("s", bound=7)
        with pytest.raises(ZepsError, match="reserved"):
            client.stream("$streams").publish("k", b"")
        with pytest.raises(ZepsError, match="encode text"):
            stream.publish("k", "text")  # type: ignore[arg-type]
        with pytest.raises(TimedOut, match="did not answer"):
            client.streams(0.01)
        assert "not connected" in repr(stream.subscribe())
