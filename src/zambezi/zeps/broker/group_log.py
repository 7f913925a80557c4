"""The memory of a group across the lives of its broker: what to write now, and what an earlier life has left.

A group writes a snapshot now and then, and in between only what has happened: messages that were acknowledged or given
back. Deliveries are not written, because their number would be as large. So after a restart the frontier is that of the
last snapshot, and messages after it that were acknowledged must be passed over when they are read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from zambezi.zeps.broker.group_state import Delivered, GroupState, acknowledged_part, returned_part

CHECKPOINT: Final = 32_768  # changes after which a new snapshot is due


class GroupLog:
    """The changes of a group that are not written yet, and the messages after the frontier that are known."""

    def __init__(self, state: GroupState) -> None:
        self.past: dict[int, Delivered] = {}  # delivered in an earlier life, and not yet in this one
        self.skip = set(state.done)  # messages that readers must pass over
        self._done = state.done  # those of them that are acknowledged
        self._acknowledged: list[int] = []
        self._given_back: dict[int, Delivered] = {}
        self._changes = CHECKPOINT  # since the last snapshot; the first record of a life is a snapshot

    def note_done(self, sequences: Sequence[int]) -> None:
        """Remember that messages are done."""
        self._acknowledged += sequences
        self._changes += len(sequences)
        if self.skip:
            self._done.update(self.skip.intersection(sequences))

    def note_given_back(self, sequence: int, what: Delivered) -> None:
        """Remember that a message was given back."""
        self._given_back[sequence] = what
        self._changes += 1

    def request_snapshot(self) -> None:
        """Make a snapshot next time."""
        self._changes = CHECKPOINT

    @property
    def needs_snapshot(self) -> bool:
        """Whether a snapshot is due."""
        return self._changes >= CHECKPOINT

    @property
    def has_changes(self) -> bool:
        """Whether something is to be written."""
        return bool(self._acknowledged or self._given_back or self.needs_snapshot)

    def done_after(self, lowest: int) -> set[int]:
        """Return the messages that are done, for a snapshot, and forget those up to the lowest frontier."""
        if self.skip:
            self.skip = {sequence for sequence in self.skip if sequence > lowest}
            self._done &= self.skip
        return set(self._done)

    def take(self) -> bytes:
        """Return the changes since the last call."""
        given_back, self._given_back = self._given_back, {}
        acknowledged, self._acknowledged = self._acknowledged, []
        found = returned_part(given_back) if given_back else b""
        return found + (acknowledged_part(acknowledged) if acknowledged else b"")

    def begin_snapshot(self) -> None:
        """Forget the changes: a snapshot has them all."""
        self.take()
        self._changes = 0

    def recall(self, sequences: Iterable[int]) -> list[tuple[int, int]]:
        """Return the messages that were delivered in an earlier life, and how often with this delivery."""
        if not self.past:
            return []
        found = [(sequence, self.past.pop(sequence).deliveries + 1) for sequence in sequences if sequence in self.past]
        return [(sequence, count) for sequence, count in found if count > 1]
