"""The rules of the extension "shared" for a session: JOIN, DONE, GIVE-BACK and KEEP."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from zambezi.wire.text import printable
from zambezi.zeps.broker.group_member import Member
from zambezi.zeps.broker.groups import Groups, Wish
from zambezi.zeps.broker.session_state import SessionState
from zambezi.zeps.broker.stream import NEVER, BrokerStream, where_to_start
from zambezi.zeps.broker.turns import SUBSCRIBE
from zambezi.zeps.directory import GROUP_NAME
from zambezi.zeps.errors import Absent, BrokerError, ZepsError
from zambezi.zeps.messages import MEMBER, Done, GiveBack, Join, JoinOk, Keep
from zambezi.zeps.requests.envelope import SERVERS
from zambezi.zeps.sequences import MOST, SIZE, BadSequences, unpack_sequences

if TYPE_CHECKING:
    from zambezi.zeps.broker.session import Session

_LONGEST_WAIT: Final = 7 * 86_400_000  # milliseconds
_SEQUENCES_PER_UNIT: Final = 32  # of work


def join(session: Session, message: Join) -> None:
    """Make a session a member of a group, or answer why that is not possible."""
    stream = session.stream
    delivery = session.delivery
    if stream is None:
        session.reject("join", "a reserved stream has no groups")
    elif delivery.member is not None or delivery.cursor is not None or session.reader is not None:
        session.reject("misplaced", "JOIN is not allowed here: it comes once, and before SUBSCRIBE, CREDIT and CLAIM")
    elif not session.engine.allows(session, "subscribe", stream.name):
        session.reject("forbidden", f"{session.user_name} may not subscribe to the stream {stream.name}")
    elif stream.journal.failed:
        session.refuse(stream.stop_reason)
    else:
        session.spend(SUBSCRIBE)
        try:
            _join(session, stream, message)
        except Absent:
            raise
        except (ZepsError, OSError) as error:
            session.reject("join", str(error))


def _join(session: Session, stream: BrokerStream, message: Join) -> None:
    _check(session, stream, message)
    stream.flush()
    if session.state is SessionState.CLOSED:
        return  # the flush wrote to this connection, and found it broken
    after = 0
    if not stream.groups.exists(message.group):
        after, due = where_to_start(stream.journal, message.latest)
        if due or after >= NEVER:
            raise BrokerError("a group cannot begin in the future: give a time that has passed")
    label = f"{session.user} at {session.address}" if session.user else session.address
    member = stream.groups.join(
        message.group,
        message.member,
        Wish(message.pattern, message.wait, message.limit, message.dead),
        after,
        message.in_flight,
        "" if message.group.startswith(SERVERS) else session.user,  # servers of different users share requests
        label,
        wake=session.delivery.wake,
        send=session.delivery.send,
        offer=session.delivery.offer,
        evict=session.abandon_reader,
    )
    session.delivery.member = member
    options = member.group.options
    answer = JoinOk(options.wait, options.limit, options.dead).encode()[0]
    if not stream.is_shared:
        session.answer(answer)
        return
    # A broker that was paused, and does not know yet that another one has the stream, must deliver nothing. Also a new
    # group must begin at the same message if another broker takes the stream.
    session.delivery.is_held = True
    stream.prove_ownership()
    stream.readers.when_safe(session, partial(_begin, session, answer))


def _begin(session: Session, answer: bytes) -> None:
    """Answer, and deliver messages: the state of the group is safe."""
    session.answer(answer)
    session.delivery.is_held = False
    session.delivery.wake()


def _check(session: Session, stream: BrokerStream, message: Join) -> None:
    """Raise `ZepsError` if a JOIN is not valid."""
    engine = session.engine
    if not message.group:
        raise BrokerError("a group needs a name; this one is empty")
    if (size := len(message.group.encode(errors="surrogateescape"))) > GROUP_NAME:
        raise BrokerError(f"the name of a group has at most {GROUP_NAME} bytes, not {size}: choose a shorter one")
    if len(message.member) != MEMBER or not any(message.member):
        raise BrokerError(f"the id of a member has {MEMBER} bytes, and not all of them are zero")
    if not message.in_flight:
        raise BrokerError("a member must be able to have a message in flight, at least one")
    if message.wait > _LONGEST_WAIT:
        raise BrokerError(f"a member has at most {_LONGEST_WAIT} ms to acknowledge a message, not {message.wait}")
    if message.group.startswith(SERVERS) and not engine.allows(session, "serve", stream.name):
        raise BrokerError(f"{session.user_name} may not serve the stream {stream.name}")
    engine.matchers.parse(message.pattern)  # raises PatternError before anything is changed
    dead = message.dead
    if dead:
        if dead == stream.name or dead.startswith("$"):
            raise BrokerError(f"dead letters of {stream.name} cannot go to {printable(dead)}: choose another stream")
        if not engine.allows(session, "publish", dead):
            raise BrokerError(f"{session.user_name} may not publish to the stream {dead}, for dead letters")
        if engine.find(dead) is None:
            engine.request_stream_for_letters(session, stream, dead)


def acknowledge(session: Session, message: Done) -> None:
    """Note that the client has done with messages."""
    if (found := _sequences(session, message.sequences)) is not None:
        groups, member, sequences = found
        groups.acknowledge(member, sequences)


def give_back(session: Session, message: GiveBack) -> None:
    """Take messages back from the client."""
    if (found := _sequences(session, message.sequences)) is not None:
        groups, member, sequences = found
        groups.give_back(member, sequences, message.delay / 1000, bool(message.seen))


def keep(session: Session, message: Keep) -> None:
    """Let the time of messages begin again."""
    if (found := _sequences(session, message.sequences)) is not None:
        groups, member, sequences = found
        groups.keep(member, sequences)


def _sequences(session: Session, octets: bytes) -> tuple[Groups, Member, list[int]] | None:
    """Return the member and the sequences that a message is about; None if the message is refused."""
    member, stream = session.delivery.member, session.stream
    if member is None or stream is None:
        session.reject("misplaced", "only the members of a group acknowledge and give back messages; JOIN comes first")
        return None
    try:
        if (count := len(octets) // SIZE) > MOST:
            raise BadSequences(f"a message has at most {MOST} sequences, not {count}: send several messages")
        sequences = unpack_sequences(octets)
    except BadSequences as error:
        session.reject("malformed", str(error))
        return None
    session.spend(len(sequences) // _SEQUENCES_PER_UNIT)
    return stream.groups, member, sequences
