"""zambezi.zeps.broker.shared_streams: brokers that share a store, and clients that go from one to the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.interop.octets import ByHand, message
from tests.zeps.serving import serving
from tests.zmtp.waiting import PATIENCE, wait_until
from zambezi.zeps.block import deliver
from zambezi.zeps.broker.depot import Depot, StoreOptions
from zambezi.zeps.broker.service import BrokerService
from zambezi.zeps.client.connection import BrokerConnection
from zambezi.zeps.errors import BrokerError, Moved
from zambezi.zeps.journal import Policy
from zambezi.zeps.messages import Attach, AttachOk, Detach, DetachOk, Publish, invalid
from zambezi.zeps.sync import Client
from zambezi.zmtp.backoff import Backoff
from zambezi.zmtp.connection import Heartbeat

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")

from zambezi.zeps.store import cluster
from zambezi.zeps.store.catalog import find_stream
from zambezi.zeps.store.chunk import NOBODY, piece_of
from zambezi.zeps.store.cluster import Located
from zambezi.zeps.store.commands import Answer, Procedure, Request
from zambezi.zeps.store.copying import settle
from zambezi.zeps.store.stream_log import LogSettings, StreamLog

QUICK = LogSettings(commit=0.001)
NAMES = ("prices", "orders", "events")


class Pair:
    """Two brokers on one prefix, and a client that knows both."""

    def __init__(self, directory: Path, stack: ExitStack, limit: float) -> None:
        store = StoreOptions(url=str(directory / "store"), log=QUICK, period=0.1, limit=limit)
        make = partial(BrokerService, policy=Policy(sync="store"), store=store, scrub=0)
        self.brokers: list[BrokerService] = []
        self.endpoints: list[str] = []
        self.stacks: list[ExitStack] = []
        for number in range(2):
            own = stack.enter_context(ExitStack())
            broker, endpoint = own.enter_context(serving(directory / f"data{number}", make))
            self.brokers.append(broker)
            self.endpoints.append(endpoint)
            self.stacks.append(own)
        wait_until(lambda: all(self._knows_both(number) for number in range(2)))
        self.client = stack.enter_context(
            Client.connect(self.endpoints, heartbeat=Heartbeat(0.1, 0.5), backoff=Backoff(0.01, 0.1))
        )

    def _knows_both(self, number: int) -> bool:
        members = self.depot(number).cluster.roll.members
        return sorted(member.endpoint for member in members) == sorted(self.endpoints)

    def depot(self, number: int) -> Depot:
        store = self.brokers[number].engine.store
        assert isinstance(store, Depot)
        return store

    def owner(self, name: str) -> int:
        """Wait until a broker serves a stream, and return its number."""
        owners: list[int] = []

        def find() -> bool:
            owners[:] = [number for number, broker in enumerate(self.brokers) if name in broker.engine.names()]
            return bool(owners)

        wait_until(find)
        return owners[0]

    @contextmanager
    def paused(self, number: int) -> Iterator[None]:
        """Let a broker do nothing, as after SIGSTOP."""
        going_on = threading.Event()
        self.brokers[number]._loop.call_soon_threadsafe(going_on.wait)
        try:
            yield
        finally:
            going_on.set()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Yield brokers that count as dead only when they have left, however busy the machine is."""
    with ExitStack() as stack:
        yield Pair(tmp_path, stack, limit=10 * PATIENCE)


@pytest.fixture
def mortal_pair(tmp_path: Path) -> Iterator[Pair]:
    """Yield brokers that count as dead soon: on a busy machine also without a reason."""
    with ExitStack() as stack:
        yield Pair(tmp_path, stack, limit=0.6)


def publish(client: Client, name: str, *bodies: bytes) -> None:
    stream = client.stream(name)
    for body in bodies:
        stream.publish("key", body)
    stream.flush(PATIENCE)


def test_a_broker_that_loses_a_stream_while_it_restores_it_confirms_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(pair.client, "prices", b"1")
    lost = pair.owner("prices")
    heir = pair.depot(1 - lost)
    restoring, may_restore = threading.Event(), threading.Event()

    update = heir._update

    def update_slowly(*arguments: Any) -> None:
        restoring.set()
        assert may_restore.wait(PATIENCE)
        update(*arguments)

    monkeypatch.setattr(heir, "_update", update_slowly)
    pair.stacks[lost].close()
    assert restoring.wait(PATIENCE)
    stream = heir.remote.run(find_stream("prices"))
    assert stream is not None
    other = StreamLog(stream.place, b"another broker..", stream.incarnation.bytes, QUICK)
    other.take(0.0)
    settle(heir.remote, other)
    other.append(piece_of(deliver([Publish("key", b"2").encode()[0]], 2), other.last_time, 1 << 20, []))
    settle(heir.remote, other)
    may_restore.set()
    publish(pair.client, "prices", b"3")  # when the broker has found out, and has taken the stream again
    subscription = pair.client.stream("prices").subscribe(since="earliest", until="now")
    assert [(one.sequence, one.body) for one in subscription] == [(1, b"1"), (2, b"2"), (3, b"3")]


