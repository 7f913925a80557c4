"""zambezi.zmtp.curve: the handshake, forgeries and replays, cookies, and the traffic."""

from __future__ import annotations

import hmac
from collections.abc import Callable

import nacl.bindings
import pytest

from tests.zmtp.engines import CLIENT_KEYS, OTHER_KEYS, SERVER_KEYS, flat, guard
from zambezi.zmtp import curve
from zambezi.zmtp.authenticator import Authenticator, Claim
from zambezi.zmtp.commands import command, encode_metadata, error
from zambezi.zmtp.curve import CookieKey, CurveClient, CurveServer
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.frames import MORE, Batch, CommandFrame, Decoder, Message, Shared, encode_command, wire_size
from zambezi.zmtp.mechanism import Mechanism, Refused, Rejected, Terms

LIMIT = 1 << 20
# Points of small order on the curve: two sides cannot agree on a key with them.
LOW_ORDER = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    b"\xec" + b"\xff" * 30 + b"\x7f",
    b"\xed" + b"\xff" * 30 + b"\x7f",
    b"\xee" + b"\xff" * 30 + b"\x7f",
]


def client(server_key: bytes = SERVER_KEYS.public, limit: int = LIMIT) -> CurveClient:
    return CurveClient(Terms({"Socket-Type": b"DEALER"}, message_limit=limit), CLIENT_KEYS, server_key)


def server(
    authenticator: Authenticator | None = None, cookie_key: CookieKey | None = None, limit: int = LIMIT
) -> CurveServer:
    metadata = {"Socket-Type": b"ROUTER"}
    return CurveServer(Terms(metadata, "192.0.2.1", authenticator, limit), SERVER_KEYS, cookie_key or CookieKey())


def answer(mechanism: Mechanism, body: bytes, now: float = 0.0) -> bytes:
    said = mechanism.receive(body, now)
    assert said is not None
    return said


def established(limit: int = LIMIT) -> tuple[CurveClient, CurveServer]:
    one, other = client(limit=limit), server(limit=limit)
    ready = answer(other, answer(one, answer(other, one.begin())))
    assert one.receive(ready, 0.0) is None
    return one, other


def opened(mechanism: Mechanism, octets: bytes) -> list[object]:
    return flat(mechanism.decode(Decoder(LIMIT, LIMIT).feed(octets)))


# The handshake


def test_the_whole_handshake() -> None:
    one, other = client(), server(guard("CURVE"))
    assert other.begin() is None
    hello = one.begin()
    assert (hello[:6], len(hello)) == (b"\x05HELLO", 200)
    assert hello[6:80] == b"\x01\x00" + bytes(72)
    welcome = answer(other, hello)
    assert (welcome[:8], len(welcome)) == (b"\x07WELCOME", 168)
    initiate = answer(one, welcome)
    metadata = encode_metadata({"Socket-Type": b"DEALER", "X-Zambezi": b"1"})
    assert (initiate[:9], len(initiate)) == (b"\x08INITIATE", 257 + len(metadata))
    ready = answer(other, initiate)
    metadata = encode_metadata({"Socket-Type": b"ROUTER"})
    assert (ready[:6], len(ready)) == (b"\x05READY", 30 + len(metadata))
    assert one.receive(ready, 0.0) is None
    assert one.complete
    assert other.complete
    assert one.peer == {"socket-type": b"ROUTER"}
    assert other.peer == {"socket-type": b"DEALER", "x-zambezi": b"1"}
    assert other.user == "ali"
    assert other.claim == Claim("CURVE", "192.0.2.1", key=CLIENT_KEYS.public)


