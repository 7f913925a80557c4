"""zambezi.zeps.store.extents: the owner knows which messages the store has, without a request."""

from __future__ import annotations

import random

from tests.zeps.store.shelf import PLACE, Shelf
from zambezi.zeps.store.reader import LogReader
from zambezi.zeps.store.stream_log import LogSettings

SETTINGS = LogSettings(commit=0.0, segment=1000, chunks=7)


def test_the_owner_knows_what_a_reader_finds() -> None:
    chance = random.Random(1)
    shelf = Shelf()
    log = shelf.log(1, SETTINGS)
    for step in range(120):
        shelf.clock.now += 1
        shelf.publish(log, *[bytes(chance.randint(1, 60))] * chance.randint(1, 3))
        if step % 20 == 19:
            log.sweep(3000, None)
            shelf.settle(log)
        if step % 30 == 29:
            log = shelf.log(step, SETTINGS)
        reader = LogReader(PLACE)
        shelf.run(reader.refresh())
        extents = log.extents.between(0, log.last)
        assert (log.extents.first, log.last) == (reader.first, reader.last)
        assert [one.last + 1 for one in extents[:-1]] == [one.first for one in extents[1:]]
        assert extents[-1].last == log.last
        assert log.extents.octets == sum(one.octets for one in extents) <= reader.size
        some = log.extents.between(extents[-1].last - 1, log.last)
        assert some == extents[-1:]


def test_a_log_without_messages_has_no_extents() -> None:
    shelf = Shelf()
    log = shelf.log()
    assert (log.extents.first, log.extents.first_time, log.extents.octets) == (None, 0, 0)
    assert log.extents.between(0, 10) == []
