"""The habits of MCollective's zeromq connector, on a DEALER of libzmq."""

from __future__ import annotations

import uuid

import zmq

from tests.interop.libzmq import Theirs
from zambezi.zmtp import KeyPair, z85

SERVER, DAEMON, CLIENT, STRANGER = (KeyPair.generate() for _ in range(4))
# About a hundred bytes: a name, a process and the description of a Ruby thread.
IDENTITY = b"node%d 21840 #<Thread:0x000055d0c1f0a1b8 /usr/lib/ruby/vendor_ruby/mcollective/runner.rb:%d run>"
BODY = b"\x04\bo:\x12PSKPlugin\x00\xff" + bytes(range(256))  # like Ruby's Marshal: any bytes


class RubyConnector:
    """A client that does with its socket exactly what MCollective's zeromq connector does."""

    def __init__(
        self, theirs: Theirs, endpoint: str, number: int = 3, keys: KeyPair | None = None, **more: int
    ) -> None:
        options: dict[str, int | bytes] = {"identity": IDENTITY % (number, more.pop("thread", number)), **more}
        if keys is not None:
            options |= {
                "curve_serverkey": z85.encode(SERVER.public).encode(),
                "curve_publickey": z85.encode(keys.public).encode(),
                "curve_secretkey": z85.encode(keys.secret).encode(),
            }
        self.sock = theirs.socket(zmq.DEALER, **options)
        self.sock.connect(endpoint)

    def send(self, verb: bytes, headers: dict[bytes, bytes], positional: list[bytes] | None = None) -> None:
        frames = [b"", verb]
        for key in sorted(headers):
            frames += [key, headers[key]]
        self.sock.send_multipart(frames + ([b"", *positional] if positional is not None else []))

    def _confirmed(self, verb: bytes, headers: dict[bytes, bytes], positional: list[bytes] | None = None) -> None:
        """Send a command with an ID. The very next message must be the answer, or the connector gives up."""
        id_ = str(uuid.uuid4()).encode()
        self.send(verb, {b"ID": id_, **headers}, positional)
        assert self.sock.recv_multipart() == [b"", b"OK", b"ID", id_]

    def connect(self, ttl: int = 30_000) -> None:
        self._confirmed(b"CONNECT", {b"VERSION": b"0.2", b"TTL": b"%d" % ttl})

    def subscribe(self, *topics: bytes) -> None:
        self._confirmed(b"SUB", {}, list(topics))

    def unsubscribe(self, *topics: bytes) -> None:
        self._confirmed(b"UNSUB", {}, list(topics))

    def put(self, topic: bytes, body: bytes, reply_to: bytes | None = None) -> None:
        self.send(b"PUT", {b"TOPIC": topic} | ({b"X-REPLY-TO": reply_to} if reply_to else {}), [body])

    def receive(self) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Receive the next MESSAGE; return its headers and its body."""
        while True:
            empty, verb, *rest = self.sock.recv_multipart()
            assert empty == b""
            if verb == b"NOOP":
                continue
            assert verb == b"MESSAGE"
            end = rest.index(b"")
            return dict(zip(rest[:end:2], rest[1:end:2], strict=True)), rest[end + 1 :]

    def disconnect(self) -> None:
        self.send(b"DISCONNECT", {})
