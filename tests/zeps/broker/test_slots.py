"""zambezi.zeps.broker.slots: keys and their slots, and slots and their members."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from zambezi.zeps.block import deliver
from zambezi.zeps.broker.slots import SLOTS, Slots, slots_of
from zambezi.zeps.messages import Publish

if TYPE_CHECKING:
    import pytest


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
    for number in range(100):
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


def test_more_members_than_slots_wait_for_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.zeps.broker.slots.SLOTS", 16)
    slots: Slots[int] = Slots()
    for number in range(20):
        slots.join(number)
    assert len(set(slots.owner)) == 16
    assert not slots.of(19)
    slots.leave(0)
    assert 0 not in slots
    assert len(set(slots.owner)) == 16


def test_keys_that_are_alike_are_spread() -> None:
    slots: Slots[int] = Slots()
    for number in range(10):
        slots.join(number)
    for form in ("k{}", "sensor.{}", "{:04d}", "{}"):
        block = deliver([Publish(form.format(number), b"").encode()[0] for number in range(1000)], 1)
        counts = [0] * 10
        for slot in slots_of(block, range(1, 1001)):
            owner = slots.owner[slot]
            assert owner is not None
            counts[owner] += 1
        assert min(counts) > 50, counts
