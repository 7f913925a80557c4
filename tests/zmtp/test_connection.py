"""zambezi.zmtp.connection: the engine, without I/O: handshakes, refusals, limits, heartbeats, subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zmtp.engines import (
    CLIENT_KEYS,
    MECHANISMS,
    OTHER_KEYS,
    PASSWORD,
    READS,
    SERVER_KEYS,
    connected,
    cut,
    exchange,
    flat,
    guard,
    halves,
    only,
    pair,
    securities,
)
from zambezi.zmtp.authenticator import Authenticator, Claim
from zambezi.zmtp.commands import command, encode_metadata, error, error_reason, ping, split
from zambezi.zmtp.connection import (
    COMPATIBLE,
    Closed,
    Connection,
    Event,
    Failed,
    Heartbeat,
    Limits,
    Ready,
    State,
    Subscription,
)
from zambezi.zmtp.errors import ProtocolError, ZmtpError
from zambezi.zmtp.frames import Batch, CommandFrame, Decoder, Message, encode, encode_command
from zambezi.zmtp.greeting import Greeting
from zambezi.zmtp.security import CurveClient, CurveServer, Null, PlainClient, PlainServer, Security

# Bytes that were recorded from libzmq 4.3.6.
LIBZMQ_GREETING = bytes.fromhex("ff00000000000000017f 0301 4e554c4c") + bytes(16) + b"\x00" + bytes(31)
LIBZMQ_PEER_READY = bytes.fromhex("041a 055245414459 0b536f636b65742d54797065 00000004 50454552")
LIBZMQ_PING = bytes.fromhex("040b 0450494e47 000a 63747831")
LIBZMQ_PONG = bytes.fromhex("0409 04504f4e47 63747831")


def ready(socket_type: str = "ROUTER", **more: bytes) -> bytes:
    metadata = encode_metadata({"Socket-Type": socket_type.encode(), **more})
    return encode_command(command(b"READY", metadata))


def greeted(version: tuple[int, int] = (3, 1), mechanism: str = "NULL", as_server: bool = False) -> bytes:
    return Greeting(mechanism, as_server, version).encode()


def in_traffic(
    socket_type: str = "DEALER",
    peer_type: str = "ROUTER",
    version: tuple[int, int] = (3, 1),
    heartbeat: Heartbeat | None = None,
    now: float = 0.0,
    limits: Limits | None = None,
) -> Connection:
    """Return a NULL connection after its handshake with a peer of this version."""
    connection = Connection(socket_type, now, heartbeat=heartbeat, limits=limits)
    only(connection.receive(greeted(version) + ready(peer_type), now), Ready)
    connection.take_output()
    return connection


def said(octets: bytes) -> list[tuple[bytes, bytes]]:
    """Return the commands in the bytes that an engine sent."""
    found = []
    for item in Decoder(1 << 20, 1 << 20).feed(octets):
        assert isinstance(item, CommandFrame)
        found.append(split(item))
    return found


def last_words(connection: Connection) -> str | None:
    """Return the reason in the ERROR that a connection sent at the end, or None."""
    octets = connection.take_output()
    for name, data in said(octets[64:] if octets[:1] == b"\xff" else octets):
        if name == b"ERROR":
            return error_reason(data)
    return None


# The handshake


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_two_engines_meet_and_talk(mechanism: str) -> None:
    client, server = pair(mechanism)
    at_client, at_server = exchange(client, server)
    assert only(at_client, Ready) == Ready("ROUTER", b"", "", (3, 1), client.mechanism.peer, client.mechanism.peer_key)
    user = "" if mechanism == "NULL" else "ali"
    assert only(at_server, Ready) == Ready(
        "DEALER", b"me", user, (3, 1), server.mechanism.peer, server.mechanism.peer_key
    )
    assert bool(client.mechanism.peer_key) == bool(server.mechanism.peer_key) == (mechanism == "CURVE")
    assert server.state is client.state is State.TRAFFIC
    messages: list[Message] = [b"one", (b"two", b""), b"three" * 100]
    expected = [[b"one"], [b"two", b""], [b"three" * 100]]
    assert flat(server.receive(client.encode(messages), 1.0)) == expected
    assert flat(client.receive(server.encode(messages), 1.0)) == expected
    assert only(server.receive(client.encode([b"a", b"b"], True), 1.0), Batch) == Batch([b"a", b"b"])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_handshake_cut_anywhere(mechanism: str) -> None:
    for at in range(1, 340 if mechanism == "CURVE" else 130):
        client, server = pair(mechanism)
        at_client, at_server = exchange(client, server, into_reads=halves(at))
        only(at_client, Ready)
        only(at_server, Ready)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("size", [1, 2, 3, 9, 10, 11, 63, 64, 65])
def test_the_handshake_in_small_reads(mechanism: str, size: int) -> None:
    client, server = pair(mechanism)
    for events in exchange(client, server, into_reads=lambda octets: cut(octets, [size])):
        only(events, Ready)
    found: list[Event] = []
    for read in cut(client.encode([b"one", (b"two", b"three")]), [size]):
        found += server.receive(read, 0.0)
    assert flat(found) == [[b"one"], [b"two", b"three"]]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_messages_right_behind_the_handshake_are_not_lost(mechanism: str) -> None:
    client, server = pair(mechanism)
    while client.state is not State.TRAFFIC:
        server.receive(client.take_output(), 0.0)
        output = server.take_output()
        if server.state is State.TRAFFIC:  # its last command, and a message after it in the same read
            events = client.receive(output + server.encode([b"early"]), 0.0)
            assert [type(event) for event in events] == [Ready, Batch]
            assert flat(events[1:]) == [[b"early"]]
        else:
            client.receive(output, 0.0)


def test_a_recorded_libzmq_peer() -> None:
    connection = Connection("PEER", 0.0)
    assert connection.take_output() == LIBZMQ_GREETING
    assert connection.receive(LIBZMQ_GREETING[:10], 0.0) == []
    assert connection.receive(LIBZMQ_GREETING[10:], 0.0) == []
    assert connection.take_output() == LIBZMQ_PEER_READY
    assert only(connection.receive(LIBZMQ_PEER_READY, 0.0), Ready).socket_type == "PEER"
    assert connection.receive(LIBZMQ_PING, 0.0) == []
    assert connection.take_output() == LIBZMQ_PONG
    assert flat(connection.receive(b"\x00\x02hi", 0.0)) == [[b"hi"]]


def test_a_recorded_zre_dealer() -> None:
    identity = b"\x01" + bytes(range(16))
    connection = Connection("ROUTER", 0.0)
    connection.receive(bytes.fromhex("ff00000000000000127f") + LIBZMQ_GREETING[10:], 0.0)
    octets = bytes.fromhex("043a 055245414459 0b") + b"Socket-Type" + bytes.fromhex("00000006") + b"DEALER"
    octets += b"\x08Identity" + bytes.fromhex("00000011") + identity
    properties = {"socket-type": b"DEALER", "identity": identity}
    assert only(connection.receive(octets, 0.0), Ready) == Ready("DEALER", identity, "", (3, 1), properties)


@pytest.mark.parametrize("socket_type", COMPATIBLE)
def test_only_dealer_and_router_send_their_identity(socket_type: str) -> None:
    connection = Connection(socket_type, 0.0, identity=b"me")
    connection.take_output()
    connection.receive(greeted(), 0.0)
    ((name, data),) = said(connection.take_output())
    assert name == b"READY"
    assert (b"Identity" in data) == (socket_type in ("DEALER", "ROUTER"))


@pytest.mark.parametrize("one", COMPATIBLE)
@pytest.mark.parametrize("other", [*COMPATIBLE, "REQ", "REP", "PUSH", "PULL", "PAIR", "CLIENT", "SERVER", "peer", ""])
def test_only_compatible_types_talk(one: str, other: str) -> None:
    allowed = {
        "DEALER": "REP DEALER ROUTER",
        "ROUTER": "REQ DEALER ROUTER",
        "PUB": "SUB XSUB",
        "XPUB": "SUB XSUB",
        "SUB": "PUB XPUB",
        "XSUB": "PUB XPUB",
        "PEER": "PEER",
    }
    connection = Connection(one, 0.0)
    (event,) = connection.receive(greeted() + ready(other), 0.0)
    if other in allowed[one].split():
        assert isinstance(event, Ready)
    else:
        assert isinstance(event, Failed)
        assert one in event.reason
        assert last_words(connection) == event.reason


def test_a_peer_without_a_socket_type_is_accepted() -> None:
    connection = Connection("PEER", 0.0)
    assert only(connection.receive(greeted() + encode_command(command(b"READY")), 0.0), Ready).socket_type == ""


def test_incompatible_types_are_refused_on_both_sides() -> None:
    for mechanism in MECHANISMS:
        client, server = pair(mechanism, "DEALER", "PEER")
        at_client, at_server = exchange(client, server)
        reason = only(at_server, Failed).reason
        assert reason == "a DEALER cannot talk to a PEER"
        # With NULL the client receives the server's type first, and refuses it itself.
        assert only(at_client, Failed).reason.endswith(
            "a PEER cannot talk to a DEALER" if mechanism == "NULL" else reason
        )


@pytest.mark.parametrize("identity", [b"\0abc", b"x" * 256])
def test_an_invalid_identity_is_refused(identity: bytes) -> None:
    connection = Connection("ROUTER", 0.0)
    reason = only(connection.receive(greeted() + ready("DEALER", Identity=identity), 0.0), Failed).reason
    assert "identity" in reason


def test_a_socket_can_refuse_metadata() -> None:
    def admit(properties: Mapping[str, bytes]) -> None:
        if properties["identity"] == b"double":
            raise ProtocolError("there is one like you already")

    for identity, kind in ((b"double", Failed), (b"single", Ready)):
        connection = Connection("ROUTER", 0.0, admit=admit)
        only(connection.receive(greeted() + ready("DEALER", Identity=identity), 0.0), kind)


@pytest.mark.parametrize(
    ("octets", "words"),
    [
        (b"\x00", "1.0"),
        (b"\xff" + bytes(8) + b"\x7f\x01", "2.0"),
        (greeted(mechanism="PLAIN"), "PLAIN"),
        (greeted(mechanism="GSSAPI"), "GSSAPI"),
    ],
)
def test_an_invalid_greeting_is_refused(octets: bytes, words: str) -> None:
    connection = Connection("DEALER", 0.0)
    connection.take_output()
    assert words in only(connection.receive(octets, 0.0), Failed).reason
    assert connection.state is State.CLOSED
    assert connection.take_output() == b""


@pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])
def test_two_clients_or_two_servers_do_not_connect(mechanism: str) -> None:
    for security, words in zip(securities(mechanism), ("HELLO is not allowed now", "set up as"), strict=True):
        one, other = (Connection("DEALER", 0.0, security=security) for _ in range(2))
        for events in exchange(one, other):
            assert words in only(events, Failed).reason


@pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])
def test_a_server_that_does_not_say_so_is_accepted_as_libzmq(mechanism: str) -> None:
    client, server = pair(mechanism)
    spoken = server.take_output()
    assert spoken == greeted(mechanism=mechanism, as_server=True)
    assert client.receive(greeted(mechanism=mechanism), 0.0) == []
    assert client.state is State.HANDSHAKE
    only(exchange(client, server)[0], Ready)


def test_the_role_of_a_null_peer_is_ignored() -> None:
    only(Connection("DEALER", 0.0).receive(greeted(as_server=True) + ready(), 0.0), Ready)


@pytest.mark.parametrize(("theirs", "spoken"), [((3, 0), (3, 0)), ((3, 1), (3, 1)), ((3, 2), (3, 1)), ((4, 0), (3, 1))])
def test_both_sides_use_the_lower_version(theirs: tuple[int, int], spoken: tuple[int, int]) -> None:
    connection = Connection("DEALER", 0.0)
    assert only(connection.receive(greeted(theirs) + ready(), 0.0), Ready).version == spoken
    assert connection.peer_version == spoken


@pytest.mark.parametrize("octets", [b"\x00\x00", b"\x01\x00", b"\x05\x00", b"\x0c\x00", b"\x02" + bytes(8)])
def test_only_commands_are_allowed_in_a_handshake(octets: bytes) -> None:
    connection = Connection("DEALER", 0.0)
    assert "needs a command" in only(connection.receive(greeted() + octets, 0.0), Failed).reason


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_unexpected_command_ends_the_handshake(mechanism: str) -> None:
    for connection, peer in zip(pair(mechanism), (True, False), strict=True):
        as_server = peer and mechanism != "NULL"
        octets = greeted(mechanism=mechanism, as_server=as_server) + encode_command(command(b"PING", b"\0\0"))
        assert "PING is not allowed now" in only(connection.receive(octets, 0.0), Failed).reason
        assert connection.state is State.CLOSED


# Refusals


def meet(
    client: Security, server: Security, authenticator: Authenticator | None, address: str = ""
) -> tuple[Connection, Connection, str, str]:
    """Return the reasons of a handshake that fails on both sides: that of the client, and that of the server."""
    one = Connection("DEALER", 0.0, security=client)
    other = Connection("ROUTER", 0.0, security=server, authenticator=authenticator, address=address)
    at_client, at_server = exchange(one, other)
    assert one.state is other.state is State.CLOSED
    return one, other, only(at_client, Failed).reason, only(at_server, Failed).reason


@pytest.mark.parametrize(
    ("client", "server", "authenticator", "address", "words"),
    [
        (Null(), Null(), Authenticator(users={}), "", "NULL cannot"),
        (Null(), Null(), Authenticator(deny=["192.0.2.1"]), "192.0.2.1", "denied"),
        (PlainClient("ali", "wrong"), PlainServer(), guard("PLAIN"), "", "wrong user or password"),
        (PlainClient("baba", PASSWORD), PlainServer(), guard("PLAIN"), "", "wrong user or password"),
        (PlainClient("ali", PASSWORD), PlainServer(), None, "", "no authenticator"),
        (PlainClient("ali", PASSWORD), PlainServer(), Authenticator(), "", "no PLAIN user"),
        (
            CurveClient(SERVER_KEYS.public, OTHER_KEYS),
            CurveServer(SERVER_KEYS),
            guard("CURVE"),
            "",
            "not among the allowed keys",
        ),
    ],
)
def test_a_refused_peer_receives_400_and_the_reason_stays_here(
    client: Security, server: Security, authenticator: Authenticator | None, address: str, words: str
) -> None:
    _, _, at_client, at_server = meet(client, server, authenticator, address)
    assert words in at_server
    assert "does not let us in (400)" in at_client
    assert words not in at_client
    assert PASSWORD not in at_server


def test_a_wrong_server_key_is_not_answered() -> None:
    client = Connection("DEALER", 0.0, security=CurveClient(OTHER_KEYS.public, CLIENT_KEYS))
    server = Connection("ROUTER", 0.0, security=CurveServer(SERVER_KEYS))
    at_client, at_server = exchange(client, server)
    assert "another public key for this server" in only(at_server, Failed).reason
    assert not at_client
    assert server.take_output() == b""


@pytest.mark.parametrize(
    ("mechanism", "suspicion"),
    [("NULL", "sockets of this type"), ("PLAIN", "the password right"), ("CURVE", "the server key right")],
)
def test_the_reason_of_a_lost_handshake_has_a_hint(mechanism: str, suspicion: str) -> None:
    client, _ = pair(mechanism)
    early = client.explain_loss("it closed")
    assert early.startswith("it closed before it sent a greeting")
    assert mechanism in early
    client.receive(greeted(mechanism=mechanism, as_server=mechanism != "NULL"), 0.0)
    late = client.explain_loss("it closed")
    assert late.startswith("it closed during the handshake")
    assert suspicion in late


def test_the_reason_of_a_lost_connection_has_no_hint() -> None:
    client, _ = connected("NULL")
    assert client.explain_loss("it closed") == "it closed"


def test_an_error_is_not_answered_with_an_error() -> None:
    for mechanism in MECHANISMS:
        for connection, as_server in zip(pair(mechanism), (True, False), strict=True):
            connection.receive(greeted(mechanism=mechanism, as_server=as_server and mechanism != "NULL"), 0.0)
            connection.take_output()
            assert "(300)" in only(connection.receive(encode_command(error("300")), 0.0), Failed).reason
            assert connection.take_output() == b""


@pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])
def test_only_a_server_sends_error(mechanism: str) -> None:
    client, server = pair(mechanism, "PUB")
    at_client, at_server = exchange(client, server)
    assert only(at_server, Failed).reason == "a PUB cannot talk to a ROUTER"
    assert "a PUB cannot talk to a ROUTER" in only(at_client, Failed).reason
    assert client.take_output() == b""


def test_a_client_that_refuses_its_server_sends_no_error() -> None:
    client = pair("PLAIN")[0]
    client.receive(greeted(mechanism="PLAIN", as_server=True) + encode_command(command(b"WELCOME")), 0.0)
    client.take_output()
    assert only(client.receive(ready("PUB"), 0.0), Failed).reason == "a PUB cannot talk to a DEALER"
    assert client.take_output() == b""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_only_permanent_failures_send_error(mechanism: str) -> None:
    """A peer that receives ERROR does not come back (37/ZMTP, "Error Handling")."""
    client, server = pair(mechanism)
    octets = encode_command(command(b"READY", b"\x00"))
    only(client.receive(greeted(mechanism=mechanism, as_server=mechanism != "NULL") + octets, 0.0), Failed)
    only(server.receive(greeted(mechanism=mechanism) + octets, 0.0), Failed)
    assert last_words(client) is last_words(server) is None
    late = pair(mechanism)[1]
    late.receive(greeted(mechanism=mechanism), 0.0)
    only(late.tick(Limits().handshake_time), Failed)
    assert last_words(late) is None


def test_an_error_after_ready_closes_the_connection() -> None:
    connection = in_traffic()
    octets = encode([b"before"]) + encode_command(error("a DEALER cannot talk to a PEER")) + encode([b"after"])
    events = connection.receive(octets, 0.0)
    assert flat(events) == [[b"before"], Closed("the peer says: a DEALER cannot talk to a PEER")]
    assert connection.state is State.CLOSED
    assert connection.take_output() == b""


def test_the_claim_of_a_peer_can_be_judged_again() -> None:
    assert connected("PLAIN")[1].claim == Claim("PLAIN", "", "ali", PASSWORD)
    assert connected("CURVE")[1].claim == Claim("CURVE", "", key=CLIENT_KEYS.public)
    assert connected("NULL")[1].claim == Claim("NULL", "")


# A closed connection


def ways_to_close() -> list[Callable[[], Connection]]:
    def by_greeting() -> Connection:
        connection = Connection("DEALER", 0.0)
        connection.receive(b"\x00", 0.0)
        return connection

    def by_handshake() -> Connection:
        connection = Connection("DEALER", 0.0)
        connection.receive(greeted() + b"\xff\xff", 0.0)
        return connection

    def by_time() -> Connection:
        connection = Connection("DEALER", 0.0)
        connection.tick(30.0)
        return connection

    def by_traffic() -> Connection:
        connection = in_traffic(heartbeat=Heartbeat(1.0))
        connection.receive(b"\xff" * 9, 0.0)
        return connection

    def by_silence() -> Connection:
        connection = in_traffic(heartbeat=Heartbeat(1.0))
        connection.tick(1.0)
        connection.tick(2.0)
        return connection

    return [by_greeting, by_handshake, by_time, by_traffic, by_silence]


@pytest.mark.parametrize("close", ways_to_close())
def test_a_closed_connection_ignores_everything(close: Callable[[], Connection]) -> None:
    connection = close()
    assert connection.state is State.CLOSED
    connection.take_output()
    for octets in (b"", b"\0", greeted() + ready(), encode([b"message"]), encode_command(ping(1.0))):
        assert connection.receive(octets, 50.0) == []
    assert connection.deadline is None
    for now in (51.0, 1e6):
        assert connection.tick(now) == []
    assert not connection.output
    assert connection.take_output() == b""
    assert connection.state is State.CLOSED


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_messages_before_a_violation_are_delivered(mechanism: str) -> None:
    client, server = connected(mechanism)
    octets = client.encode([b"good", (b"also", b"good")]) + b"\x00\x03bad\xf8\x00"
    events = flat(server.receive(octets, 0.0))
    assert events[:2] == [[b"good"], [b"also", b"good"]]
    assert events[2:-1] == ([] if mechanism == "CURVE" else [[b"bad"]])
    assert isinstance(events[-1], Closed)
    assert server.state is State.CLOSED
    assert server.receive(client.encode([b"later"]), 0.0) == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_multipart_message_is_a_violation_if_the_socket_has_none(mechanism: str, size: int) -> None:
    client, security = pair(mechanism, "PEER")[0], securities(mechanism)[1]
    server = Connection("PEER", 0.0, security=security, authenticator=guard(mechanism), multipart=False)
    exchange(client, server)
    stream = [client.encode([b"single", b"single"])]
    stream.append(client.mechanism.encode_command(ping(0.0)))
    stream.append(client.encode([b"single", (b"multi", b"part"), b"later"]))
    events = [event for read in cut(b"".join(stream), [size]) for event in server.receive(read, 0.0)]
    assert flat(events[:-1]) == [[b"single"]] * 3
    assert "multipart" in only(events[-1:], Closed).reason
    assert server.state is State.CLOSED


@pytest.mark.parametrize("octets", [b"\x04\x00", b"\x04\x01\x00", b"\x04\x02\x05X", encode_command(b"\x04PING\0")])
def test_a_malformed_command_closes_the_connection(octets: bytes) -> None:
    connection = in_traffic()
    events = connection.receive(encode([b"before"]) + octets + encode([b"after"]), 0.0)
    assert flat(events[:-1]) == [[b"before"]]
    assert isinstance(events[-1], Closed)


def test_the_first_violation_is_the_reason() -> None:
    connection = in_traffic()
    events = connection.receive(encode_command(error("first")) + b"\xf8\x00", 0.0)
    assert only(events, Closed).reason == "the peer says: first"


# Limits


def test_the_handshake_has_a_limit_in_bytes() -> None:
    for limit, kind in ((299, Failed), (300, Ready)):
        connection = Connection("DEALER", 0.0, limits=Limits(handshake=limit))
        octets = encode_command(command(b"READY", encode_metadata({"X-A": bytes(300 - 6 - 8)})))
        assert len(octets) == 9 + 300
        only(connection.receive(greeted() + octets, 0.0), kind)


def test_the_limit_of_the_handshake_counts_all_its_commands() -> None:
    limits = Limits(handshake=255)
    server = Connection(
        "ROUTER", 0.0, security=PlainServer(), authenticator=Authenticator(users={"u" * 200: "p"}), limits=limits
    )
    hello = encode_command(command(b"HELLO", b"\xc8" + b"u" * 200 + b"\x01p"))
    assert server.receive(greeted(mechanism="PLAIN") + hello, 0.0) == []
    reason = only(server.receive(encode_command(command(b"INITIATE", bytes(60))), 0.0), Failed).reason
    assert "limit of 255 bytes" in reason


def test_a_huge_command_is_refused_by_its_header() -> None:
    for size in (1 << 16) + 1, 1 << 40, (1 << 64) - 1:
        connection = Connection("DEALER", 0.0)
        octets = greeted() + b"\x06" + size.to_bytes(8, "big")
        assert connection.receive(octets[:-1], 0.0) == []
        assert "limit" in only(connection.receive(octets[-1:], 0.0), Failed).reason


def test_frames_and_messages_have_limits() -> None:
    for limits in (Limits(frame=1000), Limits(message=1000)):
        for octets, kind in ((encode([bytes(1000)]), Batch), (encode([bytes(1001)]), Closed)):
            only(in_traffic(limits=limits).receive(octets, 0.0), kind)
    only(in_traffic(limits=Limits(message=1000)).receive(b"\x01\x00" * 1000, 0.0), Closed)


@pytest.mark.parametrize("name", ["frame", "message", "handshake"])
def test_limits_hold_at_least_a_short_frame(name: str) -> None:
    with pytest.raises(ZmtpError, match=name):
        Limits(**{name: 254})  # type: ignore[arg-type]
    Limits(**{name: 255})  # type: ignore[arg-type]


@pytest.mark.parametrize("octets", [b"", b"\xff", greeted(), greeted() + b"\x04\x1a\x05READY"])
def test_the_handshake_has_a_deadline(octets: bytes) -> None:
    connection = Connection("DEALER", 100.0, limits=Limits(handshake_time=5.0))
    assert connection.deadline == 105.0
    connection.receive(octets, 104.0)
    assert connection.deadline == 105.0
    assert connection.tick(104.9) == []
    assert "5 s" in only(connection.tick(105.0), Failed).reason
    assert connection.state is State.CLOSED
    assert connection.deadline is None


def test_after_the_handshake_there_is_no_deadline_without_heartbeats() -> None:
    connection = in_traffic()
    assert connection.deadline is None
    assert connection.tick(1e9) == []
    assert not connection.output


# Heartbeats


def pings(connection: Connection) -> int:
    return [name for name, _ in said(connection.take_output())].count(b"PING")


def test_a_ping_every_interval() -> None:
    connection = in_traffic(heartbeat=Heartbeat(2.0, timeout=5.0), now=100.0)
    assert connection.deadline == 102.0
    assert connection.tick(101.9) == []
    assert pings(connection) == 0
    for now in (102.0, 104.0, 106.0):
        assert connection.deadline == now
        assert connection.tick(now) == []
        assert pings(connection) == 1
        connection.tick(now + 0.1)
        assert pings(connection) == 0
    # The first PING was sent at 102, and nothing has arrived since.
    assert connection.deadline == 107.0
    assert "5 s" in only(connection.tick(107.0), Closed).reason


def test_the_time_to_live_is_asked_for() -> None:
    connection = in_traffic(heartbeat=Heartbeat(1.0, ttl=2.5))
    connection.tick(1.0)
    assert said(connection.take_output()) == [(b"PING", b"\x00\x19")]


def test_any_byte_is_a_sign_of_life() -> None:
    connection = in_traffic(heartbeat=Heartbeat(1.0, timeout=3.0))
    now = 0.0
    octets = iter(encode([b"a message that comes one octet at a time"]) * 2)
    for octet in octets:
        now += 1.0
        assert connection.tick(now) == []
        assert connection.deadline == now + 1.0
        connection.receive(bytes([octet]), now + 0.9)
    assert pings(connection) == now
    assert connection.tick(now + 1.0) == []
    assert connection.tick(now + 2.0) == []
    assert connection.tick(now + 3.9) == []
    only(connection.tick(now + 4.0), Closed)


def test_the_default_timeout_is_the_interval() -> None:
    assert Heartbeat(3.0).timeout == 3.0
    connection = in_traffic(heartbeat=Heartbeat(3.0))
    connection.tick(3.0)
    assert connection.deadline == 6.0
    only(connection.tick(6.0), Closed)


def test_a_timeout_shorter_than_the_interval() -> None:
    connection = in_traffic(heartbeat=Heartbeat(10.0, timeout=1.0))
    assert connection.tick(10.0) == []
    assert connection.deadline == 11.0
    only(connection.tick(11.0), Closed)


@pytest.mark.parametrize("values", [(0.0,), (-1.0,), (1.0, -1.0), (1.0, 1.0, -0.1)])
def test_invalid_heartbeats_are_refused(values: tuple[float, ...]) -> None:
    with pytest.raises(ZmtpError, match="heartbeat"):
        Heartbeat(*values)


@pytest.mark.parametrize("heartbeat", [None, Heartbeat(100.0)])
def test_a_peer_that_is_silent_for_its_time_to_live_is_dropped(heartbeat: Heartbeat | None) -> None:
    connection = in_traffic(heartbeat=heartbeat)
    connection.receive(encode_command(ping(2.0)), 10.0)
    assert connection.deadline == 12.0
    connection.receive(encode([b"a sign of life"]), 11.5)
    assert connection.deadline == 13.5
    assert connection.tick(13.4) == []
    assert "2 s" in only(connection.tick(13.5), Closed).reason


def test_the_next_ping_changes_the_time_to_live() -> None:
    connection = in_traffic()
    connection.receive(encode_command(ping(2.0)), 10.0)
    connection.receive(encode_command(ping(0.0)), 11.0)
    assert connection.deadline is None
    assert connection.tick(1e6) == []
    connection.receive(encode_command(ping(6553.5)), 1e6)
    assert connection.deadline == 1e6 + 6553.5


def test_silence_does_not_count_while_we_do_not_read() -> None:
    connection = in_traffic(heartbeat=Heartbeat(1.0, timeout=2.0))
    connection.receive(encode_command(ping(3.0)), 0.0)
    for now in range(1, 50):
        assert connection.tick(float(now), listening=False) == []
    assert pings(connection) == 49
    # From here on, this side reads again.
    assert connection.tick(50.0) == []
    assert connection.state is State.TRAFFIC
    only(connection.tick(53.0), Closed)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_ping_is_answered_with_its_context(mechanism: str) -> None:
    client, server = connected(mechanism)
    for context in (b"", b"ctx1", bytes(16)):
        assert server.receive(client.mechanism.encode_command(ping(0.0, context)), 0.0) == []
        pong = client.mechanism.decode(Decoder(1000, 1000).feed(server.take_output()))
        assert pong == [command(b"PONG", context)]
        assert isinstance(pong[0], CommandFrame)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_two_engines_keep_each_other_alive(mechanism: str) -> None:
    security = securities(mechanism)
    beat = Heartbeat(1.0, timeout=1.0, ttl=1.5)
    one = Connection("DEALER", 0.0, security=security[0], heartbeat=beat)
    other = Connection("ROUTER", 0.0, security=security[1], heartbeat=beat, authenticator=guard(mechanism))
    exchange(one, other)
    for step in range(1, 30):
        now = step / 2
        assert one.tick(now) == other.tick(now) == []
        assert exchange(one, other, now) == ([], [])
    # The connection is cut.
    ends: list[Event] = []
    for step in range(30, 40):
        ends += one.tick(step / 2) + other.tick(step / 2)
    assert [type(event) for event in ends] == [Closed, Closed]


def test_a_peer_that_asks_and_does_not_read_does_not_fill_our_memory() -> None:
    connection = in_traffic(heartbeat=Heartbeat(1.0, timeout=1e9))
    for _ in range(30):
        connection.receive(encode_command(ping(0.0)) * 1000, 0.0)
    for now in range(1, 100):
        connection.tick(float(now))
    assert len(said(connection.take_output())) <= 10_000
    connection.receive(encode_command(ping(0.0)), 100.0)
    assert said(connection.take_output()) == [(b"PONG", b"")]


def test_too_much_context_closes_the_connection() -> None:
    connection = in_traffic()
    only(connection.receive(encode_command(ping(0.0, bytes(17))), 0.0), Closed)
    assert connection.take_output() == b""


def test_no_heartbeats_to_a_peer_of_version_3_0() -> None:
    connection = in_traffic(version=(3, 0), heartbeat=Heartbeat(1.0))
    assert connection.deadline is None
    for now in (1.0, 2.0, 100.0):
        assert connection.tick(now) == []
    assert connection.take_output() == b""


@settings(max_examples=cases(50))
@given(
    st.floats(0.0, 1e9),
    st.none() | st.builds(Heartbeat, st.floats(0.01, 100.0), st.floats(0.0, 300.0), st.floats(0.0, 7000.0)),
    st.sampled_from([(3, 0), (3, 1)]),
    st.lists(
        st.tuples(st.floats(0.0, 1.0), st.sampled_from(["tick", "deaf tick", "octet", "ping"]), st.integers(0, 50)),
        max_size=20,
    ),
)
def test_a_tick_at_the_deadline_always_makes_progress(
    start: float, beat: Heartbeat | None, version: tuple[int, int], script: list[tuple[float, str, int]]
) -> None:
    connection = in_traffic(version=version, heartbeat=beat, now=start)
    now = start
    for share, what, tenths in script:
        deadline = connection.deadline
        if deadline is None:
            now += share
        elif share > 0.5:
            now = max(now, deadline)
        else:
            now += max(0.0, deadline - now) * share
        if what == "octet":
            connection.receive(encode([b""]), now)
        elif what == "ping":
            connection.receive(encode_command(ping(tenths / 10)), now)
        else:
            due = deadline is not None and now >= deadline
            events = connection.tick(now, what == "tick")
            if not due:
                assert events == []
                assert not connection.output
            for _ in range(2):  # a PING, and at once the end of the time for its answer
                connection.tick(now, what == "tick")
            assert connection.deadline is None or connection.deadline > now
        assert connection.deadline is None or connection.deadline >= start
        connection.take_output()


# Subscriptions


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("subscriber", ["SUB", "XSUB"])
@pytest.mark.parametrize("publisher", ["PUB", "XPUB"])
def test_subscriptions_reach_the_publisher(mechanism: str, subscriber: str, publisher: str) -> None:
    one, other = connected(mechanism, subscriber, publisher)
    one.subscribe(b"a")
    one.subscribe(b"")
    one.cancel(b"a")
    one.subscribe(b"\x00\x01" + bytes(300))
    assert exchange(one, other) == (
        [],
        [
            Subscription(b"a"),
            Subscription(b""),
            Subscription(b"a", cancel=True),
            Subscription(b"\x00\x01" + bytes(300)),
        ],
    )
    assert flat(one.receive(other.encode([b"abc"]), 0.0)) == [[b"abc"]]


def test_the_bytes_of_subscriptions() -> None:
    connection = in_traffic("SUB", "PUB")
    connection.subscribe(b"abc")
    connection.cancel(b"abc")
    assert connection.take_output() == b"\x04\x0d\x09SUBSCRIBEabc" + b"\x04\x0a\x06CANCELabc"
    connection = in_traffic("SUB", "PUB", version=(3, 0))
    connection.subscribe(b"abc")
    connection.cancel(b"abc")
    assert connection.take_output() == b"\x00\x04\x01abc" + b"\x00\x04\x00abc"


@pytest.mark.parametrize("version", [(3, 0), (3, 1)])
def test_a_publisher_reads_both_forms(version: tuple[int, int]) -> None:
    connection = in_traffic("XPUB", "SUB", version)
    octets = encode([b"\x01abc", b"\x00abc", b"\x01", b"\x00"])
    octets += encode_command(command(b"SUBSCRIBE", b"x")) + encode_command(command(b"CANCEL", b""))
    assert connection.receive(octets, 0.0) == [
        Subscription(b"abc"),
        Subscription(b"abc", cancel=True),
        Subscription(b""),
        Subscription(b"", cancel=True),
        Subscription(b"x"),
        Subscription(b"", cancel=True),
    ]


def test_subscriptions_of_a_3_0_subscriber_inside_curve() -> None:
    one, other = connected("CURVE", "SUB", "XPUB")
    one.peer_version = (3, 0)
    one.subscribe(b"abc")
    one.cancel(b"abc")
    assert exchange(one, other)[1] == [Subscription(b"abc"), Subscription(b"abc", cancel=True)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_upstream_messages_keep_their_place_between_subscriptions(mechanism: str) -> None:
    one, other = connected(mechanism, "XSUB", "XPUB")
    stream = [one.mechanism.encode_command(command(b"SUBSCRIBE", b"c")), one.encode([b"up1"])]
    stream.append(one.encode([b"\x01a", b"up2", (b"up", b"3"), b"\x00a", (b"\x01", b"multipart"), b"", b"\x02x"]))
    assert flat(other.receive(b"".join(stream), 0.0)) == [
        Subscription(b"c"),
        [b"up1"],
        Subscription(b"a"),
        [b"up2"],
        [b"up", b"3"],
        Subscription(b"a", cancel=True),
        [b"\x01", b"multipart"],
        [b""],
        [b"\x02x"],
    ]


def test_the_bytes_of_upstream_messages_are_counted_once() -> None:
    connection = in_traffic("XPUB", "XSUB")
    upstream: list[Message] = [(b"up", b"1"), b"up2" * 200, b"up3"]
    events = connection.receive(encode([upstream[0], b"\x01a", upstream[1], b"\x01b", upstream[2]]), 0.0)
    counted = [event.octets for event in events if isinstance(event, Batch)]
    assert counted == [len(encode([message])) for message in upstream]


def test_other_sockets_ignore_subscriptions() -> None:
    connection = in_traffic("DEALER", "ROUTER")
    assert connection.receive(encode_command(command(b"SUBSCRIBE", b"a")), 0.0) == []
    assert flat(connection.receive(encode([b"\x01a"]), 0.0)) == [[b"\x01a"]]


# Other commands


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "body", [command(b"PONG"), command(b"PONG", bytes(40)), command(b"JOIN", b"x"), command(b"\xff")]
)
def test_unknown_commands_are_ignored(mechanism: str, body: bytes) -> None:
    client, server = connected(mechanism)
    sent = client.mechanism.encode_command(body)
    assert server.receive(sent, 0.0) == []
    assert not server.output
    assert flat(server.receive(client.encode([b"goes on"]), 0.0)) == [[b"goes on"]]


def test_a_command_between_the_frames_of_a_message_is_obeyed_at_once() -> None:
    connection = in_traffic()
    assert connection.receive(b"\x01\x01a" + LIBZMQ_PING, 0.0) == []
    assert connection.take_output() == LIBZMQ_PONG
    assert flat(connection.receive(b"\x00\x01b", 0.0)) == [[b"a", b"b"]]


@settings(max_examples=cases(15))
@given(
    st.lists(
        st.binary(max_size=5)
        | st.tuples(st.binary(max_size=5), st.binary(max_size=300))
        | st.sampled_from([b"\x01a", b"\x00a"]),
        max_size=10,
    ),
    READS,
    st.sampled_from(["XPUB", "ROUTER"]),
)
def test_the_events_do_not_depend_on_the_reads(
    messages: list[bytes | tuple[bytes, ...]], sizes: list[int], socket_type: str
) -> None:
    octets = greeted() + ready("SUB" if socket_type == "XPUB" else "DEALER") + encode(messages)
    whole = flat(Connection(socket_type, 0.0).receive(octets, 0.0))
    connection = Connection(socket_type, 0.0)
    found = [event for read in cut(octets, sizes) for event in connection.receive(read, 0.0)]
    assert flat(found) == whole
