"""zambezi.zmtp.box: the boxes of CURVE, compared with PyNaCl, and their nonces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import nacl.bindings
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zmtp.engines import CLIENT_KEYS, SERVER_KEYS
from zambezi.zmtp.box import OVERHEAD, SLOT, SLOTS, Opener, Plan, Sealer, shared_key
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.frames import COMMAND, MORE, Batch, Decoder

KEY = shared_key(SERVER_KEYS.public, CLIENT_KEYS.secret)
PREFIX = b"CurveZMQMESSAGEC"
LAST = 2**64 - 1
# Sizes around those at which a boxed frame becomes a long one, and a box is too large for a slot.
EDGES = (
    0,
    1,
    255 - OVERHEAD - 1,
    255 - OVERHEAD,
    255 - OVERHEAD + 1,
    255,
    256,
    SLOT - 18,
    SLOT - 17,
    SLOT - 16,
    70_000,
)
# Numbers of frames around those at which boxes are sealed and opened together, and in several steps.
COUNTS = (1, 5, 6, 7, 15, 16, 17, SLOTS - 1, SLOTS, SLOTS + 1, 3 * SLOTS + 20)


def bodies(octets: bytes) -> list[bytes]:
    found: list[bytes] = []
    for item in Decoder(1 << 20, 1 << 20).feed(octets):
        assert isinstance(item, Batch)
        found += item.frames
    return found


def message(plaintext: bytes, nonce: int, key: bytes = KEY, prefix: bytes = PREFIX) -> bytes:
    """Return a MESSAGE as in the specification, made with PyNaCl's own wrapper."""
    short = nonce.to_bytes(8, "big")
    return b"\x07MESSAGE" + short + nacl.bindings.crypto_box_easy_afternm(plaintext, prefix + short, key)


def sealer(nonce: int = 1) -> Sealer:
    return Sealer(KEY, PREFIX, nonce)


def opener(heard: int = 0) -> Opener:
    return Opener(KEY, PREFIX, heard.to_bytes(8, "big"))


def unboxed(one: Opener, *sealed: bytes) -> list[tuple[int, bytes]]:
    flags = bytearray()
    payloads: list[bytes] = []
    one.open(sealed, flags, payloads)
    return list(zip(flags, payloads, strict=True))


def test_both_sides_compute_the_same_key() -> None:
    assert shared_key(CLIENT_KEYS.public, SERVER_KEYS.secret) == KEY


