"""The rules of the middleware, without I/O: commands and the time go in, messages and events come out.

A session belongs to a connection: what a client says travels with it, and what it is answered goes back on it, whatever
identity the client claims. `receive` takes all the messages of one read at once, and `take` gives what is to be done.

Three things are worth knowing before reading on.

*Runs.* PUTs that follow each other to the same topic are a run. A run is one `Burst`: its octets are made once, and the
same octets go to all subscribers, so that a delivery costs a share of a system call. The order in which a client PUT
its messages, to whatever topics, is kept for every subscriber.

*Owed answers.* The real connector takes the very next message after CONNECT, SUB and UNSUB for the answer, and gives up
if it is anything else. So the answers to all the commands of a read go out before any MESSAGE that these commands
cause, and before those that wait in the client's queue; and while an answer has to wait (for an archive that writes to
a disk) everything else for that client is held.

*Silence.* A client that is not heard from for 1.05 of its TTL is forgotten; before our own silence reaches its TTL it
gets a NOOP, at 0.95 (MCO-08). See `vigil`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from zambezi.mcollective import messages
from zambezi.mcollective.archive import Archive
from zambezi.mcollective.bounds import Bounds, Counters
from zambezi.mcollective.errors import ArchiveError, Malformed
from zambezi.mcollective.events import CaughtUp, ClientConnected, ClientEvent, ClientGone, CommandDenied, SlowSubscriber
from zambezi.mcollective.keeper import Keeper
from zambezi.mcollective.messages import (
    CONNECT,
    DISCONNECT,
    ERROR,
    EXPECTED,
    MESSAGE,
    NOOP,
    OK,
    PUT,
    SINCE,
    SUB,
    TOPIC,
    TTL,
    UNSUB,
    VERSION,
    VERSIONS,
    Command,
    Frames,
    quick_topic,
)
from zambezi.mcollective.outputs import Deliver, Drop, Happened, Output, Send
from zambezi.mcollective.report import Reporter, TopicReport, report
from zambezi.mcollective.rules import Deed, Rules
from zambezi.mcollective.session import Owed, Session, State, Topic
from zambezi.mcollective.vigil import Vigil
from zambezi.wire.text import quoted
from zambezi.zmtp.frames import Shared

BEAT: Final = 0.95
EXPIRY: Final = 1.05
GRACE: Final = 0.1  # of a TTL: if we look so much too late, nobody is forgotten until we have looked again
LEAST_TTL: Final = 0.05  # seconds: one client must not keep us busy with NOOPs
GREATEST_TTL: Final = 7 * 86_400.0
TOPICS: Final = b"$topics"
KEPT_TOPIC: Final = 255  # octets: what a routing key of a stream holds

_log: Final = logging.getLogger("zambezi.mcollective")
_NEVER: Final = float("inf")
_FEW: Final = 10


class _Denied(Malformed):
    """Well said, but not allowed."""


class _Absent(Malformed):
    """Well said, but by a client that must say CONNECT first."""


class Engine:
    """A middleware. Its clients are sessions, which `opened` makes and `closed` ends."""

    def __init__(
        self, *, rules: Rules | None = None, archive: Archive | None = None, bounds: Bounds | None = None
    ) -> None:
        self.rules = rules if rules is not None else Rules()
        self.bounds = bounds if bounds is not None else Bounds()
        self.counters = Counters()
        self.sessions: dict[Session, None] = {}
        self.topics: dict[bytes, Topic] = {}
        self.on_answer: Callable[[], object] = lambda: None  # an answer that was owed is there: call `take`
        self._answers: list[Output] = []
        self._deliveries: list[Output] = []
        self._receiving = False
        self._waiting: set[Session] = set()  # those to whom an answer is owed
        self._bare: set[Session] = set()  # those who send no empty frame first, and get none
        self._vigil = Vigil()
        self._keeper = Keeper(archive, self.counters)
        self._run: list[Frames] = []
        self._run_name = b""
        self._run_topic: Topic | None = None
        self._run_kept = False
        self._run_session: Session | None = None
        self._run_owed: list[Owed] = []  # answers that wait until the run is kept
        self._reporter = Reporter()
        self._handlers: Mapping[bytes, Callable[[Session, Command, float], None]] = {
            CONNECT: self._connect,
            DISCONNECT: self._disconnect,
            SUB: self._sub,
            UNSUB: self._unsub,
            PUT: self._put,
            NOOP: self._noop,
        }

    # The life of a session

    def opened(self, connection: object, identity: bytes, user: str, address: str, now: float) -> Session:
        """A client is there. It may say CONNECT, or anything else."""
        session = Session(connection, identity, user, address, now)
        self.sessions[session] = None
        return session

    def closed(self, session: Session, reason: str) -> None:
        """A client's connection has ended."""
        if session.open:
            session.open = False
            del self.sessions[session]
            if session.present and (session.state is State.CONNECTED or session.topics or session.replays):
                self._happened(session, ClientGone("", session.identity, session.user, reason))
            self._clear(session)
            session.present = False

    def _clear(self, session: Session) -> None:
        """Nothing goes out to it any more, but answers."""
        for name in list(session.topics):
            self._leave(session, name)
        session.replays.clear()
        session.replaying.clear()
        session.held.clear()
        session.held_octets = 0
        session.ttl = None
        if not session.open:
            session.owed.clear()
            self._waiting.discard(session)
            self._bare.discard(session)

    # What comes

    def receive(self, session: Session, batch: Iterable[Sequence[bytes]], now: float) -> None:
        """Take the messages of one read, in order. Nothing that a client says raises."""
        session.heard = now
        self._receiving = True
        try:
            self._take(session, batch, now)
        finally:
            self._receiving = False

    def _take(self, session: Session, batch: Iterable[Sequence[bytes]], now: float) -> None:
        taken = 0
        run_name, run = b"", self._run
        for frames in batch:
            taken += 1
            # A PUT to the topic of the run, as connectors send it: what there is to check was checked when the run
            # began, and the MESSAGE is the PUT with another verb.
            if run_name and quick_topic(frames) == run_name:
                run.append((b"", MESSAGE, *frames[2:]))
                continue
            self._one(session, frames, now)
            run_name, run = self._run_name, self._run
        self.counters.commands += taken
        self._end_run()

    def _one(self, session: Session, frames: Sequence[bytes], now: float) -> None:
        delimited = messages.is_delimited(frames)
        if delimited is not session.delimited:
            self._change_form(session, delimited)
        try:
            command = messages.decode(frames)
            if command.verb in (OK, ERROR):
                # Never answered: two who complain about each other's complaints would never end.
                self.counters.ignored += 1
                return
            messages.check(command, "client")
            if not session.present and command.verb not in (CONNECT, DISCONNECT):
                raise _Absent(self._absent(session), command.id)
            self._handlers[command.verb](session, command, now)
        except _Absent as error:
            self.counters.absent += 1
            self._complain(session, str(error), error.id, {EXPECTED: CONNECT})
        except _Denied as error:
            self.counters.denied += 1
            self._complain(session, str(error), error.id)
        except Malformed as error:
            self.counters.malformed += 1
            self._complain(session, str(error), error.id)

    def _absent(self, session: Session) -> str:
        if session.state is State.FORGOTTEN:
            return "nothing came from you within your TTL, and your subscriptions are gone: CONNECT again, then SUB"
        return "you said DISCONNECT: CONNECT again first"

    def _change_form(self, session: Session, delimited: bool) -> None:
        """A client is answered in the form that it used last."""
        self._end_run()
        session.delimited = delimited
        if delimited:
            self._bare.discard(session)
        else:
            self._bare.add(session)

    # The verbs

    def _connect(self, session: Session, command: Command, now: float) -> None:
        """MCO-07: VERSION and TTL, in any order. Neither must be there: then there are no heartbeats."""
        version = command.headers.get(VERSION, VERSIONS[0])
        if version not in VERSIONS:
            raise Malformed(
                f"VERSION {quoted(version)} is not spoken here: 0.1, 0.2 and 0.3 are (they do not differ)", command.id
            )
        ttl = _read_ttl(command)
        session.state = State.CONNECTED
        session.present = True
        session.version = version
        session.ttl = ttl
        session.said = now
        self._schedule(session)
        self._happened(session, ClientConnected("", session.identity, session.user, version.decode(), ttl))
        self._confirm(session, command)

    def _disconnect(self, session: Session, command: Command, now: float) -> None:
        """MCO-09. Who never said CONNECT is as new as before."""
        self._end_run()
        if session.state is State.CONNECTED:
            self._happened(session, ClientGone("", session.identity, session.user, "it said DISCONNECT"))
        if session.state is not State.NEW:
            session.state = State.ENDED
            session.present = False
        self._clear(session)
        self._confirm(session, command)

    def _noop(self, session: Session, command: Command, now: float) -> None:
        """MCO-06: it was heard, and that is all."""
        self._confirm(session, command)

    def _sub(self, session: Session, command: Command, now: float) -> None:
        """MCO-10. All of the topics, or none of them."""
        names = command.positional
        for name in names:
            self._check_topic(session, "SUB", name, command)
        self._check_room(session, names, command)
        since = command.headers.get(SINCE)
        replay = None
        if since is not None and names:
            try:
                replay = self._keeper.replay(names, since)
            except (Malformed, ArchiveError) as error:
                raise Malformed(str(error), command.id) from error
        self._end_run()
        for name in names:
            if replay is not None:
                self._leave(session, name)
                session.replaying[name] = replay
                session.replays[replay] = None
            elif name not in session.replaying:
                self._join(session, name)
        self._confirm(session, command)

    def _unsub(self, session: Session, command: Command, now: float) -> None:
        """MCO-10. To leave what one is not subscribed to is no mistake."""
        self._end_run()
        for name in command.positional:
            self._leave(session, name)
        self._confirm(session, command)

    def _put(self, session: Session, command: Command, now: float) -> None:
        """MCO-11"""
        name = command.headers[TOPIC]
        if name == TOPICS:
            self._report_to(session, command, now)
            return
        self._check_topic(session, "PUT", name, command)
        self._begin_run(session, name)
        if self._run_kept and len(name) > KEPT_TOPIC:
            self._end_run()
            raise Malformed(
                f"this topic is kept, and then it has at most {KEPT_TOPIC} octets, not {len(name)}", command.id
            )
        self._run.append(messages.message_of(command))
        if not self._run_kept:
            self._confirm(session, command)
        elif command.id is not None:
            owed = Owed(command.id)
            session.owed.append(owed)
            self._run_owed.append(owed)
            self._waiting.add(session)

    def _check_topic(self, session: Session, deed: Deed, name: bytes, command: Command) -> None:
        if not 0 < len(name) <= self.bounds.topic_octets:
            raise Malformed(f"a topic has 1 to {self.bounds.topic_octets} octets, not {len(name)}", command.id)
        if not self.rules.allow(session.user, deed, name):
            raise self._denied(session, deed, name, command)
        if name.startswith(b"$"):
            raise Malformed(
                f"topics that begin with $ are the middleware's own, and there is no {quoted(name)} to {deed}; "
                "PUT to $topics, with X-REPLY-TO, tells what topics there are",
                command.id,
            )

    def _denied(self, session: Session, deed: Deed, name: bytes, command: Command) -> Malformed:
        session.denied += 1
        self._happened(session, CommandDenied("", session.identity, session.user, deed, name))
        # All are counted. Of those who do not stop, fewer and fewer are logged.
        if session.denied <= _FEW or not session.denied & (session.denied - 1):
            who = session.user or "a client that proved nothing"
            _log.warning(
                "%s (%s) may not %s %s (%d times denied)",
                who,
                session.address or quoted(session.identity),
                deed,
                quoted(name),
                session.denied,
            )
        return _Denied(f"no rule allows {session.user or 'you'} to {deed} {quoted(name)}", command.id)

    def replace_rules(self, rules: Rules) -> None:
        """Let other rules hold from now on: who may not be subscribed any more is not, and is told."""
        self.rules = rules
        for session in list(self.sessions):
            names = [*session.topics, *session.replaying]
            lost = [name for name in names if not rules.allow(session.user, "SUB", name)]
            for name in lost:
                self._leave(session, name)
            if lost:
                which = quoted(lost[0]) + (f" and {len(lost) - 1} more" if len(lost) > 1 else "")
                self._complain(session, f"the rules have changed: you are no longer subscribed to {which}", None)

    def _check_room(self, session: Session, names: Frames, command: Command) -> None:
        new = {name for name in names if name not in session.topics and name not in session.replaying}
        if len(session.topics) + len(session.replaying) + len(new) > self.bounds.topics_of_client:
            raise Malformed(f"one client may subscribe to {self.bounds.topics_of_client} topics", command.id)
        if len(self.topics) + sum(name not in self.topics for name in new) > self.bounds.topics:
            raise Malformed(f"there are {len(self.topics)} topics, and no room for more", command.id)

    # Topics

    def _join(self, session: Session, name: bytes) -> None:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(name, self._keeper.keeps(name))
        topic.subscribers[session] = None
        session.topics[name] = topic

    def _leave(self, session: Session, name: bytes) -> None:
        topic = session.topics.pop(name, None)
        if topic is not None:
            del topic.subscribers[session]
            if not topic.subscribers:
                del self.topics[name]
        replay = session.replaying.pop(name, None)
        if replay is not None:
            replay.topics.discard(name)
            if not replay.topics:
                del session.replays[replay]

    def _begin_run(self, session: Session, name: bytes) -> None:
        if name != self._run_name:
            self._end_run()
            self._run_name = name
            self._run_session = session
            self._run_topic = self.topics.get(name)
            self._run_kept = self._keeper.keeps(name)

    def _end_run(self) -> None:
        """Hand what was PUT to one topic in a row to those who are subscribed to it now."""
        run, topic, name, kept = self._run, self._run_topic, self._run_name, self._run_kept
        self._run_name, self._run_topic, self._run_kept = b"", None, False
        if not run:
            return
        self._run = []
        if kept:
            run = self._keep(self._run_session, name, run)
            if not run:
                return
        self.counters.puts += len(run)
        if topic is None:
            self.counters.unheard += len(run)
            return
        topic.messages += len(run)
        sessions = list(topic.subscribers)
        if self._bare:
            bare = [session for session in sessions if not session.delimited]
            sessions = [session for session in sessions if session.delimited]
            self._deliver(bare, [message[1:] for message in run], topic)
        self._deliver(sessions, run, topic)

    def _deliver(self, sessions: list[Session], run: list[Frames], topic: Topic) -> None:
        if self._waiting:
            for session in self._waiting.intersection(sessions):
                self._hold(session, run)
            sessions = [session for session in sessions if session not in self._waiting]
        if sessions:
            self._deliveries.append(Deliver(sessions, Shared(run), topic))

    def _hold(self, session: Session, run: list[Frames]) -> None:
        for message in run:
            if session.held_octets >= self.bounds.held_octets:
                self.counters.missed += 1
                session.missed += 1
                continue
            session.held.append(message)
            session.held_octets += sum(map(len, message))

    # Answers

    def _confirm(self, session: Session, command: Command) -> None:
        """MCO-04, MCO-05: OK, if there is an ID; silence otherwise."""
        if command.id is not None:
            self._answer(session, messages.ok(command.id, session.delimited), command.id)

    def _complain(
        self,
        session: Session,
        text: str,
        id: bytes | None,  # noqa: A002 - the header's own name
        extra: Mapping[bytes, bytes] | None = None,
    ) -> None:
        self.counters.errors += 1
        self._answer(session, messages.error(text, id, session.delimited, extra), id)

    def _answer(self, session: Session, frames: Frames, id: bytes | None) -> None:  # noqa: A002
        if not session.owed:
            self._answers.append(Send(session, frames, id is not None))
        elif id is None:
            self._hold(session, [frames])
        else:
            owed = Owed(id)
            owed.answer = frames
            session.owed.append(owed)

    def _settle(self, session: Session, settled: list[Owed], problem: str) -> None:
        """Answers that were owed are known: they go out in their turn, and then what waited for them."""
        if not session.open or not settled:
            return
        for owed in settled:
            if problem:
                self.counters.errors += 1
                owed.answer = messages.error(problem, owed.id, session.delimited)
            else:
                owed.answer = messages.ok(owed.id, session.delimited)
        while session.owed and session.owed[0].answer:
            self._answers.append(Send(session, session.owed.popleft().answer, True))
        if not session.owed:
            self._waiting.discard(session)
            for frames in session.held:
                self._deliveries.append(Send(session, frames))
            session.held = []
            session.held_octets = 0
        if not self._receiving:
            self.on_answer()

    # Silence

    @property
    def deadline(self) -> float:
        """When `tick` wants to be called; infinity if never."""
        return self._vigil.deadline

    def tick(self, now: float) -> None:
        """Send the NOOPs that are due, and forget those who are silent. (MCO-08)"""
        for session, late in self._vigil.due(now):
            self._look_at(session, now, late)

    def _look_at(self, session: Session, now: float, late: float) -> None:
        ttl = session.ttl
        if session.state is State.FORGOTTEN:
            due = max(session.heard, session.said) + session.patience
            if now >= due:
                self._answers.append(Drop(session, "it was forgotten, and stayed silent"))
            else:
                self._schedule(session, due)
            return
        if ttl is None:
            return
        if now >= session.heard + EXPIRY * ttl:
            if late > GRACE * ttl:
                # It is us who were away: what it said meanwhile may wait to be read.
                self._schedule(session, now + GRACE * ttl)
            else:
                self._forget(session, ttl, now)
            return
        if now >= session.said + BEAT * ttl:
            if session.owed:
                # Nothing may go out before the answer, not even this; the answer is a sign of life itself.
                self._schedule(session, now + (1 - BEAT) * ttl)
                return
            session.said = now
            self._answers.append(Send(session, messages.noop(session.delimited)))
        self._schedule(session)

    def _forget(self, session: Session, ttl: float, now: float) -> None:
        self.counters.expired += 1
        session.state = State.FORGOTTEN
        session.present = False
        self._clear(session)
        reason = f"nothing came from it for {now - session.heard:.3g} s, and its TTL is {ttl:g} s"
        self._happened(session, ClientGone("", session.identity, session.user, reason))
        session.said = now
        session.patience = max(self.bounds.patience, 3 * ttl)
        self._schedule(session, now + session.patience)

    def _schedule(self, session: Session, when: float | None = None) -> None:
        if when is None:
            if session.ttl is None:
                return
            # The same sums as in `_look_at`: another order would round differently, and be early or late.
            when = min(session.heard + EXPIRY * session.ttl, session.said + BEAT * session.ttl)
        self._vigil.watch(session, when, len(self.sessions))

    # Topics that are kept

    def _keep(self, session: Session | None, name: bytes, run: list[Frames]) -> list[Frames]:
        """Have a run kept; return the messages with their sequences, or none if they are not kept."""
        assert session is not None
        owed, self._run_owed = self._run_owed, []
        stored = (lambda problem: self._settle(session, owed, problem)) if owed else None
        try:
            return self._keeper.keep(name, session.identity, run, stored)
        except ArchiveError as error:
            problem = f"not kept, and delivered to nobody: {error}"
            self._settle(session, owed, problem)
            if len(run) > len(owed):
                self._complain(session, f"{len(run) - len(owed)} of {quoted(name)} {problem}", None)
            return []

    def feed(self, session: Session, room: int) -> None:
        """Play to a session what it asked for, about `room` bytes of it. At the end of a replay the session is live."""
        if session.owed:
            return
        found, ended = self._keeper.read(session, room)
        for replay, problem in ended:
            names = list(replay.topics)
            if problem:
                self._complain(session, f"the replay of {len(names)} topics ended: {problem}", None)
            for name in names:
                self._leave(session, name)
                if not problem:
                    self._join(session, name)
        if found:
            self._deliveries.append(Deliver([session], Shared(found)))

    # Slow subscribers

    def skipped(self, session: Session, deliver: Deliver) -> None:
        """A subscriber has no room for more: it misses these, and others do not wait."""
        if not session.missed:
            name = deliver.topic.name if deliver.topic is not None else b""
            self._happened(session, SlowSubscriber("", session.identity, session.user, name))
        missed = len(deliver.shared.messages)
        session.missed += missed
        self.counters.missed += missed

    def caught_up(self, session: Session) -> Frames:
        """A subscriber has room again: what tells it that it missed something. Unasked, so that it is only logged by
        the real connector; ours raises its hand."""
        missed, session.missed = session.missed, 0
        self._happened(session, CaughtUp("", session.identity, session.user, missed))
        self.counters.errors += 1
        text = f"you did not read, and missed {missed} {'message' if missed == 1 else 'messages'}"
        return messages.error(text, None, session.delimited, {messages.MISSED: b"%d" % missed})

    # What there is

    def report(self) -> list[TopicReport]:
        """All topics that have subscribers, by name."""
        return report(self.topics)

    def _report_to(self, session: Session, command: Command, now: float) -> None:
        """Answer a PUT to $topics, with MESSAGEs to the client that asked and to nobody else."""
        if not self.rules.allow(session.user, "PUT", TOPICS):
            raise self._denied(session, "PUT", TOPICS, command)
        burst = self._reporter.answer(command, self.topics, len(self.sessions), self.counters, now)
        self._end_run()
        self._confirm(session, command)
        if session.owed:
            self._hold(session, burst)
        else:
            self._deliveries.append(Deliver([session], Shared(burst)))

    # What is to be done

    def _happened(self, session: Session, event: ClientEvent) -> None:
        self._answers.append(Happened(session, event))

    def take(self) -> list[Output]:
        """What is to be done now: answers first."""
        outputs = self._answers + self._deliveries
        if outputs:
            self._answers, self._deliveries = [], []
        return outputs


def _read_ttl(command: Command) -> float | None:
    value = command.headers.get(TTL)
    if value is None:
        return None
    ttl = int(value) / 1000 if value.isdigit() and len(value) < 12 else 0.0
    if not LEAST_TTL <= ttl <= GREATEST_TTL:
        raise Malformed(
            f"TTL is {LEAST_TTL * 1000:.0f} to {GREATEST_TTL * 1000:.0f} milliseconds, not {quoted(value)}; "
            "leave it out for a session without heartbeats",
            command.id,
        )
    return ttl
