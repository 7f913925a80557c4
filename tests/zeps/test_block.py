"""zambezi.zeps.block: many messages at once give the same as the grammar for each one."""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from zambezi.wire import WireError
from zambezi.zeps import layout
from zambezi.zeps.block import (
    Block,
    Place,
    deliver,
    end_of_publishes,
    is_publish_run,
    message_at,
    starts_and_keys,
    walk_messages,
)
from zambezi.zeps.layout import frame_header
from zambezi.zeps.messages import Deliver, Mark, Publish, Zeps
from zambezi.zmtp.frames import encode
from zambezi.zmtp.runs import Run, find_run

# Bodies and keys that look like headers, signatures and lengths.
LOOKALIKES = [
    b"\xaa\xa5\x07",
    b"\xaa\xa5\x06",
    b"\x00\x1d\xaa\xa5\x07" + bytes(8) + b"\x01k" + bytes(4),
    b"\x02" + bytes(7) + b"\x20\xaa\xa5\x07" + bytes(8),
    b"\x00\x00\x00\x00",
    b"\xff" * 9,
]
ODD = st.lists(st.sampled_from(LOOKALIKES) | st.binary(max_size=6), max_size=6).map(b"".join)
KEYS = (st.binary(max_size=12) | ODD | st.just(b"k" * 255)).map(lambda key: key[:255])
BODIES = st.binary(max_size=20) | ODD | st.integers(225, 262).map(lambda size: b"b" * size)
# All sequences where the last bytes carry over.
SEQUENCES = st.one_of(
    st.integers(1, 1000),
    st.tuples(st.sampled_from([8, 16, 24, 32, 40, 48, 56, 63]), st.integers(-600, 600)).map(
        lambda chosen: max(1, (1 << chosen[0]) + chosen[1])
    ),
    st.just((1 << 64) - 2000),
)