@pytest.mark.parametrize("product", [{}, {"X-Zambezi": b"1"}])
def test_only_our_own_clients_are_told_that_their_key_is_refused(
    product: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of libzmq never comes back after ERROR, and its key may be allowed later."""
    monkeypatch.setattr(curve, "_PRODUCT", product)
    one, other = client(), server(Authenticator(keys={"other": OTHER_KEYS.public}))
    initiate = answer(one, answer(other, one.begin()))
    with pytest.raises(Refused, match="not among the allowed keys") as refusal:
        other.receive(initiate, 0.0)
    assert refusal.value.silent is not bool(product)


def test_each_connection_has_keys_of_its_own() -> None:
    assert client().begin()[80:112] != client().begin()[80:112]
    first, second = established(), established()
    assert first[0].encode([b"same"], True) != second[0].encode([b"same"], True)


def test_the_clients_key_is_not_sent_unencrypted() -> None:
    one, other = client(), server()
    hello = one.begin()
    initiate = answer(one, answer(other, hello))
    assert CLIENT_KEYS.public not in hello + initiate


def test_a_client_written_from_the_specification_is_accepted() -> None:
    """The client's side is written by hand, from the specification."""
    short_public, short_secret = nacl.bindings.crypto_box_keypair()
    box = nacl.bindings.crypto_box_easy
    unbox = nacl.bindings.crypto_box_open_easy
    number = (9).to_bytes(8, "big")
    other = server(guard("CURVE"))
    signature = box(bytes(64), b"CurveZMQHELLO---" + number, SERVER_KEYS.public, short_secret)
    welcome = answer(other, b"\x05HELLO\x01\x00" + bytes(72) + short_public + number + signature)
    inside = unbox(welcome[24:], b"WELCOME-" + welcome[8:24], SERVER_KEYS.public, short_secret)
    short_server, cookie = inside[:32], inside[32:]
    assert len(cookie) == 96
    vouch = box(short_public + SERVER_KEYS.public, b"VOUCH---" + b"n" * 16, short_server, CLIENT_KEYS.secret)
    number = (10).to_bytes(8, "big")
    plaintext = CLIENT_KEYS.public + b"n" * 16 + vouch + encode_metadata({"Socket-Type": b"DEALER"})
    initiate = cookie + number + box(plaintext, b"CurveZMQINITIATE" + number, short_server, short_secret)
    ready = answer(other, b"\x08INITIATE" + initiate)
    metadata = unbox(ready[14:], b"CurveZMQREADY---" + ready[6:14], short_server, short_secret)
    assert metadata == encode_metadata({"Socket-Type": b"ROUTER"})
    assert other.user == "ali"
    number = (11).to_bytes(8, "big")
    sealed = b"\x07MESSAGE" + number + box(b"\0hi", b"CurveZMQMESSAGEC" + number, short_server, short_secret)
    assert opened(other, encode_command(sealed)) == [[b"hi"]]
    (reply,) = Decoder(LIMIT, LIMIT).feed(other.encode([b"ho"], True))
    assert isinstance(reply, Batch)
    (body,) = reply.frames
    assert body[:8] == b"\x07MESSAGE"
    assert body[8:16] > ready[6:14]
    assert unbox(body[16:], b"CurveZMQMESSAGES" + body[8:16], short_server, short_secret) == b"\0ho"


def forge(
    inside: Callable[[bytes, bytes], bytes], authenticator: Authenticator | None = None
) -> tuple[CurveServer, bytes]:
    """Return an INITIATE whose box contains `inside(C', S')`: a client without the right keys could make it."""
    short_public, short_secret = nacl.bindings.crypto_box_keypair()
    other = server(authenticator)
    box = nacl.bindings.crypto_box_easy
    number = (1).to_bytes(8, "big")
    signature = box(bytes(64), b"CurveZMQHELLO---" + number, SERVER_KEYS.public, short_secret)
    welcome = answer(other, b"\x05HELLO\x01\x00" + bytes(72) + short_public + number + signature)
    opened = nacl.bindings.crypto_box_open_easy(
        welcome[24:], b"WELCOME-" + welcome[8:24], SERVER_KEYS.public, short_secret
    )
    number = (2).to_bytes(8, "big")
    sealed = box(inside(short_public, opened[:32]), b"CurveZMQINITIATE" + number, opened[:32], short_secret)
    return other, b"\x08INITIATE" + opened[32:] + number + sealed


def vouch(vouched: bytes, to: bytes, secret: bytes) -> bytes:
    return b"n" * 16 + nacl.bindings.crypto_box_easy(vouched, b"VOUCH---" + b"n" * 16, to, secret)


def test_a_right_vouch_is_accepted() -> None:
    other, initiate = forge(
        lambda c, s: CLIENT_KEYS.public + vouch(c + SERVER_KEYS.public, s, CLIENT_KEYS.secret), guard("CURVE")
    )
    assert answer(other, initiate)
    assert other.complete


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        # A client that knows ali's public key, but not the secret key.
        (lambda c, s: CLIENT_KEYS.public + vouch(c + SERVER_KEYS.public, s, OTHER_KEYS.secret), "does not open"),
        # A vouch of ali for another connection, and one for another server.
        (
            lambda _c, s: CLIENT_KEYS.public + vouch(bytes(32) + SERVER_KEYS.public, s, CLIENT_KEYS.secret),
            "another connection",
        ),
        (lambda c, s: CLIENT_KEYS.public + vouch(c + OTHER_KEYS.public, s, CLIENT_KEYS.secret), "another server"),
        # A key that opens no box.
        *((lambda _c, _s, key=key: key + bytes(96), "does not open") for key in LOW_ORDER),
        (lambda c, s: CLIENT_KEYS.public + vouch(c + SERVER_KEYS.public, s, CLIENT_KEYS.secret) + b"\x01", "malformed"),
        (lambda _c, _s: CLIENT_KEYS.public, "too short"),
    ],
)
def test_a_forged_initiate_is_refused(inside: Callable[[bytes, bytes], bytes], words: str) -> None:
    other, initiate = forge(inside, guard("CURVE"))
    with pytest.raises(ProtocolError, match=words):
        other.receive(initiate, 0.0)
    assert not other.complete


