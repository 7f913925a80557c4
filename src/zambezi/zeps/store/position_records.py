"""The records of positions that count: those of the last state of each name (see `zambezi.zeps.journal.positions`).

The owner of a stream in the store puts each change of a position into the next chunk, as the record that the file of
positions has. A new owner needs the records that count only: of a named reader the last one, of a group the last whole
state and what was added to it. So they are bounded by the number of names, and not by the number of changes.
"""

from __future__ import annotations

from zambezi.zeps.journal.positions import LAST, MORE, REMOVED, Key, walk


class PositionRecords:
    """The records of positions that count, by name."""

    def __init__(self, *, keeps_removals: bool = False) -> None:
        """Begin without records. Changes that follow others elsewhere must also tell which names were removed."""
        self.size = 0  # bytes
        self._keeps_removals = keeps_removals
        self._records: dict[Key, list[bytes]] = {}

    def __bool__(self) -> bool:
        return bool(self._records)

    def note(self, octets: bytes) -> None:
        """Note records, the oldest first. Damaged bytes between them are ignored."""
        for offset, length, state, meaning in walk(octets):
            if state is not None:
                self._note(state.key, meaning, octets[offset : offset + length])

    def _note(self, key: Key, meaning: int, record: bytes) -> None:
        if meaning == MORE and (key in self._records or self._keeps_removals):
            self._records.setdefault(key, []).append(record)
            self.size += len(record)
            return
        self.size -= sum(map(len, self._records.pop(key, ())))
        if meaning == LAST or (meaning == REMOVED and self._keeps_removals):
            self._records[key] = [record]
            self.size += len(record)

    @property
    def octets(self) -> bytes:
        """All records that count."""
        return b"".join([record for records in self._records.values() for record in records])

    def with_changes(self, octets: bytes) -> bytes:
        """Return the records that count when some more are noted, for readers that know older ones or none.

        Removals come first: a reader that knows a name which was removed must forget it.
        """
        after = PositionRecords()
        after._records = {key: list(records) for key, records in self._records.items()}
        after.note(octets)
        removals = [octets[one.offset : one.offset + one.length] for one in walk(octets) if one.meaning == REMOVED]
        return b"".join(removals) + after.octets

    def take(self) -> bytes:
        """Return all records that count, and forget them."""
        octets = self.octets
        self._records.clear()
        self.size = 0
        return octets
