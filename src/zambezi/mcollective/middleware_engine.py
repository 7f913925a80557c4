"""The rules of the middleware, without I/O: commands and the time go in, messages and events come out.

A session belongs to a connection: the answers to a client go back on the connection on which its commands came,
whatever identity the client claims. `receive` gets all messages of one read at once, and `take` returns what to do.

Three ideas explain most of the code:

*Runs.* PUTs that follow each other to the same topic are a run (`run`). The bytes of a run are made once, and the same
bytes go to all subscribers, so that a delivery costs a share of a system call. Every subscriber gets the messages of a
client in the order in which the client PUT them, also those to different topics.

*Pending answers.* A client gets the answer to a command before any other message, even if the answer has to wait for
an archive that writes to a disk (`outbox`).

*Silence.* The middleware forgets a client that is silent for 1.05 of its TTL. It sends a NOOP to a client before its
own silence reaches the TTL, at 0.85 (MCO-08). See `vigil`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from zambezi.mcollective import messages
from zambezi.mcollective.archive import Archive
from zambezi.mcollective.bounds import Bounds, Counters
from zambezi.mcollective.comeback import Comeback
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
    USER,
    VERSION,
    VERSIONS,
    Command,
    Frames,
    quick_topic,
)
from zambezi.mcollective.outbox import Outbox
from zambezi.mcollective.outputs import Deliver, Drop, Happened, Output, Send
from zambezi.mcollective.register import Register, Store
from zambezi.mcollective.report import Reporter, TopicReport, report
from zambezi.mcollective.rules import Deed, Rules
from zambezi.mcollective.run import Run
from zambezi.mcollective.session import PendingAnswer, Session, State
from zambezi.mcollective.settling import Settling
from zambezi.mcollective.topics import Topics
from zambezi.mcollective.vigil import BEAT, EXPIRY, GRACE, Vigil
from zambezi.wire.text import quoted

LEAST_TTL: Final = 0.05  # seconds: one client must not keep us busy with NOOPs
GREATEST_TTL: Final = 7 * 86_400.0
TOPICS: Final = b"$topics"
KEPT_TOPIC: Final = 255  # bytes: the longest routing key of a stream


class _Denied(Malformed):
    """A well-formed command that no rule allows."""


class _OverQuota(Malformed):
    """A well-formed SUB above a bound of topics."""


class _Absent(Malformed):
    """A well-formed command of a client that must say CONNECT first."""


class Engine:
    """A middleware without its sockets. `opened` makes a session for each client, and `closed` ends it."""

    def __init__(
        self,
        *,
        rules: Rules | None = None,
        archive: Archive | None = None,
        bounds: Bounds | None = None,
        store: Store | None = None,
    ) -> None:
        self.rules = rules if rules is not None else Rules()
        self.bounds = bounds if bounds is not None else Bounds()
        self.counters = Counters()
        self.sessions: dict[Session, None] = {}
        self.on_answer: Callable[[], object] = lambda: None  # a pending answer is known: call `take`
        self.outbox = Outbox(self.counters, self.bounds.held_bytes)
        self.vigil = Vigil()
        self._settling = Settling(self.outbox)
        self._receiving = False
        self._bare: set[Session] = set()  # clients that send no empty frame first, and get none
        self._keeper = Keeper(archive, self.counters)
        self._topics = Topics(self.bounds, self._keeper.keeps)
        self.topics = self._topics.by_name
        self.register = Register(self.bounds, store)
        self._comeback = Comeback(self.register, self._topics, self._keeper, self.outbox, self.counters)
        self._run: Run | None = None
        self._reporter = Reporter()
        self._handlers: Mapping[bytes, Callable[[Session, Command, float], None]] = {
            CONNECT: self._connect,
            DISCONNECT: self._disconnect,
            SUB: self._sub,
            UNSUB: self._unsub,
            PUT: self._put,
            NOOP: self._noop,
        }

    def take(self) -> list[Output]:
        """Return what to do, in order: answers and events first. Then forget it."""
        return self.outbox.take()

    # The life of a session

    def opened(self, connection: object, identity: bytes, user: str, address: str, now: float) -> Session:
        """Return the session of a new client."""
        session = Session(connection, identity, user, address, now)
        self.sessions[session] = None
        due = self._comeback.opened(session, now)
        if due is not None:
            self._schedule(session, due)
        return session

    def closed(self, session: Session, reason: str) -> None:
        """End the session of a client whose connection has ended."""
        if session.open:
            session.open = False
            del self.sessions[session]
            if session.present and (session.state is State.CONNECTED or session.topics or session.replays):
                self._tell(session, ClientGone("", session.identity, session.user, reason))
            self.register.connection_lost(session)
            self._clear(session)
            session.present = False
            self._settling.remove(session)
            self.outbox.forget(session)
            self._bare.discard(session)

    def _clear(self, session: Session) -> None:
        """End everything that a client gets, except answers."""
        for name in [*session.topics, *session.replaying]:
            self._topics.leave(session, name)
        session.drop_held()
        session.ttl = None

    # Commands in

    def receive(self, session: Session, batch: Iterable[Sequence[bytes]], now: float) -> None:
        """Receive the messages of one read, in order. No message raises."""
        session.heard = now
        self._receiving = True
        try:
            self._receive_batch(session, batch, now)
        finally:
            self._receiving = False

    def _receive_batch(self, session: Session, batch: Iterable[Sequence[bytes]], now: float) -> None:
        count = 0
        name, run = b"", None
        user = session.user_bytes
        head: Frames = (b"", MESSAGE, USER, user) if user else (b"", MESSAGE)
        for frames in batch:
            count += 1
            # A PUT to the topic of the run, as connectors send it: everything was checked when the run began, and the
            # MESSAGE is the PUT with another verb.
            if run is not None and quick_topic(frames) == name:
                run.messages.append(head + tuple(frames[2:]))
                continue
            self._receive_one(session, frames, now)
            run = self._run
            if run is not None:
                name = run.name
        self.counters.commands += count
        self._end_run()

    def _receive_one(self, session: Session, frames: Sequence[bytes], now: float) -> None:
        delimited = messages.is_delimited(frames)
        if delimited is not session.delimited:
            self._change_form(session, delimited)
        try:
            command = messages.decode(frames)
            if command.verb in (OK, ERROR):
                # Never answered: two sides that answer each other's errors would never stop.
                self.counters.ignored += 1
                return
            messages.check(command, "client")
            if session.returning is not None and command.verb not in (CONNECT, DISCONNECT):
                self._resume(session, now)
            if not session.present and command.verb not in (CONNECT, DISCONNECT):
                raise _Absent(_why_absent(session), command.id)
            if session.settling and command.verb in (PUT, DISCONNECT):
                self._settling.end(session)
            self._handlers[command.verb](session, command, now)
        except _Absent as error:
            self.counters.absent += 1
            self._complain(session, str(error), error.id, {EXPECTED: CONNECT})
        except _Denied as error:
            self.counters.denied += 1
            self._complain(session, str(error), error.id)
        except _OverQuota as error:
            self.counters.over_quota += 1
            self._complain(session, str(error), error.id)
        except Malformed as error:
            self.counters.malformed += 1
            self._complain(session, str(error), error.id)

    def _change_form(self, session: Session, delimited: bool) -> None:
        """Answer a client in the form that it used last."""
        self._end_run()
        session.delimited = delimited
        if delimited:
            self._bare.discard(session)
        else:
            self._bare.add(session)

    # The verbs

    def _connect(self, session: Session, command: Command, now: float) -> None:
        """Connect a client. VERSION and TTL can be missing; without a TTL it has no heartbeats. (MCO-07)"""
        version = command.headers.get(VERSION, VERSIONS[0])
        if version not in VERSIONS:
            raise Malformed(
                f"VERSION {quoted(version)} is not supported; use 0.1, 0.2 or 0.3 (they do not differ)", command.id
            )
        ttl = _read_ttl(command)
        if session.state is not State.CONNECTED:
            self._comeback.connected(session, now)
        if ttl is not None:
            self.register.begin(session, ttl)
        else:
            self.register.end(session)
        session.state = State.CONNECTED
        session.present = True
        session.ttl = ttl
        session.said = now
        self._schedule(session)
        self._tell(session, ClientConnected("", session.identity, session.user, version.decode(), ttl))
        self._confirm(session, command)

    def _disconnect(self, session: Session, command: Command, now: float) -> None:
        """Disconnect a client. One that never said CONNECT is as new as before. (MCO-09)"""
        self._end_run()
        if session.state is State.CONNECTED:
            self._tell(session, ClientGone("", session.identity, session.user, "it said DISCONNECT"))
        if session.state is not State.NEW:
            session.state = State.ENDED
            session.present = False
        session.returning = session.predecessor = None
        self.register.disconnected(session, now)
        self._clear(session)
        self._confirm(session, command)

    def _noop(self, session: Session, command: Command, now: float) -> None:
        """Do nothing: `receive` has noted that the client is alive. (MCO-06)"""
        self._confirm(session, command)

    def _sub(self, session: Session, command: Command, now: float) -> None:
        """Subscribe a client to all of the topics, or to none of them. (MCO-10)"""
        names = command.positional
        for name in names:
            self._check_topic(session, "SUB", name, command)
        refusal = self._topics.refusal(session, names)
        if refusal:
            raise _OverQuota(refusal, command.id)
        since = command.headers.get(SINCE)
        replay = None
        if since is not None and names:
            try:
                replay = self._keeper.replay(names, since)
            except (Malformed, ArchiveError) as error:
                raise Malformed(str(error), command.id) from error
        self._end_run()
        missed = self._comeback.take_over(session, names) if replay is None and session.predecessor is not None else {}
        for name in names:
            if replay is not None:
                self._topics.leave(session, name)
                self._topics.join_after(session, name, replay)
            elif name not in session.replaying and name not in missed:
                self._topics.join(session, name)
        if missed:
            self._comeback.catch_up(session, missed)
        if session.record is not None:
            last = self._keeper.last
            self.register.subscribed(session, {name: missed.get(name, last) for name in names})
        self._confirm(session, command)
        if command.id is not None and session.is_ruby:
            self._settling.subscribed(session, now)

    def _unsub(self, session: Session, command: Command, now: float) -> None:
        """Unsubscribe a client from topics; it is no mistake if it is not subscribed. (MCO-10)"""
        self._end_run()
        for name in command.positional:
            self._topics.leave(session, name)
        self.register.unsubscribed(session, command.positional)
        self._confirm(session, command)

    def _put(self, session: Session, command: Command, now: float) -> None:
        """Add a message to a run, which its subscribers get when the run ends. (MCO-11)"""
        name = command.headers[TOPIC]
        if name == TOPICS:
            self._report_to(session, command, now)
            return
        self._check_topic(session, "PUT", name, command)
        run = self._join_run(session, name)
        if run.kept and len(name) > KEPT_TOPIC:
            self._end_run()
            raise Malformed(f"the name of a kept topic has at most {KEPT_TOPIC} bytes, not {len(name)}", command.id)
        run.messages.append(messages.message_from(command, session.user_bytes))
        if not run.kept:
            self._confirm(session, command)
        elif command.id is not None:
            run.answers.append(self.outbox.promise(session, command.id))

    def _check_topic(self, session: Session, deed: Deed, name: bytes, command: Command) -> None:
        if not 0 < len(name) <= self.bounds.topic_bytes:
            raise Malformed(
                f"the name of a topic has 1 to {self.bounds.topic_bytes} bytes, not {len(name)}", command.id
            )
        if not self.rules.allow(session.user, deed, name):
            raise self._deny(session, deed, name, command)
        if name.startswith(b"$"):
            raise Malformed(
                f"topics that begin with $ are the middleware's own, and it has no {quoted(name)} to {deed}; "
                "PUT to $topics, with X-REPLY-TO, asks for the list of topics",
                command.id,
            )

    def _deny(self, session: Session, deed: Deed, name: bytes, command: Command) -> Malformed:
        """Count and report a command that no rule allows; return the error for the client."""
        session.denied += 1
        self._tell(session, CommandDenied("", session.identity, session.user, deed, name))
        return _Denied(f"no rule allows {session.user or 'you'} to {deed} {quoted(name)}", command.id)

    def replace_rules(self, rules: Rules) -> None:
        """Use other rules from now on. A client that loses a subscription by them is told."""
        self.rules = rules
        for session in list(self.sessions):
            names = [*session.topics, *session.replaying]
            lost = [name for name in names if not rules.allow(session.user, "SUB", name)]
            for name in lost:
                self._topics.leave(session, name)
            self.register.unsubscribed(session, lost)
            if lost:
                which = quoted(lost[0]) + (f" and {len(lost) - 1} more" if len(lost) > 1 else "")
                self._complain(session, f"the rules have changed: you are no longer subscribed to {which}", None)

    # Runs

    def _join_run(self, session: Session, name: bytes) -> Run:
        """Return the run of PUTs to a topic: the current one, or a new one."""
        run = self._run
        if run is None or run.name != name:
            self._end_run()
            run = self._run = Run(session, name, self.topics.get(name), self._keeper.keeps(name))
        return run

    def _end_run(self) -> None:
        """Deliver the MESSAGEs of the run to the subscribers that its topic has now."""
        run, self._run = self._run, None
        if run is None or not run.messages:
            return
        found = self._keep(run) if run.kept else run.messages
        if not found:
            return
        self.counters.puts += len(found)
        topic = run.topic
        backlog = self.register.backlog
        is_held = bool(backlog) and not run.kept and backlog.hold(run.name, found)
        if topic is None or not topic.subscribers:
            if not is_held:
                self.counters.unheard += len(found)
            return
        topic.messages += len(found)
        sessions = list(topic.subscribers)
        before = 0
        if run.kept:
            last = self._keeper.last
            before = last - len(found)
            for session in sessions:
                session.sequence = last
        if self._bare:
            bare = [session for session in sessions if not session.delimited]
            sessions = [session for session in sessions if session.delimited]
            self.outbox.deliver(bare, [message[1:] for message in found], topic, run.session, before)
        self.outbox.deliver(sessions, found, topic, run.session, before)

    def _keep(self, run: Run) -> list[Frames]:
        """Have a run kept; return the MESSAGEs with their sequences, or none if the archive does not take them."""
        session, answers = run.session, run.answers
        stored = (lambda problem: self._resolve(session, answers, problem)) if answers else None
        try:
            return self._keeper.keep(run.name, session.identity, run.messages, stored)
        except ArchiveError as error:
            problem = f"not kept, and not delivered: {error}"
            self._resolve(session, answers, problem)
            if len(run.messages) > len(answers):
                count = len(run.messages) - len(answers)
                self._complain(session, f"{count} of {quoted(run.name)} {problem}", None)
            return []

    def _resolve(self, session: Session, answers: list[PendingAnswer], problem: str) -> None:
        """Give pending answers to a client, when the archive has stored its run or failed to."""
        if session.open and answers:
            self.outbox.resolve(session, answers, problem)
            if not self._receiving:
                self.on_answer()

    # Answers

    def _confirm(self, session: Session, command: Command) -> None:
        """Answer OK to a command with an ID, and nothing to one without. (MCO-04, MCO-05)"""
        if command.id is not None:
            self.outbox.answer(session, messages.ok(command.id, session.delimited), command.id)

    def _complain(
        self,
        session: Session,
        text: str,
        id: bytes | None,  # noqa: A002 - the header's own name
        extra: Mapping[bytes, bytes] | None = None,
    ) -> None:
        self.counters.errors += 1
        self.outbox.answer(session, messages.error(text, id, session.delimited, extra), id)

    # Silence

    @property
    def deadline(self) -> float:
        """The time at which `tick` must be called; infinity if never."""
        return min(self.vigil.deadline, self._settling.deadline)

    def tick(self, now: float) -> None:
        """Send the NOOPs that are due, and forget silent clients. (MCO-08)"""
        for session, late in self.vigil.due(now):
            self._check_silence(session, now, late)
        self._settling.tick(now)

    def _check_silence(self, session: Session, now: float, late: float) -> None:
        """Forget a client that is silent for too long, or end our own silence. We check `late` seconds too late."""
        if session.returning is not None:
            self._resume(session, now)
            return
        ttl = session.ttl
        if session.state is State.FORGOTTEN:
            due = max(session.heard, session.said) + session.patience
            if now >= due:
                self.outbox.add(Drop(session, "it was forgotten, and stayed silent"))
            else:
                self._schedule(session, due)
            return
        if ttl is None:
            return
        if session.paused:
            session.heard = now  # we do not read from it, so its silence means nothing
        if now >= session.heard + EXPIRY * ttl:
            if late > GRACE * ttl:
                # We were away ourselves: its messages can wait in the socket to be read.
                self._schedule(session, now + GRACE * ttl)
            else:
                self._forget(session, ttl, now)
            return
        if now >= session.said + BEAT * ttl:
            if session.is_held:
                # Nothing can go out before the answer, not even a NOOP; and the answer is a sign of life itself.
                self._schedule(session, now + (1 - BEAT) / 3 * ttl)
                return
            session.said = now
            self.outbox.add(Send(session, messages.noop(session.delimited)))
        self._schedule(session)

    def _resume(self, session: Session, now: float) -> None:
        """Go on with the session that a client had before its connection was lost, or we were restarted."""
        self._comeback.resume(session, self.rules, now)
        if not session.delimited:
            self._bare.add(session)
        self._schedule(session)

    def _forget(self, session: Session, ttl: float, now: float) -> None:
        self.counters.expired += 1
        self.register.end(session)
        session.state = State.FORGOTTEN
        session.present = False
        self._clear(session)
        reason = f"it was silent for {now - session.heard:.3g} s, and its TTL is {ttl:g} s"
        self._tell(session, ClientGone("", session.identity, session.user, reason))
        session.said = now
        session.patience = max(self.bounds.patience, 3 * ttl)
        self._schedule(session, now + session.patience)

    def _schedule(self, session: Session, when: float | None = None) -> None:
        if when is None:
            if session.ttl is None:
                return
            # The same sums as in `_check_silence`: in another order they would round differently.
            when = min(session.heard + EXPIRY * session.ttl, session.said + BEAT * session.ttl)
        self.vigil.watch(session, when, len(self.sessions))

    # Replays

    def feed(self, session: Session, room: int) -> None:
        """Send a client about `room` bytes of its replays. At the end of a replay its topics are live."""
        if session.is_held:
            return
        found, ended = self._keeper.read(session, room)
        for replay, problem in ended:
            names = list(replay.topics)
            if problem:
                self._complain(session, f"the replay of {len(names)} topics failed: {problem}", None)
            for name in names:
                self._topics.leave(session, name)
                if not problem:
                    self._topics.join(session, name)
        if ended and not session.replays:
            session.sequence = self._keeper.last  # it has everything when these messages have gone out
        if found:
            self.outbox.deliver([session], found)

    # Slow subscribers

    def skipped(self, session: Session, deliver: Deliver) -> int:
        """Return how many messages a subscriber misses because it did not read in time (see `pressure`); count them.

        It misses none of a kept topic: it gets them from the archive when it has read what waits for it.
        """
        topic = deliver.topic
        if topic is not None and topic.kept:
            if topic.name in session.topics:
                self._comeback.catch_up(session, {topic.name: deliver.before})
            return 0
        if not session.missed:
            name = topic.name if topic is not None else b""
            self._tell(session, SlowSubscriber("", session.identity, session.user, name))
        missed = len(deliver.shared.messages)
        session.missed += missed
        self.counters.missed += missed
        return missed

    def caught_up(self, session: Session) -> Frames:
        """Return the ERROR that tells a subscriber, which has room again, how many messages it missed.

        It has no ID, so the real connector only logs it; ours has an event for it.
        """
        missed, session.missed = session.missed, 0
        self._tell(session, CaughtUp("", session.identity, session.user, missed))
        self.counters.errors += 1
        text = f"you did not read, and missed {missed} {'message' if missed == 1 else 'messages'}"
        return messages.error(text, None, session.delimited, {messages.MISSED: b"%d" % missed})

    # Reports and events

    def report(self, most: int | None = None) -> list[TopicReport]:
        """Return all topics that have subscribers, or the first `most` of them, sorted by name."""
        return report(self.topics, most)

    def _report_to(self, session: Session, command: Command, now: float) -> None:
        """Answer a PUT to $topics, with MESSAGEs to the client that asked and to no other."""
        if not self.rules.allow(session.user, "PUT", TOPICS):
            raise self._deny(session, "PUT", TOPICS, command)
        burst = self._reporter.answer(command, self.topics, len(self.sessions), self.counters, now)
        self._end_run()
        self._confirm(session, command)
        self.outbox.deliver([session], burst)

    def _tell(self, session: Session, event: ClientEvent) -> None:
        self.outbox.add(Happened(session, event))


def _why_absent(session: Session) -> str:
    if session.state is State.FORGOTTEN:
        return "you were silent for longer than your TTL, and your subscriptions are gone: CONNECT again, then SUB"
    return "you said DISCONNECT: CONNECT again first"


def _read_ttl(command: Command) -> float | None:
    value = command.headers.get(TTL)
    if value is None:
        return None
    ttl = int(value) / 1000 if value.isdigit() and len(value) < 12 else 0.0
    if not LEAST_TTL <= ttl <= GREATEST_TTL:
        raise Malformed(
            f"TTL must be {LEAST_TTL * 1000:.0f} to {GREATEST_TTL * 1000:.0f} milliseconds, not {quoted(value)}; "
            "leave it out for a session without heartbeats",
            command.id,
        )
    return ttl
