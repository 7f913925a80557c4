"""ZMTP: frames, greetings, commands, handshakes of all mechanisms and the traffic after them, endpoints."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.campaign.target import ParserTarget, Target
from tests.zmtp.engines import guard, securities
from zambezi.zmtp import commands, curve
from zambezi.zmtp.connection import Closed, Connection, Failed, Heartbeat, Limits, State
from zambezi.zmtp.curve import CookieKey
from zambezi.zmtp.endpoint import parse
from zambezi.zmtp.errors import EndpointError, ProtocolError
from zambezi.zmtp.frames import Decoder, Message, encode, encode_command
from zambezi.zmtp.greeting import Greeting
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.security import CurveServer

LIMIT = 20_000
METADATA = commands.encode_metadata({"Socket-Type": b"DEALER", "Identity": b"me", "X-More": b"x" * 40})


def pieces() -> list[bytes]:
    """Return valid traffic: messages of one frame and of several, runs of equal sizes, long frames, commands."""
    return [
        encode([b"one", (b"two", b"", b"three" * 60), b""]),
        encode([b"same"] * 70),
        encode([b"long" * 100] * 3),
        encode([b"\x01sub", b"\x00sub", b"x"]) + encode_command(commands.ping(1.0, b"context")),
        encode_command(commands.command(commands.SUBSCRIBE, b"a")) + encode([(b"a", b"b")] * 5),
        encode_command(commands.error("400")),
    ]


class Frames(Target):
    """The decoder of frames. However the bytes are cut into reads, it returns the same."""

    name = "frames"
    share = 60

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        self._seeds = pieces()

    def feed(self) -> None:
        below = self.mutator.below
        octets = self.mutator.mutate(self._seeds[below(6)], self._seeds[below(6)])
        self.history = [octets]
        at = below(len(octets) + 1)
        multipart = below(4) > 0
        whole = Decoder(LIMIT, LIMIT, multipart)
        cut = Decoder(LIMIT, LIMIT, multipart)
        found = whole.feed(octets)
        again = cut.feed(octets[:at]) + cut.feed(octets[at:])
        if sum(map(len, found)) != sum(map(len, again)) or (whole.failure is None) != (cut.failure is None):
            raise AssertionError(f"another result if the bytes are cut at {at}")

    def check(self) -> None:
        assert sum(map(len, Decoder(LIMIT, LIMIT).feed(self._seeds[1]))) == 70


class Greetings(ParserTarget):
    """The first 64 bytes of a connection."""

    name = "greetings"
    share = 40
    errors = (ProtocolError,)

    def __init__(self, chance: Random) -> None:
        seeds = [
            Greeting(name, role, version).encode()
            for name in ("NULL", "PLAIN", "CURVE")
            for role in (False, True)
            for version in ((3, 0), (3, 1))
        ]
        super().__init__(chance, seeds, Greeting.decode)


def read_command(body: bytes) -> None:
    """Parse a command as a connection does."""
    name, data = commands.split(body)
    if name == commands.PING:
        commands.read_ping(data)
    elif name == commands.ERROR:
        commands.error_reason(data)
    else:
        commands.decode_metadata(data)


class Commands(ParserTarget):
    """The commands of connections, and the metadata in READY and INITIATE."""

    name = "commands"
    share = 40
    errors = (ProtocolError,)

    def __init__(self, chance: Random) -> None:
        seeds = [
            commands.command(commands.READY, METADATA),
            commands.ping(2.0, b"context"),
            commands.error("nobody knows you"),
            commands.command(b"INITIATE", METADATA),
        ]
        super().__init__(chance, seeds, read_command)

    def check(self) -> None:
        assert len(commands.decode_metadata(METADATA)) == 3


class Endpoints(ParserTarget):
    """Endpoints, which peers of a mesh send as text."""

    name = "endpoints"
    share = 10
    errors = (EndpointError,)

    def __init__(self, chance: Random) -> None:
        seeds = [
            b"tcp://127.0.0.1:5555",
            b"tcp://[::1]:*",
            b"tcp://eth0:0",
            b"ipc:///tmp/x",
            b"ipc://@a",
            b"inproc://a",
        ]
        super().__init__(chance, seeds, lambda octets: parse(octets.decode("utf-8", "replace"), binding=True))


class _ShortKeys:
    """The short-term keys of a CURVE handshake, always the same: so a recorded handshake can be used again."""

    def __init__(self, number: int) -> None:
        keys = KeyPair.generate(seed=bytes([number]) * 32)
        self.pair = (keys.public, keys.secret)

    def __call__(self) -> tuple[bytes, bytes]:
        return self.pair


_CLIENT, _SERVER = _ShortKeys(10), _ShortKeys(11)


class Handshakes(Target):
    """A whole connection: the recorded bytes of one side, mutated, to a new engine of the other side."""

    mechanism = "NULL"
    share = 30

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        self._keypair: Callable[[], tuple[bytes, bytes]] = vars(curve)["crypto_box_keypair"]
        self._recordings = [(role, self._record(role)) for role in ("client", "server")]

    def close(self) -> None:
        self._use(self._keypair)

    def _use(self, keys: Callable[[], tuple[bytes, bytes]]) -> None:
        vars(curve)["crypto_box_keypair"] = keys

    def _engine(self, role: str) -> Connection:
        client, server = securities(self.mechanism)
        if self.mechanism == "CURVE":
            server = CurveServer(server.keys, CookieKey(random=bytes))  # type: ignore[attr-defined]
        limits = Limits(frame=LIMIT, message=LIMIT, handshake=2000)
        self._use(_CLIENT)
        if role == "client":
            made = Connection("XSUB", 0.0, security=client, limits=limits, heartbeat=Heartbeat(1.0))
        else:
            made = Connection(
                "XPUB",
                0.0,
                security=server,
                authenticator=guard(self.mechanism),
                limits=limits,
                heartbeat=Heartbeat(1.0),
            )
        self._use(_SERVER)
        return made

    def _record(self, role: str) -> bytes:
        """Return the bytes that the engine with this role receives: a handshake, then traffic."""
        client, server = self._engine("client"), self._engine("server")
        sender, receiver = (server, client) if role == "client" else (client, server)
        sent = b""
        while sender.output or receiver.output:
            output = sender.take_output()
            sent += output
            receiver.receive(output, 0.0)
            sender.receive(receiver.take_output(), 0.0)
        messages: list[Message] = [b"\x01sub", (b"two", b"", b"three" * 60), b"\x00sub"]
        sent += sender.encode(messages) + sender.mechanism.encode_command(commands.ping(1.0))
        return sent + sender.encode([b"same"] * 20)

    def feed(self) -> None:
        below = self.mutator.below
        role, recording = self._recordings[below(2)]
        octets = self.mutator.mutate(recording, self._recordings[below(2)][1])
        self.history = [role.encode(), octets]
        engine = self._engine(role)
        at = below(len(octets) + 1)
        events = engine.receive(octets[:at], 1.0) + engine.receive(octets[at:], 1.1)
        engine.take_output()
        engine.tick(2.5)
        ends = [event for event in events if isinstance(event, Failed | Closed)]
        if len(ends) > 1 or (ends and engine.state is not State.CLOSED):
            raise AssertionError(f"the connection ended {len(ends)} times")

    def check(self) -> None:
        for role, recording in self._recordings:
            engine = self._engine(role)
            engine.receive(recording, 1.0)
            assert engine.state is State.TRAFFIC


class NullHandshakes(Handshakes):
    name = "handshakes: NULL"


class PlainHandshakes(Handshakes):
    name = "handshakes: PLAIN"
    mechanism = "PLAIN"


class CurveHandshakes(Handshakes):
    name = "handshakes: CURVE"
    mechanism = "CURVE"
    share = 10


TARGETS = [Frames, Greetings, Commands, Endpoints, NullHandshakes, PlainHandshakes, CurveHandshakes]