def test_two_brokers_that_make_a_stream_at_the_same_time_make_one(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(pair.client, "prices", b"1")
    depot = pair.depot(1 - pair.owner("prices"))
    monkeypatch.setattr(depot.cluster, "locate", _locate_nothing(depot.cluster.locate))
    with pytest.raises(Moved, match=pair.endpoints[pair.owner("prices")]):
        depot.make("prices")
    assert "prices" in pair.brokers[pair.owner("prices")].engine.names()


def _locate_nothing(locate: Callable[[str], Procedure[Located]]) -> Callable[[str], Procedure[Located]]:
    """Return a function that finds no stream the first time: another broker makes it a moment later."""
    answers = iter([Located(None, None, NOBODY)])

    def locate_late(name: str) -> Procedure[Located]:
        found = next(answers, None)
        return found if found is not None else (yield from locate(name))

    return locate_late


def test_clients_go_to_the_broker_that_has_the_stream(pair: Pair) -> None:
    for name in NAMES:
        publish(pair.client, name, b"1")
        owner, other = pair.owner(name), 1 - pair.owner(name)
        with Client.connect(pair.endpoints[other]) as client:
            assert [one.body for one in client.stream(name).subscribe(since="earliest", until="now")] == [b"1"]
            publish(client, name, b"2")
        assert name not in pair.brokers[other].engine.names()
        assert pair.owner(name) == owner


def test_a_broker_that_is_paused_loses_its_streams_and_can_have_them_again(mortal_pair: Pair) -> None:
    pair = mortal_pair
    publish(pair.client, "prices", b"1")
    lost = pair.owner("prices")
    subscription = pair.client.stream("prices").subscribe(since="earliest")
    assert subscription.recv(PATIENCE).body == b"1"
    with pair.paused(lost):
        publish(pair.client, "prices", b"2")
        assert subscription.recv(PATIENCE).body == b"2"
    # Its home has not changed: so it gets the stream back, without a restart.
    wait_until(lambda: pair.brokers[1 - lost].engine.names() == [] and "prices" in pair.brokers[lost].engine.names())
    publish(pair.client, "prices", b"3")
    assert subscription.recv(PATIENCE).sequence == 3
    stream = pair.client.stream("prices")
    assert stream.counters.confirmed == 3
    bodies = [one.body for one in stream.subscribe(since="earliest", until="now")]
    assert bodies == [b"1", b"2", b"3"]


def test_a_broker_that_ends_hands_its_streams_over(pair: Pair) -> None:
    for name in NAMES:
        publish(pair.client, name, b"1")
    ended = pair.owner("prices")
    pair.stacks[ended].close()
    for name in NAMES:
        publish(pair.client, name, b"2")
    assert pair.brokers[1 - ended].engine.names() == sorted(NAMES)


def test_a_client_finds_the_brokers_in_a_mesh(pair: Pair) -> None:
    class Mesh:
        def services(self, service: str) -> dict[UUID, str]:
            return {uuid4(): endpoint for endpoint in pair.endpoints} if service == "X-ZEPS" else {}

    with Client.connect(Mesh(), backoff=Backoff(0.01, 0.1)) as client:
        for name in NAMES:
            publish(client, name, b"1")
        pair.stacks[pair.owner("prices")].close()
        for name in NAMES:
            publish(client, name, b"2")


def test_a_broker_that_is_cut_off_sends_its_clients_away(mortal_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = mortal_pair
    publish(pair.client, "prices", b"1")
    lost = pair.owner("prices")
    remote = pair.depot(lost).remote

    def fail(*_: object) -> None:
        raise OSError("no route to the store")

    monkeypatch.setattr(remote, "_execute", fail)
    publish(pair.client, "prices", b"2")
    wait_until(lambda: pair.depot(lost).cluster.is_cut and pair.brokers[lost].engine.names() == [])
    monkeypatch.undo()
    wait_until(lambda: not pair.depot(lost).cluster.is_cut)
    publish(pair.client, "prices", b"3")
    subscription = pair.client.stream("prices").subscribe(since="earliest", until="now")
    assert [one.body for one in subscription] == [b"1", b"2", b"3"]


def test_the_answer_names_the_endpoint(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(pair.client, "prices", b"1")
    owner = pair.owner("prices")
    reasons: list[str] = []
    monkeypatch.setattr(BrokerConnection, "_follow", lambda _, reason: reasons.append(reason))
    with Client.connect(pair.endpoints[1 - owner]) as client:
        client.stream("prices").subscribe()
        wait_until(lambda: reasons == [f"moved: {pair.endpoints[owner]}"])


def test_many_clients_of_streams_elsewhere_do_not_ask_the_store(pair: Pair) -> None:
    publish(pair.client, "prices", b"1")
    owner = pair.owner("prices")
    depot = pair.depot(1 - owner)
    wait_until(lambda: depot.cluster.named_by("prices") is not None)
    knocks: list[object] = []
    depot.knock = knocks.append
    for _ in range(100):
        with pytest.raises(Moved, match=pair.endpoints[owner]):
            depot.look_up("prices", lambda _: None)
    assert len(knocks) < 100  # the other broker is connected to now and then


def test_a_look_up_is_not_repeated_at_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.zeps.broker.depot.KNOWN", PATIENCE)
    publish(pair.client, "prices", b"1")
    owner = pair.owner("prices")
    depot = pair.depot(1 - owner)
    found = depot._note_located("prices", depot.remote.run(depot.cluster.locate("prices")))
    assert isinstance(found, Moved)
    monkeypatch.setattr(depot.cluster, "named_by", lambda _: None)
    with pytest.raises(Moved, match=pair.endpoints[owner]):
        depot.check_not_moved("prices")
    depot.check_not_moved("orders")
    monkeypatch.setattr("zambezi.zeps.broker.depot.KNOWN", 0.0)
    depot.check_not_moved("prices")


def test_a_stream_that_waits_for_the_store_does_not_hold_up_the_others(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_open = threading.Event()
    for number in range(2):
        remote = pair.depot(number).remote
        monkeypatch.setattr(remote, "_execute", partial(_execute_when_open, remote._execute, is_open))
    try:
        slow = pair.client.stream("slow")
        slow.publish("key", b"1")
        wait_until(lambda: any("slow" in broker.engine.making for broker in pair.brokers))
        for name in NAMES:
            publish(pair.client, name, b"1")
        assert slow.unconfirmed == 1
    finally:
        is_open.set()
    slow.flush(PATIENCE)


def _execute_when_open(execute: Callable[[Request], Answer], is_open: threading.Event, request: Request) -> Answer:
    """Execute a request; one about the stream "slow" must wait."""
    if getattr(request, "key", getattr(request, "prefix", "")).startswith("streams/slow"):
        is_open.wait(PATIENCE)
    return execute(request)


# Questions and orders, at a broker that does not have the stream


@pytest.fixture
def visitor(pair: Pair) -> Iterator[Client]:
    """Yield a client of the broker that does not have the stream "prices", whose last message is 2."""
    publish(pair.client, "prices", b"1", b"2")
    with Client.connect(pair.endpoints[1 - pair.owner("prices")]) as client:
        yield client


def test_questions_about_a_stream_elsewhere_are_answered_by_its_broker(visitor: Client) -> None:
    found = visitor.last("prices", "key", PATIENCE)
    assert found is not None
    assert found.body == b"2"
    assert [entry.last for entry in visitor.index("prices", timeout=PATIENCE)][-1] == 2
    visitor.set_reader("prices", "billing", 1, timeout=PATIENCE)
    assert [(one.reader, one.position) for one in visitor.readers("prices", PATIENCE)] == [("billing", 1)]
    with pytest.raises(BrokerError, match="there is no stream missing"):
        visitor.last("missing", "key", PATIENCE)


def test_orders_about_a_stream_elsewhere_are_executed_by_its_broker(pair: Pair, visitor: Client) -> None:
    owner = pair.owner("prices")
    with pytest.raises(BrokerError, match="there is a stream prices already"):
        visitor.create("prices", timeout=PATIENCE)
    visitor.edit("prices", keep_bytes=1 << 30, timeout=PATIENCE)
    assert pair.brokers[owner].engine.streams[0].journal.policy.keep_bytes == 1 << 30
    visitor.copy("prices", "copied", timeout=PATIENCE)
    assert [one.body for one in visitor.stream("copied").subscribe(since="earliest", until="now")] == [b"1", b"2"]
    visitor.delete("prices", timeout=PATIENCE)
    wait_until(lambda: "prices" not in pair.brokers[owner].engine.names())
    with pytest.raises(BrokerError, match="there is no stream prices"):
        visitor.delete("prices", timeout=PATIENCE)
    for name in ("one", "two", "three", "four"):  # one of them has its home at the other broker
        visitor.create(name, timeout=PATIENCE)
    wanted = ["copied", "four", "one", "three", "two"]  # one of them can be on its way to the other broker
    wait_until(lambda: sorted(name for broker in pair.brokers for name in broker.engine.names()) == wanted)


def test_every_broker_lists_all_streams_with_their_owners(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.zeps.administration.sync.OTHERS", PATIENCE)
    for name in NAMES:
        publish(pair.client, name, b"1", b"2")
    ids = {name: pair.depot(pair.owner(name)).id for name in NAMES}
    wait_until(lambda: all(pair.depot(number).cluster.owners == ids for number in range(2)))
    owners = [(name, pair.endpoints[pair.owner(name)], 2) for name in sorted(NAMES)]
    for endpoint in pair.endpoints:
        with Client.connect(endpoint) as client:
            assert [(one.stream, one.owner, one.last) for one in client.streams(PATIENCE)] == owners
            brokers = client.brokers(PATIENCE)
            assert sorted(one.endpoint for one in brokers) == sorted(pair.endpoints)
            assert sum(one.streams for one in brokers) == len(NAMES)
            assert [one.endpoint for one in brokers if one.answers] == [endpoint]
            assert all(len(one.broker) == 32 and one.since > 0 and one.heartbeat >= 0 for one in brokers)


def test_a_stream_whose_broker_does_not_answer_is_listed_by_its_name(
    pair: Pair, visitor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zambezi.zeps.administration.sync.OTHERS", 0.01)
    owner = pair.owner("prices")
    wait_until(lambda: pair.depot(1 - owner).cluster.owner_of("prices") is not None)
    with pair.paused(owner):
        (found,) = visitor.streams(PATIENCE)
        assert (found.stream, found.owner) == ("prices", pair.endpoints[owner])


def test_requests_find_the_servers_of_a_stream_elsewhere(pair: Pair, visitor: Client) -> None:
    with Client.connect(pair.endpoints) as servant, servant.stream("prices").serve("ask") as serving:
        answering = threading.Thread(target=lambda: serving.recv(PATIENCE).reply(b"42"))
        answering.start()
        assert visitor.stream("prices").request("ask", b"?", timeout=PATIENCE) == b"42"
        answering.join(PATIENCE)


def test_a_broker_without_a_store_has_no_others(tmp_path: Path) -> None:
    with serving(tmp_path / "data", BrokerService) as (_, endpoint), Client.connect(endpoint) as client:
        with pytest.raises(BrokerError, match="shares no object store"):
            client.brokers(PATIENCE)
        publish(client, "prices", b"1")
        assert [(one.stream, one.owner) for one in client.streams(PATIENCE)] == [("prices", "")]


def test_a_plain_client_is_told_where_the_stream_is(pair: Pair) -> None:
    publish(pair.client, "prices", b"1")
    owner = pair.owner("prices")
    with ByHand.connect(pair.endpoints[1 - owner]) as plain:
        plain.shake_hands(b"DEALER")
        for _ in range(2):  # the connection stays open, and the client can ask again
            plain.say(message(*Attach("prices").encode()))
            plain.expect(message(invalid(f"moved: {pair.endpoints[owner]}")))
        plain.say(message(*Detach().encode()))
        plain.expect(message(*DetachOk().encode()))
    with ByHand.connect(pair.endpoints[owner]) as plain:
        plain.shake_hands(b"DEALER")
        plain.say(message(*Attach("prices").encode()))
        plain.expect(message(*AttachOk().encode()))
        pair.stacks[owner].close()  # the broker hands the stream over
        plain.expect(message(*Detach().encode()))


def test_clients_wait_at_the_heir_of_a_broker_that_refuses_connections(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_TICK", 10 * PATIENCE)  # its heartbeats do not prove that it lives
    publish(pair.client, "prices", b"1")
    owner = pair.owner("prices")
    heir = pair.depot(1 - owner)
    seeking = pair.brokers[1 - owner].engine.seeking
    assert seeking is not None
    wait_until(lambda: heir.cluster.owner_of("prices") is not None)
    pair.brokers[owner]._loop.call_soon_threadsafe(pair.brokers[owner]._transport.unbind_all)
    with Client.connect(pair.endpoints, backoff=Backoff(0.01, 0.1)) as client:
        client.stream("prices").publish("key", b"2")
        wait_until(lambda: "prices" in seeking._held)
        wait_until(lambda: heir.preparations.stream_of("prices") is not None)
        pair.stacks[owner].close()
        client.stream("prices").flush(PATIENCE)
        found = client.stream("prices").subscribe(since="earliest", until="now")
        assert [one.body for one in found] == [b"1", b"2"]
    assert not seeking._held
