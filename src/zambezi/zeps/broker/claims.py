"""The rules of the extension "positions" for a session: CLAIM, ACK, and the PING that confirms them.

CLAIM-OK tells a position only when it is safe, so a CLAIM waits for its answer like a PING. The messages of a named
reader are those of an ordinary SUBSCRIBE, for which the client takes the position from CLAIM-OK: the delivery knows
nothing of names.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from zambezi.zeps.broker import readers
from zambezi.zeps.broker.session_state import SessionState
from zambezi.zeps.broker.stream import NEVER, BrokerStream, where_to_start
from zambezi.zeps.errors import Absent, BrokerError, JournalError
from zambezi.zeps.journal.positions import NO_OWNER, READER, Position
from zambezi.zeps.messages import AGAIN, OWNER, REASON, REFUSE, Ack, Claim, ClaimOk, Taken

if TYPE_CHECKING:
    from zambezi.zeps.broker.engine import Engine
    from zambezi.zeps.broker.session import Session

_MICRO: Final = 1_000_000


def claim(session: Session, message: Claim) -> None:
    """Make a session the holder of a name, and answer when that is safe; or answer why that is not possible."""
    stream = session.stream
    if stream is None:
        session.reject("claim", "a reserved stream has no named readers")
    elif session.reader is not None or session.delivery.member is not None:
        session.reject("misplaced", "CLAIM is not allowed here: a connection has one name")
    elif not session.engine.allows(session, "subscribe", stream.name):
        session.reject("forbidden", f"{session.user_name} may not subscribe to the stream {stream.name}")
    elif stream.journal.failed:
        session.refuse(stream.stop_reason)
    else:
        try:
            _claim(session, stream, message)
        except readers.Taken as error:
            session.engine.counters.readers_taken += 1
            session.answer(taken(error.by))
        except Absent:
            raise
        except (BrokerError, JournalError) as error:
            session.reject("claim", str(error))


def _claim(session: Session, stream: BrokerStream, message: Claim) -> None:
    if not message.name:
        raise BrokerError("a reader needs a name; this one is empty")
    if len(message.owner) != OWNER or message.owner == NO_OWNER:
        raise BrokerError(f"the id of a reader's client has {OWNER} bytes, and not all of them are zero")
    if message.mode > AGAIN:
        raise BrokerError(f"CLAIM has no mode {message.mode}")
    stream.flush()
    if session.state is SessionState.CLOSED:
        return  # the flush wrote to this connection, and found it broken
    found = stream.readers.find(message.name)
    _check_user(session, message.name, found)
    new = _new_reader(session, stream, message, is_new=found is None)
    reader = stream.readers.claim(found, new, session, again=message.mode == AGAIN, take=message.mode != REFUSE)
    session.reader = reader
    session.delivery.goes_on_at_oldest = True
    position = max(reader.position, stream.journal.first - 1)
    missed = position - reader.position
    session.engine.counters.fell_behind += missed > 0
    answer = ClaimOk(position, missed).encode()[0]
    stream.readers.when_safe(session, partial(session.answer, answer))


def note_position(session: Session, stream: BrokerStream, name: str, position: int) -> None:
    """Set the position of a named reader that no session holds, for a program that keeps the position itself.

    It shows how far the program is behind. Raises `BrokerError` or `JournalError` if that is not possible.
    """
    if not name:
        raise BrokerError("a reader needs a name; this one is empty")
    found = stream.readers.find(name)
    _check_user(session, name, found)
    if found is None:
        _check_room(session.engine, stream, name)
    elif found.position == position:
        return
    if position > stream.journal.last:
        raise BrokerError(f"the last sequence of this stream is {stream.journal.last}, not {position}")
    stream.readers.set(Position(READER, name, position, time=int(stream.clock() * _MICRO), user=session.user))


def _check_user(session: Session, name: str, found: Position | None) -> None:
    if found is not None and found.user and found.user != session.user:
        raise BrokerError(f"the reader {name} belongs to another user: choose another name")


def _new_reader(session: Session, stream: BrokerStream, message: Claim, *, is_new: bool) -> Position:
    """Return the state of a reader whose name is not known yet."""
    position = 0
    if is_new and message.mode != AGAIN:
        _check_room(session.engine, stream, message.name)
        position, due = where_to_start(stream.journal, message.latest)
        if due or position >= NEVER:
            raise BrokerError("a reader with a name cannot begin in the future: give a time that has passed")
    now = int(stream.clock() * _MICRO)
    return Position(READER, message.name, position, time=now, owner=message.owner, user=session.user)


def _check_room(engine: Engine, stream: BrokerStream, name: str) -> None:
    try:
        if engine.has_most_readers:
            raise BrokerError(f"the broker has its most named readers: {name} was not added; remove others")
        stream.readers.check_room(name)
    except BrokerError:
        engine.counters.readers_refused += 1
        raise


def acknowledge(session: Session, message: Ack) -> None:
    """Move the position of the session's reader."""
    if session.reader is None or session.stream is None:
        session.reject("misplaced", "ACK is not allowed here: it comes after CLAIM")
        return
    try:
        session.stream.readers.acknowledge(session.reader, message.sequence)
    except BrokerError as error:
        session.reject("ack", str(error))


def confirm_acknowledged(session: Session, stream: BrokerStream) -> None:
    """Confirm a PING when all messages and acknowledgements before it are safe."""
    if session.reader is None and session.delivery.member is None:
        stream.confirm_when_safe(session)
    else:
        stream.readers.when_safe(session, partial(stream.confirm_when_safe, session))


def taken(by: str) -> bytes:
    """Return a TAKEN with the client that has the name, as far as it fits."""
    return Taken(by.encode("utf-8", "surrogateescape")[:REASON].decode("utf-8", "ignore")).encode()[0]
