"""The reading of a subscription, for both faces: messages one by one or in batches, and their acknowledgement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from zambezi.zeps.client.batch import Message, MessageBatch
from zambezi.zeps.client.member_connection import MemberConnection
from zambezi.zeps.client.named_connection import NamedConnection
from zambezi.zeps.client.subscriber import SubscriberCounters
from zambezi.zeps.client.subscriber_connection import SubscriberConnection
from zambezi.zeps.errors import ClientClosed, ZepsError


class _Tracked:
    """The messages of a batch, for a named reader: the next message acknowledges the one before, if that is wanted."""

    __slots__ = ("_named", "_owner", "_reader", "messages")

    def __init__(self, owner: SubscriptionReader, named: NamedConnection, batch: MessageBatch) -> None:
        self._owner = owner
        self._named = named
        self._reader = named.reader
        self.messages = iter(batch)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        # Programs call it for each message, so it calls little itself.
        owner, reader = self._owner, self._reader
        if reader.is_automatic and reader.acknowledge(owner._returned):
            self._named.schedule_acks()
        if reader.is_lost:
            raise StopIteration
        message = next(self.messages)
        owner._returned = message[0]
        return message


class _Handed:
    """The messages of a batch, for a member of a group: the next message acknowledges the one before, if wanted."""

    __slots__ = ("_losses", "_member", "_owner", "messages")

    def __init__(self, owner: SubscriptionReader, batch: MessageBatch, member: MemberConnection) -> None:
        self._owner = owner
        self._member = member
        self._losses = member.engine.losses
        self.messages = iter(batch)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        # Programs call it for each message, so it calls little itself.
        owner, member = self._owner, self._member
        if owner._handed and member.engine.is_automatic:
            member.acknowledge(owner._handed)
            owner._handed = ()
        if member.engine.losses != self._losses:
            raise StopIteration  # the broker has given the others back when the connection was lost
        message = next(self.messages)
        owner._handed = message[:1]
        return message


class SubscriptionReader:
    """The reading of a subscription, for both faces. An attempt returns None if it must be made again later."""

    _connection: SubscriberConnection | MemberConnection

    def __init__(self, connection: SubscriberConnection | MemberConnection) -> None:
        self._connection = connection
        self._tracing = connection.options.tracing
        self._named = connection if isinstance(connection, NamedConnection) else None
        self._member = connection if isinstance(connection, MemberConnection) else None
        self._handed: Sequence[int] = ()  # the last sequences that the program has got, of a member of a group
        self._returned = -1  # the last sequence that the program has got, of a named reader
        self._batch: MessageBatch | None = None  # the batch that is being iterated over
        self._current: Iterator[Message] = iter(())  # the rest of its messages

    def _refill(self, finished: Iterator[Message]) -> bool | None:
        """Replace a finished iterator by the next batch; return False at the end of the subscription."""
        if self._current is not finished:
            return True  # another task or thread has replaced it
        found = self._next_batch()
        if found is None:
            return None
        if not found:
            return False
        self._batch = found
        if self._member is not None:
            self._current = _Handed(self, found, self._member)
        else:
            self._current = iter(found) if self._named is None else _Tracked(self, self._named, found)
        return True

    def _rest_of_batch(self) -> MessageBatch | None:
        """Return the messages that are left in the current batch, and remove them."""
        batch, self._batch = self._batch, None
        rest = self._current.messages if isinstance(self._current, _Tracked | _Handed) else self._current
        left = sum(1 for _ in rest) if batch is not None and not self._is_lost else 0
        return batch[-left:] if batch is not None and left else None

    def _rest_or_next(self) -> MessageBatch | None:
        """Return the rest of the current batch, or else the next one; an empty one at the end."""
        named, member = self._named, self._member
        if named is None and member is None:
            return (self._rest_of_batch() if self._batch is not None else None) or self._next_batch()
        self._acknowledge_returned()
        found = self._rest_of_batch() or self._next_batch()
        if found and named is not None:
            self._returned = found.last
        elif found and member is not None and member.engine.is_automatic:
            self._handed = found.sequences()
        return found

    def _next_batch(self) -> MessageBatch | None:
        """Return the next batch; an empty one at the end."""
        batch = self._connection.next_batch()
        if batch is None and (self._connection.closing or self._connection.engine.ended):
            failure = self._connection.engine.failure
            if failure is not None:
                raise failure
            return MessageBatch(self._connection.stream, [])
        if batch is not None and self._tracing is not None:
            self._tracing.note_received(batch)
        return batch

    # Acknowledgements of a named reader, or of a member of a group

    def ack(self, upto: Message | MessageBatch | int) -> None:
        """Acknowledge a message, a batch or a sequence. Returns at once; `flush` waits until the broker has it.

        With a name, it acknowledges all messages before it, too: a program that is started again goes on after it. In a
        group, it acknowledges these messages only.
        """
        member = self._member
        if member is not None:
            if type(upto) is Message and member.engine.is_plain:  # most programs acknowledge message by message
                member.acknowledge_one(upto[0])
            else:
                self._check_member().acknowledge(_sequences_of(upto))
            return
        named = self._named
        if named is None:
            raise ZepsError("only a subscription with a name, or a shared one, can acknowledge: subscribe(name=...)")
        sequence: object = upto
        if isinstance(upto, MessageBatch | Message):
            sequence = upto.last if isinstance(upto, MessageBatch) else upto.sequence
        received = named.engine.position
        if not isinstance(sequence, int) or isinstance(sequence, bool) or not 0 <= sequence <= (received or 0):
            raise ZepsError(f"a message, a batch or a sequence up to {received} can be acknowledged, not {upto!r:.80}")
        if named.engine.failure is not None:
            raise named.engine.failure
        if named.closing:
            raise self._end_error()
        with named.reactor.lock:  # of several threads, the one that has come furthest counts
            named.acknowledge(sequence)

    def nack(self, message: Message | MessageBatch | int, delay: float = 0.0, *, seen: bool = True) -> None:
        """Give a message of a group back: another member, or this one, gets it again, after `delay` seconds.

        Without a delay it comes before newer messages of its key; with a delay they do not wait for it. A program that
        leaves says seen=False for messages that it has not begun to handle: then this delivery does not count.
        """
        sequences = _sequences_of(message)
        self._check_member().give_back(sequences, delay, seen=seen)
        if set(sequences).issuperset(self._handed):
            self._handed = ()

    def keep(self, message: Message | MessageBatch | int) -> None:
        """Say that the program still works on a message of a group: its time begins again."""
        self._check_member().keep(_sequences_of(message))

    def _check_member(self) -> MemberConnection:
        member = self._member
        if member is None:
            raise ZepsError("only a shared subscription can do that: subscribe(shared=...)")
        if member.engine.failure is not None:
            raise member.engine.failure
        if member.closing:
            raise self._end_error()
        return member

    def _leave_group(self) -> bool:
        """Give back what the program has not got; return whether a confirmation is missing."""
        member = self._member
        if member is None or member.closing or not member.engine.is_joined:
            return False
        rest = self._rest_of_batch()
        if rest:
            member.give_back(rest.sequences(), seen=False)
        member.engine.take_doubt()  # `close` is about the answers from now on: the messages in doubt come again anyway
        return member.engine.has_unconfirmed

    def _acknowledge_returned(self) -> None:
        """Acknowledge what the program has got, if the next `recv` does that."""
        if self._member is not None:
            handed, self._handed = self._handed, ()
            if handed and self._member.engine.is_automatic:
                self._member.acknowledge(handed)
            return
        named = self._named
        if named is not None and named.reader.is_automatic:
            named.acknowledge(self._returned)

    @property
    def _is_lost(self) -> bool:
        return self._named is not None and self._named.reader.is_lost

    def _is_ready(self) -> bool | None:
        connection = self._connection
        if connection.engine.failure is not None:
            raise connection.engine.failure
        if connection.confirmed_once or connection.engine.ended:
            return True
        if connection.closing:
            raise self._end_error()
        return None

    def _end_error(self) -> ClientClosed:
        ended = self._connection.engine.ended
        return ClientClosed("the subscription has reached its end" if ended else "the subscription is closed")

    @property
    def position(self) -> int | None:
        """The last sequence that was received; None if the position is not known yet."""
        return self._connection.engine.position

    @property
    def counters(self) -> SubscriberCounters:
        """Counters of this subscription."""
        return self._connection.engine.counters

    def __repr__(self) -> str:
        return f"<Subscription {self._connection.state}, at {self.position}>"


def _sequences_of(item: Message | MessageBatch | int) -> Sequence[int]:
    if isinstance(item, MessageBatch):
        return item.sequences()
    sequence: object = item.sequence if isinstance(item, Message) else item
    if not isinstance(sequence, int) or isinstance(sequence, bool) or not 0 < sequence < 1 << 63:
        raise ZepsError(f"a message, a batch or a sequence is wanted, not {item!r:.80}")
    return (sequence,)
