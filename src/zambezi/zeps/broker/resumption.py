"""A RESUME that waits for its answer: RESUME-OK tells a count only when the messages that it counts are safe."""

from __future__ import annotations

from typing import Protocol

from zambezi.zeps.broker.publishers import Holder, Publisher, name_of
from zambezi.zeps.broker.stream import BrokerStream
from zambezi.zeps.errors import BrokerError
from zambezi.zeps.journal.counts import NO_PUBLISHER
from zambezi.zeps.messages import PUBLISHER, Resume, ResumeOk


class ResumingSession(Holder, Protocol):
    """The session that has received RESUME."""

    publisher: Publisher | None
    user: str

    def send_resumed(self, answer: bytes) -> None:
        """Send RESUME-OK, unless the session has ended."""

    def refuse(self, reason: str) -> None:
        """Tell the client that the stream is stopped."""


class Resumption:
    """A barrier for a RESUME. The count is that of the moment when RESUME came."""

    def __init__(self, session: ResumingSession, publisher: Publisher) -> None:
        self._session = session
        state = publisher.state
        self._answer = ResumeOk(state.epoch, state.count, state.marked, state.mark).encode()[0]

    def confirm(self, barriers: int) -> None:
        self._session.send_resumed(self._answer)

    def refuse(self, reason: str) -> None:
        self._session.refuse(reason)


def resume(session: ResumingSession, stream: BrokerStream, message: Resume) -> None:
    """Make a session the holder of the publisher that it asks for, and answer when that is safe.

    Raises `BrokerError` if RESUME is not valid, and `Superseded` if the publisher has a higher epoch.
    """
    if len(message.publisher) != PUBLISHER or message.publisher == NO_PUBLISHER:
        raise BrokerError(f"the id of a publisher has {PUBLISHER} bytes, and not all of them are zero")
    if stream.journal.failed:
        session.refuse(stream.stop_reason)
        return
    name = name_of(message.publisher, session.user)
    session.publisher = stream.publishers.resume(name, message.epoch, message.confirmed, session)
    stream.confirm_when_safe(Resumption(session, session.publisher))