def test_a_key_that_is_not_allowed_is_refused() -> None:
    one, other = client(), server(Authenticator(keys={"other": OTHER_KEYS.public}))
    initiate = answer(one, answer(other, one.begin()))
    with pytest.raises(Refused, match="not among the allowed keys"):
        other.receive(initiate, 0.0)
    assert not other.complete
    assert other.user == ""


def test_the_wrong_server_key() -> None:
    one, other = client(OTHER_KEYS.public), server()
    with pytest.raises(ProtocolError, match="another public key for this server"):
        other.receive(one.begin(), 0.0)


def test_an_impostor_without_the_servers_secret() -> None:
    one = client()
    one.begin()
    impostor = CurveServer(Terms({}, message_limit=LIMIT), OTHER_KEYS, CookieKey())
    welcome = answer(impostor, client(OTHER_KEYS.public).begin())
    with pytest.raises(ProtocolError, match="wrong server key"):
        one.receive(welcome, 0.0)


def handshake_until(name: str) -> tuple[Mechanism, bytes]:
    """Return the receiver of a handshake command, and the command."""
    one, other = client(), server()
    hello = one.begin()
    if name == "HELLO":
        return other, hello
    welcome = answer(other, hello)
    if name == "WELCOME":
        return one, welcome
    initiate = answer(one, welcome)
    if name == "INITIATE":
        return other, initiate
    return one, answer(other, initiate)


COMMANDS = ("HELLO", "WELCOME", "INITIATE", "READY")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_changed_byte_anywhere_in_the_handshake_is_noticed(name: str) -> None:
    for place in range(len(handshake_until(name)[1])):
        receiver, body = handshake_until(name)
        changed = body[:place] + bytes([body[place] ^ 1 << place % 7]) + body[place + 1 :]
        with pytest.raises(ProtocolError):
            receiver.receive(changed, 0.0)
        assert not receiver.complete


def test_the_vouch_covers_the_bit_of_a_key_that_the_curve_ignores() -> None:
    one, other = client(), server()
    hello = one.begin()
    initiate = answer(one, answer(other, hello[:111] + bytes([hello[111] ^ 0x80]) + hello[112:]))
    with pytest.raises(ProtocolError, match="another connection"):
        other.receive(initiate, 0.0)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_cut_or_longer_is_refused(name: str) -> None:
    for size in range(0, len(handshake_until(name)[1]), 7):
        receiver, body = handshake_until(name)
        with pytest.raises(ProtocolError):
            receiver.receive(body[:size], 0.0)
    receiver, body = handshake_until(name)
    with pytest.raises(ProtocolError):
        receiver.receive(body + b"\0", 0.0)
    assert not receiver.complete


