"""zambezi.zeps.store.position_records: which records of positions count."""

from zambezi.zeps.journal.positions import GROUP, LAST, MORE, READER, REMOVED, Content, Position
from zambezi.zeps.store.position_records import PositionRecords


def record(position: int, meaning: int = LAST, name: str = "name", kind: int = READER, payload: bytes = b"") -> bytes:
    return Position(kind, name, position, payload=payload).pack(meaning)


def test_the_last_record_of_a_name_counts() -> None:
    records = PositionRecords()
    records.note(record(1) + record(2, name="other") + record(3))
    assert sorted(one.position for one in Content(records.octets).states.values()) == [2, 3]
    assert records.size == len(records.octets)
    records.note(record(3, REMOVED))
    assert records.octets == record(2, name="other")
    assert records.size == len(records.octets)


def test_a_group_has_its_state_and_what_was_added_to_it() -> None:
    records = PositionRecords()
    whole, more = record(1, kind=GROUP, payload=b"S"), record(2, MORE, kind=GROUP, payload=b"A")
    records.note(more)  # to a state that is not known
    assert not records
    records.note(whole + more + more)
    (state,) = Content(records.octets).states.values()
    assert state.payload == b"SAA"
    records.note(whole)
    assert records.octets == whole


def test_changes_have_removals_and_additions_to_states_that_are_elsewhere() -> None:
    changes = PositionRecords(keeps_removals=True)
    more = record(2, MORE, kind=GROUP, payload=b"A")
    changes.note(record(1) + record(1, REMOVED) + more + more)
    assert changes.size == len(changes.octets)
    assert changes.take() == record(1, REMOVED) + more + more
    assert not changes
    assert (changes.take(), changes.size) == (b"", 0)


def test_damaged_bytes_are_ignored() -> None:
    records = PositionRecords()
    records.note(b"!" + record(1) + b"?")
    assert records.octets == record(1)
