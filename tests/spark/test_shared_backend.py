"""zambezi.spark.shared_backend: the streams of brokers that share an object store, read from all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

from tests.spark.backends import read_sequences
from tests.zeps.serving import serving
from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi.spark.backend import SequenceRange
from zambezi.spark.shared_backend import SharedBackend
from zambezi.zeps.broker.depot import Depot, StoreOptions
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.journal import Policy
from zambezi.zeps.store.stream_log import LogSettings
from zambezi.zeps.sync import Client
from zambezi.zmtp.security import Null

NAMES = [f"stream{number}" for number in range(8)]
COUNT = 5


class Brokers:
    """Two brokers that share a store, and streams at both."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        store = StoreOptions(
            url=str(directory / "store"), log=LogSettings(commit=0.001), period=0.1, limit=10 * PATIENCE
        )
        make = partial(BrokerService, policy=Policy(sync="store"), store=store, scrub=0)
        self.stacks = [stack.enter_context(ExitStack()) for _ in range(2)]
        made = [one.enter_context(serving(directory / f"{at}", make)) for at, one in enumerate(self.stacks)]
        self.brokers = [broker for broker, _ in made]
        self.endpoints = [endpoint for _, endpoint in made]
        wait_until(lambda: all(len(self.depot(at).cluster.roll.members) == 2 for at in range(2)))
        wait_until(lambda: all(len(self.known(at)) == 2 for at in range(2)))
        with Client.connect(self.endpoints) as client:
            for name in NAMES:
                stream = client.stream(name)
                for number in range(COUNT):
                    stream.publish("key", b"%d" % number)
                stream.flush(PATIENCE)

    def depot(self, at: int) -> Depot:
        store = self.brokers[at].engine.store
        assert isinstance(store, Depot)
        return store

    def known(self, at: int) -> list[str]:
        return [member.endpoint for member in self.depot(at).cluster.roll.members if member.endpoint]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield Brokers(tmp_path, stack)


@pytest.fixture
def backend(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedBackend]:
    monkeypatch.setattr("zambezi.spark.shared_backend._OTHER", 0.2)  # the tests end a broker
    made = SharedBackend(brokers.endpoints[0], Null(), PATIENCE)
    yield made
    made.close()


def whole(backend: SharedBackend) -> dict[str, SequenceRange]:
    return {
        name: SequenceRange(name, state.incarnation, state.first - 1, state.last)
        for name, state in backend.streams().items()
    }


def test_the_streams_of_all_brokers_are_found_and_read(brokers: Brokers, backend: SharedBackend) -> None:
    assert all(broker.engine.names() for broker in brokers.brokers)  # both have some
    ranges = whole(backend)
    assert sorted(ranges) == NAMES
    assert all(one.last == COUNT for one in ranges.values())
    assert sorted(backend.streams(NAMES[:3])) == NAMES[:3]
    for one in ranges.values():
        assert read_sequences(backend, one) == list(range(1, COUNT + 1))
    assert backend.last_before(dict.fromkeys(NAMES, 1 << 60)) == dict.fromkeys(NAMES, COUNT)
    assert all(backend.times_after(dict.fromkeys(NAMES, 0)).values())
    assert all(index is not None for index in backend.size_indexes(list(ranges.values()), 1 << 20))


def test_a_task_that_knows_no_owners_reads_all_ranges(brokers: Brokers, backend: SharedBackend) -> None:
    ranges = whole(backend)
    task = SharedBackend(brokers.endpoints[1], Null(), PATIENCE)
    try:
        for one in ranges.values():
            assert read_sequences(task, one) == list(range(1, COUNT + 1))
    finally:
        task.close()


def test_a_stream_that_has_gone_to_another_broker_is_read_there(brokers: Brokers, backend: SharedBackend) -> None:
    ranges = whole(backend)
    brokers.stacks[1].close()
    wait_until(lambda: brokers.brokers[0].engine.names() == NAMES)
    for one in ranges.values():
        assert read_sequences(backend, one) == list(range(1, COUNT + 1))


def test_the_answer_of_a_broker_that_does_not_have_the_stream_is_followed(
    brokers: Brokers, backend: SharedBackend
) -> None:
    ranges = whole(backend)
    backend._owners = dict.fromkeys(NAMES, brokers.endpoints[0])  # an old list
    slept: list[float] = []
    backend._sleep = slept.append
    wait_until(lambda: len(brokers.depot(0).cluster.owners) == len(NAMES))
    for one in ranges.values():
        assert read_sequences(backend, one) == list(range(1, COUNT + 1))
    assert slept