def text(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogateescape")


def publish(key: bytes, body: bytes) -> bytes:
    return Publish(text(key), body).encode()[0]


MIXED = st.lists(st.builds(publish, KEYS, BODIES), min_size=1, max_size=60)


@st.composite
def tables(draw: st.DrawFn) -> list[bytes]:
    """Many messages of one size, as sensors send them."""
    key_length = draw(st.integers(0, 20) | st.just(255))
    body_length = draw(st.integers(0, 40) | st.integers(200, 300))
    count = draw(st.integers(1, 40) | st.integers(200, 700))
    filler = draw(st.binary(min_size=1, max_size=50) | st.sampled_from(LOOKALIKES))
    stuff = filler * ((key_length + body_length + count) // len(filler) + 1)
    return [
        publish(stuff[index : index + key_length], stuff[index : index + body_length][::-1]) for index in range(count)
    ]


FRAMES = MIXED | tables()


def declared(frames: Sequence[bytes], first: int) -> list[bytes]:
    """Return the DELIVER messages for PUBLISH messages, by the grammar."""
    made = []
    for sequence, frame in enumerate(frames, first):
        message = Zeps.decode(frame)
        assert isinstance(message, Publish)
        made.append(Deliver(sequence, message.key, message.body).encode()[0])
    return made


def by_grammar(frame: bytes) -> bool:
    try:
        return isinstance(Zeps.decode(frame), Publish)
    except WireError:
        return False


@pytest.mark.spec("ZEP-05")
@given(FRAMES, SEQUENCES)
def test_a_block_is_the_deliver_messages_in_frames(frames: list[bytes], first: int) -> None:
    bodies = declared(frames, first)
    made = deliver(frames, first)
    assert made.octets == encode(bodies)
    assert (made.first, made.last, made.count) == (first, first + len(frames) - 1, len(frames))
    assert made.credit == sum(map(len, bodies))
    assert made.bodies == bodies
    middle = len(made.octets) // 2
    for start, stop in [(0, len(made.octets)), (middle, len(made.octets)), (middle, len(made.octets))]:
        assert made.crc(start, stop) == crc32(made.octets[start:stop])


@pytest.mark.spec("ZEP-05")
@pytest.mark.parametrize("boundary", [1 << 8, 1 << 16, 1 << 24, 1 << 32, 1 << 40, 1 << 48, 1 << 56])
@pytest.mark.parametrize("size", [1, 300])
@pytest.mark.parametrize("before", [1, 15, 255, 256, 257, 700])
def test_sequences_carry_over(boundary: int, size: int, before: int) -> None:
    first = max(1, boundary - before)
    for frames in ([publish(b"k", b"x" * size)] * 1200, [publish(b"k", b"x" * (size + i % 2)) for i in range(1200)]):
        assert deliver(frames, first).octets == encode(declared(frames, first))


def test_a_table_that_crosses_three_bytes_of_the_sequence() -> None:
    frames = [publish(b"k", b"v")] * 70_000
    first = (1 << 24) - 66_000
    made = deliver(frames, first)
    assert [place.sequence for place in walk_messages(made.octets)] == list(range(first, first + 70_000))


@given(FRAMES, SEQUENCES)
def test_the_places_of_a_block(frames: list[bytes], first: int) -> None:
    made = deliver(frames, first)
    messages = [Zeps.decode(frame) for frame in frames]
    keys = [message.key.encode("utf-8", "surrogateescape") for message in messages if isinstance(message, Publish)]
    walked = list(walk_messages(made.octets))
    starts, found = starts_and_keys(made.octets)
    assert found == keys == made.keys == [place.key for place in walked]
    assert list(starts) == [*(place.start for place in walked), len(made.octets)] == list(made.starts)
    assert [place.sequence for place in walked] == list(range(first, first + len(frames)))
    assert walked[-1].stop == len(made.octets)


@given(FRAMES, SEQUENCES, st.data())
def test_selected_messages_are_a_block_of_their_own(frames: list[bytes], first: int, data: st.DataObject) -> None:
    made = deliver(frames, first)
    indices = sorted(data.draw(st.sets(st.integers(0, made.count - 1))))
    chosen = made.select(indices)
    assert chosen.bodies == [made.bodies[index] for index in indices]
    assert chosen.octets == encode(chosen.bodies)
    assert chosen.credit == sum(map(len, chosen.bodies))
    assert (chosen.first, chosen.last, chosen.count) == (made.first, made.last, len(indices))
    assert chosen.keys == [made.keys[index] for index in indices]
    assert list(chosen.starts) == list(starts_and_keys(chosen.octets)[0])


@given(FRAMES, SEQUENCES, st.data())
def test_a_part_of_a_block_has_the_messages_between_two_indices(
    frames: list[bytes], first: int, data: st.DataObject
) -> None:
    made = deliver(frames, first)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, made.count), st.integers(0, made.count))))
    part, chosen = made.part(start, stop), made.select(range(start, stop))
    assert (part.octets, part.credit, part.count) == (chosen.octets, chosen.credit, chosen.count)
    assert part.bodies == made.bodies[start:stop]
    assert (part.first, part.last) == (made.first, made.last)
    if 0 < stop < made.count:
        head = made.head(stop)
        assert head.bodies == made.bodies[:stop]
        assert list(head.sequences) == list(made.sequences)[:stop]


def spoilt(frame: bytes, kind: int) -> bytes:
    """Return a frame that is nearly a PUBLISH."""
    return [
        frame[:-1],
        frame + b"\0",
        b"\xaa\xa5\x07" + frame[3:],
        frame[:3] + bytes([frame[3] ^ 1 if len(frame) > 3 else 1]) + frame[4:],
        frame[:3],
        b"",
        frame[:7],
        b"\xaa\xa5\x08",
    ][kind]


@pytest.mark.spec("ZEP-08")
@given(FRAMES, st.lists(st.tuples(st.integers(0, 800), st.integers(0, 7)), max_size=3), st.data())
def test_end_of_publishes_agrees_with_the_grammar(
    frames: list[bytes], faults: list[tuple[int, int]], data: st.DataObject
) -> None:
    frames = list(frames)
    for index, kind in faults:
        frames[index % len(frames)] = spoilt(frames[index % len(frames)], kind)
    start = data.draw(st.integers(0, len(frames)))
    wanted = next((i for i in range(start, len(frames)) if not by_grammar(frames[i])), len(frames))
    assert end_of_publishes(frames, start) == wanted
    wanted = next((i for i in range(len(frames)) if not by_grammar(frames[i])), len(frames))
    assert end_of_publishes(frames) == wanted


