"""Kept topics: the part of the middleware between its engine and an `Archive`.

A message to a kept topic goes to the archive first, and then to the subscribers, with its sequence in the archive. A
SUB with X-SINCE starts a replay: the client gets the messages of the archive step by step, and is live after the last
one. It misses no message in between: messages that come meanwhile go to the archive too, and are read from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from zambezi.mcollective import messages
from zambezi.mcollective.archive import Archive, Kept, read_since
from zambezi.mcollective.bounds import Counters
from zambezi.mcollective.errors import ArchiveError, Malformed
from zambezi.mcollective.messages import MESSAGE, SEQUENCE, TOPIC, Frames
from zambezi.mcollective.session import Replay, Session
from zambezi.wire.text import quoted

_BREATHS: Final = 10  # long stretches without a message for the client that one step reads


class Keeper:
    """Keeps topics in an archive, and replays them. Without an archive no topic is kept."""

    def __init__(self, archive: Archive | None, counters: Counters) -> None:
        self._archive = archive
        self._counters = counters

    def keeps(self, topic: bytes) -> bool:
        """Return whether a topic is kept."""
        return self._archive is not None and self._archive.keeps(topic)

    @property
    def last(self) -> int:
        """The sequence of the last stored message; 0 if there was none, or there is no archive."""
        return self._archive.last if self._archive is not None else 0

    def nearest(self, since: int) -> int:
        """Return the sequence nearest to `since` from which a replay is possible."""
        assert self._archive is not None
        return max(self._archive.first - 1, min(since, self._archive.last))

    def keep(
        self, topic: bytes, sender: bytes, run: list[Frames], stored: Callable[[str], object] | None
    ) -> list[Frames]:
        """Give MESSAGEs to the archive; return them with their sequences, or raise `ArchiveError`."""
        assert self._archive is not None
        try:
            first = self._archive.append(topic, sender, [message[1:] for message in run], stored)
        except ArchiveError:
            self._counters.lost += len(run)
            raise
        self._counters.kept += len(run)
        return [messages.number(message, sequence) for sequence, message in enumerate(run, first)]

    def replay(self, topics: Iterable[bytes], since: bytes) -> Replay:
        """Return a replay of topics from X-SINCE on; raise `Malformed` or `ArchiveError` if that is not possible."""
        names = set(topics)
        for name in names:
            if not self.keeps(name):
                raise Malformed(f"the topic {quoted(name)} is not kept: SUB to it without X-SINCE")
        assert self._archive is not None
        return Replay(names, self._archive.replay(names, read_since(since)))

    def read(self, session: Session, room: int) -> tuple[list[Frames], list[tuple[Replay, str]]]:
        """Return the next MESSAGEs of a session's replays, about `room` bytes of them, and the replays that ended.

        A replay that ended comes with its problem, or with an empty text if the client is live from now on.
        """
        found: list[Frames] = []
        ended: list[tuple[Replay, str]] = []
        breaths = 0
        for replay in session.replays:
            while room > 0 and breaths < _BREATHS:
                try:
                    kept = next(replay.source)
                except StopIteration:
                    ended.append((replay, ""))
                    break
                except ArchiveError as error:
                    ended.append((replay, str(error)))
                    break
                if kept is None:
                    breaths += 1
                elif kept.topic in replay.topics:
                    frames = _numbered(kept, session.delimited)
                    if frames:
                        found.append(frames)
                        room -= sum(map(len, frames))
                    else:
                        self._counters.malformed += 1
        self._counters.replayed += len(found)
        return found, ended


def _numbered(kept: Kept, delimited: bool) -> Frames:
    """Return a MESSAGE from the archive as it goes out; empty if it is not one that the middleware stored there."""
    try:
        command = messages.decode(kept.frames or (b"",))
        messages.check(command, "middleware")
    except Malformed:
        return ()
    if command.verb != MESSAGE or command.headers[TOPIC] != kept.topic:
        return ()
    message = messages.message_of(command, {SEQUENCE: b"%d" % kept.sequence})
    return message if delimited else message[1:]
