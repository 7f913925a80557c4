"""zambezi.zeps.store.cluster: brokers that share the streams of a prefix, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.zeps.store.cluster_simulation import STREAMS, ClusterBroker, ClusterWorld
from tests.zeps.store.positions_simulation import Violation
from tests.zeps.store.shelf import PLACE, Shelf, piece
from tests.zeps.store.simulated_store import Faults
from zambezi.zeps.errors import StoreError
from zambezi.zeps.store.chunk import NOBODY
from zambezi.zeps.store.cluster import Cluster, find_owner
from zambezi.zeps.store.commands import Answer, Get, List, Names, Put, Request
from zambezi.zeps.store.members import LIMIT as MEMBER_LIMIT
from zambezi.zeps.store.members import Member, Roll

PARTS = 8  # of the runs, for processes that share them
RATIO = 25  # runs of one stream for each run of a cluster, which takes about eight times as long
LIMIT = 15.0  # seconds in which streams must have moved


def settled(brokers: int = 3) -> ClusterWorld:
    """Return a world in which all streams are at home."""
    world = ClusterWorld(brokers=brokers)
    world.run_for(20.0)
    assert all(world.owner_of(name) is not None for name in STREAMS)
    return world


def _kill(_: ClusterWorld, broker: ClusterBroker) -> None:
    broker.kill()


def _stall(_: ClusterWorld, broker: ClusterBroker) -> None:
    broker.stall(40.0)


def _cut_off(_: ClusterWorld, broker: ClusterBroker) -> None:
    broker.network.faults = Faults(1.0, 0, 0, 0)


@pytest.mark.parametrize("harm", [_kill, _stall, _cut_off])
def test_the_streams_of_a_lost_broker_are_served_within_the_limit(
    harm: Callable[[ClusterWorld, ClusterBroker], None],
) -> None:
    world = settled()
    lost = world.owner_of(STREAMS[0])
    assert lost is not None
    names = list(lost.served)
    harm(world, lost)
    before = {name: world.confirmed(name) for name in names}
    world.run_for(LIMIT)
    for name in names:
        owner = world.owner_of(name)
        assert owner is not None
        assert owner is not lost
        assert world.confirmed(name) > before[name]
    if lost.is_alive:
        world.run_for(40.0)  # it goes on, or the store answers it again
        lost.network.faults = Faults(0, 0, 0, 0)
        world.run_for(20.0)
        assert sorted(lost.served) == sorted(names)  # they came home, without a restart
    world.is_over = True
    world.run_for(5.0)
    world.check()


def test_a_broker_that_is_killed_is_noticed_when_its_heartbeat_is_too_old() -> None:
    for moment in range(6):  # between two heartbeats
        world = settled()
        world.run_for(moment / 2)
        lost = world.owner_of(STREAMS[0])
        assert lost is not None
        lost.kill()
        world.run_for(MEMBER_LIMIT + 0.5)
        assert not [one for one in world.brokers if one is not lost and one.cluster.roll.member(lost.id)]


def test_a_broker_that_ends_hands_its_streams_over_at_once() -> None:
    world = settled()
    ended = world.owner_of(STREAMS[0])
    assert ended is not None
    names = list(ended.served)
    ended.terminate()
    before = {name: world.confirmed(name) for name in names}
    world.run_for(6.0)
    assert all(world.confirmed(name) > before[name] for name in names)


def test_a_new_broker_gets_its_share() -> None:
    world = settled(brokers=2)
    world.brokers += [world.start(), world.start()]
    world.run_for(20.0)
    for name in STREAMS:
        owner = world.owner_of(name)
        assert owner is not None
        assert owner.cluster.roll.home(name) == owner.cluster.roll.member(owner.id)
    world.is_over = True
    world.run_for(5.0)
    world.check()


def test_a_broker_that_tells_its_endpoints_late_gets_its_share() -> None:
    world = settled(brokers=1)
    late = world.start()
    late.cluster.endpoints = []
    world.brokers.append(late)
    world.run_for(20.0)
    assert not late.served  # clients could not find it
    late.cluster.announce([late.endpoint])
    world.run_for(20.0)
    homes = [owner.cluster.roll.home(name) for name in STREAMS if (owner := world.owner_of(name)) is not None]
    assert late.served
    assert sorted(late.served) == [
        name for name, home in zip(STREAMS, homes, strict=True) if home and home.id == late.id
    ]


def test_an_idle_broker_asks_for_its_heartbeat_only() -> None:
    world = settled(brokers=1)
    world.is_over = True
    world.run_for(10.0)
    asked: list[Request] = []
    network = world.brokers[0].network
    send = network.send

    def note(request: Request, answer: Callable[[Answer], object]) -> None:
        asked.append(request)
        send(request, answer)

    network.send = note  # type: ignore[method-assign]
    world.run_for(30.0)
    assert not [one for one in asked if isinstance(one, Get)]
    assert len([one for one in asked if isinstance(one, Put)]) <= 11
    assert len([one for one in asked if isinstance(one, List)]) <= 11


def test_a_scan_looks_only_at_streams_that_no_broker_has_named(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    asked: list[Request] = []
    execute = world.store.execute

    def note(request: Request) -> Answer:
        asked.append(request)
        return execute(request)  # type: ignore[arg-type]

    world.is_over = True
    world.run_for(10.0)
    monkeypatch.setattr(world.store, "execute", note)
    for broker in world.brokers:
        broker.cluster.rescan()
    world.run_for(4.0)
    assert [one for one in asked if isinstance(one, Names)] == [Names("streams")] * 3
    assert not [one for one in asked if isinstance(one, List) and one.prefix != "brokers"]


def test_a_stream_that_no_broker_names_any_more_gets_an_owner() -> None:
    world = settled()
    owner = world.owner_of(STREAMS[0])
    assert owner is not None
    del owner.served[STREAMS[0]]  # it could not be served; the log in the store still names this broker
    world.run_for(10.0)
    assert world.owner_of(STREAMS[0]) is owner


def test_a_damaged_stream_does_not_keep_the_others_from_being_taken() -> None:
    world = settled()
    world.store.objects["streams/damaged/0000000001/stream.json"] = (b"{", 0.0)
    lost = world.owner_of(STREAMS[0])
    assert lost is not None
    lost.kill()
    world.run_for(LIMIT)
    assert world.owner_of(STREAMS[0]) is not None


def test_a_look_up_fails_if_the_store_does_not_answer() -> None:
    world = settled(brokers=1)
    broker = world.brokers[0]
    broker.network.faults = Faults(1.0, 0, 0, 0)
    found: list[object] = []
    for _ in range(20):
        broker.call(lambda: broker.cluster.look_up("unknown", found.append))
    world.run_for(120.0)
    assert len(found) == 20
    assert all(isinstance(one, StoreError) for one in found)


def test_a_broker_that_leaves_is_noticed_when_a_client_asks_for_its_stream() -> None:
    world = settled()
    world.is_over = True
    world.run_for(5.0)
    left = world.owner_of(STREAMS[0])
    assert left is not None
    other = next(broker for broker in world.brokers if broker is not left)
    beaten_at = other.cluster.beaten_at
    world.clock.run_until(beaten_at + 0.2)  # the next heartbeat is far away
    left.call(left.cluster.leave)
    world.run_for(0.2)
    for _ in range(2):
        other.call(lambda: other.attach(STREAMS[0], lambda _: None))
    world.run_for(0.3)
    assert other.cluster.beaten_at > beaten_at
    heir = other.cluster.heir_of(STREAMS[0])
    assert heir is not None
    assert heir.id != left.id


def test_a_broker_that_refuses_connections_is_failing_until_it_puts_a_heartbeat() -> None:
    world = settled()
    world.is_over = True
    owner = world.owner_of(STREAMS[0])
    assert owner is not None
    other = next(broker for broker in world.brokers if broker is not owner)
    cluster = other.cluster
    member = cluster.roll.member(owner.id)
    assert member is not None
    world.run_for(1.0)
    assert cluster.heir_of(STREAMS[0]) is None
    now = world.clock.now
    other.call(lambda: cluster.note_refused(member, now))
    assert cluster.heir_of(STREAMS[0]) is not None
    world.run_for(8.0)  # it lives: a firewall is between the brokers
    assert cluster.heir_of(STREAMS[0]) is None
    assert not cluster.suspect(member, STREAMS[0], world.clock.now + 100)
    assert not cluster.suspect(member, STREAMS[0], world.clock.now + 101)  # it is not connected to for a while
    assert world.owner_of(STREAMS[0]) is owner


def test_the_streams_of_a_dead_broker_are_taken_without_a_look_at_each() -> None:
    world = settled()
    world.is_over = True
    world.run_for(10.0)
    lost = world.owner_of(STREAMS[0])
    assert lost is not None
    names = list(lost.served)
    asked: list[Request] = []

    def watch(broker: ClusterBroker) -> None:
        send = broker.network.send

        def note(request: Request, answer: Callable[[Answer], object]) -> None:
            asked.append(request)
            send(request, answer)

        broker.network.send = note  # type: ignore[method-assign]
        broker.attach = lambda name, done: None  # type: ignore[method-assign]  # no client asks

    for broker in world.brokers:
        watch(broker)
    lost.kill()
    world.run_for(LIMIT)
    assert all(world.owner_of(name) for name in names)
    fences = [one for one in asked if isinstance(one, Put) and "/chunks/" in one.key]
    lists = [one for one in asked if isinstance(one, List) and "streams/" in one.prefix]
    assert len(fences) == len(names)
    assert len(lists) == 3 * len(names)  # one when the take was prepared, and two after the fence


def test_the_streams_of_a_broker_that_was_restarted_stay_its_own() -> None:
    own = Member(bytes(16), ["tcp://a:1"], 9.0)
    lost = Member(b"b" * 16, ["tcp://b:1"], 9.0, streams={"prices"})
    again = Member(b"c" * 16, [], 10.0)  # it has the streams of the one before, and no endpoint yet
    cluster = Cluster(bytes(16))
    for before in ([own, lost], [own, lost, again]):
        cluster.roll = Roll(10.0, before)
        cluster._note_departed(Roll(11.0, [own, again]))
        assert not cluster._departed
    cluster._note_departed(Roll(11.0, [own]))
    assert cluster._departed == {"prices": lost.id}


@pytest.mark.timeout(0)  # `--seeds` can be many
@pytest.mark.parametrize("part", range(PARTS))
def test_all_invariants_hold_in_every_run(part: int, pytestconfig: pytest.Config) -> None:
    confirmed = 0
    seeds = range(part, max(PARTS, int(pytestconfig.getoption("--seeds")) // RATIO), PARTS)
    for seed in seeds:
        try:
            world = ClusterWorld(seed, faults=Faults(0.03, 0.03, 0.05, 0.02), pause=0.4).run()
        except Violation as problem:
            raise AssertionError(f"seed {seed}: {problem}") from problem
        confirmed += sum(world.confirmed(name) for name in STREAMS)
    print(f"{len(seeds)} runs, {confirmed} confirmed messages")
    assert confirmed > 20 * len(seeds)


def test_the_end_of_a_log_tells_the_owner() -> None:
    shelf = Shelf()
    assert shelf.run(find_owner(PLACE)) == (NOBODY, False)
    log = shelf.log(1)
    assert shelf.run(find_owner(PLACE)) == ((1).to_bytes(16, "big"), False)
    shelf.publish(log, b"1")
    shelf.log(2)
    assert shelf.run(find_owner(PLACE)) == ((2).to_bytes(16, "big"), False)
    other = shelf.log(3)
    other.append(piece(2, b"2"))
    other.release()
    shelf.settle(other)
    assert shelf.run(find_owner(PLACE)) == (NOBODY, False)
    last = shelf.log(4)
    last.delete()
    shelf.settle(last)
    shelf.log(5)
    assert shelf.run(find_owner(PLACE)).is_deleted
