"""A peer that a test controls: two sockets, and no engine. It sends what the test says, and keeps what it receives."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.zmtp.stranger import Stranger
from zambezi.wire import Message
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Dealer, Router
from zambezi.zmtp.reactor import Reactor
from zambezi.zmtp.security import CurveClient, CurveServer, Null
from zambezi.zre.messages import Hello

BOB = UUID(int=0x0B)


class Puppet:
    """A peer whose ROUTER is bound to `mailbox`, and whose DEALER is connected to the mailbox `target`.

    With `keys` of its own, it uses CURVE, and knows the key of the target.
    """

    def __init__(
        self,
        reactor: Reactor,
        mailbox: str,
        target: str,
        uuid: UUID = BOB,
        keys: KeyPair | None = None,
        target_key: bytes = b"",
    ) -> None:
        self.uuid = uuid
        self.router = Router(reactor, Options(security=CurveServer(keys) if keys else Null()))
        self.endpoint = self.router.bind(mailbox)
        security = CurveClient(target_key, keys) if keys else Null()
        self.dealer = Dealer(reactor, Options(identity=b"\x01" + uuid.bytes, security=security))
        self.dealer.connect(target)

    def say(self, message: Message) -> None:
        assert self.dealer.try_send(message.encode())

    def greet(self, **fields: Any) -> None:
        values = {"endpoint": self.endpoint, "name": "bob", **fields}
        self.say(Hello(1, **values))

    def heard(self) -> list[list[bytes]]:
        """Return the new messages in the mailbox, without the identity of their sender."""
        messages = []
        while (message := self.router.try_recv()) is not None:
            messages.append(message[1:])
        return messages

    def close(self) -> None:
        self.router.close(0)
        self.dealer.close(0)


class Witness(Stranger):
    """A bare socket that keeps every byte that it reads."""

    raw = b""

    def _take(self, data: bytes) -> None:
        self.raw += data
        super()._take(data)

    def has_messages(self) -> bool:
        """Read all that has come; return whether anything has."""
        return self.heard_all() and bool(self.messages)
