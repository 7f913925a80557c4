"""The connection of a subscription: first it learns what the stream is now, and then it subscribes.

ATTACH comes first, so that the stream is there; then `$streams` is asked, on a connection of its own, which incarnation
it is and where it begins and ends; then SUBSCRIBE follows, from the place where the subscription stands. It is the same
after every loss of the connection.

Where the program wishes for multicast, the group is joined when the broker has told of it. As long as the group carries
the subscription there is no connection at all; when it does not, one is made, as after a loss. (ZEP-16)
"""

from __future__ import annotations

from collections.abc import Callable
from time import time as wall_clock
from typing import Final

from zambezi.wire.text import as_bytes
from zambezi.zeps.client.batch import MessageBatch
from zambezi.zeps.client.connection import PART, BrokerConnection, ClientOptions, Locate
from zambezi.zeps.client.questions import Probe, Question
from zambezi.zeps.client.subscriber import Subscriber
from zambezi.zeps.directory import STREAMS, StreamInfo, read_streams
from zambezi.zeps.errors import BrokerError, ZepsError
from zambezi.zeps.messages import TIME
from zambezi.zeps.multicast.listening import Listening, Wish
from zambezi.zeps.multicast.reception import Phase
from zambezi.zmtp.reactor import Reactor, Timer

LONGEST: Final = 255  # octets of a pattern
POLL: Final = 0.5  # seconds between looks whether a stream has reached where a subscription ends


