"""The reserved stream `$ranges`: parts of streams in bulk, for programs that divide streams among many tasks.

    request  fields                                           answers
    list     pattern, or names                                states of streams
    cut      stream, after, last, since, until, step          a state, and points: sequences, and the bytes before them
    read     stream, incarnation, after, last, pattern, bare  blocks of messages, as the journal has them
    note     stream, incarnation, reader, position            none: the position of a named reader is set

`zambezi.zeps.ranges` has the form of the answers. A request is a series of steps, and the broker does a few of them at
once: a client that asks for much waits for its turns. The log is read only if it is in memory.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from zambezi.wire.text import as_bytes, as_text, is_encodable
from zambezi.zeps.broker import claims
from zambezi.zeps.broker.desk import Desk
from zambezi.zeps.broker.turns import SLICE, keys_in_slice
from zambezi.zeps.errors import Absent, BrokerError, JournalError, OutOfRange, ZepsError
from zambezi.zeps.filters import Filter
from zambezi.zeps.journal.entry import HIGHEST
from zambezi.zeps.journal.reader import Reader, Span
from zambezi.zeps.journal.sizes import size_points
from zambezi.zeps.ranges import (
    ALL,
    BLOCK,
    CUT,
    END,
    FORBIDDEN,
    LIST,
    MOVED,
    NOTE,
    POINTS,
    READ,
    REFUSED,
    REPLACED,
    SPARSE,
    STATES,
    TRIMMED,
    UNREADABLE,
    VANISHED,
    Answer,
    State,
    block_answer,
    json_answer,
)

if TYPE_CHECKING:
    from zambezi.zeps.broker.cursor import Outlet
    from zambezi.zeps.broker.engine import Engine
    from zambezi.zeps.broker.session import Session
    from zambezi.zeps.broker.stream import BrokerStream

WAITING: Final = 1000  # requests of one connection that can wait
LONGEST: Final = 1 << 16  # bytes of a request
WHOLE: Final = 1 << 20  # bytes of the log in a block
FILTERED: Final = 1 << 17  # bytes of the log that are filtered at once
GATHERED: Final = 1 << 16  # bytes of small answers that go out together
_STATES: Final = 200  # streams in an answer
_REFUSED: Final = 1000  # streams that a pattern refuses in a row, before other clients get their turn
_MOST_CREDIT: Final = 1 << 62
_POINTS: Final = 50  # points that are searched at once, and are in an answer

# A step: an answer, a part of a log that must be loaded into memory, messages that only the object store has, or None
# if other clients get their turn.
Step: TypeAlias = Answer | Span | Absent | None
Steps: TypeAlias = Iterator[Step]
T = TypeVar("T")


class Answers:
    """Answers that go out together."""

    __slots__ = ("_answers",)

    def __init__(self, answers: list[Answer]) -> None:
        self._answers = answers

    @property
    def octets(self) -> bytes:
        """The messages with their frame headers."""
        return b"".join([piece for answer in self._answers for piece in answer.pieces(framed=True)])

    @property
    def bodies(self) -> list[bytes]:
        """The messages without their frame headers."""
        return [b"".join(answer.pieces(framed=False)) for answer in self._answers]


class Ranges(Desk):
    """The requests of one connection, and the answers to them."""

    def __init__(self, engine: Engine, session: Session, outlet: Outlet) -> None:
        self._engine = engine
        self._session = session
        self._outlet = outlet
        self._requests: deque[Steps] = deque()  # the first one has begun
        self._waits = False  # for a turn, or for the disk
        self.credit = 0
        self.delivered = 0

    def order(self, key: bytes, body: bytes) -> None:
        """Answer a request, after those before it; or answer INVALID at once, if it is not a valid one."""
        name = as_text(key)
        try:
            if len(self._requests) >= WAITING:
                raise BrokerError(f"{WAITING} requests of this connection wait already")
            make = _REQUESTS.get(name)
            if make is None:
                raise BrokerError(f"there is no request {name!a}: there are {', '.join(_REQUESTS)}")
            self._requests.append(_steps(make(_Fields(body), self._engine, self._session)))
        except ZepsError as error:
            self._session.reject("request", str(error))
        else:
            self._outlet.wake()

    def add_credit(self, octets: int) -> None:
        """Allow so many bytes more. (ZEP-03)"""
        self.credit = min(_MOST_CREDIT, self.credit + octets)
        self._outlet.wake()

    def close(self) -> None:
        """Drop all requests."""
        self._requests.clear()

    def pull(self) -> Answers | None:
        """Return the next answers, or None if there are none or no credit."""
        found: list[Answer] = []
        room = GATHERED
        while self._requests and self.credit > 0 and room > 0 and not self._waits:
            answer = self._next()
            if answer is not None:
                self.delivered += 1
                answer.sequence = self.delivered
                self.credit -= len(answer)
                room -= len(answer)
                found.append(answer)
        return Answers(found) if found else None

    def _next(self) -> Answer | None:
        """Do one step; return its answer, if it has one."""
        try:
            step = next(self._requests[0])
        except StopIteration:
            self._requests.popleft()
            return None
        if isinstance(step, Answer):
            return step
        self._waits = True
        if step is None:
            self._engine.turns.wait(self._take_turn)
        elif isinstance(step, Absent):
            self._engine.fetch(step, partial(self._on_fetched, step))
        else:
            self._engine.warm(step, self._go_on)
        return None

    def _take_turn(self) -> int:
        self._go_on()
        return SLICE

    def _on_fetched(self, absent: Absent, problem: ZepsError | None) -> None:
        absent.problem = problem
        self._go_on()

    def _go_on(self) -> None:
        self._waits = False
        self._outlet.wake()


def _steps(steps: Steps) -> Steps:
    """Yield the steps of a request. An error becomes its end."""
    try:
        yield from steps
    except OutOfRange as error:
        yield _end(TRIMMED, oldest=error.oldest)
    except (ZepsError, OSError) as error:
        yield _end(UNREADABLE, reason=str(error))


def _end(result: str, **more: object) -> Answer:
    return json_answer(END, {"result": result, **more})


class _Fields:
    """The fields of a request."""

    def __init__(self, body: bytes) -> None:
        if len(body) > LONGEST:
            raise BrokerError(f"a request of {len(body)} bytes is longer than {LONGEST}")
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise BrokerError("the body of a request must be a JSON object")
        self._content: dict[str, Any] = content

    def text(self, name: str, default: str = "") -> str:
        value = self._content.get(name, default)
        if not isinstance(value, str) or not is_encodable(value):
            raise BrokerError(f"{name!r} must be a string, without lone surrogates")
        return value

    def number(self, name: str, default: int) -> int:
        value = self._content.get(name, default)
        if type(value) is not int or not 0 <= value <= HIGHEST:
            raise BrokerError(f"{name!r} must be a number from 0 to {HIGHEST}")
        return value

    def is_set(self, name: str) -> bool:
        value = self._content.get(name, False)
        if not isinstance(value, bool):
            raise BrokerError(f"{name!r} must be true or false")
        return value

    def names(self) -> list[str] | None:
        value = self._content.get("names")
        if value is not None and not (isinstance(value, list) and all(isinstance(name, str) for name in value)):
            raise BrokerError("'names' must be a list of strings")
        return value


# Requests


def _list(fields: _Fields, engine: Engine, _session: Session) -> Steps:
    names = fields.names()
    wanted = Filter([fields.text("pattern")], engine.matchers)
    return _list_streams(engine, names, wanted)


def _list_streams(engine: Engine, names: list[str] | None, wanted: Filter) -> Steps:
    exact = wanted.only_key
    if exact is not None and names is None:
        names = [exact]
    found: list[State] = []
    refused = 0
    for name in engine.names() if names is None else names:
        stream = engine.find(name)
        if stream is not None and wanted(as_bytes(name)):
            refused = 0
            found.append(_state(stream))
            if len(found) == _STATES:
                yield json_answer(STATES, found)
                found = []
        else:
            refused += 1
            if refused == (min(_REFUSED, keys_in_slice(wanted.weight)) if wanted.weight else _REFUSED):
                refused = 0
                yield None
    if found:
        yield json_answer(STATES, found)
    others = engine.seeking.other_endpoints if engine.seeking is not None else []
    yield _end(ALL, brokers=others) if others else _end(ALL)


def _state(stream: BrokerStream) -> State:
    journal = stream.journal
    return State(
        stream.name,
        str(journal.incarnation),
        journal.first,
        journal.last,
        journal.octets,
        journal.first_time,
        journal.last_time,
    )


def _cut(fields: _Fields, engine: Engine, session: Session) -> Steps:
    return _cut_stream(
        _Source(fields, engine, session),
        fields.number("after", 0),
        fields.number("last", HIGHEST),
        fields.number("since", 0),
        fields.number("until", HIGHEST),
        fields.number("step", HIGHEST),
    )


def _cut_stream(source: _Source, after: int, last: int, since: int, until: int, step: int) -> Steps:
    if problem := source.problem():
        yield problem
        return
    stream = source.stream
    journal = stream.journal
    yield json_answer(STATES, [_state(stream)])
    begin = (yield from _loaded(partial(journal.before, since))) if since else 0
    end = (yield from _loaded(partial(journal.before, until))) if until < HIGHEST else HIGHEST
    after = max(after, journal.first - 1, begin)
    last = min(last, journal.last, end)
    points = size_points(journal, after, last, step)
    while some := list(islice(points, _POINTS)):
        yield json_answer(POINTS, some)
        yield None
        if problem := source.problem():
            yield problem
            return
    time = yield from _loaded(partial(journal.time_after, after))
    yield _end(ALL, after=after, last=last, time=time)


def _read(fields: _Fields, engine: Engine, session: Session) -> Steps:
    source = _Source(fields, engine, session)
    wanted = Filter([fields.text("pattern")], engine.matchers)
    after, last = fields.number("after", 0), fields.number("last", HIGHEST)
    if fields.is_set("bare"):
        if not wanted.everything:
            raise BrokerError("'bare' blocks have no keys: they cannot have a pattern")
        return _read_stream(source, after, last, _bare_block)
    return _read_stream(source, after, last, _whole_block if wanted.everything else _FilteredBlocks(wanted))


def _read_stream(source: _Source, after: int, last: int, blocks: Callable[[Reader, Span], Steps]) -> Steps:
    if problem := source.problem():
        yield problem
        return
    journal = source.stream.journal
    reader = journal.reader(after)
    octets = FILTERED if isinstance(blocks, _FilteredBlocks) else WHOLE
    while reader.position < min(last, journal.last):
        if problem := source.problem():
            yield problem
            return
        span = yield from _loaded(partial(_peek, reader, octets, last))
        if span is None or span.first > last:
            break
        yield from blocks(reader, span)
        reader.skip(span)
    yield _end(ALL)


def _loaded(action: Callable[[], T]) -> Generator[Step, None, T]:
    """Return the result of an action that reads a journal; load what only the object store has before."""
    while True:
        try:
            return action()
        except Absent as absent:
            yield absent
            absent.check()


def _peek(reader: Reader, octets: int, last: int) -> Span | None:
    """Return the next messages; not many more than up to the sequence `last`."""
    span = reader.peek(octets)
    if span is not None and span.first <= last < span.last:
        return reader.peek(span.length * (last - span.first + 2) // span.count)
    return span


def _bare_block(reader: Reader, span: Span) -> Steps:
    if _has_gaps(span):
        yield from _whole_block(reader, span)  # only the messages say which of them are there
    else:
        yield block_answer(span.first, span.last, reader.pairs(span.first, span.last))


def _has_gaps(span: Span) -> bool:
    return span.count < span.last - span.first + 1


def _whole_block(reader: Reader, span: Span) -> Steps:
    pairs = reader.pairs(span.first, span.last)
    if not span.is_resident():
        yield span
    yield block_answer(span.first, span.last, pairs, span.read().octets, SPARSE if _has_gaps(span) else BLOCK)


class _FilteredBlocks:
    """Blocks with the messages whose keys match."""

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted

    def __call__(self, reader: Reader, span: Span) -> Steps:
        pairs = reader.pairs(span.first, span.last)
        if not span.is_resident():
            yield span
        block = span.read()
        wanted = self._wanted
        if wanted.weight:
            mask = b""
            keys = iter(block.keys)
            while some := list(islice(keys, keys_in_slice(wanted.weight))):
                yield None
                mask += bytes(map(wanted, some))
        else:
            yield None
            mask = wanted.mask(block)
        if 1 in mask:
            yield block_answer(span.first, span.last, pairs, block.pick(mask).octets)


def _note(fields: _Fields, engine: Engine, session: Session) -> Steps:
    return _note_position(
        _Source(fields, engine, session), session, fields.text("reader"), fields.number("position", 0)
    )


def _note_position(source: _Source, session: Session, reader: str, position: int) -> Steps:
    if problem := source.problem():
        yield problem
        return
    try:
        claims.note_position(session, source.stream, reader, position)
    except (BrokerError, JournalError) as error:
        yield _end(REFUSED, reason=str(error))
        return
    yield _end(ALL)


class _Source:
    """The stream of a request, as long as it exists and the client may read it."""

    def __init__(self, fields: _Fields, engine: Engine, session: Session) -> None:
        self._name = fields.text("stream")
        self._incarnation = fields.text("incarnation")
        self._engine = engine
        self._session = session
        self._stream: BrokerStream | None = None

    @property
    def stream(self) -> BrokerStream:
        assert self._stream is not None
        return self._stream

    def problem(self) -> Answer | None:
        """Return the end of the request if its stream cannot be read, or not any more."""
        if not self._engine.allows(self._session, "subscribe", self._name):
            return _end(FORBIDDEN)
        stream = self._engine.find(self._name)
        if stream is None:
            moved = self._engine.seeking.moved(self._name) if self._engine.seeking is not None else None
            return _end(VANISHED) if moved is None else _end(MOVED, endpoint=moved.endpoint)
        incarnation = str(stream.journal.incarnation)
        if self._incarnation not in ("", incarnation) or self._stream not in (None, stream):
            return _end(REPLACED, incarnation=incarnation)
        self._stream = stream
        return None


_REQUESTS: Final[dict[str, Callable[[_Fields, Engine, Session], Steps]]] = {
    LIST: _list,
    CUT: _cut,
    READ: _read,
    NOTE: _note,
}
