"""zambezi.zmtp.frames: the decoder and the encoders, compared with slow ones that follow the grammar."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zmtp.engines import READS, cut, flat
from zambezi.zmtp import frames
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.frames import (
    COMMAND,
    FRAME_COST,
    MORE,
    Assembler,
    Batch,
    CommandFrame,
    Decoder,
    Message,
    Oversize,
    Shared,
    encode,
    encode_command,
    encode_singles,
    size_of,
    wire_size,
)
from zambezi.zmtp.runs import LONG

LIMIT = 1 << 20
EDGES = (0, 1, 2, 3, 254, 255, 256, 257, 65536)


# The reference: one frame at a time, from the grammar


@dataclass
class Whole:
    """A message or a command, and the number of its bytes on the wire."""

    thing: object
    octets: int


def slow_frame(flags: int, body: bytes) -> bytes:
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return bytes([flags | LONG]) + len(body).to_bytes(8, "big") + body


def slow_encode(messages: Iterable[Sequence[bytes]]) -> bytes:
    octets = b""
    for message in messages:
        for frame in message[:-1]:
            octets += slow_frame(MORE, frame)
        octets += slow_frame(0, message[-1])
    return octets


def slow_decode(octets: bytes, frame_limit: int = LIMIT, message_limit: int = LIMIT) -> tuple[list[Whole], bool]:
    """Return the messages and commands in some bytes, and whether a violation follows them."""
    found: list[Whole] = []
    message: list[bytes] = []
    taken = cost = pos = 0
    while True:
        if len(octets) - pos < 2:
            return found, False
        flags, size, head = octets[pos], octets[pos + 1], 2
        if flags & LONG:
            if len(octets) - pos < 9:
                return found, False
            size, head = int.from_bytes(octets[pos + 1 : pos + 9], "big"), 9
        if flags & 0b11111000 or (flags & COMMAND and flags & MORE) or size > frame_limit:
            return found, True
        if not flags & COMMAND:
            cost += size + (FRAME_COST if message or flags & MORE else 0)
            if cost > message_limit:
                return found, True
        if len(octets) - pos < head + size:
            return found, False
        body = octets[pos + head : pos + head + size]
        pos += head + size
        if flags & COMMAND:
            found.append(Whole(CommandFrame(body), head + size))
            continue
        message.append(body)
        taken += head + size
        if not flags & MORE:
            found.append(Whole(message, taken))
            message, taken, cost = [], 0, 0


def decode(octets: bytes, sizes: Sequence[int] = (1 << 30,), decoder: Decoder | None = None) -> list[object]:
    decoder = decoder or Decoder(LIMIT, LIMIT)
    return [item for read in cut(octets, sizes) for item in decoder.feed(read)]


def check(octets: bytes, sizes: Sequence[int], frame_limit: int = LIMIT, message_limit: int = LIMIT) -> None:
    """Check that the decoder finds the same as the reference, in the same order, and counts the same bytes."""
    expected, broken = slow_decode(octets, frame_limit, message_limit)
    decoder = Decoder(frame_limit, message_limit)
    found = decode(octets, sizes, decoder)
    assert flat(found) == [whole.thing for whole in expected]  # type: ignore[arg-type]
    assert (decoder.failure is not None) == broken
    rest = iter(expected)
    for item in found:
        if isinstance(item, Batch):
            assert len(item) > 0
            taken = [next(rest) for _ in range(len(item))]
            assert item.octets == sum(whole.octets for whole in taken)
        else:
            assert type(next(rest).thing) is type(item) is CommandFrame


def body_of(size: int, seed: int) -> bytes:
    """Return bytes that often look like headers."""
    if seed < 4:
        return (bytes([seed, size & 0xFF]) * (size // 2 + 1))[:size]
    return random.Random(seed).randbytes(size)


BODIES = st.builds(body_of, st.sampled_from(EDGES) | st.integers(0, 40), st.integers(0, 50))
MULTIPART = st.lists(BODIES, min_size=1, max_size=6)
# Now and then a run of equal messages, as long as the windows in which the decoder searches for runs.
MESSAGES = st.lists(
    st.tuples(MULTIPART, st.just(1)) | st.tuples(st.lists(BODIES, min_size=1, max_size=1), st.integers(1, 80)),
    max_size=12,
).map(lambda runs: [message for message, times in runs for _ in range(times if len(message[0]) < 300 else 1)])


# Decoding


@settings(max_examples=cases(20), deadline=None)
@given(
    st.lists(st.builds(body_of, st.integers(0, 300), st.integers(0, 50)), min_size=1, max_size=6),
    st.lists(MULTIPART, max_size=2),
    st.lists(st.integers(1, 40_000), min_size=1, max_size=5),
)
def test_frames_of_a_few_sizes_in_turn_are_decoded_like_all_others(
    cycle: list[bytes], between: list[list[bytes]], sizes: list[int]
) -> None:
    before, after = [[body] for body in cycle * 200], [[body] for body in cycle * 70]
    check(slow_encode([*before, *between, *after, *between, *before]), sizes)


@settings(max_examples=cases(37))
@given(MESSAGES, READS)
def test_the_decoder_reverses_the_encoder_however_reads_are_cut(messages: list[list[bytes]], sizes: list[int]) -> None:
    octets = slow_encode(messages)
    assert flat(decode(octets, sizes)) == messages  # type: ignore[arg-type]
    check(octets, sizes)


FRAMES = st.tuples(st.sampled_from((0, 0, 0, MORE, MORE, COMMAND)), BODIES)


@settings(max_examples=cases(37))
@given(st.lists(FRAMES, max_size=20), READS)
def test_commands_can_stand_between_messages_and_between_the_frames_of_one(
    stream: list[tuple[int, bytes]], sizes: list[int]
) -> None:
    check(b"".join(slow_frame(flags, body) for flags, body in stream), sizes)


@settings(max_examples=cases(75))
@given(
    st.lists(
        st.builds(slow_frame, st.integers(0, 7), st.binary(max_size=20))
        | st.builds(slow_frame, st.sampled_from((0, 1, 4)), st.builds(bytes, st.integers(250, 700)))
        | st.binary(max_size=12)
        | st.just(b"\x02" + (5).to_bytes(8, "big") + b"short"),
        max_size=12,
    ).map(b"".join),
    READS,
    st.integers(255, 600),
    st.integers(255, 600),
)
@example(b"\x01\xff" + bytes(255) + b"\x00\x00", [1], 255, 264)
@example(b"\x01\xff" + bytes(255) + b"\x00\x00", [1], 255, 273)
@example(b"\x01\xff" + bytes(255) + b"\x00\x00", [1], 255, 272)
def test_the_decoder_agrees_with_the_reference_about_any_bytes(
    octets: bytes, sizes: list[int], frame_limit: int, message_limit: int
) -> None:
    check(octets, sizes, frame_limit, message_limit)


@pytest.mark.parametrize("size", [0, 1, 2, 100, 254, 255])
def test_runs_of_equal_sizes_end_where_they_end(size: int) -> None:
    for length in range(1, 201):
        same = [body_of(size, 4 + length + number) for number in range(length)]
        for other in ((size + 1,), (size and size - 1,), (size, 0), (0, size), (300,)):
            last = tuple(bytes(part) for part in other)
            octets = slow_encode([[body] for body in same] + [list(last)] + [[b"x"]])
            assert flat(decode(octets)) == [*([body] for body in same), list(last), [b"x"]]  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [3, 63, 64, 65, 66, 67, 130, 577, 578, 579, 580, 700])
def test_a_run_that_is_cut_anywhere(length: int) -> None:
    octets = slow_encode([[body_of(5, 4 + number)] for number in range(length)])
    whole = decode(octets)
    assert [type(item) for item in whole] == [Batch]
    for at in range(1, len(octets), 1 if length < 70 else 97):
        assert flat(decode(octets, (at,))) == flat(whole)  # type: ignore[arg-type]


@pytest.mark.parametrize("flags", [MORE, COMMAND, LONG, MORE | LONG, COMMAND | MORE, 0x08, 0x80])
@pytest.mark.parametrize("size", [0, 7, 255])
def test_equal_sizes_with_another_flag_in_the_middle_are_no_run(flags: int, size: int) -> None:
    for place in (1, 2, 3, 64, 65, 66, 67, 129, 130):
        octets = bytearray(slow_encode([[body_of(size, 9)]] * 140))
        octets[place * (size + 2)] = flags
        check(bytes(octets), (1 << 20,))
        check(bytes(octets), (1000,))


def test_a_body_that_looks_like_frames_is_a_body() -> None:
    inner = slow_encode([[b"no"]] * 20)
    assert flat(decode(slow_encode([[inner], [inner], [inner], [inner]]))) == [[inner]] * 4  # type: ignore[arg-type]


def test_a_long_header_for_a_short_body_is_read() -> None:
    check(b"\x02" + (2).to_bytes(8, "big") + b"hi" + b"\x00\x02ho", (1 << 20,))
    check((b"\x02" + (2).to_bytes(8, "big") + b"hi") * 70, (3,))


def test_one_read_is_one_batch() -> None:
    found = decode(encode([b"a", (b"b", b"c"), b"d" * 300]))
    assert found == [Batch([b"a", b"b", b"c", b"d" * 300], [1, 3, 4])]
    assert decode(b"") == []


def test_single_frames_need_no_ends() -> None:
    (batch,) = decode(encode_singles([b"a", b"b" * 300, b""]))
    assert isinstance(batch, Batch)
    assert batch.ends is None


# Violations


@pytest.mark.parametrize(
    ("octets", "words"),
    [
        (b"\x08\x00", "reserved"),
        (b"\x80\x00", "reserved"),
        (b"\x05\x00", "command"),
        (b"\x07" + bytes(8), "command"),
        (b"\x02" + (LIMIT + 1).to_bytes(8, "big"), "limit"),
        (b"\x06" + (LIMIT + 1).to_bytes(8, "big"), "limit"),
        (b"\x02" + b"\xff" * 8, "limit"),
        (b"\x03" + (LIMIT - 8).to_bytes(8, "big"), "limit"),
    ],
)
def test_a_violation_is_seen_in_the_header_and_ends_everything(octets: bytes, words: str) -> None:
    before = encode([b"before", (b"a", b"b")]) + encode_command(b"\x01c") + encode([b"last"])
    for sizes in ((1,), (2,), (7,), (1000,)):
        decoder = Decoder(LIMIT, LIMIT)
        assert flat(decode(before + octets, sizes, decoder)) == [  # type: ignore[arg-type]
            [b"before"],
            [b"a", b"b"],
            CommandFrame(b"\x01c"),
            [b"last"],
        ]
        assert isinstance(decoder.failure, ProtocolError)
        assert words in str(decoder.failure)
        assert decoder.feed(encode([b"after"])) == []


def test_an_unfinished_message_is_not_delivered_at_a_violation() -> None:
    decoder = Decoder(LIMIT, LIMIT)
    assert flat(decoder.feed(encode([b"whole"]) + b"\x01\x01a" + b"\xf8\x00")) == [[b"whole"]]
    assert decoder.failure is not None


def test_sizes_at_the_limits_pass_and_one_more_does_not() -> None:
    for size, passes in ((1000, True), (1001, False)):
        decoder = Decoder(1000, 10_000)
        assert bool(decoder.feed(encode([bytes(size)]))) is passes
        decoder = Decoder(10_000, 1000)
        assert bool(decoder.feed(encode([bytes(size)]))) is passes
        decoder = Decoder(1000, 10_000)
        assert bool(decoder.feed(encode_command(bytes(size)))) is passes
    for size, passes in ((1000 - 2 * FRAME_COST, True), (1001 - 2 * FRAME_COST, False)):
        decoder = Decoder(1000, 1000)
        assert bool(decoder.feed(encode([(b"", bytes(size))]))) is passes
        assert (decoder.failure is None) is passes


def test_commands_do_not_count_for_the_message_around_them() -> None:
    decoder = Decoder(1000, 1000)
    octets = b"\x01\x01a" + encode_command(bytes(900)) * 3 + b"\x00\x01b"
    assert flat(decode(octets, (50,), decoder))[-1] == [b"a", b"b"]  # type: ignore[arg-type]
    assert decoder.failure is None


def test_a_message_of_endless_empty_frames_is_bounded() -> None:
    decoder = Decoder(1000, 1000)
    fed = 0
    while decoder.failure is None and fed < 10_000:
        assert decoder.feed(b"\x01\x00") == []
        fed += 1
    assert fed == 1000 // FRAME_COST + 1


# The cost of decoding


def test_a_declared_length_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        for flags in (LONG, LONG | MORE, LONG | COMMAND):
            decoder = Decoder(1 << 40, 1 << 41)
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            decoder.feed(bytes([flags]) + (1 << 40).to_bytes(8, "big") + b"the first of them")
            assert decoder.failure is None
            assert tracemalloc.get_traced_memory()[1] - before < 4096
    finally:
        tracemalloc.stop()


def test_a_large_frame_is_put_together_once() -> None:
    size, read = 1 << 25, bytes(1 << 16)
    decoder = Decoder(1 << 28, 1 << 28)
    decoder.feed(b"\x02" + size.to_bytes(8, "big"))
    tracemalloc.start()
    try:
        for _ in range(size // len(read) - 1):
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            assert decoder.feed(read) == []
            assert tracemalloc.get_traced_memory()[1] - before < 8192
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        (batch,) = decoder.feed(read)
        assert (
            tracemalloc.get_traced_memory()[1] - before < size + 65_536
        )  # the frame, and the memory that `join` needs for its pieces
    finally:
        tracemalloc.stop()
    assert isinstance(batch, Batch)
    assert batch.octets == size + 9
    assert batch.frames == [bytes(size)]


@pytest.mark.parametrize("flags", [LONG, LONG | COMMAND])
def test_the_memory_of_an_unfinished_frame_is_known(flags: int) -> None:
    decoder = Decoder(1 << 28, 1 << 28)
    decoder.feed(bytes([flags]) + (1000).to_bytes(8, "big"))
    for _ in range(9):
        decoder.feed(bytes(100))
    assert 900 <= decoder.unfinished <= 900 + 11 * FRAME_COST  # the bytes, and a share for each piece
    decoder.feed(bytes(100) + b"\x00\x02")
    assert decoder.unfinished <= 2 * FRAME_COST + 4  # a header, or the first bytes of a frame


def test_the_memory_of_an_unfinished_message_of_many_frames_is_known() -> None:
    decoder = Decoder(1 << 28, 1 << 28)
    decoder.feed(b"\x00\x01x" + b"\x01\x00" * 1000)
    assert decoder.unfinished == 1000 * (FRAME_COST + 2)
    decoder.feed(encode_command(b"\x04PING\x00\x00"))
    assert decoder.unfinished == 1000 * (FRAME_COST + 2)
    decoder.feed(b"\x00\x01x")
    assert decoder.unfinished == 0
    assembler = Assembler(1 << 28)
    assembler.assemble(bytes([MORE]) * 1000, [b""] * 1000, 2000)
    assert assembler.unfinished == 1000 * (FRAME_COST + 2)
    assembler.assemble(bytes([0]), [b""], 2)
    assert assembler.unfinished == 0


def test_a_message_of_many_frames_is_not_copied_with_every_read() -> None:
    decoder = Decoder(1 << 28, 1 << 28)
    decoder.feed(b"\x01\x00" * 100_000)
    tracemalloc.start()
    try:
        decoder.feed(b"\x01\x00")  # the list may grow here, in proportion to its size
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(100):
            tracemalloc.reset_peak()
            decoder.feed(b"\x01\x00")
            assert tracemalloc.get_traced_memory()[1] - before < 100_000  # a copy would be 800,000
    finally:
        tracemalloc.stop()
    (batch,) = decoder.feed(b"\x00\x00")
    assert isinstance(batch, Batch)
    assert len(batch.frames) == 100_102
    assert batch.octets == 2 * 100_102


# Encoding


@settings(max_examples=cases(37))
@given(st.lists(MULTIPART, max_size=10))
def test_the_encoders_agree_with_the_grammar(messages: list[list[bytes]]) -> None:
    given_as: list[Message] = []
    for number, message in enumerate(messages):
        parts: bytes | tuple[bytes, ...] = message[0] if len(message) == 1 and number % 2 else tuple(message)
        given_as.append(Shared([parts]) if number % 3 == 0 else parts)
    assert encode(given_as) == slow_encode(messages)
    assert [size_of(message) for message in given_as] == [sum(map(len, message)) for message in messages]
    singles = [message[0] for message in messages]
    assert encode_singles(singles) == encode(singles) == slow_encode([[single] for single in singles])


@pytest.mark.parametrize("size", EDGES)
def test_commands_and_sizes(size: int) -> None:
    body = bytes(size)
    assert encode_command(body) == slow_frame(COMMAND, body)
    assert wire_size(body) == len(encode([body])) == len(slow_frame(0, body))


def test_the_headers_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = frames._Headers(MORE)
    for size in range(256, 70_000):
        assert headers[size] == b"\x03" + size.to_bytes(8, "big")
    assert len(headers) == 65536


def test_shared_messages_make_their_bytes_once() -> None:
    message = Shared([(b"a", b"bc")])
    assert len(message) == 3
    assert len(Shared([b"abc"])) == 3
    assert message.wire is message.wire
    assert encode([message, b"x", message]) == message.wire + b"\x00\x01x" + message.wire


# Batches


def test_a_batch_of_single_frames() -> None:
    batch = Batch([b"a", b"b"], octets=6, sender=b"id")
    assert len(batch) == 2
    assert list(batch) == [[b"a"], [b"b"]]
    assert list(batch.addressed()) == [[b"id", b"a"], [b"id", b"b"]]
    assert repr(batch) == "<Batch of 2 messages, 6 bytes>"


def test_a_batch_with_multipart_messages() -> None:
    batch = Batch([b"a", b"b", b"c"], [2, 3], sender=b"id")
    assert len(batch) == 2
    assert list(batch) == [[b"a", b"b"], [b"c"]]
    assert list(batch.addressed()) == [[b"id", b"a", b"b"], [b"id", b"c"]]


def test_batches_are_equal_when_their_messages_and_senders_are() -> None:
    assert Batch([b"a", b"b"]) == Batch([b"a", b"b"], [1, 2], octets=9)
    assert Batch([b"a", b"b"]) != Batch([b"a", b"b"], [2])
    assert Batch([b"a"]) != Batch([b"a"], sender=b"id")
    assert Batch([b"a"]) != [[b"a"]]
    assert len(Batch([])) == 0
    with pytest.raises(TypeError):
        hash(Batch([b"a"]))


def test_the_lists_of_messages_are_copies() -> None:
    batch = Batch([b"a", b"b", b"c"], [2, 3])
    next(iter(batch)).clear()
    assert list(batch) == [[b"a", b"b"], [b"c"]]


# The assembler


@settings(max_examples=cases(37))
@given(st.lists(st.lists(FRAMES, max_size=8), max_size=6))
def test_the_assembler_groups_as_the_decoder_does(reads: list[list[tuple[int, bytes]]]) -> None:
    assembler, decoder = Assembler(LIMIT), Decoder(LIMIT, LIMIT)
    for read in reads:
        flags, bodies = bytes(flags for flags, _ in read), [body for _, body in read]
        taken = assembler.assemble(flags, bodies, sum(map(wire_size, bodies)))
        expected = decoder.feed(b"".join(slow_frame(flags, body) for flags, body in read))
        assert taken == expected
        assert [type(item) for item in taken] == [type(item) for item in expected]
        for item, other in zip(taken, expected, strict=True):
            if isinstance(item, Batch) and isinstance(other, Batch):
                assert item.octets == other.octets


@pytest.mark.parametrize(("count", "passes"), [(1000 // FRAME_COST, True), (1000 // FRAME_COST + 1, False)])
def test_the_assembler_bounds_a_message(count: int, passes: bool) -> None:
    assembler = Assembler(1000)
    for _ in range(count):
        assert assembler.assemble(bytes([MORE]), [b""], 2) == []
    assert (assembler.failure is None) is passes
    assert passes or "limit" in str(assembler.failure)


def test_the_assembler_returns_messages_before_a_violation() -> None:
    assembler = Assembler(1000)
    assert flat(assembler.assemble(bytes([0, MORE, 0]), [b"whole", bytes(990), bytes(10)], 0)) == [[b"whole"]]
    assert assembler.failure is not None


def test_the_assembler_counts_the_bytes_that_boxes_add() -> None:
    assembler = Assembler(1000, overhead=33)
    bodies = [b"a" * 222, b"b" * 223, b"PING"]
    first, second = assembler.assemble(bytes([MORE, 0, COMMAND]), bodies, 0)
    assert isinstance(first, Batch)
    assert first.octets == 2 + 255 + 9 + 256
    assert second == CommandFrame(b"PING")


@given(st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=4).map(tuple), min_size=1, max_size=5))
def test_shared_messages_are_their_messages_in_a_row(messages: list[tuple[bytes, ...]]) -> None:
    shared = Shared(messages)
    (batch,) = Decoder(1 << 20, 1 << 20).feed(shared.wire)
    assert isinstance(batch, Batch)
    assert [tuple(message) for message in batch] == messages
    assert len(shared) == sum(len(frame) for message in messages for frame in message)


@given(st.lists(st.lists(st.binary(max_size=3), min_size=1, max_size=3), min_size=1, max_size=6), st.data())
def test_the_tail_of_a_batch_is_its_last_messages(messages: list[list[bytes]], data: st.DataObject) -> None:
    (batch,) = Decoder(1 << 20, 1 << 20).feed(slow_encode(messages))
    assert isinstance(batch, Batch)
    count = data.draw(st.integers(1, len(messages)))
    assert list(batch.tail(count)) == messages[-count:]


# Messages over the limit that are skipped


@pytest.mark.parametrize("cut", [1, 3, 9, 100, 4000, 1 << 20])
def test_messages_over_the_limit_are_skipped(cut: int) -> None:
    octets = encode([b"a", bytes(1001), b"b", bytes(5000), bytes(1000), b"c"])
    decoder = Decoder(1000, 1000, skip=True)
    found: list[object] = []
    for start in range(0, len(octets), cut):
        for item in decoder.feed(octets[start : start + cut]):
            found += item.frames if isinstance(item, Batch) else [item]
    assert found == [b"a", b"", b"b", b"", bytes(1000), b"c"]
    assert [item.size for item in found if isinstance(item, Oversize)] == [1001, 5000]
    assert decoder.failure is None


def test_the_bytes_of_a_skipped_message_are_not_kept() -> None:
    decoder = Decoder(1000, 1000, skip=True)
    (oversize,) = decoder.feed(b"\x02" + (1 << 62).to_bytes(8, "big") + bytes(1000))
    assert isinstance(oversize, Oversize)
    assert decoder.unfinished == 0
    piece = bytes(1 << 20)
    tracemalloc.start()
    for _ in range(50):
        assert decoder.feed(piece) == []
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("octets", [b"\x03" + (2000).to_bytes(8, "big"), b"\x06" + (2000).to_bytes(8, "big")])
def test_long_parts_and_commands_are_not_skipped(octets: bytes) -> None:
    decoder = Decoder(1000, 1000, skip=True)
    assert decoder.feed(octets) == []
    assert decoder.failure is not None