class SubscriberConnection(BrokerConnection):
    """The connection of a subscription."""

    def __init__(
        self,
        reactor: Reactor,
        options: ClientOptions,
        locate: Locate,
        stream: str,
        engine: Subscriber,
        wish: Wish | None = None,
    ) -> None:
        super().__init__(reactor, options, locate, stream)
        self.engine = engine
        self._wish = wish  # for multicast; None if there is none, or it cannot come true
        self._info: StreamInfo | None = None
        self._listening: Listening | None = None
        self.confirmed_once = False  # by the broker: from then on nothing is missed
        self._question: Question | None = None
        self._subscribed = False
        self._refusal = ""  # why the broker refused the subscription
        self._poll: Timer | None = None

    def next_batch(self) -> MessageBatch | None:
        """Return the next batch, and give the broker credit for more."""
        batch = self.engine.next_batch()
        if batch is not None:
            self._give_credit()
            if self._listening is not None and self.engine.has_room:
                self._listening.release()
        return batch

    def _give_credit(self) -> None:
        if self._subscribed:
            credit = self.engine.grant()
            if credit is not None:
                self.say(credit)

    # Before SUBSCRIBE: what is this stream now?

    def opened(self) -> None:
        if self.stream.startswith("$"):
            self._subscribe()
        else:
            self._ask_for_stream(self._told)

    def _ask_for_stream(self, answer: Callable[[Question], object]) -> None:
        exact = f"exact:{self.stream}"
        # A name that is too long to be told as a pattern is looked for among all.
        fits = len(as_bytes(exact)) <= LONGEST
        self._ask(Question(*self._same, STREAMS, answer, exact if fits else ""))

    @property
    def _same(self) -> tuple[Reactor, ClientOptions, Locate]:
        return self.reactor, self.options, lambda: self._endpoint

    def _ask(self, question: Question) -> None:
        self._stop_asking()
        self._question = question
        question.start()

    def _stop_asking(self) -> None:
        question, self._question = self._question, None
        if question is not None:
            question.done = True
            question.close(0)
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None

    def _told(self, question: Question) -> None:
        self._question = None
        engine = self.engine
        info = self._info_of(question)
        if engine.failure is None:
            engine.learn(info)
        if self._close_if_over():
            return
        if info is not None and self._wish is not None:
            self._info = info
            self._listen()
            if self._close_if_over():
                return
            if self._listening is not None:
                self._listening.reception.told(info.last)
        until = engine.until
        if info is not None and until is not None and until & TIME:
            wait = (until ^ TIME) / 1000 - wall_clock()
            if wait <= 0:
                self._find_end(info, until)
                return
            self._poll_after(wait, self._time_has_come)
        self._subscribe()

    def _info_of(self, question: Question) -> StreamInfo | None:
        if question.failure is not None:
            return None  # a broker that has no reserved streams: it does what it can without
        try:
            told = read_streams(question.bodies)
        except BrokerError as error:
            self.engine.fail(error)
            return None
        # The stream is there, for we are attached to it; but a broker may tell of others, too.
        return next((one for one in told if one.stream == self.stream), None)

    def _find_end(self, info: StreamInfo, until: int) -> None:
        """The last sequence before a time."""
        if info.last_time < (until ^ TIME) * 1000:
            self._found_end(info, info.last)
        else:
            self._ask(Probe(*self._same, self.stream, lambda probe: self._probed(probe, info), until))

    def _probed(self, probe: Question, info: StreamInfo) -> None:
        self._question = None
        if probe.failure is not None:
            self.engine.fail(probe.failure)
            self._close_if_over()
        else:
            self._found_end(info, probe.batches[0].first - 1)

    def _found_end(self, info: StreamInfo, until: int) -> None:
        self.engine.set_end(until, info)
        if self._close_if_over() or self._apart:
            return
        if self._subscribed:
            self._mark_end()
        else:
            self._subscribe()

    def _time_has_come(self) -> None:
        self._poll = None
        self._ask_for_stream(self._told_at_end)

    def _told_at_end(self, question: Question) -> None:
        self._question = None
        info = self._info_of(question)
        until = self.engine.until
        if info is None:
            self.engine.learn(None)
            self._close_if_over()
        elif until is not None and until & TIME:
            self._find_end(info, until)

    def _subscribe(self) -> None:
        for message in self.engine.subscribe():
            self.say(message)
        self._subscribed = True
        self._mark_end()

    def _mark_end(self) -> None:
        """Where there is a pattern, look now and then whether the stream has reached the end of the subscription."""
        for message in self.engine.mark_end():
            self.say(message)
        if self.engine.lacks_mark and self._poll is None:
            self._poll_after(POLL, self._look_for_end)

    def _look_for_end(self) -> None:
        self._poll = None
        self._ask_for_stream(self._told_of_end)

    def _told_of_end(self, question: Question) -> None:
        self._question = None
        info = self._info_of(question)
        if info is not None:
            self.engine.learn(info)
        if not self._close_if_over():
            self._mark_end()

    def _poll_after(self, seconds: float, callback: Callable[[], object]) -> None:
        self._poll = self.reactor.call_at(self.reactor.time() + seconds, callback)

    # Then

    def delivered(self, frames: list[bytes], after: int) -> None:
        engine = self.engine
        repeated = engine.counters.repeated
        engine.deliver(frames, after)
        if self._wish is not None:
            self._follow_group(len(frames) - (engine.counters.repeated - repeated))
        self.on_change()
        self._close_if_over()

    # The group

    def _listen(self) -> None:
        """Listen to the group of the stream, as soon as it is known where we stand."""
        engine = self.engine
        listening, info, wish = self._listening, self._info, self._wish
        if listening is not None or info is None or wish is None or engine.position is None:
            return
        listening = Listening.to(
            self.reactor,
            wish,
            info,
            engine.position,
            self.options.group_key,
            engine.counters.multicast,
            self._heard,
        )
        if listening is None:
            self._wish = None
            return
        try:
            engine.choose()
        except ZepsError as error:
            engine.fail(error)
        listening.reception.on_messages = engine.overhear
        listening.reception.on_phase = self._phase_changed
        self._listening = listening

    def _follow_group(self, messages: int) -> None:
        """The broker has sent messages: the group may go on from here. What was left out of them is credit again."""
        self._listen()
        listening, position = self._listening, self.engine.position
        if listening is not None and position is not None:
            listening.reached(position, messages)
            self._hold_if_full()
            self._give_credit()

    def _heard(self) -> None:
        """The group has brought messages, perhaps."""
        if not self.closing:
            self._hold_if_full()
            if self.engine.readable:
                self.on_change()
            self._close_if_over()

    def _hold_if_full(self) -> None:
        if self._listening is not None and self.engine.full:
            self._listening.hold()

    def _phase_changed(self, _: Phase) -> None:
        # Not now: whoever brings this about is in the middle of something, on the connection perhaps.
        self.reactor.call_soon(self._follow_phase)

    def _follow_phase(self) -> None:
        listening = self._listening
        if listening is None or self.closing:
            return
        if not listening.in_group:
            if self._apart:
                self.start()
        else:
            self._stop_asking()
            self.part()
            self.confirmed_once = True  # nothing is missed from here on, though the broker need not know of us
            until = self.engine.until
            if until is not None and until & TIME:
                self._poll_after(max(0.0, (until ^ TIME) / 1000 - wall_clock()), self._time_has_come)
            self.on_change()

    def _close_if_over(self) -> bool:
        """Close the connection if the subscription is at its end, or cannot go on; return whether that is so."""
        if not (self.engine.ended or self.engine.failure is not None):
            return False
        if not self.closing:
            self.close(PART)
        return True

    def invalid(self, reason: str) -> None:
        """Ask what the stream is now: it may be another than the one that we knew, and that is worth its own error."""
        self._refusal = reason
        if self.engine.position is None or self.stream.startswith("$"):
            self._refuse()
        else:
            self._ask_for_stream(self._told_after_refusal)

    def _told_after_refusal(self, question: Question) -> None:
        self._question = None
        info = self._info_of(question)
        if info is not None:
            self.engine.learn(info)
        self._refuse()

    def _refuse(self) -> None:
        self.engine.refuse(self._refusal)
        self._close_if_over()

    def misunderstood(self) -> None:
        self.engine.counters.malformed += 1

    def subscribed(self) -> None:
        self.confirmed_once = True
        self.on_change()

    def came_back(self) -> None:
        self.engine.counters.reconnects += 1

    def disconnected(self) -> None:
        self._subscribed = False
        self._stop_asking()

    def close(self, linger: float | None) -> None:
        if not self.closing:
            self._stop_asking()
            if self._listening is not None:
                self._listening.close()
        super().close(linger)