@settings(max_examples=cases(75))
@given(
    st.lists(
        st.binary(max_size=40) | st.binary(min_size=5, max_size=20).map(lambda rest: layout.PUBLISH + rest),
        min_size=1,
        max_size=30,
    )
)
def test_end_of_publishes_for_any_bytes(frames: list[bytes]) -> None:
    wanted = next((i for i, frame in enumerate(frames) if not by_grammar(frame)), len(frames))
    assert end_of_publishes(frames) == wanted


class Looks(list[bytes]):
    """Frames that count how often parts of them are taken."""

    def __init__(self, frames: list[bytes]) -> None:
        super().__init__(frames)
        self.frames = self.parts = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        if isinstance(place, slice):
            self.parts += 1
            self.frames += len(found)
        return found


def test_another_message_between_publishes_does_not_make_the_broker_look_at_each_one() -> None:
    publish = Publish("key", b"body").encode()[0]
    frames = Looks([publish] * 5000 + [Mark(bytes(16)).encode()[0]] + [publish] * 5000)
    assert end_of_publishes(frames) == 5000
    assert end_of_publishes(frames, 5001) == 10001
    assert frames.parts < 50
    assert frames.frames < 30_000


def test_many_other_messages_between_publishes_cost_no_more_than_they_are() -> None:
    frames = Looks([Publish("key", b"body").encode()[0], Mark(bytes(16)).encode()[0]] * 1000)
    for start in range(0, 2000, 2):
        assert end_of_publishes(frames, start) == start + 1
    assert frames.frames < 10_000


@settings(max_examples=cases(75))
@given(st.binary(min_size=8, max_size=30), st.integers(16, 40))
def test_published_and_a_table_of_anything(row: bytes, count: int) -> None:
    for frame in (row, layout.PUBLISH + row, layout.PUBLISH + bytes(1) + len(row).to_bytes(4) + row):
        assert end_of_publishes([frame] * count) == (count if by_grammar(frame) else 0)


