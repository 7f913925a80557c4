"""zambezi.zmtp.runs: consecutive frames of one size, found and cut as a whole."""

from __future__ import annotations

import random

import pytest

from tests.zmtp.engines import cut, flat
from zambezi.zmtp.frames import COMMAND, MORE, Batch, Decoder
from zambezi.zmtp.runs import LEAST, LONG, Run, cycle_of, find_cycle, find_run

ROOM = 1 << 20


def header(size: int, *, long: bool) -> bytes:
    return bytes((LONG,)) + size.to_bytes(8, "big") if long else bytes((0, size))


def rows(size: int, count: int, *, long: bool = False) -> tuple[list[bytes], bytes]:
    """Return frames of one size, and their bytes on the wire."""
    source = random.Random(size)
    frames = [source.randbytes(size) for _ in range(count)]
    return frames, b"".join([header(size, long=long) + frame for frame in frames])


def found(data: bytes, pos: int = 0) -> Run:
    run = find_run(data, pos, ROOM)
    assert run is not None
    return run


@pytest.mark.parametrize("count", [16, 17, 63, 64, 65, 71, 72, 73, 128, 200])
@pytest.mark.parametrize(("size", "long"), [(0, False), (1, False), (255, False), (100, True), (300, True)])
def test_a_run_is_found_and_cut(size: int, long: bool, count: int) -> None:
    frames, octets = rows(size, count, long=long)
    run = found(b"before" + octets, 6)
    assert (run.size, run.count, run.octets) == (size, count, len(octets))
    assert run.cut() == frames
    if size:
        assert run.cut(1) == [frame[1:] for frame in frames]
        assert run.first(0, 1) == frames[0][:1]


def test_the_frame_at_the_end_of_a_read_need_not_be_whole() -> None:
    frames, octets = rows(90, 20)
    assert found(octets[:-1]).cut() == frames[:-1]
    assert found(octets + b"\0").cut() == frames


@pytest.mark.parametrize("at", [0, 1, 7, LEAST - 1])
@pytest.mark.parametrize("flags", [MORE, COMMAND, LONG, 0x80])
def test_a_frame_with_other_flags_ends_no_run_but_prevents_it(at: int, flags: int) -> None:
    _, octets = rows(100, LEAST)
    changed = octets[: 102 * at] + bytes((flags,)) + octets[102 * at + 1 :]
    assert find_run(octets, 0, ROOM) is not None
    assert find_run(changed, 0, ROOM) is None


@pytest.mark.parametrize("byte", range(9))
def test_every_byte_of_a_long_header_counts(byte: int) -> None:
    _, octets = rows(300, LEAST + 4, long=True)
    place = 309 * 5 + byte
    changed = octets[:place] + bytes((octets[place] ^ 1,)) + octets[place + 1 :]
    assert find_run(changed, 0, ROOM) is None


def test_few_frames_and_frames_over_the_limit_are_no_run() -> None:
    assert find_run(rows(100, LEAST - 1)[1], 0, ROOM) is None
    long = rows(300, LEAST, long=True)[1]
    assert find_run(long, 0, 300) is not None
    assert find_run(long, 0, 299) is None


def test_bytes_that_all_frames_have() -> None:
    run = found(b"".join([bytes((0, 70)) + b"abc" + bytes((number,)) * 67 for number in range(LEAST)]))
    assert run.has(0, b"abc")
    assert run.has(1, b"b")
    assert not run.has(0, b"abd")
    assert not run.has(3, b"\0")


# In the decoder


def test_a_read_that_is_a_run_is_cut_when_its_frames_are_needed() -> None:
    frames, octets = rows(100, 50)
    (batch,) = Decoder(ROOM, ROOM).feed(octets)
    assert isinstance(batch, Batch)
    run = batch.run
    assert run is not None
    assert (len(batch), batch.octets) == (50, len(octets))
    assert batch.frames == frames
    assert batch.run is not run  # the read is not kept beside its frames
    assert (len(batch), list(batch)) == (50, [[frame] for frame in frames])


@pytest.mark.parametrize(("size", "long"), [(60, False), (60, True), (300, True)])
def test_reads_that_end_in_the_middle_of_a_frame_are_runs_all_the_same(size: int, long: bool) -> None:
    frames, octets = rows(size, 200, long=long)
    for length in range(40 * size, 41 * size):
        decoder = Decoder(ROOM, ROOM)
        batches = [item for read in cut(octets, [length]) for item in decoder.feed(read)]
        assert all(batch.run is not None for batch in batches[:-1] if isinstance(batch, Batch))
        assert flat(batches) == [[frame] for frame in frames]
        assert sum(batch.octets for batch in batches if isinstance(batch, Batch)) == len(octets)
        assert (decoder.missing, decoder.carried, decoder.unfinished) == (0, 0, 0)


