"""The dead letters of a group: messages that have reached the limit of deliveries go to another stream, once each.

Before the letters are published, the state of the group says which messages they are, and how many letters the other
stream has (a D part, see `group_state`). The broker publishes them as a publisher that counts its messages. So after a
crash in between, the count of the other stream tells whether they are there.

If the other stream does not exist, it is created. As long as it cannot take letters, the messages wait.

If the messages are in an object store, their broker can be replaced at any time: so the letters wait until the store
has the D part. The stream of dead letters must be at the same broker, which takes it from another one if necessary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from zambezi.wire.text import as_text
from zambezi.zeps.block import Block
from zambezi.zeps.broker.group import SharedGroup
from zambezi.zeps.broker.group_member import Source
from zambezi.zeps.broker.group_state import dying_part
from zambezi.zeps.broker.publishers import Publisher
from zambezi.zeps.errors import JournalError, OutOfRange
from zambezi.zeps.layout import DELIVER_LEAST, key_of
from zambezi.zeps.letters import Letter
from zambezi.zeps.messages import PUBLISHER, Publish

if TYPE_CHECKING:
    from zambezi.zeps.broker.stream import BrokerStream, Waiter

AT_ONCE: Final = 16  # letters that are published together
_EPOCH: Final = 1


class Letterbox:
    """The dead letters of one group. To the stream of dead letters it is a session that publishes."""

    def __init__(
        self,
        stream: BrokerStream,
        group: SharedGroup,
        source: Source,
        *,
        announce: Callable[[int, Sequence[int]], object],
        on_buried: Callable[[], object],
    ) -> None:
        self.publisher: Publisher | None = None
        self.resumption: Waiter | None = None
        self.problem = ""  # why letters wait
        self._stream = stream
        self._group = group
        self._source = source
        self._announce = announce  # write which messages become letters, before they are published
        self._on_buried = on_buried
        self._target: BrokerStream | None = None
        self._sequences: list[int] = []  # of the letters that are being published
        self._before = 0  # the letters that the other stream had before these
        self._uncertain: tuple[int, Sequence[int]] | None = None  # the same, of letters that an earlier life announced
        self._is_closed = False

    @property
    def _name(self) -> bytes:
        """The name under which the stream of dead letters counts."""
        text = f"{self._stream.journal.incarnation}/{self._group.name}".encode(errors="surrogateescape")
        return blake2b(text, digest_size=PUBLISHER, person=b"zeps letters").digest()

    def recover(self, before: int, sequences: Sequence[int]) -> None:
        """Find out how many of the letters that were announced before a crash are in their stream.

        If that stream is at another broker, the letters stay uncertain until this broker has it.
        """
        target = self._stream.groups.find_stream(self._group.options.dead)
        if target is not None or self._stream.is_shared:
            self._uncertain = before, sequences
        if target is not None:
            self._recover(target)

    def _recover(self, target: BrokerStream) -> None:
        """Bury the letters of an earlier life that are in their stream."""
        assert self._uncertain is not None
        before, sequences = self._uncertain
        self._uncertain = None
        count = target.journal.counts.get(self._name)
        if count is not None and count.count > before:
            self._bury(sequences[: count.count - before])

    @property
    def announced(self) -> bytes:
        """The part of the state that says which letters are being published; empty if there are none."""
        if self._uncertain is not None:
            return dying_part(*self._uncertain)
        return dying_part(self._before, self._sequences) if self._sequences else b""

    def wake(self) -> None:
        """Publish letters, if there are any and none are being published."""
        while self._group.dying and not self._sequences and not self._is_closed:
            if not self._publish_some():
                return

    def _publish_some(self) -> bool:
        """Begin to publish some letters; return False if they must wait."""
        options, groups = self._group.options, self._stream.groups
        sequences = sorted(self._group.dying)[:AT_ONCE]
        if not options.dead:
            self._uncertain = None
            self._bury(sequences)
            return True
        target = groups.find_stream(options.dead)
        if target is None:
            self.problem = f"there is no stream {options.dead}"
            groups.make_stream(self._stream, options.dead)
            return False
        if self._uncertain is not None:
            self._recover(target)
            return True
        if target.journal.failed or target.held:
            self.problem = target.held or target.stop_reason
            return False
        frames = self._letters(sequences)
        if frames is None:
            return False
        if not frames:
            return True  # all of them are gone from the stream
        publisher = target.publishers.resume(self._name, _EPOCH, 0, self, target.clock())
        try:
            self._announce(publisher.count, list(frames))
        except JournalError as error:
            self.problem = str(error)
            target.publishers.leave(publisher, self)
            return False
        self.problem = ""
        self.publisher, self._target = publisher, target
        self._sequences, self._before = list(frames), publisher.count
        if self._stream.is_shared:
            self._stream.readers.when_safe(self, partial(self._publish, publisher, list(frames.values())))
        else:
            self._publish(publisher, list(frames.values()))
        return True

    def _publish(self, publisher: Publisher, frames: list[bytes]) -> None:
        """Publish letters that are announced, unless that was given up meanwhile."""
        if self._target is None or self.publisher is not publisher:
            return
        self._target.publish(frames, self)
        if self._sequences and self._target is not None:
            self._target.confirm_when_safe(self)

    def _letters(self, sequences: list[int]) -> dict[int, bytes] | None:
        """Return the PUBLISH messages of letters by the original's sequence; None if messages must be loaded first."""
        found: dict[int, bytes] = {}
        for sequence in sequences:
            try:
                block = self._source.message(sequence)
            except OutOfRange:
                self._group.missed += 1
                self._bury([sequence])
                continue
            if block is None:
                return found or None
            found[sequence] = self._letter(sequence, block)
        return found

    def _letter(self, sequence: int, block: Block) -> bytes:
        original = block.bodies[0]
        key = key_of(original)
        deliveries = self._group.dying[sequence].deliveries
        letter = Letter(self._stream.name, sequence, as_text(key), self._group.name, deliveries)
        body = letter.pack(original[DELIVER_LEAST + len(key) :])
        return Publish(as_text(key), body).encode()[0]

    def _bury(self, sequences: Sequence[int]) -> None:
        self._group.bury(sequences)
        self._on_buried()

    def _finish(self) -> list[int]:
        sequences, self._sequences = self._sequences, []
        target, self._target = self._target, None
        publisher, self.publisher = self.publisher, None
        if target is not None and publisher is not None:
            target.publishers.leave(publisher, self)
        return sequences

    def close(self) -> None:
        """Publish no more letters: the group begins again, or was removed."""
        self._is_closed = True
        self._finish()

    # Calls from the stream of dead letters

    def confirm(self, barriers: int) -> None:
        self._bury(self._finish())
        self.wake()

    def refuse(self, reason: str) -> None:
        self._finish()
        self.problem = reason

    def dismiss(self) -> None:
        self._finish()
        self.problem = "too many messages wait for the disk"

    def lose_publisher(self, epoch: int) -> None:
        """Do nothing: only this letterbox has the name."""

    def pause(self) -> None:
        """Do nothing: no further letters follow before these are confirmed."""

    def resume(self) -> None:
        """Do nothing."""