@pytest.mark.parametrize("size", [0, 100, 222, 230, 300, 1000])  # short and long rows, and those that are not all cut
@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_rows_of_one_size_are_found_and_selected(size: int, step: int) -> None:
    frames = [Publish(f"k{number:03}", bytes((number,)) * size).encode()[0] for number in range(200)]
    made = deliver(frames, 7)
    block = Block(made.first, made.last, made.count, made.octets, made.credit)  # as it is read from a journal
    assert block.starts == range(0, len(made.octets) + 1, len(made.octets) // 200)
    assert block.keys == [f"k{number:03}".encode() for number in range(200)]
    chosen = block.select(range(0, 200, step))
    assert chosen.bodies == made.bodies[::step]
    assert chosen.credit == sum(map(len, chosen.bodies))


def test_a_row_with_another_length_of_its_key_is_found() -> None:
    keys = ["key"] * 20 + ["longer"] + ["key"] * 20
    made = deliver([Publish(key, bytes(20 - len(key))).encode()[0] for key in keys], 1)
    assert Block(1, 41, 41, made.octets, made.credit).keys == [key.encode() for key in keys]


def run_of(frames: list[bytes]) -> Run:
    octets = b"".join([layout.frame_header(len(frame)) + frame for frame in frames])
    run = find_run(octets, 0, len(octets))
    assert run is not None
    return run


@settings(max_examples=cases(75))
@given(st.binary(max_size=300), st.integers(16, 40))
def test_a_run_of_anything_is_a_run_of_publishes_by_the_grammar(row: bytes, count: int) -> None:
    for frame in (row, layout.PUBLISH + row, layout.PUBLISH + bytes(1) + len(row).to_bytes(4) + row):
        assert is_publish_run(run_of([frame] * count)) == by_grammar(frame)


@pytest.mark.parametrize("size", [20, 1000])
def test_one_byte_that_differs_is_seen_in_a_run_of_publishes(size: int) -> None:
    frame = Publish("key", bytes(size)).encode()[0]
    for place in range(20):
        other = frame[:place] + bytes((frame[place] ^ 1,)) + frame[place + 1 :]
        accepted = is_publish_run(run_of([*[frame] * 20, other, *[frame] * 20]))
        assert not accepted or by_grammar(other)
        assert accepted == (4 <= place < 7 or place >= 11)  # in the key, or in the body


def test_messages_that_are_known_to_have_one_size_become_the_same_block() -> None:
    frames = [Publish(f"k{number:02}", b"body").encode()[0] for number in range(40)]
    for count in (1, 2, 15, 16, 40):
        alike, checked = deliver(frames[:count], 250, True), deliver(frames[:count], 250)
        assert (alike.octets, alike.credit, alike.last) == (checked.octets, checked.credit, checked.last)


def measured(octets: bytes, position: int, end: int) -> Place | None:
    """Do what `message_at` does, by the grammar."""
    flags = octets[position : position + 1]
    if flags == b"\0" and position + 2 <= end:
        body, size = position + 2, octets[position + 1]
    elif flags == b"\2" and position + 9 <= end:
        body, size = position + 9, int.from_bytes(octets[position + 1 : position + 9])
    else:
        return None
    if body + size > end:
        return None
    try:
        message = Zeps.decode(octets[body : body + size])
    except WireError:
        return None
    if not isinstance(message, Deliver):
        return None
    return Place(position, body + size, message.sequence, message.key.encode("utf-8", "surrogateescape"))


@settings(max_examples=cases(75))
@given(MIXED, SEQUENCES, st.data())
def test_message_at_agrees_with_the_grammar_for_any_bytes(frames: list[bytes], first: int, data: st.DataObject) -> None:
    octets = bytearray(deliver(frames, first).octets)
    starts = list(walk_messages(bytes(octets)))
    for _ in range(data.draw(st.integers(0, 3))):
        # Mostly where the numbers are.
        start, stop, _, key = data.draw(st.sampled_from(starts))
        head = 9 if octets[start] else 2
        odd = data.draw(st.sampled_from([0, 1, head, head + 2, head + 11, head + 15 + len(key)]) | st.integers(0, 300))
        octets[min(start + odd, stop - 1)] = data.draw(st.integers(0, 255))
    position = data.draw(st.integers(0, len(octets)) | st.sampled_from([place.start for place in starts]))
    end = data.draw(st.integers(position, len(octets)) | st.just(len(octets)))
    wanted = measured(bytes(octets), position, end)
    assert message_at(bytes(octets), position, end) == wanted
    assert message_at(memoryview(octets), position, end) == wanted


@given(FRAMES, SEQUENCES, st.data())
def test_a_walk_ends_at_the_first_incomplete_message(frames: list[bytes], first: int, data: st.DataObject) -> None:
    made = deliver(frames, first)
    cut = data.draw(st.integers(0, len(made.octets)))
    whole = sum(stop <= cut for stop in list(made.starts)[1:])
    assert [place.sequence for place in walk_messages(made.octets[:cut])] == list(range(first, first + whole))
    assert [place.sequence for place in walk_messages(made.octets, 0, cut)] == list(range(first, first + whole))


def test_nothing_in_a_body_is_taken_for_a_message() -> None:
    # If all messages had one size, others would begin inside the second: it looks like messages at these places.
    short = publish(b"k", b"0123456789")
    inner = deliver([short] * 20, 1).octets
    stride = len(inner) // 20
    for shift in range(stride):
        long = publish(b"k", inner[shift:] + inner[:shift])
        made = deliver([short, long, *[short] * 17], 1)
        assert [place.sequence for place in walk_messages(made.octets)] == list(range(1, 20))
        assert made.keys == [b"k"] * 19
        assert made.bodies == declared([short, long, *[short] * 17], 1)


def test_a_block_of_nothing() -> None:
    assert starts_and_keys(b"") == ([0], [])
    assert deliver([publish(b"", b"")], 1).select([]).octets == b""
    assert Block(1, 0, 0, b"", 0).keys == []


@given(st.integers(0, 70_000))
def test_a_header_is_that_of_a_frame(size: int) -> None:
    assert frame_header(size) + bytes(size) == encode([bytes(size)])


@pytest.mark.parametrize("count", [1, 16])
def test_a_length_never_reaches_past_the_end(count: int) -> None:
    for key in range(20):
        for rest in range(20):
            for body in (0, 1, 7):
                frame = layout.PUBLISH + bytes([key]) + (bytes(key) + body.to_bytes(4) + bytes(30))[:rest]
                assert end_of_publishes([frame] * count) == (count if by_grammar(frame) else 0)