@pytest.mark.parametrize("expected", COMMANDS)
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_out_of_order_are_refused(expected: str, name: str) -> None:
    receiver, right = handshake_until(expected)
    _, body = handshake_until(name)
    if name == expected:
        receiver.receive(right, 0.0)
        body = right
    with pytest.raises(ProtocolError, match="is not allowed now"):
        receiver.receive(body, 0.0)


def test_a_client_learns_that_it_was_refused() -> None:
    receiver, _ = handshake_until("READY")
    with pytest.raises(Rejected, match="400"):
        receiver.receive(error("400"), 0.0)


@pytest.mark.parametrize("key", LOW_ORDER)
def test_a_hello_with_a_key_of_low_order(key: bytes) -> None:
    hello = client().begin()
    with pytest.raises(ProtocolError, match="does not open"):
        server().receive(hello[:80] + key + hello[112:], 0.0)


@pytest.mark.parametrize("key", LOW_ORDER)
def test_a_welcome_with_a_key_of_low_order(key: bytes) -> None:
    """The server has the right secret key, but is malicious."""
    one = client()
    public = one.begin()[80:112]
    nonce = b"n" * 16
    box = nacl.bindings.crypto_box_easy(key + bytes(96), b"WELCOME-" + nonce, public, SERVER_KEYS.secret)
    with pytest.raises(ProtocolError, match="public key"):
        one.receive(command(b"WELCOME", nonce + box), 0.0)


def test_a_server_key_of_low_order() -> None:
    with pytest.raises(ProtocolError, match="public key"):
        client(bytes(32)).begin()


# Replay


def test_a_recorded_handshake_cannot_be_replayed() -> None:
    shared = CookieKey()
    one, first = client(), server(cookie_key=shared)
    hello = one.begin()
    initiate = answer(one, answer(first, hello))
    recorded = one
    assert answer(first, initiate)
    second = server(cookie_key=shared)
    answer(second, hello)
    with pytest.raises(ProtocolError, match="cookie"):
        second.receive(initiate, 0.0)
    assert not second.complete
    assert not recorded.complete


def test_an_initiate_cannot_be_replayed_on_its_own_connection() -> None:
    receiver, initiate = handshake_until("INITIATE")
    answer(receiver, initiate)
    with pytest.raises(ProtocolError, match="is not allowed now"):
        receiver.receive(initiate, 0.0)


def test_a_hello_with_nonce_zero_is_refused() -> None:
    hello = client().begin()
    with pytest.raises(ProtocolError, match="nonce"):
        server().receive(hello[:112] + bytes(8) + hello[120:], 0.0)


def test_nonces_grow_during_the_handshake_and_after_it() -> None:
    one, other = client(), server()
    hello = one.begin()
    initiate = answer(one, answer(other, hello))
    ready = answer(other, initiate)
    one.receive(ready, 0.0)
    first = hello[112:120]
    second = initiate[105:113]
    assert b"\0" * 8 < first < second < one.encode([b"x"], True)[10:18]
    assert ready[6:14] < other.encode([b"x"], True)[10:18]


def test_the_nonces_of_the_handshake_cannot_be_used_again() -> None:
    for who, used in ((0, 2), (1, 1)):
        ends = established()
        sender, receiver = ends[who], ends[1 - who]
        for nonce in range(1, used + 1):
            sender._sealer._nonce = nonce
            receiver.failure = None
            assert opened(receiver, sender.encode([b"again"], True)) == []
            assert "did not grow" in str(receiver.failure)


def test_cookies_and_vouches_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    compare = hmac.compare_digest

    def counted(one: bytes, other: bytes) -> bool:
        calls.append(len(one))
        return compare(one, other)

    receiver, initiate = handshake_until("INITIATE")
    monkeypatch.setattr(hmac, "compare_digest", counted)
    assert answer(receiver, initiate)
    assert calls == [96, 64]


# The cookie key


def numbered() -> Callable[[int], bytes]:
    """A source of random bytes that never returns the same bytes twice."""
    count = 0

    def draw(size: int) -> bytes:
        nonlocal count
        count += 1
        return bytes([count % 256]) * size

    return draw


def test_a_cookie_opens_while_its_key_or_the_next_one_is_in_use() -> None:
    key = CookieKey(60.0, numbered())
    cookie = key.seal(b"remember", 1000.0)
    for now in (1000.0, 1059.0, 1060.0, 1119.9):
        assert key.open(cookie, now) == b"remember"
    with pytest.raises(ProtocolError, match="too old"):
        key.open(cookie, 1120.0)


