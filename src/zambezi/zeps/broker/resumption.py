"""The rules of the extension "once" for a session: RESUME, MARK, and the messages that count.

RESUME-OK tells a count only when the messages that it counts are safe, so a RESUME waits for its answer like a PING.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from zambezi.wire import WireError
from zambezi.zeps.block import end_of_publishes
from zambezi.zeps.broker.publishers import Holder, Publisher, Superseded, name_of
from zambezi.zeps.broker.stream import BrokerStream, Waiter
from zambezi.zeps.errors import BrokerError
from zambezi.zeps.journal.counts import NO_PUBLISHER
from zambezi.zeps.layout import PUBLISH
from zambezi.zeps.messages import MARK, MOST, PUBLISHER, Mark, Publish, Resume, ResumeOk
from zambezi.zmtp.frames import Oversize

_MARK: Final = Mark(b"").encode()[0][:3]


class ResumingSession(Holder, Protocol):
    """The session that has received RESUME."""

    stream: BrokerStream | None
    publisher: Publisher | None
    resumption: Waiter | None
    user: str
    may_publish: bool
    published: int

    def reject(self, kind: str, reason: str) -> None:
        """Tell the client that a request has failed."""

    def reject_publish(self, message: Publish | Resume) -> None:
        """Tell the client that it may not publish."""

    def fence(self, epoch: int) -> None:
        """End: the publisher has a newer epoch."""

    def answer(self, message: bytes) -> None:
        """Send a message, unless the session has ended."""

    def refuse(self, reason: str) -> None:
        """Tell the client that the stream is stopped."""


class Resumption:
    """A barrier for a RESUME. The count is that of the moment when RESUME came."""

    def __init__(self, session: ResumingSession, publisher: Publisher) -> None:
        self._session = session
        state = publisher.state
        self._answer = ResumeOk(state.epoch, state.count, state.marked, state.mark, state.refused).encode()[0]

    def confirm(self, barriers: int) -> None:
        self._session.answer(self._answer)

    def refuse(self, reason: str) -> None:
        self._session.refuse(reason)


def resume(session: ResumingSession, message: Resume) -> None:
    """Make a session the holder of a publisher. A client that may not publish must leave nothing in the journal."""
    if session.stream is None or not session.may_publish:
        session.reject_publish(message)
    elif session.publisher is not None or session.published:
        session.reject("misplaced", "RESUME is not allowed here: it comes once, and before the first PUBLISH")
    else:
        try:
            _resume(session, session.stream, message)
        except Superseded as error:
            session.fence(error.epoch)
        except BrokerError as error:
            session.reject("resume", str(error))


def _resume(session: ResumingSession, stream: BrokerStream, message: Resume) -> None:
    """Make a session the holder of the publisher that it asks for, and answer when that is safe.

    Raises `BrokerError` if RESUME is not valid, and `Superseded` if the publisher has a higher epoch.
    """
    if len(message.publisher) != PUBLISHER or message.publisher == NO_PUBLISHER:
        raise BrokerError(f"the id of a publisher has {PUBLISHER} bytes, and not all of them are zero")
    if message.confirmed > MOST:
        raise BrokerError(f"a publisher cannot have {message.confirmed} confirmed messages; the most is {MOST}")
    if stream.journal.failed:
        session.refuse(stream.stop_reason)
        return
    name = name_of(message.publisher, session.user)
    publisher = stream.publishers.resume(name, message.epoch, message.confirmed, session, stream.clock())
    session.publisher = publisher
    session.resumption = Resumption(session, publisher)
    stream.confirm_when_safe(session.resumption)


def set_mark(session: ResumingSession, message: Mark) -> None:
    """Keep a mark with the present count, or tell the client why that is not possible."""
    try:
        _set_mark(session, message)
    except BrokerError as error:
        session.reject("resume", str(error))


def _set_mark(session: ResumingSession, message: Mark) -> None:
    """Keep a mark with the present count; raise `BrokerError` if it is not valid."""
    if session.publisher is None:
        raise BrokerError("MARK is not allowed here: it comes after RESUME")
    if len(message.mark) != MARK:
        raise BrokerError(f"a mark has {MARK} bytes")
    session.publisher.set_mark(message.mark)
    if session.stream is not None:
        session.stream.publishers.note_mark(session.publisher)


def is_publish(frame: bytes) -> bool:
    """Return whether a message that cannot be decoded counts as a PUBLISH. No other message can be too long."""
    return isinstance(frame, Oversize) or frame[: len(PUBLISH)] == PUBLISH


def count_refused(session: ResumingSession) -> None:
    """Count a PUBLISH that is refused."""
    if session.publisher is not None:
        session.publisher.count_refused()


def count_lost(session: ResumingSession, frame: bytes) -> None:
    """Handle a message for which nobody waits any more: a refused PUBLISH, a MARK, or nothing that counts."""
    if is_publish(frame):
        count_refused(session)
    elif session.publisher is not None and frame[: len(_MARK)] == _MARK:
        with suppress(WireError, BrokerError):
            _set_mark(session, Mark.decode([frame]))


def publish_rest(session: ResumingSession, frames: list[bytes], publish: Callable[[list[bytes]], object]) -> None:
    """Publish the PUBLISH messages among the last messages of a connection that is lost."""
    position = 0
    while session.may_publish and position < len(frames):
        stop = end_of_publishes(frames, position)
        if stop > position:
            publish(frames[position:stop])
        else:
            count_lost(session, frames[position])
        position = max(stop, position + 1)
