"""The connection of a subscription: it asks the broker to describe the stream, and then it subscribes.

The steps, on the first connection and again after every loss:

    ATTACH-OK ----> ask `$streams` ----> learn incarnation, first, last ----> SUBSCRIBE, CREDIT ----> messages
                    (a connection              |
                     of its own)               +-- the end is a past time: ask for the sequence before it, first
                                               +-- the end is a future time: ask again when it has come
                                               +-- the end is a sequence and there is a pattern: ask now and then
                                                   whether the stream has reached it

ATTACH comes before the question, so that the stream exists.

With multicast, the subscription joins the group when the broker has described the stream. While the group carries the
subscription there is no connection to the broker at all (`suspend`); when it does not, `start` connects again, as after
a loss. (ZEP-16)

Like all connections it never blocks. It uses the reactor for its timers, and the wall clock to see whether the time of
an end has come.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time as wall_clock
from typing import Final

from zambezi.wire.text import as_bytes
from zambezi.zeps.client.batch import MessageBatch
from zambezi.zeps.client.connection import DETACH_PATIENCE, BrokerConnection, ClientOptions
from zambezi.zeps.client.finder import Locate
from zambezi.zeps.client.questions import Probe, Question
from zambezi.zeps.client.subscriber import Subscriber
from zambezi.zeps.directory import STREAMS, StreamInfo, read_streams
from zambezi.zeps.errors import BrokerError, Moved, ZepsError
from zambezi.zeps.messages import TIME, TIMES
from zambezi.zeps.multicast.group_subscription import GroupSubscription, MulticastOptions
from zambezi.zeps.multicast.reception import Phase
from zambezi.zmtp.reactor import Reactor, Timer
from zambezi.zmtp.runs import Run

LONGEST: Final = 255  # bytes of a pattern
POLL: Final = 0.5  # seconds between questions whether the stream has reached the end of the subscription
MOST_MALFORMED: Final = 3  # times that messages at the same position are not valid, before the subscription fails


class SubscriberConnection(BrokerConnection):
    """The connection of a subscription."""

    def __init__(
        self,
        reactor: Reactor,
        options: ClientOptions,
        locate: Locate,
        stream: str,
        engine: Subscriber,
        multicast: MulticastOptions | None = None,
    ) -> None:
        super().__init__(reactor, options, locate, stream)
        self.engine = engine
        self.confirmed_once = False  # whether the broker has ever confirmed it: from then on no message is missed
        self._multicast = multicast  # None without multicast, or if the group cannot be joined
        self._group: GroupSubscription | None = None
        self._info: StreamInfo | None = None  # the last description of the stream, with multicast
        self._subscribed = False  # whether SUBSCRIBE was sent on this connection
        self._refusal = ""  # why the broker refused the subscription
        self._malformed: list[int | None] = []  # the position, each time that messages were not valid there
        self._question: Question | None = None  # the question that is not answered yet
        self._question_timer: Timer | None = None  # for the next question

    def next_batch(self) -> MessageBatch | None:
        """Return the next batch, and give the broker credit for more."""
        batch = self.engine.next_batch()
        if batch is not None:
            self._send_credit()
            if self._group is not None and self.engine.has_room:
                self._group.resume()
        return batch

    def _send_credit(self) -> None:
        if self._subscribed:
            credit = self.engine.next_credit()
            if credit is not None:
                self.send(credit)

    # Questions about the stream, each on a connection of its own

    def _ask_about_stream(self, on_info: Callable[[StreamInfo | None], object]) -> None:
        """Ask the broker to describe the stream, and call back with the description, or None if there is none."""
        exact = f"exact:{self.stream}"
        # A name that is too long for a pattern is looked for among all streams.
        fits = len(as_bytes(exact)) <= LONGEST
        self._ask(
            Question(
                *self._question_options,
                STREAMS,
                lambda question: self._answered(question, on_info),
                exact if fits else "",
            )
        )

    @property
    def _question_options(self) -> tuple[Reactor, ClientOptions, Locate]:
        return self.reactor, self.options, lambda: self._endpoint

    def _ask(self, question: Question) -> None:
        self._stop_asking()
        self._question = question
        question.start()

    def _ask_about_stream_later(self, seconds: float, on_info: Callable[[StreamInfo | None], object]) -> None:
        def ask() -> None:
            self._question_timer = None
            self._ask_about_stream(on_info)

        self._question_timer = self.reactor.call_at(self.reactor.time() + seconds, ask)

    def _stop_asking(self) -> None:
        question, self._question = self._question, None
        if question is not None:
            question.done = True
            question.close(0)
        if self._question_timer is not None:
            self._question_timer.cancel()
            self._question_timer = None

    def _answered(self, question: Question, on_info: Callable[[StreamInfo | None], object]) -> None:
        self._question = None
        on_info(self._info_in(question))

    def _info_in(self, question: Question) -> StreamInfo | None:
        if question.failure is not None:
            return None  # this broker has no reserved streams: the subscription works without them
        try:
            infos = read_streams(question.bodies)
        except BrokerError as error:
            self.engine.fail(error)
            return None
        # The stream exists, as we are attached to it; but the broker may describe others too.
        return next((info for info in infos if info.stream == self.stream), None)

    # Before SUBSCRIBE

    def stream_granted(self) -> None:
        if self.stream.startswith("$"):
            self._subscribe()
        else:
            self._ask_about_stream(self._begin)

    def _begin(self, info: StreamInfo | None) -> None:
        """Subscribe, now that the broker has described the stream, unless the end must be found first."""
        if info is not None and self.engine.is_ahead_of(info):
            self._follow(f"{Moved.PREFIX} the broker at {self._endpoint} is behind")
            return
        if self.engine.failure is None:
            self.engine.update(info)
        if self._close_if_over():
            return
        if info is not None and self._multicast is not None:
            self._info = info
            self._join_group()
            if self._close_if_over():
                return
            if self._group is not None:
                self._group.reception.set_last_known(info.last)
        seconds = self._seconds_to_end()
        if info is not None and seconds is not None:
            if seconds <= 0:
                self._find_end(info)
                return
            self._ask_about_stream_later(seconds, self._end_time_reached)
        self._subscribe()

    def _subscribe(self) -> None:
        if self.engine.wants_times and self._peer is not None and not self.extends(TIMES):
            problem = f"the broker at {self._endpoint} does not tell the times of messages: subscribe without times"
            self.engine.fail(BrokerError(problem))
            self._close_if_over()
            return
        for message in self.engine.subscribe_messages():
            self.send(message)
        self._subscribed = True
        self._mark_end()

    # The end of the subscription

    def _seconds_to_end(self) -> float | None:
        """Return the seconds until the subscription ends, if its end is a time; else None."""
        until = self.engine.until
        return (until ^ TIME) / 1000 - wall_clock() if until is not None and until & TIME else None

    def _end_time_reached(self, info: StreamInfo | None) -> None:
        if info is None:
            self.engine.update(None)
            self._close_if_over()
        elif self._seconds_to_end() is not None:
            self._find_end(info)

    def _find_end(self, info: StreamInfo) -> None:
        """Find the last sequence before the time of the end, which is past."""
        until = self.engine.until
        assert until is not None
        if info.last_time < (until ^ TIME) * 1000:
            self._set_end(info, info.last)
        else:
            self._ask(
                Probe(*self._question_options, self.stream, lambda probe: self._first_after_end(probe, info), until)
            )

    def _first_after_end(self, probe: Question, info: StreamInfo) -> None:
        self._question = None
        if probe.failure is not None:
            self.engine.fail(probe.failure)
            self._close_if_over()
        else:
            self._set_end(info, probe.batches[0].first - 1)

    def _set_end(self, info: StreamInfo, last: int) -> None:
        self.engine.set_end(last, info)
        if self._close_if_over() or self._suspended:
            return
        if self._subscribed:
            self._mark_end()
        else:
            self._subscribe()

    def _mark_end(self) -> None:
        """Ask for the message at the end; or, if the stream has not reached it, ask about the stream again later."""
        for message in self.engine.mark_end():
            self.send(message)
        if self.engine.needs_end_mark and self._question_timer is None:
            self._ask_about_stream_later(POLL, self._mark_end_by)

    def _mark_end_by(self, info: StreamInfo | None) -> None:
        if info is not None:
            self.engine.update(info)
        if not self._close_if_over():
            self._mark_end()

    def _close_if_over(self) -> bool:
        """Close the connection if the subscription has ended or failed; return whether it has."""
        if not (self.engine.ended or self.engine.failure is not None):
            return False
        if not self.closing:
            self.close(DETACH_PATIENCE)
        return True

    # Messages

    def run_received(self, run: Run, body_at: int) -> None:
        if self._multicast is None and self.engine.accept_run(run, body_at):
            self.on_change()
        else:
            super().run_received(run, body_at)

    def messages_received(self, frames: list[bytes], body_at: int) -> None:
        engine = self.engine
        if engine.wants_times and engine.lacks_time_of(frames[0]):
            self.malformed("DELIVER messages without their time")
            return
        repeated = engine.counters.repeated
        engine.accept_from_broker(frames, body_at)
        if self._multicast is not None:
            self._update_group(len(frames) - (engine.counters.repeated - repeated))
        self.on_change()
        if engine.ended or engine.failure is not None:
            self._close_if_over()

    def times_received(self, octets: bytes) -> None:
        try:
            self.engine.learn_times(octets)
        except ZepsError as error:
            self.malformed(str(error))

    # The group

    def _join_group(self) -> None:
        """Join the group of the stream, if multicast is wanted and the position is known."""
        engine = self.engine
        info, multicast = self._info, self._multicast
        if self._group is not None or info is None or multicast is None or engine.position is None:
            return
        group = GroupSubscription.join(
            self.reactor,
            multicast,
            info,
            engine.position,
            self.options.group_key,
            engine.counters.multicast,
            self._group_changed,
        )
        if group is None:
            self._multicast = None
            return
        try:
            engine.filter_here()
        except ZepsError as error:
            engine.fail(error)
        group.reception.on_messages = engine.accept_from_group
        group.reception.on_phase = self._phase_changed
        self._group = group

    def _update_group(self, messages: int) -> None:
        """Tell the group that the broker has delivered messages: it may continue from here."""
        self._join_group()
        group, position = self._group, self.engine.position
        if group is not None and position is not None:
            group.broker_delivered(position, messages)
            self._hold_if_full()
            self._send_credit()  # for messages that did not match the pattern

    def _group_changed(self) -> None:
        if not self.closing:
            self._hold_if_full()
            if self.engine.readable:
                self.on_change()
            self._close_if_over()

    def _hold_if_full(self) -> None:
        if self._group is not None and self.engine.full:
            self._group.hold()

    def _phase_changed(self, _: Phase) -> None:
        # Not now: the caller may be in the middle of handling messages of this connection.
        self.reactor.call_soon(self._follow_phase)

    def _follow_phase(self) -> None:
        """Disconnect from the broker while the group carries the subscription, and connect again when it does not."""
        group = self._group
        if group is None or self.closing:
            return
        if not group.in_group:
            if self._suspended:
                self.start()
            return
        self._stop_asking()
        self.suspend()
        self.confirmed_once = True  # no message is missed from here on, though the broker does not know of us
        seconds = self._seconds_to_end()
        if seconds is not None:
            self._ask_about_stream_later(max(0.0, seconds), self._end_time_reached)
        self.on_change()

    # Other events of the connection

    def invalid_received(self, reason: str) -> None:
        """Fail; but first ask about the stream: if it has another incarnation, that is the better error."""
        self._refusal = self._refusal or reason  # the first one is the cause of those that follow
        if self.engine.position is None or self.stream.startswith("$"):
            self._fail_refused()
        else:
            self.suspend()  # to attach again could create a stream that was deleted
            self._ask_about_stream(self._fail_refused_by)

    def _fail_refused_by(self, info: StreamInfo | None) -> None:
        if info is not None:
            self.engine.update(info)
        self._fail_refused()

    def _fail_refused(self) -> None:
        self.engine.fail_refused(self._refusal)
        self._close_if_over()

    def malformed_received(self) -> None:
        """Connect again; but fail if that has not helped: then it is not the connection that damages the messages."""
        engine = self.engine
        engine.counters.malformed += 1
        if not self.granted:
            return  # it is no broker, or none of these messages is of the stream
        self._malformed = [at for at in self._malformed if at == engine.position] + [engine.position]
        if len(self._malformed) == MOST_MALFORMED:
            engine.fail_damaged()
            self._close_if_over()

    def subscription_confirmed(self) -> None:
        self._refusal = ""
        self.confirmed_once = True
        self.on_change()

    def reconnected(self) -> None:
        self.engine.counters.reconnects += 1

    def disconnected(self) -> None:
        self._subscribed = False
        self._stop_asking()

    def close(self, linger: float | None) -> None:
        if not self.closing:
            self._stop_asking()
            if self._group is not None:
                self._group.close()
        super().close(linger)
