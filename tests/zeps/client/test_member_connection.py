"""zambezi.zeps.client.member_connection: when the answers of a member are sent."""

from __future__ import annotations

import pytest

from zambezi.zeps.client.connection import ClientOptions
from zambezi.zeps.client.member import GroupMember, GroupWish
from zambezi.zeps.client.member_connection import INTERVAL, MemberConnection
from zambezi.zeps.client.reading import SubscriptionReader
from zambezi.zeps.errors import BrokerError, ClientClosed
from zambezi.zeps.messages import Deliver, Done, Zeps
from zambezi.zeps.sequences import unpack_sequences
from zambezi.zmtp.testing import Simulation


class Reactor(Simulation):
    """A simulation that counts how often it was woken."""

    wakes = 0

    def call_soon(self, callback, *args):  # type: ignore[no-untyped-def]
        self.wakes += 1
        super().call_soon(callback, *args)


class Joined(MemberConnection):
    """The connection of a member that has joined its group. It keeps what it sends."""

    def __init__(self, reactor: Reactor, sequences: range) -> None:
        engine = GroupMember("s", GroupWish("workers", "", 0), bytes(16), 1 << 20, is_automatic=False)
        super().__init__(reactor, ClientOptions(), lambda: None, "s", engine)
        engine.join_messages()
        self.engine.accept([Deliver(one, "k", b"").encode()[0] for one in sequences], 0)
        self.sent: list[bytes] = []

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    @property
    def done(self) -> list[int]:
        """The sequences that were acknowledged."""
        messages = map(Zeps.decode, self.sent)
        return [one for message in messages if isinstance(message, Done) for one in unpack_sequences(message.sequences)]


def test_a_program_that_works_does_not_wake_the_loop_for_each_message() -> None:
    with Reactor() as reactor:
        connection = Joined(reactor, range(1, 101))
        program = SubscriptionReader(connection)
        batch = connection.next_batch()
        assert batch is not None
        before = reactor.wakes
        for message in batch:
            program.ack(message)
            connection.next_batch()  # the program asks for more, and this sends the answers
            reactor.advance(INTERVAL / 4)
        assert reactor.wakes == before + 1
        reactor.advance(3 * INTERVAL)
        assert connection.done == list(range(1, 101))
        program.ack(7)
        reactor.run()
        assert connection.done[-1] == 7


def test_acknowledgements_are_checked_after_the_end_and_after_a_lost_connection() -> None:
    with Reactor() as reactor:
        connection = Joined(reactor, range(1, 4))
        program = SubscriptionReader(connection)
        batch = connection.next_batch()
        assert batch is not None
        connection.disconnected()
        connection.engine.join_messages()
        program.ack(batch[0])
        reactor.run()
        assert connection.done == []
        assert connection.engine.take_doubt()
        connection.engine.fail_refused("for a reason")
        with pytest.raises(BrokerError, match="for a reason"):
            program.ack(batch[1])
        connection = Joined(reactor, range(1, 4))
        connection.close(0)
        with pytest.raises(ClientClosed):
            SubscriptionReader(connection).ack(batch[1])
