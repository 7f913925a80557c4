"""zambezi.zeps.store.members: which brokers live, by the store's own times."""

from dataclasses import replace

from tests.zeps.store.shelf import Shelf
from zambezi.zeps.store.commands import Get
from zambezi.zeps.store.members import Owned, Roll, beat, is_leaving, leave

A, B = b"a" * 16, b"b" * 16


def roll(shelf: Shelf, broker: bytes, before: Roll | None = None) -> Roll:
    found = shelf.run(beat(broker, [f"tcp://{broker[:1].decode()}:1"], before.members if before else ()))
    assert found is not None
    return found


def test_brokers_find_each_other_and_notice_one_that_is_silent() -> None:
    shelf = Shelf()
    assert [member.id for member in roll(shelf, A).members] == [A]
    shelf.clock.now = 5.0
    found = roll(shelf, B)
    assert [member.id for member in found.members] == [A, B]
    assert found.members[0].endpoints == ("tcp://a:1",)
    shelf.clock.now = 10.1
    assert [member.id for member in roll(shelf, B).members] == [B]
    assert roll(shelf, A).member(B) is not None


def test_a_known_broker_is_not_read_again() -> None:
    shelf = Shelf()
    roll(shelf, A)
    found = roll(shelf, B)
    shelf.requests.clear()
    roll(shelf, B, found)
    assert not [request for request in shelf.requests if isinstance(request, Get)]
    assert len(shelf.requests) == 2


def test_brokers_name_their_streams_once() -> None:
    shelf = Shelf()
    shelf.run(beat(A, ["tcp://a:1"], since=7.5, owned=Owned({"prices", "\udcff"}, 1, True)))
    found = roll(shelf, B)
    (named,) = [member for member in found.members if member.id == A]
    assert (named.streams, named.since) == ({"prices", "\udcff"}, 7.5)
    shelf.requests.clear()
    assert roll(shelf, B, found).member(A) == named
    assert not [request for request in shelf.requests if isinstance(request, Get)]
    shelf.run(beat(A, ["tcp://a:1"], owned=Owned(set(), 2, True)))
    again = roll(shelf, B, found).member(A)
    assert again is not None
    assert (again.streams, again.revision) == (set(), 2)
    assert sorted(key.rpartition(".")[2] for key in shelf.store.objects) == ["json", "json", "streams"]


def test_names_stay_as_long_as_their_broker_lives() -> None:
    shelf = Shelf()
    shelf.run(beat(A, ["tcp://a:1"], owned=Owned({"prices"}, 1, True)))
    shelf.clock.now = 4000.0
    roll(shelf, A)
    assert any(member.streams for member in roll(shelf, B).members)
    shelf.clock.now = 8000.0
    roll(shelf, B)
    assert list(shelf.store.objects) == [f"brokers/{B.hex()}.json"]


def test_a_broker_that_leaves_is_gone_and_one_that_died_is_forgotten() -> None:
    shelf = Shelf()
    roll(shelf, A)
    shelf.run(leave(A))
    assert [member.id for member in roll(shelf, B).members] == [B]
    shelf.clock.now = 4000.0
    roll(shelf, A)
    assert len(shelf.store.objects) == 1


def test_streams_spread_over_brokers_and_few_move() -> None:
    shelf = Shelf()
    for number in range(4):
        shelf.run(beat(bytes([number]) * 16, [f"tcp://{number}:1"]))
    found = roll(shelf, A)
    homes = {f"s{number}": found.home(f"s{number}") for number in range(500)}
    counts = [sum(home == member for home in homes.values()) for member in found.members]
    assert min(counts) > 60
    fewer = Roll(0.0, found.members[1:])
    moved = [name for name, home in homes.items() if fewer.home(name) != home]
    assert len(moved) == counts[0]
    assert Roll(0.0, ()).home("s") is None
    again = [replace(member, id=bytes([number + 7]) * 16) for number, member in enumerate(found.members)]
    assert all(Roll(0.0, again).home(name).endpoint == home.endpoint for name, home in homes.items())  # type: ignore[union-attr]


def test_heartbeats_that_no_broker_writes_do_no_harm() -> None:
    shelf = Shelf()
    shelf.store.objects["brokers/readme.txt"] = (b"x", 0.0)
    shelf.store.objects[f"brokers/{B.hex()}.json"] = (b"[1", 0.0)
    shelf.store.objects[f"brokers/{B.hex()}-0000000001.streams"] = (b'{"a": 1}', 0.0)
    shelf.store.objects["brokers/zz.streams"] = (b"x", 0.0)
    found = roll(shelf, A)
    assert [(member.id, list(member.endpoints)) for member in found.members] == [(A, ["tcp://a:1"]), (B, [])]


def test_a_broker_that_leaves_is_the_home_of_no_stream() -> None:
    shelf = Shelf()
    roll(shelf, A)
    found = roll(shelf, B)
    assert not shelf.run(is_leaving(A))
    shelf.run(beat(A, ["tcp://a:1"], is_leaving=True))
    assert shelf.run(is_leaving(A))
    found = roll(shelf, B, found)
    left = found.member(A)
    assert left is not None
    assert left.is_leaving
    homes = [home.id for number in range(20) if (home := found.home(f"stream{number}")) is not None]
    assert homes == [B] * 20
    shelf.run(leave(A))
    assert shelf.run(is_leaving(A))
