"""The position of a mirror, without I/O."""

from __future__ import annotations

import random

from zambezi.zeps.broker.publishers import Publisher
from zambezi.zeps.client.batch import MessageBatch
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.messages import Deliver, Mark, Ping, Publish, ResumeOk, Zeps
from zambezi.zeps.mirror.target import PING_BYTES, Parcel, Standing, Target, digest_of, standing_in

ID = b"m" * 16
ONE = digest_of("one")


def batch(*sequences: int, body: bytes = b"body") -> MessageBatch:
    return MessageBatch("s", [Deliver(number, f"k{number}", body).encode()[0] for number in sequences])


def told(parcel: Parcel | None) -> list[Zeps]:
    """Return the messages of a parcel; both forms of it must have the same."""
    assert parcel is not None
    octets, bodies = parcel.octets, parcel.bodies
    for body in bodies:
        header = 2 if octets[0] == 0 else 9
        assert octets[header : header + len(body)] == body
        octets = octets[header + len(body) :]
    assert not octets
    return [Zeps.decode(body) for body in bodies]


def shown(parcel: Parcel | None) -> list[object]:
    found: list[object] = []
    for message in told(parcel):
        if isinstance(message, Mark):
            assert message.mark[:8] == ONE
            found.append(("mark", int.from_bytes(message.mark[8:])))
        elif isinstance(message, Publish):
            found.append(message.key)
        else:
            found.append(type(message).__name__)
    return found


def resumed(count: int = 0, marked: int = 0, mark: bytes = bytes(16), refused: int = 0) -> ResumeOk:
    return ResumeOk(7, count, marked, mark, refused)


def begun(position: int = 0) -> Target:
    target = Target(ID)
    assert target.resume(resumed()) is None
    assert shown(target.begin(ONE, position, None)) == [("mark", position), "Ping"]
    target.ping_answered()
    return target


def test_a_run_needs_one_mark() -> None:
    target = begun()
    assert shown(target.take(batch(1, 2, 3))) == ["k1", "k2", "k3", "Ping"]
    assert shown(target.take(batch(4, 5))) == ["k4", "k5"]


def test_each_gap_needs_a_mark() -> None:
    target = begun(4)
    assert shown(target.take(batch(5, 6, 7, 11, 12))) == ["k5", "k6", "k7", ("mark", 10), "k11", "k12", "Ping"]
    assert shown(target.take(batch(20))) == [("mark", 19), "k20"]


def test_a_target_that_stands_at_the_start_needs_no_mark() -> None:
    target = Target(ID)
    standing = target.resume(resumed(5, 3, ONE + (10).to_bytes(8)))
    assert standing == Standing(ONE, 12)
    assert target.begin(ONE, 12, standing) is None
    assert shown(target.take(batch(13))) == ["k13", "Ping"]


def test_an_answer_without_a_mark_tells_no_position() -> None:
    assert standing_in(resumed(5)) is None
    assert standing_in(resumed(5, 0, b"short")) is None


def test_pings_confirm_positions_and_bound_what_is_under_way() -> None:
    target = begun()
    large = bytes(PING_BYTES)
    assert shown(target.take(batch(1, body=large)))[-1] == "Ping"
    assert shown(target.take(batch(2, body=large)))[-1] == "Ping"
    assert shown(target.take(batch(3))) == ["k3"]
    assert (target.position, target.confirmed) == (3, 0)
    assert target.ping_answered() is None
    assert (target.confirmed, target.counters.mirrored) == (1, 1)
    assert told(target.ping_answered()) == [Ping()]
    assert target.confirmed == 2
    assert target.ping_answered() is None
    assert (target.confirmed, target.unconfirmed, target.counters.mirrored) == (3, 0, 3)
    assert target.ping_answered() is None  # nobody asked


def test_a_target_without_room_is_not_fed() -> None:
    target = begun()
    target.take(batch(1, body=bytes(9 << 20)))
    assert not target.has_room
    target.ping_answered()
    assert target.has_room


def test_the_position_is_found_wherever_the_mirror_or_the_target_dies() -> None:
    """Feed a broker's count message by message, stop anywhere, and compare the position with the truth."""
    for seed in range(40):
        chance = random.Random(seed)
        source = sorted(chance.sample(range(1, 60), 30))  # with gaps, as a pattern or retention leaves them
        publisher = Publisher(Count(ID, 7, 0))
        kept: list[int] = []
        while len(kept) < len(source):
            # A new life of the mirror, which asks the target alone.
            target = Target(ID)
            state = publisher.state
            standing = target.resume(resumed(state.count, state.marked, state.mark))
            position = standing.sequence if standing is not None else 0
            rest = [number for number in source if number > position]
            assert rest == source[len(kept) :]
            begin = target.begin(ONE, position, standing)
            size = chance.randint(1, 8)
            parts = [rest[at : at + size] for at in range(0, len(rest), size)]
            messages = told(begin) if begin is not None else []
            for part in parts:
                messages += told(target.take(batch(*part)))
            for message in messages[: chance.randint(0, 12)]:
                if isinstance(message, Mark):
                    publisher.set_mark(message.mark)
                elif isinstance(message, Publish):
                    kept.append(int(message.key[1:]))
                    publisher.count += 1
        assert kept == source