@pytest.mark.parametrize(("size", "long"), [(60, False), (60, True), (300, True)])
def test_after_a_run_reads_of_the_size_that_the_decoder_wants_end_with_a_frame(size: int, long: bool) -> None:
    _, octets = rows(size, 200, long=long)
    for length in range(40 * size, 41 * size):
        decoder = Decoder(ROOM, ROOM)
        assert decoder.read_size(10_000) == 10_000
        decoder.feed(octets[:length])
        wanted = decoder.read_size(10_000)
        assert 10_000 - size - 9 < wanted <= 10_000
        decoder.feed(octets[length : length + wanted])
        assert decoder.missing == 0
        assert decoder.read_size(10_000) % (size + (9 if long else 2)) == 0  # and no header has begun


@pytest.mark.parametrize(("size", "most"), [(300, 10_000), (1000, 20_000)])
def test_reads_of_long_frames_are_twice_as_long(size: int, most: int) -> None:
    _, octets = rows(size, 200, long=True)
    decoder = Decoder(ROOM, ROOM)
    decoder.feed(octets)
    assert most - size - 9 < decoder.read_size(10_000) <= most


def test_the_unfinished_frame_after_a_run_is_known() -> None:
    _, octets = rows(100, 50)
    decoder = Decoder(ROOM, ROOM)
    decoder.feed(octets[:-10])
    assert decoder.missing == 10
    decoder.feed(octets[-10:] + octets[:-20])
    assert decoder.missing == 20


def test_messages_of_other_sizes_before_and_after_a_run_keep_their_place() -> None:
    frames, octets = rows(100, 50)
    decoder = Decoder(ROOM, ROOM)
    assert flat(decoder.feed(octets + b"\0\1a")) == [*([frame] for frame in frames), [b"a"]]
    assert flat(decoder.feed(b"\0\1b" + octets)) == [[b"b"], *([frame] for frame in frames)]
    assert flat(decoder.feed(b"\1\1m" + octets)) == [[b"m", frames[0]], *([frame] for frame in frames[1:])]


SIZES = (33, 36, 300, 54, 33, 233)


def in_turn(count: int) -> tuple[list[bytes], bytes]:
    """Return frames of a few sizes in turn, and their bytes on the wire."""
    source = random.Random(count)
    frames = [source.randbytes(SIZES[number % len(SIZES)]) for number in range(count)]
    return frames, b"".join([header(len(frame), long=len(frame) > 255) + frame for frame in frames])


def test_a_cycle_is_known_after_120_frames_and_takes_60_at_once() -> None:
    frames, octets = in_turn(120)
    assert find_cycle(frames[:119]) == ()
    assert find_cycle(frames) == SIZES * 10
    taken: list[bytes] = []
    assert cycle_of(find_cycle(frames)).take(octets, 0, taken) == len(octets)
    assert taken == frames
    # Not the frames of a cycle that is not whole.
    taken.clear()
    assert cycle_of(find_cycle(frames)).take(octets[:-1], 0, taken) == len(octets) // 2
    assert taken == frames[:60]


def test_a_frame_of_another_size_or_with_other_flags_ends_a_cycle() -> None:
    frames, octets = in_turn(120)
    assert find_cycle([*frames[:100], b"", *frames[101:]]) == ()
    for other in (bytes((MORE,)), bytes((COMMAND,))):
        taken: list[bytes] = []
        changed = octets[: len(octets) // 2] + other + octets[len(octets) // 2 + 1 :]
        assert cycle_of(SIZES * 10).take(changed, 0, taken) == len(octets) // 2
        assert taken == frames[:60]


def test_large_frames_are_in_no_cycle() -> None:
    assert find_cycle([bytes(2000)] * 120) == ()


def test_a_cycle_goes_on_after_a_frame_that_spans_reads() -> None:
    frames, octets = in_turn(600)
    half = len(octets) // 2 + 50  # in the middle of a frame
    decoder = Decoder(ROOM, ROOM)
    assert flat([*decoder.feed(octets[:half]), *decoder.feed(octets[half:])]) == [[frame] for frame in frames]
    decoder = Decoder(ROOM, ROOM)
    decoder.feed(octets[:half])
    rest = [frame for batch in decoder.feed(octets[half:]) if isinstance(batch, Batch) for frame in batch.frames]
    assert rest == frames[-len(rest) :]
