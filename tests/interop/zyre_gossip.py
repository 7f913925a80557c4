"""A node with the habits of Zyre that finds others by zgossip, as a hub or as a client, on the sockets of libzmq.

A hub forgets a client that has been silent for a second, without a word, and answers INVALID to one that it does not
know, unless it says HELLO. A client says HELLO and tells its own tuple once, and sends no PINGs; after INVALID it says
HELLO again, and tells nothing. A node that stops says GOODBYE to its peers.
"""

from __future__ import annotations

import struct
import time
from uuid import UUID

import zmq

from tests.interop.zyre import Zyre

HELLO, PING, PONG, INVALID = (b"\xaa\xa0" + bytes([command, 1]) for command in (1, 3, 4, 5))
FORGOTTEN = 1.0  # seconds


def publish(key: str, value: str) -> bytes:
    return (
        b"\xaa\xa0\x02\x01"
        + bytes([len(key)])
        + key.encode()
        + struct.pack(">I", len(value))
        + value.encode()
        + bytes(4)  # ttl
    )


def published(octets: bytes) -> tuple[str, str] | None:
    """Return the key and the value in a PUBLISH."""
    if octets[:4] != b"\xaa\xa0\x02\x01":
        return None
    start = 5 + octets[4]
    (size,) = struct.unpack_from(">I", octets, start)
    assert len(octets) == start + 4 + size + 4
    return octets[5:start].decode(), octets[start + 4 : start + 4 + size].decode()


class GossipingZyre(Zyre):
    """A hub (`hub_endpoint` is where), and a client if `connect` names another hub; `tuples` is all that it knows.

    If it is `shy`, it greets only nodes that have greeted it.
    """

    def __init__(
        self,
        name: str = "zyre",
        bind: str = "tcp://127.0.0.1:*",
        connect: str = "",
        hub_key: bytes = b"",
        keys: tuple[bytes, bytes] | None = None,
        shy: bool = False,
    ) -> None:
        self.tuples: dict[str, str] = {}
        self.heard: list[bytes] = []  # all messages of zgossip that came
        self.hub_endpoint = bind
        self._connect = connect
        self._hub_key = hub_key
        self._clients: dict[bytes, float] = {}  # those that said HELLO, and when they were last heard
        self._leaving = False
        self._shy = shy
        self._awaited: set[UUID] = set()  # the nodes that it greeted, and that have not answered
        super().__init__(name, keys=keys)

    def leave(self) -> None:
        """Say goodbye, and end."""
        self._leaving = True
        self._thread.join()

    def _open(self) -> None:
        server = {"curve_server": 1, **self._curve} if self._curve else {}
        self._hub = self._theirs.socket(zmq.ROUTER, **server)
        self.hub_endpoint = self._theirs.bind(self._hub, self.hub_endpoint)
        client = {**self._curve, "curve_serverkey": self._hub_key} if self._curve and self._hub_key else {}
        self._remote = self._theirs.socket(zmq.DEALER, **client)
        own = f"{self.endpoint}|{self._headers['X-PUBLICKEY']}" if self._curve else self.endpoint
        self.tuples[self.uuid.hex.upper()] = own
        if self._connect:
            self._remote.connect(self._connect)
            self._remote.send(HELLO)
            self._remote.send(publish(self.uuid.hex.upper(), own))

    def _turn(self) -> None:
        while self._hub.poll(0):
            self._client_says(*self._hub.recv_multipart())
        while self._connect and self._remote.poll(0):
            octets = self._remote.recv()
            self.heard.append(octets)
            if octets == INVALID:
                self._remote.send(HELLO)
            self._accept(octets)
        for client, heard in list(self._clients.items()):
            if time.monotonic() - heard > FORGOTTEN:
                del self._clients[client]
        if self._leaving:
            for peer in list(self.peers):
                self._sent[peer] += 1
                self._dealers[peer].linger = 1000
                self._dealers[peer].send(b"\xaa\xa1\x0a\x02" + struct.pack(">H", self._sent[peer]))
                self._dealers[peer].close()
            self._ended.set()

    def _client_says(self, client: bytes, octets: bytes) -> None:
        self.heard.append(octets)
        if octets == PING:
            self._hub.send_multipart([client, PONG])
        elif octets == HELLO and client not in self._clients:
            for key, value in self.tuples.items():
                self._hub.send_multipart([client, publish(key, value)])
            self._clients[client] = time.monotonic()
        elif client in self._clients and published(octets):
            self._accept(octets)
        else:
            self._clients.pop(client, None)
            self._hub.send_multipart([client, INVALID])
        if client in self._clients:
            self._clients[client] = time.monotonic()

    def _accept(self, octets: bytes) -> None:
        told = published(octets)
        if told is None or self.tuples.get(told[0]) == told[1]:
            return
        self.tuples[told[0]] = told[1]
        for client in self._clients:
            self._hub.send_multipart([client, octets])
        endpoint, _, key = told[1].partition("|")
        uuid = UUID(told[0])
        if uuid not in self.peers and endpoint != self.endpoint and not self._shy:
            self._greeted(uuid, endpoint, key)
            self._awaited.add(uuid)

    def _greeted(self, sender: UUID, endpoint: str, key: str = "") -> None:
        if sender in self._awaited:
            self._awaited.discard(sender)  # its HELLO is the answer
        else:
            super()._greeted(sender, endpoint, key)