@pytest.mark.parametrize("visits", [(), (1059.0,), (1060.0,), (1119.0,), (1061.0, 1119.0), (1119.9,), (1030.0, 1090.0)])
def test_no_cookie_opens_after_two_lifetimes(visits: tuple[float, ...]) -> None:
    key = CookieKey(60.0, numbered())
    cookie = key.seal(b"remember", 1000.0)
    for now in visits:
        key.seal(b"another", now)
    with pytest.raises(ProtocolError, match="too old"):
        key.open(cookie, 1120.0)


def test_a_cookie_of_late_in_a_lifetime_opens_in_the_whole_next_one() -> None:
    key = CookieKey(60.0, numbered())
    key.seal(b"first", 1000.0)
    cookie = key.seal(b"remember", 1059.9)
    for now in (1060.0, 1119.9):
        assert key.open(cookie, now) == b"remember"


def test_the_key_changes_and_the_cookie_differs() -> None:
    draws: list[int] = []

    def random(size: int) -> bytes:
        draws.append(size)
        return bytes([len(draws)]) * size

    key = CookieKey(60.0, random)
    first = key.seal(b"remember", 0.0)
    assert first != key.seal(b"remember", 59.0)
    assert draws == [32, 16, 16]
    key.seal(b"remember", 60.0)
    assert draws == [32, 16, 16, 32, 16]
    key.seal(b"remember", 1e9)
    assert draws == [32, 16, 16, 32, 16, 32, 16]


def test_a_cookie_of_another_key_does_not_open() -> None:
    cookie = CookieKey(60.0).seal(b"remember", 0.0)
    with pytest.raises(ProtocolError, match="not ours"):
        CookieKey(60.0).open(cookie, 0.0)


def test_a_slow_client_is_refused_when_its_cookie_is_too_old() -> None:
    for late, comes_in in ((119.0, True), (120.0, False)):
        one, other = client(), server()
        initiate = answer(one, answer(other, one.begin()))
        if comes_in:
            assert answer(other, initiate, late)
        else:
            with pytest.raises(ProtocolError, match="too old"):
                other.receive(initiate, late)


# Traffic


def test_messages_of_any_number_of_frames_go_both_ways() -> None:
    one, other = established()
    messages: list[Message] = [
        b"",
        b"a",
        (b"b", b"", b"c" * 300),
        Shared([(b"d", b"e")]),
        Shared([b"f"]),
        b"g" * 70_000,
    ]
    expected = [[b""], [b"a"], [b"b", b"", b"c" * 300], [b"d", b"e"], [b"f"], [b"g" * 70_000]]
    assert opened(other, one.encode(messages, False)) == expected
    assert opened(one, other.encode(messages, False)) == expected
    assert opened(other, one.encode([b"x", b"y"], True)) == [[b"x"], [b"y"]]


def test_shared_messages_are_boxed_for_each_peer() -> None:
    shared = Shared([(b"a", b"", b"c")])
    seen = set()
    for _ in range(4):
        one, other = established()
        octets = one.encode([b"before", shared, (b"between", b"two"), shared, b"after"], False)
        expected = [[b"before"], [b"a", b"", b"c"], [b"between", b"two"], [b"a", b"", b"c"], [b"after"]]
        assert opened(other, octets) == expected
        seen.add(octets)
    assert len(seen) == 4


def test_a_boxed_command_has_the_flag_of_libzmq() -> None:
    one, other = established()
    octets = one.encode_command(b"\x04PING\0\0")
    assert b"PING" not in octets
    assert octets[0] == 0
    assert opened(other, octets) == [CommandFrame(b"\x04PING\0\0")]


def test_a_message_can_arrive_in_a_command_frame() -> None:
    one, other = established()
    sealed = one.encode([b"hello"], True)
    assert opened(other, b"\x04" + sealed[1:]) == [[b"hello"]]


