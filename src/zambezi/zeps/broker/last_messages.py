"""The reserved stream `$last`: a client asks for the last message of a key, without a replay.

A question is a PUBLISH: its key is the key, its body is the name of the stream. The answer is a DELIVER with the
sequence and the key of the message; its body is the time of the message, in microseconds since 1970 as 8 bytes, and the
body of the message. There is no answer if the stream has no message with that key.

The broker answers the questions of a connection one after another: all that the client sends after a question waits. A
question that fails is answered with INVALID. The search reads files, so a thread does it, some megabytes at a time: the
searches of all clients take turns. It ends if the client leaves.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from zambezi.wire.text import as_text, printable
from zambezi.zeps.block import Block
from zambezi.zeps.broker.desk import Desk
from zambezi.zeps.broker.seeking import Sought
from zambezi.zeps.errors import BrokerError, ZepsError
from zambezi.zeps.journal.extract import JournalMessage
from zambezi.zeps.journal.lookup import LastSearch
from zambezi.zeps.layout import BODY_LENGTH, DELIVER, SEQUENCE, frame_header

if TYPE_CHECKING:
    from zambezi.zeps.broker.cursor import Outlet
    from zambezi.zeps.broker.engine import Engine
    from zambezi.zeps.broker.session import Session


class LastMessages(Desk):
    """The questions of one connection."""

    def __init__(self, engine: Engine, session: Session, outlet: Outlet) -> None:
        self._engine = engine
        self._session = session
        self._outlet = outlet
        self._credit = 0
        self._answer: Block | None = None  # it waits for credit, or for room
        self._is_closed = False
        self.is_busy = False

    def order(self, key: bytes, body: bytes) -> None:
        """Begin to search the last message of a key."""
        name = as_text(body)
        if self._engine.find(name) is None:
            try:
                self.is_busy = self._engine.seek(name, Sought(partial(self._go_on, key, name)))
            except ZepsError as error:
                self._session.reject("request", str(error))
                return
        if not self.is_busy:
            problem = self._begin(key, name)
            if problem:
                self._session.reject("request", problem)

    def _go_on(self, key: bytes, name: str, problem: str) -> None:
        problem = problem or self._begin(key, name)
        if problem:
            self._end(problem)

    def _begin(self, key: bytes, name: str) -> str:
        """Begin to search; return why that is not possible, if so."""
        stream = self._engine.find(name)
        if stream is None:
            return f"there is no stream {printable(name)}"
        if not self._engine.allows(self._session, "subscribe", name):
            return f"{self._session.user_name} may not subscribe to the stream {printable(name)}"
        stream.flush()
        self.is_busy = True
        self._search_on(LastSearch(stream.journal, key))
        return ""

    def _search_on(self, search: LastSearch) -> None:
        """Let another thread do a part of a search, after those of other clients that wait."""
        ended: list[bool] = []

        def step() -> None:
            try:
                ended.append(search.step())
            except OSError as error:
                raise BrokerError(f"the journal cannot be read: {error.strerror or error}") from None

        self._engine.search(step, lambda error: self._note_step(search, error, ended == [True]))

    def _note_step(self, search: LastSearch, error: ZepsError | None, is_ended: bool) -> None:
        if error is None and not is_ended and not self._is_closed:
            self._search_on(search)
        elif error is None and search.found is not None and not self._is_closed:
            self._answer = _block_of(search.found)
            self._outlet.wake()
        else:
            self._end("" if error is None else str(error))

    def _end(self, problem: str = "") -> None:
        self.is_busy = False
        self._session.end_order(problem)

    def add_credit(self, octets: int) -> None:
        """Allow so many bytes more. (ZEP-03)"""
        self._credit = min(self._credit + octets, 1 << 62)
        self._outlet.wake()

    def pull(self) -> Block | None:
        """Return the answer, if there is one, and credit."""
        if self._answer is None or self._credit <= 0:
            return None
        answer, self._answer = self._answer, None
        self._credit -= answer.credit
        self._engine.call_soon(self._end)
        return answer

    def close(self) -> None:
        """End the search."""
        self._is_closed = True
        self._answer = None


def _block_of(message: JournalMessage) -> Block:
    body = SEQUENCE.pack(message.time) + message.body
    key = bytes((len(message.key),)) + message.key
    bare = DELIVER + SEQUENCE.pack(message.sequence) + key + BODY_LENGTH.pack(len(body)) + body
    octets = frame_header(len(bare)) + bare
    return Block(message.sequence, message.sequence, 1, octets, len(bare))
