"""The outbox of the middleware: in which order answers and messages go out.

The real connector takes the very next message after CONNECT, SUB and UNSUB for the answer, and gives up if it is
anything else. So the answers to all commands of a read go out before any MESSAGE that these commands cause, and before
those that wait in the client's queue. If an answer must wait for the archive, everything else for that client is held
until then. Messages to a client that settles are held too (`settling`).
"""

from __future__ import annotations

from zambezi.mcollective import messages
from zambezi.mcollective.bounds import Counters
from zambezi.mcollective.messages import Frames
from zambezi.mcollective.outputs import Deliver, Output, Play, Send
from zambezi.mcollective.session import PendingAnswer, Session, Topic
from zambezi.zmtp.frames import Shared, parts_of


class Outbox:
    """The outputs of the engine: answers and events first, then deliveries."""

    __slots__ = ("_answers", "_counters", "_deliveries", "_held_bytes", "_holding")

    def __init__(self, counters: Counters, held_bytes: int) -> None:
        self._counters = counters
        self._held_bytes = held_bytes  # the bound of what is held for one client
        self._answers: list[Output] = []
        self._deliveries: list[Output] = []
        self._holding: set[Session] = set()  # the clients with pending answers, and those that settle

    @property
    def holding(self) -> int:
        """The number of clients whose messages are held."""
        return len(self._holding)

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
        """Deliver MESSAGEs to clients. For a client with pending answers, or that settles, they are held."""
        shared = Shared(run)
        if self._holding:
            size = sum(sum(map(len, message)) for message in run)
            held = self._holding.intersection(sessions)
            for session in held:
                self._hold(session, Deliver([session], shared, topic, sender, before), size)
            sessions = [session for session in sessions if session not in held]
        if sessions:
            self._deliveries.append(Deliver(sessions, shared, topic, sender, before))

    def redeliver(self, session: Session, shared: Shared) -> None:
        """Deliver a MESSAGE that waited for an absent client."""
        if not session.delimited:
            shared = Shared([parts_of(message)[1:] for message in shared.messages])
        output = Deliver([session], shared)
        if session.is_held:
            self._hold(session, output, shared.size)
        else:
            self._deliveries.append(output)

    def answer(self, session: Session, frames: Frames, id: bytes | None) -> None:  # noqa: A002 - the header's own name
        """Answer a command, after the answers that are pending; without an ID it is no answer, but a message."""
        if id is None and session.is_held:
            self._hold(session, Send(session, frames), sum(map(len, frames)))
        elif not session.pending:
            self._answers.append(Send(session, frames, id is not None))
        else:
            assert id is not None
            answer = self.promise(session, id)
            answer.frames = frames

    def promise(self, session: Session, id: bytes) -> PendingAnswer:  # noqa: A002
        """Reserve the place of an answer that is not known yet; `resolve` fills it."""
        answer = PendingAnswer(id)
        session.pending.append(answer)
        self._holding.add(session)
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
        self._let_go(session)

    def settle(self, session: Session) -> None:
        """Hold the messages to a client from now on, until `settled`."""
        session.settling = True
        self._holding.add(session)

    def settled(self, session: Session) -> None:
        """Send the messages that were held while a client settled."""
        if not session.settling:
            return  # they were too many to hold
        session.settling = False
        self._let_go(session)
        if session.replays:
            self._deliveries.append(Play(session))

    def _let_go(self, session: Session) -> None:
        if not session.is_held:
            self._holding.discard(session)
            self._deliveries += session.held
            session.drop_held()

    def forget(self, session: Session) -> None:
        """Drop the pending answers of a client whose connection has ended."""
        session.pending.clear()
        session.settling = False
        self._holding.discard(session)

    def _hold(self, session: Session, output: Deliver | Send, size: int) -> None:
        """Hold an output of `size` bytes. Above the bound a client settles no longer, or misses messages."""
        if session.held_bytes < self._held_bytes:
            session.held.append(output)
            session.held_bytes += size
        elif session.pending:
            missed = len(output.shared.messages) if isinstance(output, Deliver) else 1
            self._counters.missed += missed
            session.missed += missed
        else:
            self.settled(session)
            self._deliveries.append(output)
