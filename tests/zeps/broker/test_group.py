"""Tests of a group of shared readers, and a simulation: members come, go, stall and acknowledge late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from zambezi.zeps.block import Block, deliver
from zambezi.zeps.broker import group as group_module
from zambezi.zeps.broker import group_log
from zambezi.zeps.broker.group import NEVER, SharedGroup
from zambezi.zeps.broker.group_member import Member
from zambezi.zeps.broker.group_state import Delivered, GroupOptions, GroupState, read_state
from zambezi.zeps.broker.returned import Returned
from zambezi.zeps.errors import OutOfRange
from zambezi.zeps.layout import sequence_of
from zambezi.zeps.messages import Publish

PLENTY = 1 << 40


class Tape:
    """A stream in memory."""

    def __init__(self, keys: list[str] | None = None, at_once: int = 8) -> None:
        self.keys = ["", *(keys or [])]
        self.first = 1
        self.at_once = at_once
        self.reads = 0
        self.cold = False
        self.evicted: set[int] = set()
        self.wanted: Callable[[bytes], bool] = lambda _: True

    def append(self, *keys: str) -> Block:
        first = len(self.keys)
        self.keys += keys
        return self._block(first, len(keys))

    def _block(self, first: int, count: int) -> Block:
        frames = [Publish(key, b"body").encode()[0] for key in self.keys[first : first + count]]
        return deliver(frames, first)

    def reader(self, after: int) -> TapeReader:
        return TapeReader(self, after)

    def message(self, sequence: int) -> Block | None:
        if self.cold or sequence in self.evicted:
            return None
        if sequence < self.first:
            raise OutOfRange("gone", self.first)
        return self._block(sequence, 1)

    def wants(self, key: bytes) -> bool:
        return self.wanted(key)

    def matching(self, keys: Sequence[bytes]) -> list[int]:
        return [index for index, key in enumerate(keys) if self.wanted(key)]

    def is_much_work(self, block: Block) -> bool:
        return False


class TapeReader:
    """A position in a tape."""

    def __init__(self, tape: Tape, after: int) -> None:
        self._tape = tape
        self.position = after

    def read(self, octets: int) -> Block | None:
        tape = self._tape
        if self.position + 1 < tape.first:
            raise OutOfRange("gone", tape.first)
        count = min(tape.at_once, len(tape.keys) - 1 - self.position)
        if count <= 0 or tape.cold:
            return None
        tape.reads += 1
        block = tape._block(self.position + 1, count)
        self.position = block.last
        return block


class Stage:
    """A group over a tape, with a clock."""

    def __init__(self, keys: list[str] | None = None, *, after: int = 0, wait: int = 30_000, limit: int = 0) -> None:
        self.now = 1000.0
        self.tape = Tape(keys)
        self.offered: Callable[[Member, Block], bool] = lambda _member, _block: False  # by default none is accepted
        self.group = SharedGroup("workers", GroupState(GroupOptions("", wait, limit), after), self.tape)

    def join(self, most: int = 1000, credit: int = PLENTY) -> Member:
        member = self.group.join("one", most, lambda: None, self.now, lambda block: self.offered(member, block))
        self.group.add_credit(member, credit, self.now)
        return member

    def append(self, *keys: str) -> None:
        self.group.on_append(self.tape.append(*keys), self.now)

    def pull(self, member: Member) -> list[int]:
        """Return the sequences of all messages that a member can get now."""
        found: list[int] = []
        for _ in range(1000):
            portion = self.group.pull(member, self.now)
            if portion is None:
                return found
            found += [sequence_of(body) for body in portion.block.bodies]
        raise AssertionError("pull never ends")

    def deliveries(self, member: Member) -> dict[int, int]:
        portion = self.group.pull(member, self.now)
        return dict(portion.deliveries) if portion is not None else {}

    def acknowledge(self, member: Member, *sequences: int) -> None:
        self.group.acknowledge(member, sequences, self.now)

    def give_back(self, member: Member, *sequences: int, delay: float = 0.0, seen: bool = True) -> None:
        self.group.give_back(member, sequences, self.now, delay=delay, seen=seen)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.group.expire(self.now)


KEYS = [f"k{number % 20}" for number in range(100)]


def test_each_message_goes_to_one_member_and_each_key_to_the_same() -> None:
    stage = Stage(KEYS)
    members = [stage.join() for _ in range(3)]
    found = {member: stage.pull(member) for member in members}
    assert sorted([*found[members[0]], *found[members[1]], *found[members[2]]]) == list(range(1, 101))
    homes = {KEYS[sequence - 1]: member for member, mine in found.items() for sequence in mine}
    for member, mine in found.items():
        assert mine == sorted(mine)
        assert all(homes[KEYS[sequence - 1]] is member for sequence in mine)


def test_the_stream_is_read_once_for_members_that_keep_up() -> None:
    stage = Stage(KEYS * 8)
    stage.tape.at_once = 100
    members = [stage.join() for _ in range(10)]
    for member in members:
        stage.pull(member)
    assert stage.tape.reads == 8


def test_a_block_that_was_just_appended_is_not_read_again() -> None:
    stage = Stage()
    member = stage.join()
    assert stage.pull(member) == []
    stage.append("a", "b")
    assert stage.pull(member) == [1, 2]
    assert stage.tape.reads == 0


def accept_into(taken: list[int]) -> Callable[[Member, Block], bool]:
    def offered(member: Member, block: Block) -> bool:
        taken.append(block.first)
        return True

    return offered


def test_a_message_that_was_just_appended_goes_to_the_member_that_waits_for_it() -> None:
    stage = Stage()
    taken: list[int] = []
    stage.offered = accept_into(taken)
    member = stage.join()
    assert stage.pull(member) == []
    stage.append("a")
    stage.append("b")
    assert taken == [1, 2]
    assert list(member.in_flight) == [1, 2]
    assert stage.pull(member) == []
    assert stage.group.state().frontier == 2
    stage.acknowledge(member, 1, 2)
    assert stage.group.position == 2


def test_a_message_that_the_connection_does_not_take_waits_for_the_member() -> None:
    stage = Stage()
    member = stage.join()
    assert stage.pull(member) == []
    stage.append("a")
    assert not member.in_flight
    assert stage.pull(member) == [1]


def test_a_connection_that_asks_while_it_is_offered_a_message_gets_it_once() -> None:
    stage = Stage()
    taken: list[int] = []

    def offered(member: Member, block: Block) -> bool:
        assert stage.pull(member) == []
        taken.append(block.first)
        return True

    stage.offered = offered
    member = stage.join()
    stage.pull(member)
    stage.append("a")
    assert taken == list(member.in_flight) == [1]
    assert stage.pull(member) == []


def test_a_member_that_is_lost_while_it_is_offered_a_message_leaves_it_to_another_one() -> None:
    stage = Stage()

    def offered(member: Member, block: Block) -> bool:
        stage.group.leave(member, stage.now)
        return False

    first, second = stage.join(), stage.join()
    for member in (first, second):
        stage.pull(member)
    stage.offered = offered
    stage.append("a")
    (left,) = stage.group.members
    assert stage.pull(left) == [1]


def test_messages_that_wait_go_out_before_one_that_was_just_appended() -> None:
    stage = Stage(["a", "a"])
    taken: list[int] = []
    stage.offered = accept_into(taken)
    member = stage.join(most=2)
    assert stage.pull(member) == [1, 2]
    stage.append("a")  # no room
    stage.acknowledge(member, 2)
    stage.group.give_back(member, [1], stage.now)
    stage.append("a")
    assert taken == []
    assert stage.pull(member) == [1, 3]
    stage.acknowledge(member, 1, 3)
    assert stage.pull(member) == [4]
    stage.acknowledge(member, 4)
    assert stage.pull(member) == []
    stage.append("a")
    assert taken == [5]


def test_a_member_without_room_is_offered_nothing() -> None:
    stage = Stage()
    taken: list[int] = []
    stage.offered = accept_into(taken)
    member = stage.join(most=1)
    assert stage.pull(member) == []
    stage.append("a")
    stage.append("a")
    assert taken == [1]
    stage.acknowledge(member, 1)
    assert stage.pull(member) == [2]


def test_messages_without_a_key_are_spread() -> None:
    stage = Stage([""] * 100)
    shares = [len(stage.pull(member)) for member in [stage.join() for _ in range(4)]]
    assert sum(shares) == 100
    assert min(shares) > 0


def test_a_member_gets_as_much_as_its_credit_and_its_bound_allow() -> None:
    stage = Stage(KEYS)
    member = stage.join(most=5)
    assert stage.pull(member) == [1, 2, 3, 4, 5]
    stage.acknowledge(member, 2, 1)
    assert stage.pull(member) == [6, 7]
    poor = Stage(KEYS)
    beggar = poor.join(credit=1)
    assert poor.pull(beggar) == [1]  # a message goes out while credit is above zero
    assert poor.pull(beggar) == []
    poor.group.add_credit(beggar, 50, poor.now)
    assert poor.pull(beggar) == [2, 3]


class Compared(int):
    """A sequence that counts comparisons."""

    comparisons = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return int.__eq__(self, other)

    def __lt__(self, other: int) -> bool:
        Compared.comparisons += 1
        return int.__lt__(self, other)


def test_many_messages_of_a_key_that_are_given_back_are_not_compared_with_each_other() -> None:
    many = 2000
    returned = Returned()
    sequences = [Compared(number) for number in range(many)]
    Compared.comparisons = 0
    for sequence in sequences:
        returned.add(sequence, Delivered(7, 1), None, 1.0 if sequence % 2 else 0.0)
    returned.let_due(1.0)
    assert returned.first_due([7], 3) == [0, 1, 2]
    for sequence in reversed(sequences):
        returned.take(sequence)
    assert Compared.comparisons < 50 * many
    assert not returned.has_due


def test_times_of_messages_that_were_acknowledged_late_are_forgotten() -> None:
    stage = Stage(["k"] * 1000)
    member = stage.join()
    for sequence in stage.pull(member):
        stage.give_back(member, sequence, delay=1e6)
        stage.acknowledge(member, sequence)
    assert stage.group.returned == 0
    assert len(stage.group._returned._delayed) < 100


def test_newer_messages_of_a_key_do_not_overtake_one_that_must_be_loaded_first() -> None:
    stage = Stage(["k"] * 5)
    member = stage.join(most=2)
    assert stage.pull(member) == [1, 2]
    stage.give_back(member, 2)
    stage.tape.evicted = {2}
    assert stage.pull(member) == []
    stage.tape.evicted = set()
    assert stage.pull(member) == [2]


def test_newer_messages_of_a_key_do_not_overtake_many_that_are_not_kept() -> None:
    many = 3 * group_module.RETURNED
    stage = Stage(["k"] * (many + 8))
    member = stage.join(most=many)
    stage.give_back(member, *stage.pull(member))
    stage.tape.first = many
    found: list[int] = []
    for _ in range(3):
        found += stage.pull(member)
    assert found[:2] == [many, many + 1]


def test_a_message_that_is_given_back_comes_again_first_with_its_count() -> None:
    stage = Stage(KEYS)
    member = stage.join(most=3)
    assert stage.pull(member) == [1, 2, 3]
    stage.give_back(member, 2)
    assert stage.deliveries(member) == {2: 2}
    stage.acknowledge(member, 1, 2, 3)
    assert stage.pull(member) == [4, 5, 6]


def test_a_message_can_be_given_back_for_later() -> None:
    stage = Stage(["a"])
    member = stage.join()
    stage.pull(member)
    stage.give_back(member, 1, delay=5)
    stage.sleep(4.9)
    assert stage.pull(member) == []
    stage.sleep(0.2)
    assert stage.pull(member) == [1]


def test_a_message_that_the_program_has_not_seen_does_not_count() -> None:
    stage = Stage(["a"], limit=1)
    member = stage.join()
    stage.pull(member)
    stage.give_back(member, 1, seen=False)
    assert not stage.group.dying
    assert stage.pull(member) == []  # it is about to leave
    stage.group.add_credit(member, 100, stage.now)
    assert stage.deliveries(member) == {}
    assert list(member.in_flight) == [1]


def test_a_message_at_the_limit_is_not_delivered_again() -> None:
    stage = Stage(["a", "b"], limit=2)
    member = stage.join()
    stage.pull(member)
    stage.acknowledge(member, 2)
    for _ in range(2):
        stage.give_back(member, 1)
        stage.pull(member)
    assert list(stage.group.dying) == [1]
    assert stage.group.position == 0
    stage.group.bury([1])
    assert (stage.group.letters, stage.group.position) == (1, 2)


def test_a_member_that_leaves_gives_everything_to_the_others() -> None:
    stage = Stage(KEYS)
    first, second = stage.join(), stage.join()
    mine = stage.pull(first)
    stage.acknowledge(first, *mine[:3])
    stage.group.leave(first, stage.now)
    assert sorted([*stage.pull(second), *mine[:3]]) == list(range(1, 101))


def test_a_member_that_does_not_acknowledge_in_time_gives_back_to_others() -> None:
    stage = Stage(KEYS, wait=1000)
    first, second = stage.join(), stage.join()
    held = stage.pull(first)
    done = stage.pull(second)
    stage.acknowledge(second, *done)
    stage.sleep(1.1)
    assert first.is_late
    again = stage.pull(second)
    assert sorted(again) == sorted(held)
    assert stage.pull(first) == []
    stage.acknowledge(second, *again)
    stage.tape.append(*KEYS)
    stage.acknowledge(first, held[0])  # too late, but the member is alive
    assert stage.group.unknown == 1
    assert stage.pull(first)


def test_a_member_that_is_late_gets_messages_again_after_a_while() -> None:
    stage = Stage(KEYS, wait=1000)
    first, second = stage.join(), stage.join()
    stage.pull(first)
    stage.acknowledge(second, *stage.pull(second))
    stage.sleep(1.1)
    stage.acknowledge(second, *stage.pull(second))
    stage.sleep(1.1)
    stage.tape.append(*KEYS)
    assert stage.pull(first)


def test_a_member_without_credit_does_not_keep_its_keys_waiting() -> None:
    stage = Stage(KEYS, wait=1000)
    deaf, good = stage.join(credit=0), stage.join()
    found = stage.pull(good)
    stage.acknowledge(good, *found)
    assert len(found) < 100
    stage.sleep(1.1)
    assert deaf.is_late
    found += stage.pull(good)
    assert sorted(found) == list(range(1, 101))
    stage.acknowledge(good, *found)
    stage.group.add_credit(deaf, PLENTY, stage.now)
    stage.tape.append(*KEYS)
    assert stage.pull(deaf)


def test_a_member_without_credit_that_is_alone_waits() -> None:
    stage = Stage(KEYS, wait=1000)
    alone = stage.join(credit=0)
    assert stage.group.next_timer() == NEVER
    stage.sleep(1.1)
    assert not alone.is_late


def test_the_time_of_a_message_begins_when_it_is_the_oldest() -> None:
    stage = Stage(KEYS[:5], wait=1000)
    member = stage.join()
    for sequence in range(1, 6):
        stage.pull(member)
        stage.sleep(0.9)
        stage.acknowledge(member, sequence)
    assert stage.group.redelivered == 0
    assert stage.group.position == 5


def test_a_late_acknowledgement_counts_until_the_message_is_delivered_again() -> None:
    stage = Stage(["a"], wait=1000)
    member = stage.join()
    stage.pull(member)
    stage.sleep(1.1)
    stage.acknowledge(member, 1)
    assert stage.pull(member) == []
    assert stage.group.position == 1


def test_acknowledgements_of_foreign_and_unknown_messages_are_counted_and_change_nothing() -> None:
    stage = Stage(KEYS)
    first, second = stage.join(), stage.join()
    mine, other = stage.pull(first), stage.pull(second)
    stage.acknowledge(first, *other, 0, 4711, 1 << 63)
    stage.give_back(first, *other, 0, 4711, 1 << 63)
    stage.acknowledge(first, mine[0], mine[0])
    assert stage.group.unknown == 2 * (len(other) + 3) + 1
    assert len(second.in_flight) == len(other)


def test_a_key_that_moves_waits_for_its_older_messages() -> None:
    stage = Stage(KEYS)
    first = stage.join(most=50)
    held = stage.pull(first)
    second = stage.join()
    found = stage.pull(second)
    assert not {KEYS[one - 1] for one in held} & {KEYS[one - 1] for one in found}
    stage.acknowledge(first, *held)
    found += stage.pull(second)
    assert found
    assert {KEYS[one - 1] for one in held} & {KEYS[one - 1] for one in found}
    assert sorted([*held, *found, *stage.pull(first)]) == list(range(1, 101))


def test_a_slow_member_does_not_hold_up_the_others_nor_keep_memory() -> None:
    stage = Stage()
    stage.group.window = 2000
    slow, fast = stage.join(most=1), stage.join()
    stage.tape.keys += KEYS * 50
    got = stage.pull(slow)
    found: list[int] = []
    for _ in range(2000):
        new = stage.pull(fast)
        if not new:
            break
        found += new
        stage.acknowledge(fast, *new)
        assert sum(share.octets for member in stage.group.members for share in member.queue) < 4000
    mine = {key for key in KEYS if key not in {stage.tape.keys[one] for one in found}}
    assert len(found) == sum(key not in mine for key in KEYS) * 50
    for _ in range(6000):
        if not slow.in_flight:
            break
        stage.acknowledge(slow, *list(slow.in_flight))
        got += stage.pull(slow)
    assert sorted([*got, *found]) == list(range(1, 5001))
    assert stage.group.position == 5000


def test_a_member_that_is_left_behind_keeps_its_queue() -> None:
    stage = Stage()
    stage.group.window = 2000
    slow, fast = stage.join(most=1), stage.join()
    stage.tape.keys += KEYS * 50
    got = stage.pull(slow)
    while new := stage.pull(fast):
        stage.acknowledge(fast, *new)
    reads = stage.tape.reads
    while slow.queue:
        stage.acknowledge(slow, *got[-1:])
        got += stage.pull(slow)
        if slow.queue:
            assert stage.tape.reads == reads
    assert len(got) > 50
    assert got == sorted(got)


def test_queues_that_are_much_too_long_are_dropped() -> None:
    stage = Stage(KEYS * 50)
    slow, fast = stage.join(most=1), stage.join()
    first = stage.pull(slow)
    found = stage.pull(fast)
    assert slow.queued > 2000
    stage.group.window = 1000  # more groups have become active, and share the memory
    stage.tape.keys += KEYS
    stage.acknowledge(fast, *found)
    found += stage.pull(fast)
    assert slow.queued < 2000
    stage.acknowledge(slow, *first)
    assert stage.pull(slow)[0] > first[0]


def test_messages_that_retention_has_removed_are_missed() -> None:
    stage = Stage(KEYS)
    member = stage.join(most=10)
    stage.pull(member)
    stage.tape.first = 51
    stage.give_back(member, 1, 2)
    stage.acknowledge(member, *range(3, 11))
    assert stage.pull(member) == [*range(11, 17), *range(51, 55)]  # six of them were read before
    assert stage.group.missed == 2 + 34


def test_a_group_without_members_reads_nothing() -> None:
    stage = Stage(KEYS)
    stage.append("a")
    assert stage.tape.reads == 0


def test_a_pattern_passes_over_other_keys() -> None:
    stage = Stage()
    stage.tape.wanted = lambda key: key == b"k1"
    stage.group = SharedGroup("workers", GroupState(GroupOptions("exact:k1"), 0), stage.tape)
    stage.tape.append(*KEYS)
    member = stage.join()
    found: list[int] = []
    for _ in range(20):
        found += stage.pull(member)
    assert [KEYS[one - 1] for one in found] == ["k1"] * 5


def test_hundreds_of_members_share() -> None:
    stage = Stage([f"key {number}" for number in range(800)])
    stage.tape.at_once = 1000
    members = [stage.join(most=100) for _ in range(400)]
    found: list[int] = []
    for _ in range(3):
        for member in members:
            found += stage.pull(member)
    assert sorted(found) == list(range(1, 801))
    for member in members[:-1]:
        stage.group.leave(member, stage.now)
    assert members[-1].most == 100


def test_more_returned_messages_than_the_bound_stop_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "WAITING", 10)
    stage = Stage(KEYS)
    member = stage.join(most=10)
    stage.give_back(member, *stage.pull(member), delay=60)
    assert stage.pull(member) == []
    stage.sleep(61)
    assert stage.pull(member) == list(range(1, 11))


def test_what_is_not_loaded_waits() -> None:
    stage = Stage(KEYS)
    member = stage.join()
    stage.tape.cold = True
    assert stage.pull(member) == []
    stage.tape.cold = False
    stage.give_back(member, *stage.pull(member)[:1])
    stage.tape.cold = True
    assert stage.pull(member) == []


# Recovery


def recover(stage: Stage, log: bytes) -> Stage:
    after = Stage()
    after.tape, after.now = stage.tape, stage.now
    after.group = SharedGroup("workers", read_state(log), stage.tape)
    return after


def test_the_first_change_is_a_snapshot_and_then_only_the_changes() -> None:
    stage = Stage(KEYS)
    member = stage.join(most=10)
    log = stage.group.take_changes().octets
    stage.pull(member)
    assert not stage.group.has_changes
    assert stage.group.take_changes().octets == b""
    stage.acknowledge(member, 1, 5)
    changes = stage.group.take_changes()
    assert not changes.is_snapshot
    more = changes.octets
    assert len(more) == 5 + 16
    again = recover(stage, log + more)
    assert again.group.position == 1
    found = again.pull(again.join())
    assert found == [2, 3, 4, *range(6, 101)]


def test_counts_of_deliveries_survive() -> None:
    stage = Stage(KEYS)
    member = stage.join(most=3)
    log = stage.group.take_changes().octets
    stage.pull(member)
    stage.give_back(member, 2)
    more = stage.group.take_changes().octets
    again = recover(stage, log + more)
    second = again.join(most=3)
    assert again.deliveries(second) == {2: 2}


def test_a_message_that_came_back_before_and_is_done_later_does_not_come_again() -> None:
    stage = Stage(KEYS)
    member = stage.join(most=3)
    log = stage.group.take_changes().octets
    stage.pull(member)
    stage.give_back(member, 3)
    again = recover(stage, log + stage.group.take_changes().octets)
    member = again.join()
    again.tape.at_once = 3
    assert again.pull(member)[:3] == [1, 2, 3]
    again.acknowledge(member, 3)
    log = again.group.take_changes().octets
    third = recover(again, log)
    assert third.pull(third.join(most=4)) == [1, 2, 4, 5]


# The simulation


class Life:
    """A group over many lives of its broker, with members that do all that members can do."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.stage = Stage(wait=1000, limit=0)
        self.stage.tape.at_once = 20
        self.stage.group.window = 3000
        self.stage.offered = self.offered
        self.log = b""
        self.kept: set[int] = set()  # acknowledged, and in the log
        self.acknowledged: set[int] = set()
        self.delayed: set[int] = set()  # given back for later: their keys do not wait for them
        self.highest: dict[str, int] = {}  # of the messages of a key that were delivered
        self.write()

    def write(self) -> None:
        changes = self.stage.group.take_changes()
        self.log = changes.octets if changes.is_snapshot else self.log + changes.octets
        self.kept |= self.acknowledged

    def step(self) -> None:
        members = list(self.stage.group.members)
        actions: list[tuple[int, Callable[[], object]]] = [
            (8, self.publish),
            (1, self.join),
            (1, self.sleep),
            (4, self.write),
            (1 if self.random.random() < 0.05 else 0, self.kill),
        ]
        if members:
            member = self.random.choice(members)
            actions += [
                (12, lambda: self.pull(member)),
                (12, lambda: self.acknowledge(member)),
                (2, lambda: self.give_back(member)),
                (1 if len(members) > 3 or self.random.random() < 0.1 else 0, lambda: self.leave(member)),
            ]
        self.random.choices([action for _, action in actions], [weight for weight, _ in actions])[0]()
        self.stage.now += 0.001
        self.stage.group.expire(self.stage.now)

    def publish(self) -> None:
        keys = [f"k{self.random.randrange(30)}" for _ in range(self.random.randrange(1, 30))]
        self.stage.append(*keys if self.random.random() < 0.7 else keys[:1])

    def join(self) -> None:
        if len(self.stage.group.members) < 6:
            most = self.random.choice([1, 3, 10, 1000])
            self.stage.join(most, self.random.choice([1, 500, PLENTY]))

    def leave(self, member: Member) -> None:
        self.stage.group.leave(member, self.stage.now)

    def sleep(self) -> None:
        self.stage.now += self.random.choice([0.1, 0.4, 1.1])

    def pull(self, member: Member, most: int = 4) -> None:
        if most == 4 and self.random.random() < 0.3:
            self.stage.group.add_credit(member, self.random.choice([100, 1000]), self.stage.now)
        for _ in range(self.random.randrange(1, most) if most == 4 else most):
            before = set(member.in_flight)
            portion = self.stage.group.pull(member, self.stage.now)
            if portion is None:
                return
            again = dict(portion.deliveries)
            for body in portion.block.bodies:
                self.check(member, sequence_of(body), before, again)
                before.add(sequence_of(body))

    def offered(self, member: Member, block: Block) -> bool:
        if self.random.random() < 0.2:
            self.leave(member)
            return False
        if self.random.random() < 0.2:
            self.pull(member)
        if self.random.random() < 0.2:
            return False
        self.check(member, block.first, set(member.in_flight), {})
        return True

    def check(self, member: Member, sequence: int, before: set[int], again: dict[int, int]) -> None:
        key = self.stage.tape.keys[sequence]
        assert sequence not in self.acknowledged, "delivered after it was acknowledged"
        assert sequence not in before, "delivered twice"
        for other in self.stage.group.members:
            if other is not member:
                assert key not in {self.stage.tape.keys[one] for one in other.in_flight}, "a key at two members"
        if sequence not in again and sequence > self.highest.get(key, 0):
            older = {one for one in range(self.highest.get(key, 0) + 1, sequence) if self.stage.tape.keys[one] == key}
            assert older <= self.acknowledged, "a message of the key was passed over"
        self.highest[key] = max(sequence, self.highest.get(key, 0))

    def acknowledge(self, member: Member) -> None:
        mine = list(member.in_flight)
        some = mine if self.random.random() < 0.5 else self.random.sample(mine, self.random.randrange(len(mine) + 1))
        strangers = [self.random.randrange(1, 5000) for _ in range(self.random.randrange(2))]
        strangers = [one for one in strangers if one not in member.in_flight and one not in self.returned_by(member)]
        self.stage.acknowledge(member, *some, *strangers)
        self.acknowledged |= set(some)

    def returned_by(self, member: Member) -> set[int]:
        returned = self.stage.group._returned
        return {one for one in returned.items() if returned.is_from(one, member)}

    def give_back(self, member: Member) -> None:
        mine = list(member.in_flight)
        some = self.random.sample(mine, self.random.randrange(len(mine) + 1))
        delay = self.random.choice([0.0, 0.0, 0.3])
        self.stage.give_back(member, *some, delay=delay, seen=self.random.random() < 0.7)

    def kill(self) -> None:
        """Kill the broker: the log is all that is left."""
        window = self.stage.group.window
        self.acknowledged = set(self.kept)
        self.stage = recover(self.stage, self.log)
        self.stage.group.window = window
        self.stage.offered = self.offered
        keys = self.stage.tape.keys
        # After a restart everything that is not acknowledged can come again.
        self.highest = {}
        for sequence in sorted(self.acknowledged):
            self.highest[keys[sequence]] = sequence
        self.write()

    def finish(self) -> None:
        """Let good members do what is left. They ask for messages only when the group wakes them."""
        for member in list(self.stage.group.members):
            self.leave(member)
        awake: dict[Member, None] = {}
        for most in (1, 7, 1000):
            member = self.stage.group.join("good", most, lambda: None, self.stage.now)
            member.wake = lambda member=member: awake.update({member: None})  # type: ignore[misc]
            self.stage.group.add_credit(member, PLENTY, self.stage.now)
        for _ in range(20_000):
            if awake:
                member = next(iter(awake))
                del awake[member]
                self.pull(member, most=2000)
                if mine := list(member.in_flight):
                    self.stage.acknowledge(member, *mine)
                    self.acknowledged |= set(mine)
            elif (time := self.stage.group.next_timer()) < NEVER:
                self.stage.now = max(time, self.stage.now)
                self.stage.group.expire(self.stage.now)
            else:
                break
        assert not awake, "the members ask for ever"
        assert self.acknowledged == set(range(1, len(self.stage.tape.keys)))
        assert self.stage.group.position == len(self.stage.tape.keys) - 1
        assert self.stage.group.in_flight == self.stage.group.returned == 0


@pytest.mark.parametrize("seed", range(6))
def test_every_message_is_done_once_or_more_and_never_again_after_that(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_log, "CHECKPOINT", 300)
    life = Life(seed)
    for _ in range(600):
        life.step()
        assert len(life.log) < 60_000  # however much was published
    life.finish()
