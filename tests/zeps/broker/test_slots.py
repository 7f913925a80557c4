"""zambezi.zeps.broker.slots: keys and their slots, and slots and their members."""

from __future__ import annotations

from random import Random

from zambezi.zeps.block import deliver
from zambezi.zeps.broker.slots import SLOTS, Slots, slots_of
from zambezi.zeps.messages import Publish


def test_a_key_has_one_slot_and_messages_without_a_key_have_many() -> None:
    block = deliver([Publish(key, b"").encode()[0] for key in ["a", "b", "a", *[""] * 97]], 1)
    found = slots_of(block, range(1, 101))
    assert found[0] == found[2] != found[1]
    assert len(set(found[3:])) > 80
    keyed = deliver([Publish(key, b"").encode()[0] for key in "aba"], 1)
    assert slots_of(keyed, range(1, 4)) == found[:3]


def test_slots_stay_balanced_and_move_only_to_newcomers_and_from_leavers() -> None:
    random = Random(1)
    slots: Slots[int] = Slots()
    members: list[int] = []
    for number in range(300):
        before = list(slots.owner)
        if members and random.random() < 0.4:
            gone = members.pop(random.randrange(len(members)))
            moved = slots.leave(gone)
            assert sorted(moved) == [slot for slot in range(SLOTS) if before[slot] == gone]
        else:
            members.append(number)
            moved = slots.join(number)
            assert all(slots.owner[slot] == number for slot in moved)
        assert len(slots) == len(members)
        if len(members) > 1:
            assert [slot for slot in range(SLOTS) if before[slot] not in (None, slots.owner[slot])] == sorted(moved)
        sizes = [len(slots.of(member)) for member in members]
        assert sum(sizes) == (SLOTS if members else 0)
        assert not sizes or max(sizes) - min(sizes) <= max(sizes) // 2 + 1


def test_more_members_than_slots_wait_for_theirs() -> None:
    slots: Slots[int] = Slots()
    for number in range(SLOTS + 5):
        slots.join(number)
    assert sum(not slots.of(number) for number in range(SLOTS + 5)) == 5
    slots.leave(0)
    assert sum(not slots.of(number) for number in range(1, SLOTS + 5)) == 4
    assert 0 not in slots
