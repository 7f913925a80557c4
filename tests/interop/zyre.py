"""A node with the habits of Zyre, on the sockets of libzmq. It is found by its mailbox: it sends no beacons.

Its ROUTER gives no identity, and hands a connection over to the next one with the same identity. It has a new UUID each
time, also on the same port. It greets a node that greets it, parts every peer at an endpoint that another one has now,
and answers PING; the messages of a node that has not greeted it are ignored.

With `keys` (public and secret, in Z85) it has CURVE as Zyre has it: its ROUTER has its keys, its DEALERs have them too,
and connect to the public key that the header X-PUBLICKEY of a HELLO names. It ignores a HELLO without one.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self
from uuid import UUID, uuid4

import zmq

from tests.interop.libzmq import Theirs
from zambezi.zre.messages import Hello, Ping, PingOk, Stable


class Zyre:
    """A node that runs in a thread. `received` are its messages, and `peers` the endpoints of its peers."""

    def __init__(
        self,
        name: str = "zyre",
        endpoint: str = "tcp://127.0.0.1:*",
        groups: tuple[str, ...] = (),
        keys: tuple[bytes, bytes] | None = None,
    ) -> None:
        self.uuid = uuid4()
        self.name = name
        self.groups = groups
        self.received: list[object] = []
        self.peers: dict[UUID, str] = {}
        self._theirs = Theirs()
        self._curve: dict[str, int | bytes] = (
            {"curve_publickey": keys[0], "curve_secretkey": keys[1]} if keys is not None else {}
        )
        self._headers = {"X-PUBLICKEY": keys[0].decode()} if keys is not None else {}
        server = {"curve_server": 1, **self._curve} if keys is not None else {}
        self._inbox = self._theirs.socket(zmq.ROUTER, router_handover=1, **server)
        self.endpoint = self._theirs.bind(self._inbox, endpoint)
        self._dealers: dict[UUID, zmq.Socket[bytes]] = {}
        self._sent: dict[UUID, int] = {}
        self._to_greet: list[tuple[UUID, str]] = []
        self._ended = threading.Event()
        self._open()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def die(self) -> None:
        """End like a killed process: without a goodbye."""
        self._ended.set()
        self._thread.join()

    def greet(self, endpoint: str, uuid: UUID) -> None:
        """Greet a node of which it heard."""
        self._to_greet.append((uuid, endpoint))

    def _run(self) -> None:
        with self._theirs:
            while not self._ended.is_set():
                while self._to_greet:
                    self._greeted(*self._to_greet.pop())
                if self._inbox.poll(10):
                    self._receive(*self._inbox.recv_multipart())
                self._turn()

    def _open(self) -> None:
        """Open further sockets, before the thread starts."""

    def _turn(self) -> None:
        """Do further work, again and again."""

    def _receive(self, identity: bytes, *frames: bytes) -> None:
        sender = UUID(bytes=identity[1:])
        message = Stable.decode(list(frames))
        if isinstance(message, Hello):
            key = message.headers.get("X-PUBLICKEY", "")
            if self._curve and not key:
                return
            self._greeted(sender, message.endpoint, key)
        elif sender not in self.peers:
            return
        elif isinstance(message, Ping):
            self._send(sender, PingOk)
        self.received.append(message)

    def _greeted(self, sender: UUID, endpoint: str, key: str = "") -> None:
        for uuid in [uuid for uuid, where in self.peers.items() if where == endpoint or uuid == sender]:
            del self.peers[uuid]
            self._dealers.pop(uuid).close(0)
        self.peers[sender] = endpoint
        self._dealers[sender] = dealer = self._theirs.socket(
            zmq.DEALER,
            routing_id=b"\x01" + self.uuid.bytes,
            **({**self._curve, "curve_serverkey": key.encode()} if self._curve else {}),
        )
        dealer.connect(endpoint)
        self._sent[sender] = 0
        fields = {
            "endpoint": self.endpoint,
            "name": self.name,
            "groups": list(self.groups),
            "headers": self._headers,
        }
        self._send(sender, Hello, **fields, status=len(self.groups))

    def _send(self, peer: UUID, kind: type[Hello] | type[PingOk], **fields: object) -> None:
        self._sent[peer] += 1
        self._dealers[peer].send_multipart(kind(self._sent[peer], **fields).encode())  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.die()
