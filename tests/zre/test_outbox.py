"""zambezi.zre.outbox: messages go out with the sequence of each peer, and are encoded once for each dialect."""

from zambezi.wire import Message
from zambezi.zre.dialect import DRAFT, STABLE, Dialect
from zambezi.zre.messages import DraftShout, Ping, Shout
from zambezi.zre.outbox import Outbox
from zambezi.zre.outputs import Disconnect, Send
from zambezi.zre.peer import Peer


def peer(key: bytes, dialect: Dialect = STABLE, sent: int = 1) -> Peer:
    made = Peer(key, "tcp://10.0.0.1:1", dialect, 0.0)
    made.sent = sent
    return made


def test_outputs_are_taken_once_and_in_order() -> None:
    out = Outbox()
    out.append(Disconnect(b"a"))
    out.send(peer(b"b"), Ping(0))
    assert out.take() == [Disconnect(b"a"), Send(b"b", Ping(2).encode())]
    assert out.take() == []


def test_a_message_to_many_is_encoded_once_for_each_dialect_and_numbered_for_each_peer() -> None:
    out = Outbox()
    made = []

    def make(dialect: Dialect) -> Message:
        made.append(dialect)
        return dialect.shout(0, "A", [b"x"])

    out.send_all([peer(b"a"), peer(b"b", DRAFT, 7), peer(b"c", STABLE, 0xFFFF)], make)
    assert made == [STABLE, DRAFT]
    assert out.take() == [
        Send(b"a", Shout(2, "A", [b"x"]).encode()),
        Send(b"b", DraftShout(8, "A", [b"x"]).encode()),
        Send(b"c", Shout(0, "A", [b"x"]).encode()),
    ]
