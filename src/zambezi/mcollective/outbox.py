"""The outbox of the middleware: in which order answers and messages go out.

The real connector takes the very next message after CONNECT, SUB and UNSUB for the answer, and gives up if it is
anything else. So the answers to all commands of a read go out before any MESSAGE that these commands cause, and before
those that wait in the client's queue. If an answer must wait for the archive, everything else for that client is held
until then.
"""

from __future__ import annotations

from zambezi.mcollective import messages
from zambezi.mcollective.bounds import Counters
from zambezi.mcollective.messages import Frames
from zambezi.mcollective.outputs import Deliver, Output, Send
from zambezi.mcollective.session import PendingAnswer, Session, Topic
from zambezi.zmtp.frames import Shared


class Outbox:
    """The outputs of the engine: answers and events first, then deliveries."""

    __slots__ = ("_answers", "_counters", "_deliveries", "_held_bytes", "_waiting")

    def __init__(self, counters: Counters, held_bytes: int) -> None:
        self._counters = counters
        self._held_bytes = held_bytes  # the bound of what is held for one client
        self._answers: list[Output] = []
        self._deliveries: list[Output] = []
        self._waiting: set[Session] = set()  # the clients with pending answers

    @property
    def waiting(self) -> int:
        """The number of clients with pending answers."""
        return len(self._waiting)

    def take(self) -> list[Output]:
        """Return all outputs in their order, and forget them."""
        outputs = self._answers + self._deliveries
        if outputs:
            self._answers, self._deliveries = [], []
        return outputs

    def add(self, output: Output) -> None:
        """Add an output that goes before all deliveries."""
        self._answers.append(output)

    def deliver(
        self,
        sessions: list[Session],
        run: list[Frames],
        topic: Topic | None = None,
        sender: Session | None = None,
        before: int = 0,
    ) -> None:
        """Deliver MESSAGEs to clients. For a client with pending answers they are held."""
        if self._waiting:
            for session in self._waiting.intersection(sessions):
                self._hold(session, run)
            sessions = [session for session in sessions if session not in self._waiting]
        if sessions:
            self._deliveries.append(Deliver(sessions, Shared(run), topic, sender, before))

    def answer(self, session: Session, frames: Frames, id: bytes | None) -> None:  # noqa: A002 - the header's own name
        """Answer a command, after the answers that are pending; without an ID it is no answer, but a message."""
        if not session.pending:
            self._answers.append(Send(session, frames, id is not None))
        elif id is None:
            self._hold(session, [frames])
        else:
            answer = self.promise(session, id)
            answer.frames = frames

    def promise(self, session: Session, id: bytes) -> PendingAnswer:  # noqa: A002
        """Reserve the place of an answer that is not known yet; `resolve` fills it."""
        answer = PendingAnswer(id)
        session.pending.append(answer)
        self._waiting.add(session)
        return answer

    def resolve(self, session: Session, answers: list[PendingAnswer], problem: str) -> None:
        """Fill pending answers with OK, or with ERROR if there is a problem; send those whose turn it is."""
        for answer in answers:
            if problem:
                self._counters.errors += 1
                answer.frames = messages.error(problem, answer.id, session.delimited)
            else:
                answer.frames = messages.ok(answer.id, session.delimited)
        while session.pending and session.pending[0].frames:
            self._answers.append(Send(session, session.pending.popleft().frames, True))
        if not session.pending:
            self._waiting.discard(session)
            for frames in session.held:
                self._deliveries.append(Send(session, frames))
            session.drop_held()

    def forget(self, session: Session) -> None:
        """Drop the pending answers of a client whose connection has ended."""
        session.pending.clear()
        self._waiting.discard(session)

    def _hold(self, session: Session, run: list[Frames]) -> None:
        for message in run:
            if session.held_bytes >= self._held_bytes:
                self._counters.missed += 1
                session.missed += 1
                continue
            session.held.append(message)
            session.held_bytes += sum(map(len, message))