@pytest.mark.parametrize("size", EDGES)
def test_a_box_is_what_the_specification_says(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    payload = payload[:size]
    for flag, octet in ((0, 0), (MORE, 1), (COMMAND, 2)):
        (body,) = bodies(sealer(7).seal([flag], [payload]))
        assert body == message(bytes([octet]) + payload, 7)
        assert len(body) == size + OVERHEAD
        assert unboxed(opener(), body) == [(flag, payload)]


@settings(max_examples=cases(15))
@given(
    st.lists(st.tuples(st.sampled_from((0, MORE, COMMAND)), st.binary(max_size=300)), max_size=12),
    st.integers(1, LAST - 20),
)
def test_sealed_frames_are_opened_in_order(frames: list[tuple[int, bytes]], nonce: int) -> None:
    sealed = sealer(nonce).seal([flags for flags, _ in frames], [payload for _, payload in frames])
    assert unboxed(opener(nonce - 1), *bodies(sealed)) == frames
    one = opener(nonce - 1)
    assert [unboxed(one, body) for body in bodies(sealed)] == [[frame] for frame in frames]


def numbered(count: int) -> tuple[list[int], list[bytes]]:
    """Return the flags and the payloads of many different frames."""
    flags = [(0, MORE, COMMAND)[number % 3] for number in range(count)]
    return flags, [bytes([number % 256]) * (number * 37 % 300) for number in range(count)]


@pytest.mark.parametrize("count", COUNTS)
def test_many_frames_are_sealed_and_opened_as_each_alone(count: int) -> None:
    flags, payloads = numbered(count)
    sealed = bodies(sealer(9).seal(flags, payloads))
    contents = [bytes([(0, 1, 2)[number % 3]]) + payload for number, payload in enumerate(payloads)]
    assert sealed == [message(content, 9 + number) for number, content in enumerate(contents)]
    assert bodies(sealer(9).seal_plan(Plan(flags, payloads))) == sealed
    one = opener(8)
    assert unboxed(one, *sealed) == list(zip(flags, payloads, strict=True))
    with pytest.raises(ProtocolError, match="did not grow"):
        unboxed(one, sealed[-1])
    assert unboxed(one, message(b"\0next", 9 + count)) == [(0, b"next")]


@pytest.mark.parametrize("size", EDGES)
def test_a_frame_of_any_size_can_stand_among_many(size: int) -> None:
    flags, payloads = numbered(40)
    payloads[20] = b"x" * size
    sealed = sealer().seal(flags, payloads)
    assert sealed == sealer().seal_plan(Plan(flags, payloads))
    assert bodies(sealed)[20] == message(b"\2" + payloads[20], 21)
    assert unboxed(opener(), *bodies(sealed)) == list(zip(flags, payloads, strict=True))


WRONG: dict[str, Callable[[bytes], bytes]] = {
    "does not open": lambda body: body[:-1] + bytes([body[-1] ^ 1]),
    "not a MESSAGE": lambda body: b"\x07MESSAGF" + body[8:],
    "not a MESSAGE, or": lambda body: b"\x06MESSAGE" + body[8:],
    "too short": lambda body: body[:32],
    "did not grow": lambda body: message(b"\0again", 1),
    "flags byte in a box is 0x03": lambda body: message(b"\3flags", int.from_bytes(body[8:16], "big")),
}


@pytest.mark.parametrize("place", [0, 1, 40, SLOTS - 1, SLOTS, SLOTS + 17, 99])
@pytest.mark.parametrize("problem", WRONG)
def test_a_wrong_frame_among_many_is_refused_and_those_before_it_are_opened(problem: str, place: int) -> None:
    flags, payloads = numbered(100)
    sealed = bodies(sealer(2).seal(flags, payloads))
    sealed[place] = WRONG[problem](sealed[place])
    one, found = opener(1), bytearray()
    opened: list[bytes] = []
    with pytest.raises(ProtocolError, match=problem):
        one.open(sealed, found, opened)
    assert list(found) == flags[:place]
    assert opened == payloads[:place]
    with pytest.raises(ProtocolError, match="did not grow"):
        unboxed(one, message(b"\0replayed", 1 + place))
    assert unboxed(one, message(b"\0later", 500)) == [(0, b"later")]


def test_threads_that_seal_and_open_at_the_same_time_do_not_mix_their_boxes() -> None:
    def work(mark: int) -> None:
        flags, payloads = numbered(150)
        payloads = [bytes([mark]) * 50 + payload for payload in payloads]
        seal, one = sealer(), opener()
        for _ in range(20):
            sealed = bodies(seal.seal(flags, payloads))
            assert unboxed(one, *sealed) == list(zip(flags, payloads, strict=True))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, mark) for mark in range(4)]:
            done.result()


@pytest.mark.parametrize("count", [1, 2, 70])
def test_flags_that_are_missing_are_an_error(count: int) -> None:
    with pytest.raises(ValueError, match="flags"):
        sealer().seal([0] * (count - 1), [b"x"] * count)
    with pytest.raises(ValueError, match="flags"):
        Plan([0] * (count - 1), [b"x"] * count)


def test_a_nonce_is_used_up_even_if_its_frame_cannot_be_sealed() -> None:
    one = sealer(5)
    for wrong in ([b"a", None], [b"a"] * 20 + [None]):
        with pytest.raises(TypeError):
            one.seal(repeat(0), wrong)  # type: ignore[arg-type]
    assert nonces(one.seal(repeat(0), [b"next"])) == [5 + 2 + 21]


def nonces(octets: bytes) -> list[int]:
    return [int.from_bytes(body[8:16], "big") for body in bodies(octets)]


def test_nonces_grow_by_one_and_are_never_used_twice() -> None:
    seal = sealer(5).seal
    sealed = seal(repeat(0), [b"a", b"b"]) + seal(repeat(0), []) + seal([COMMAND], [b"c"]) + seal(repeat(0), [b"d"])
    assert nonces(sealed) == [5, 6, 7, 8]


@pytest.mark.parametrize(("nonce", "payloads"), [(LAST, [b"a"]), (LAST - 2, [b"a"] * 3), (LAST + 1, [b"a"])])
def test_used_up_nonces_refuse(nonce: int, payloads: Sequence[bytes]) -> None:
    exhausted = sealer(nonce)
    for _ in range(2):
        with pytest.raises(ProtocolError, match="used up"):
            exhausted.seal(repeat(0), payloads)
    with pytest.raises(ProtocolError, match="used up"):
        exhausted.seal_plan(Plan(repeat(0), payloads))


def test_the_last_nonces_can_be_used() -> None:
    last = sealer(LAST - 2)
    assert nonces(last.seal(repeat(0), [b"a", b"b"])) == [LAST - 2, LAST - 1]
    with pytest.raises(ProtocolError, match="used up"):
        last.seal(repeat(0), [b"c"])


