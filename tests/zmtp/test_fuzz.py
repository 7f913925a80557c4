"""Any bytes at any moment: the engine does not raise, and its events do not depend on how reads are cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zmtp.engines import (
    CLIENT_KEYS,
    MECHANISMS,
    READS,
    SERVER_KEYS,
    connected,
    cut,
    flat,
    guard,
    pair,
    securities,
)
from zambezi.zmtp import curve
from zambezi.zmtp.commands import command, encode_metadata, error, ping
from zambezi.zmtp.connection import Closed, Connection, Event, Failed, Heartbeat, Limits, Ready, State
from zambezi.zmtp.curve import CookieKey
from zambezi.zmtp.frames import Message, encode, encode_command
from zambezi.zmtp.greeting import Greeting
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.mechanism import Terms
from zambezi.zmtp.security import CurveServer, Security

LIMITS = Limits(frame=2000, message=2000, handshake=2000)
ROLES = ("client", "server")

NAMES = st.sampled_from(
    [b"READY", b"ERROR", b"PING", b"PONG", b"SUBSCRIBE", b"CANCEL", b"HELLO", b"WELCOME", b"INITIATE", b"MESSAGE", b"X"]
)
METADATA = st.dictionaries(
    st.sampled_from(["Socket-Type", "Identity", "X-More"]),
    st.sampled_from([b"DEALER", b"ROUTER", b"SUB", b"", b"\0", b"\xff" * 300]),
).map(encode_metadata)
DATA = st.binary(max_size=30) | METADATA | st.binary(max_size=40).map(lambda data: data.ljust(160, b"\0"))
COMMANDS = st.builds(command, NAMES, DATA) | st.binary(max_size=20)
# From noise to valid pieces: noise alone would never get beyond the first check.
PIECES = st.one_of(
    st.binary(max_size=40),
    COMMANDS.map(encode_command),
    st.sampled_from(
        [
            *(
                Greeting(name, role, version).encode()
                for name in MECHANISMS
                for role in (False, True)
                for version in ((3, 0), (3, 1))
            ),
            encode_command(command(b"READY")),
            encode_command(ping(1.0)),
            encode_command(error("400")),
            encode([b"x"]) * 70,
            encode([(b"\x01a", b"b"), b"\x01a"]),
            b"\x01\x00" * 300,
            b"\x02" + bytes(7) + b"\xff",
            b"\x06" + b"\xff" * 8,
        ]
    ),
)
NOISE = st.lists(PIECES, max_size=8).map(b"".join)


def drive(connection: Connection, octets: bytes, sizes: Sequence[int]) -> tuple[list[Event], int]:
    """Use an engine as a link does; return its events, and the number of bytes that it answered."""
    events: list[Event] = []
    answered = 0
    now = 1.0
    for read in cut(octets, sizes):
        events += connection.receive(read, now)
        answered += len(connection.take_output())
        assert connection.deadline is None or connection.deadline > 0
        now += 0.001
    ends = [event for event in events if isinstance(event, Failed | Closed)]
    assert len(ends) == (connection.state is State.CLOSED)
    assert not ends or events[-1] is ends[0]
    return events, answered


@settings(max_examples=cases(150))
@given(
    st.sampled_from(MECHANISMS),
    st.sampled_from(ROLES),
    st.integers(0, 5),
    st.booleans(),
    NOISE,
    READS,
)
def test_any_bytes_at_any_moment(
    mechanism: str, role: str, steps: int, publishes: bool, noise: bytes, sizes: list[int]
) -> None:
    types = ("SUB", "XPUB") if publishes else ("DEALER", "ROUTER")
    client, server = pair(mechanism, *types)
    # Do `steps` of the handshake; then one of the two engines receives something else.
    for step in range(steps):
        sender, receiver = (client, server) if step % 2 else (server, client)
        receiver.receive(sender.take_output(), 0.0)
    drive(client if role == "client" else server, noise, sizes)


@settings(max_examples=cases(50))
@given(
    st.lists(st.tuples(st.integers(0, 255), COMMANDS | st.binary(max_size=300)), max_size=8),
    st.sampled_from(ROLES),
    READS,
)
def test_anything_in_boxes_that_open(inside: list[tuple[int, bytes]], role: str, sizes: list[int]) -> None:
    client, server = connected("CURVE", "XSUB", "XPUB")
    sender, receiver = (server, client) if role == "client" else (client, server)
    assert isinstance(sender.mechanism, curve.CurveClient | curve.CurveServer)
    octets = b""
    for flags, payload in inside:
        with mock.patch.dict("zambezi.zmtp.box._FLAGS", {flags: bytes([flags])}):
            octets += sender.mechanism._sealer.seal([flags], [payload])
    drive(receiver, octets, sizes)


# Valid streams, cut and changed. For CURVE, all receivers have the same keys and random numbers, so that any number of
# them can receive what one side sent once.


@contextmanager
def same_short_keys(number: int) -> Iterator[None]:
    keys = KeyPair.generate(seed=bytes([number]) * 32)
    with mock.patch.object(curve, "crypto_box_keypair", return_value=(keys.public, keys.secret)):
        yield


def make(mechanism: str, role: str) -> Connection:
    client, server = securities(mechanism)
    if mechanism == "CURVE":
        server = CurveServer(SERVER_KEYS, CookieKey(random=bytes))
    beat = Heartbeat(1.0)
    with same_short_keys(10):
        if role == "client":
            return Connection("XSUB", 0.0, security=client, limits=LIMITS, heartbeat=beat)
        rules = guard(mechanism)
        return Connection("XPUB", 0.0, security=server, authenticator=rules, limits=LIMITS, heartbeat=beat)


def feed(mechanism: str, role: str, octets: bytes, sizes: Sequence[int]) -> tuple[list[object], State, int]:
    """Return the events of a new receiver, its state at the end, and the number of bytes that it answered."""
    connection = make(mechanism, role)
    with same_short_keys(11):
        events, answered = drive(connection, octets, sizes)
        return flat(events), connection.state, answered


@dataclass(frozen=True)
class Recording:
    """The bytes that a receiver was sent, in pieces: each is a greeting, a command or a message."""

    mechanism: str
    role: str
    pieces: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"<{self.mechanism} to the {self.role}>"


def record(mechanism: str, role: str) -> Recording:
    client, server = make(mechanism, "client"), make(mechanism, "server")
    sender, receiver = (server, client) if role == "client" else (client, server)
    pieces: list[bytes] = []
    with same_short_keys(11):
        while sender.output or receiver.output:
            for one, other in ((sender, receiver), (receiver, sender)):
                output = one.take_output()
                if output:
                    other.receive(output, 0.0)
                    if one is sender:
                        pieces += [output[:64], output[64:]] if output[0] == 0xFF else [output]
    assert sender.state is receiver.state is State.TRAFFIC
    messages: list[Message] = [b"one", (b"two", b"", b"three" * 60), b"\x01sub", b"\x00sub", b""]
    pieces += [sender.encode([message]) for message in messages]
    for body in (ping(1.0, b"context"), command(b"SUBSCRIBE", b"a"), command(b"CANCEL", b"a"), command(b"UNKNOWN")):
        pieces.append(sender.mechanism.encode_command(body))
    pieces += [sender.encode([b"same"] * 70, True), sender.encode([b"last"])]
    return Recording(mechanism, role, tuple(piece for piece in pieces if piece))


RECORDINGS = {(mechanism, role): record(mechanism, role) for mechanism in MECHANISMS for role in ROLES}
EACH = pytest.mark.parametrize("recording", RECORDINGS.values(), ids=repr)


@EACH
def test_equal_receivers_understand_the_same_recording(recording: Recording) -> None:
    events, state, answered = feed(recording.mechanism, recording.role, b"".join(recording.pieces), [1 << 20])
    assert answered > 64
    assert state is State.TRAFFIC
    assert isinstance(events[0], Ready)
    assert [b"two", b"", b"three" * 60] in events
    assert events[-71:] == [[b"same"]] * 70 + [[b"last"]]


@EACH
@settings(max_examples=cases(10))
@given(sizes=READS)
def test_the_events_do_not_depend_on_the_reads(recording: Recording, sizes: list[int]) -> None:
    octets = b"".join(recording.pieces)
    whole = feed(recording.mechanism, recording.role, octets, [1 << 20])
    assert feed(recording.mechanism, recording.role, octets, sizes) == whole


@EACH
def test_byte_by_byte(recording: Recording) -> None:
    octets = b"".join(recording.pieces)
    whole = feed(recording.mechanism, recording.role, octets, [1 << 20])
    assert feed(recording.mechanism, recording.role, octets, [1]) == whole


@dataclass(frozen=True)
class Change:
    """A change of a stream, at a place that is a share of its length."""

    kind: str
    place: float
    size: int
    octets: bytes

    def of(self, stream: bytes) -> bytes:
        at = int(self.place * len(stream))
        before, after = stream[:at], stream[at:]
        match self.kind:
            case "flip":
                return before + bytes(octet ^ self.size for octet in after[:1]) + after[1:]
            case "delete":
                return before + after[self.size :]
            case "insert":
                return before + self.octets + after
            case "repeat":
                return before + after[: self.size] + after
            case _:
                return before


CHANGES = st.lists(
    st.builds(
        Change,
        st.sampled_from(["flip", "delete", "insert", "repeat", "end"]),
        st.floats(0.0, 1.0, exclude_max=True),
        st.integers(1, 255),
        PIECES,
    ),
    min_size=1,
    max_size=4,
)


@EACH
@settings(max_examples=cases(20))
@given(changes=CHANGES, sizes=READS)
def test_changed_streams_do_not_raise_and_do_not_depend_on_the_reads(
    recording: Recording, changes: list[Change], sizes: list[int]
) -> None:
    octets = b"".join(recording.pieces)
    for change in changes:
        octets = change.of(octets)
    whole = feed(recording.mechanism, recording.role, octets, [1 << 20])
    assert feed(recording.mechanism, recording.role, octets, sizes) == whole


@EACH
@settings(max_examples=cases(10))
@given(data=st.data(), sizes=READS)
def test_pieces_in_any_order(recording: Recording, data: st.DataObject, sizes: list[int]) -> None:
    chosen = data.draw(st.lists(st.sampled_from(recording.pieces), max_size=12))
    keep = data.draw(st.integers(0, 4))
    octets = b"".join([*recording.pieces[:keep], *chosen])
    whole = feed(recording.mechanism, recording.role, octets, [1 << 20])
    assert feed(recording.mechanism, recording.role, octets, sizes) == whole


@pytest.mark.parametrize("role", ROLES)
def test_a_changed_byte_never_changes_a_message_in_curve(role: str) -> None:
    """Change each byte of a stream after the greeting: the delivered messages are always the first of the sent ones."""
    recording = RECORDINGS["CURVE", role]
    octets = b"".join(recording.pieces)
    expected, _, _ = feed("CURVE", role, octets, [1 << 20])
    handshake = 64 + sum(map(len, recording.pieces[1:3]))
    for place in range(64, len(octets), 3):
        changed = octets[:place] + bytes([octets[place] ^ 1 << place % 8]) + octets[place + 1 :]
        events, state, _ = feed("CURVE", role, changed, [1 << 20])
        if events and isinstance(events[-1], Failed | Closed):
            events.pop()
        assert events == expected[: len(events)]
        if place < handshake:
            assert events == []
            assert state is not State.TRAFFIC


def test_the_secret_keys_are_never_sent() -> None:
    for recording in RECORDINGS.values():
        octets = b"".join(recording.pieces)
        for keys in (CLIENT_KEYS, SERVER_KEYS, *(KeyPair.generate(seed=bytes([number]) * 32) for number in (10, 11))):
            assert keys.secret not in octets


def test_security_is_a_protocol() -> None:
    for mechanism in MECHANISMS:
        for security in securities(mechanism):
            made: Security = security
            assert made.mechanism(Terms({})).name == mechanism