def test_octets_counts_only_the_boxes_of_messages() -> None:
    one, other = established()
    stream = [
        one.encode_command(b"\x04PONG"),
        one.encode([(b"a", b"b" * 300)], False),
        one.encode_command(b"\x04PONG"),
        one.encode([b"c"], True),
        one._sealer.seal([MORE], [b"begun"]),
    ]
    items = other.decode(Decoder(LIMIT, LIMIT).feed(b"".join(stream)))
    assert [item.octets for item in items if isinstance(item, Batch)] == [len(stream[1]), len(stream[3])]
    part = stream[4]
    last = one.encode([b"end"], True)
    (rest,) = other.decode(Decoder(LIMIT, LIMIT).feed(last))
    assert isinstance(rest, Batch)
    assert list(rest) == [[b"begun", b"end"]]
    assert rest.octets == len(part) + len(last)
    assert wire_size(part[2:]) == len(part)


def test_boxes_before_a_violation_are_delivered() -> None:
    one, other = established()
    good, bad = one.encode([b"good", (b"also", b"good")], False), bytearray(one.encode([b"bad"], True))
    bad[-1] ^= 1
    assert opened(other, good + bytes(bad) + one.encode([b"later"], True)) == [[b"good"], [b"also", b"good"]]
    assert other.failure is not None
    assert "does not open" in str(other.failure)


@pytest.mark.parametrize(
    "order", [(0, 0), (1, 0), (0, 1, 0), (0, 2, 1), (0, 1, 1), (2, 1)], ids=lambda order: "".join(map(str, order))
)
def test_replayed_and_reordered_messages_fail(order: tuple[int, ...]) -> None:
    one, other = established()
    sealed = [one.encode([bytes([number])], True) for number in range(3)]
    delivered = opened(other, b"".join(sealed[number] for number in order))
    assert other.failure is not None
    assert "did not grow" in str(other.failure)
    assert delivered == [[bytes([number])] for number in order[: len(delivered)]]
    assert len(delivered) == len(order) - 1


def test_a_message_sent_back_to_its_sender_fails() -> None:
    one, _ = established()
    assert opened(one, one.encode([b"echo"], True)) == []
    assert one.failure is not None


def test_a_message_of_another_connection_fails() -> None:
    (one, _), (_, other) = established(), established()
    assert opened(other, one.encode([b"stray"], True)) == []
    assert other.failure is not None


@pytest.mark.parametrize("octets", [b"\x00\x05clear", b"\x04\x05\x04PING", b"\x00\x00", b"\x04\x08\x07MESSAGE"])
def test_frames_without_a_box_fail(octets: bytes) -> None:
    _, other = established()
    assert opened(other, octets) == []
    assert other.failure is not None


def test_the_more_flag_belongs_inside_the_box() -> None:
    one, other = established()
    sealed = one.encode([b"a"], True), one.encode([b"b"], True), one.encode([b"c"], True)
    assert opened(other, sealed[0] + b"\x01" + sealed[1][1:] + sealed[2]) == [[b"a"]]
    assert other.failure is not None
    assert "header of a box" in str(other.failure)


def test_a_message_over_the_limit_fails() -> None:
    one, other = established(1000)
    assert opened(other, one.encode([(b"x" * 900, b"y" * 100)], False)) == []
    assert other.failure is not None
    assert "limit" in str(other.failure)
    # The decoder checks message frames; it does not know that a command frame contains a message.
    one, other = established(1000)
    octets = one.encode([b"x" * 1000, b"y" * 1001], False)
    first = octets[: len(octets) // 2]
    assert opened(other, b"\x06" + first[1:] + b"\x06" + octets[len(first) + 1 :]) == [[b"x" * 1000]]
    assert other.failure is not None
    assert "limit" in str(other.failure)


def test_used_up_nonces_refuse_to_send() -> None:
    one, _ = established()
    one._sealer._nonce = 2**64 - 2
    assert one.encode([b"last"], True)
    with pytest.raises(ProtocolError, match="used up"):
        one.encode([b"x"], True)
    with pytest.raises(ProtocolError, match="used up"):
        one.encode([(b"x", b"y")], False)
    with pytest.raises(ProtocolError, match="used up"):
        one.encode_command(b"\x04PING\0\0")


def test_the_lifetime_of_a_cookie_key_is_a_minute() -> None:
    assert curve.CookieKey()._lifetime == 60.0