def test_a_nonce_must_grow() -> None:
    one = opener(5)
    for nonce in (0, 4, 5):
        with pytest.raises(ProtocolError, match="did not grow"):
            unboxed(one, message(b"\0x", nonce))
    assert unboxed(one, message(b"\0x", 6)) == [(0, b"x")]
    assert unboxed(one, message(b"\0y", 1000)) == [(0, b"y")]
    for nonce in (6, 7, 999, 1000):
        with pytest.raises(ProtocolError, match="did not grow"):
            unboxed(one, message(b"\0x", nonce))
    assert unboxed(one, message(b"\0z", 2**63)) == [(0, b"z")]
    assert unboxed(one, message(b"\0z", LAST)) == [(0, b"z")]


def test_frames_before_the_first_wrong_one_are_opened() -> None:
    one = opener()
    flags = bytearray()
    payloads: list[bytes] = []
    for wrong in (message(b"\0x", 2), b"\x07MESSAGE", message(b"\x08x", 3), message(b"\0x", 9, key=bytes(32))):
        flags.clear()
        payloads.clear()
        fresh = opener()
        with pytest.raises(ProtocolError):
            fresh.open([message(b"\1a", 1), message(b"\0b", 2), wrong, message(b"\0c", 10)], flags, payloads)
        assert (list(flags), payloads) == ([MORE, 0], [b"a", b"b"])
        with pytest.raises(ProtocolError, match="did not grow"):
            unboxed(fresh, message(b"\0b", 2))
    assert unboxed(one) == []


def test_a_nonce_counts_only_if_its_box_opens() -> None:
    one = opener()
    with pytest.raises(ProtocolError, match="does not open"):
        unboxed(one, message(b"\0x", 50, key=bytes(32)))
    assert unboxed(one, message(b"\0x", 2)) == [(0, b"x")]


def test_a_changed_byte_anywhere_is_noticed() -> None:
    body = message(b"\0payload", 1)
    for place in range(len(body)):
        for bit in (1 << place % 8, 0x80, 0xFF):
            changed = body[:place] + bytes([body[place] ^ bit]) + body[place + 1 :]
            with pytest.raises(ProtocolError, match="CURVE"):
                unboxed(opener(), changed)


@pytest.mark.parametrize("prefix", [b"CurveZMQMESSAGES", b"CurveZMQREADY---"])
def test_a_box_of_the_other_direction_does_not_open(prefix: bytes) -> None:
    with pytest.raises(ProtocolError, match="does not open"):
        unboxed(opener(), message(b"\0x", 1, prefix=prefix))


@pytest.mark.parametrize("size", range(len(message(b"\0", 1))))
def test_a_frame_that_is_too_short_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="CURVE"):
        unboxed(opener(), message(b"\0", 1)[:size])


def test_an_empty_box_is_refused() -> None:
    with pytest.raises(ProtocolError, match="too short to hold a box"):
        unboxed(opener(), message(b"", 1))


@pytest.mark.parametrize("flags", [flags for flags in range(256) if flags > 2])
def test_other_flags_in_a_box_are_refused(flags: int) -> None:
    with pytest.raises(ProtocolError, match="flags"):
        unboxed(opener(), message(bytes([flags]) + b"payload", 1))


def test_the_memory_of_the_boxes_does_not_leak_earlier_frames() -> None:
    one = opener()
    assert unboxed(one, message(b"\0" + b"long" * 100, 1)) == [(0, b"long" * 100)]
    assert unboxed(one, message(b"\0s", 2)) == [(0, b"s")]
    assert unboxed(one, message(b"\1", 3)) == [(MORE, b"")]


@given(
    st.lists(st.tuples(st.sampled_from([0, MORE, COMMAND]), st.binary(max_size=400)), max_size=20), st.integers(1, 99)
)
def test_a_plan_seals_the_same_boxes(frames: list[tuple[int, bytes]], nonce: int) -> None:
    flags, payloads = [flag for flag, _ in frames], [payload for _, payload in frames]
    plan = Plan(flags, payloads)
    for start in (nonce, nonce + 1000):  # twice: a plan is used for many peers
        assert sealer(start).seal_plan(plan) == sealer(start).seal(flags, payloads)


def test_a_plan_uses_up_nonces() -> None:
    one = sealer(LAST - 2)
    plan = Plan([0, 0], [b"a", b"b"])
    one.seal_plan(plan)
    with pytest.raises(ProtocolError, match="used up"):
        one.seal_plan(plan)
