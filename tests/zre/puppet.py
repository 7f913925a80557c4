"""A peer by hand: its two sockets, and no engine. It says what a test wants said, and keeps what it hears."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.zmtp.stranger import Stranger
from zambezi.wire import Message
from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Dealer, Router
from zambezi.zmtp.reactor import Reactor
from zambezi.zre.messages import Hello

BOB = UUID(int=0x0B)


class Puppet:
    """`mailbox` is where its ROUTER is bound, `target` the mailbox of the node that it talks to."""

    def __init__(self, reactor: Reactor, mailbox: str, target: str, uuid: UUID = BOB) -> None:
        self.uuid = uuid
        self.router = Router(reactor, Options())
        self.endpoint = self.router.bind(mailbox)
        self.dealer = Dealer(reactor, Options(identity=b"\x01" + uuid.bytes))
        self.dealer.connect(target)

    def say(self, message: Message) -> None:
        assert self.dealer.try_send(message.encode())

    def greet(self, **fields: Any) -> None:
        values = {"endpoint": self.endpoint, "name": "bob", **fields}
        self.say(Hello(1, **values))

    def heard(self) -> list[list[bytes]]:
        """The messages that came to the mailbox since, without the identity of their sender."""
        messages = []
        while (message := self.router.try_recv()) is not None:
            messages.append(message[1:])
        return messages

    def close(self) -> None:
        self.router.close(0)
        self.dealer.close(0)


class Witness(Stranger):
    """A bare socket that keeps every octet that it reads."""

    raw = b""

    def _take(self, data: bytes) -> None:
        self.raw += data
        super()._take(data)

    def has_messages(self) -> bool:
        """Whether any have come, now that all is read that is there."""
        return self.heard_all() and bool(self.messages)
