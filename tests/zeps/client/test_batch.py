"""zambezi.zeps.client.batch: messages and batches agree with the grammar, however they are sliced."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.wire import WireError
from zambezi.zeps.client.batch import (
    Message,
    MessageBatch,
    check_deliveries,
    check_delivery_run,
    lower_bound,
    valid_beginning,
)
from zambezi.zeps.directory import microseconds_of
from zambezi.zeps.layout import sequence_of
from zambezi.zeps.messages import Deliver
from zambezi.zmtp.frames import Batch, Decoder, encode_singles

KEYS = st.binary(max_size=6).map(lambda key: key.decode("utf-8", "surrogateescape"))
BODIES = st.binary(max_size=30) | st.just(b"\xaa\xa5\x07" * 5)
ALIKE = st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(1, 40)).flatmap(
    lambda chosen: st.lists(
        st.tuples(
            st.text("abc", min_size=chosen[0], max_size=chosen[0]),
            st.binary(min_size=chosen[1], max_size=chosen[1]),
        ),
        min_size=chosen[2],
        max_size=chosen[2],
    )
)
CONTENTS = ALIKE | st.lists(st.tuples(KEYS, BODIES), min_size=1, max_size=40)


def frames_of(messages: list[Message]) -> list[bytes]:
    return [Deliver(one.sequence, one.key, one.body).encode()[0] for one in messages]


def batch_of(messages: list[Message]) -> MessageBatch:
    frames = frames_of(messages)
    after = check_deliveries(frames)
    assert after is not None
    return MessageBatch("s", frames, after)


@given(CONTENTS, st.integers(0, 1 << 63), st.integers(1, 3))
def test_a_batch_is_its_messages(contents: list[tuple[str, bytes]], first: int, step: int) -> None:
    messages = [Message(first + index * step, key, body, "s") for index, (key, body) in enumerate(contents)]
    batch = batch_of(messages)
    assert list(batch) == messages
    assert len(batch) == len(messages)
    assert (batch.first, batch.last) == (messages[0].sequence, messages[-1].sequence)
    assert batch.sequences() == [one.sequence for one in messages]
    assert batch.keys() == [one.key for one in messages]
    assert batch.bodies() == [one.body for one in messages]
    assert batch.raw_keys() == [one.key.encode("utf-8", "surrogateescape") for one in messages]
    assert batch.octets == sum(map(len, frames_of(messages)))
    middle = len(messages) // 2
    assert batch[middle] == messages[middle]
    assert list(batch[middle:]) == messages[middle:]
    assert batch[-1] == messages[-1]


def test_a_message_is_a_small_value() -> None:
    message = Message(1, "k", b"body", "s")
    assert message == Message(1, "k", b"body", "s")
    with pytest.raises(AttributeError):
        message.body = b""  # type: ignore[misc]
    assert not hasattr(message, "__dict__")


def test_the_repr_of_a_batch() -> None:
    assert repr(batch_of([Message(4, "k", b"", "s"), Message(9, "k", b"", "s")])) == (
        "<MessageBatch of 2 messages of 's', 4 to 9>"
    )
    assert repr(MessageBatch("s", [])) == "<MessageBatch of 0 messages of 's'>"


@given(CONTENTS, st.data())
def test_invalid_messages_are_found(contents: list[tuple[str, bytes]], data: st.DataObject) -> None:
    frames = frames_of([Message(index, key, body, "s") for index, (key, body) in enumerate(contents)])
    which = data.draw(st.integers(0, len(frames) - 1))
    frame = frames[which]
    change = data.draw(st.sampled_from(["longer", "shorter", "length", "key", "command"]))
    if change == "longer":
        frames[which] = frame + b"x"
    elif change == "shorter":
        frames[which] = frame[:-1]
    elif change == "length":
        place = 12 + frame[11]
        frames[which] = frame[:place] + (len(frame) + 1).to_bytes(4) + frame[place + 4 :]
    elif change == "key":
        frames[which] = frame[:11] + b"\xff" + frame[12:]
    else:
        frames[which] = frame[:2] + b"\x0c" + frame[3:]
    assert check_deliveries(frames) is None


def test_messages_out_of_order_are_found() -> None:
    frames = frames_of([Message(sequence, "k", b"", "s") for sequence in (1, 2, 3)])
    assert check_deliveries(frames[::-1]) is None
    assert check_deliveries([frames[0], frames[2], frames[1]]) is None


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=10))
def test_no_bytes_make_it_raise(frames: list[bytes]) -> None:
    check_deliveries(frames)
    check_deliveries([b"\xaa\xa5\x07" + frame for frame in frames])


@given(st.binary(max_size=40), st.booleans())
def test_a_single_message_is_valid_if_the_grammar_says_so(rest: bytes, is_whole: bool) -> None:
    (frame,) = Deliver(7, "k", rest).encode() if is_whole else (b"\xaa\xa5\x07" + rest,)
    try:
        body = Deliver.decode(frame).body
    except WireError:
        assert check_deliveries([frame]) is None
    else:
        after = check_deliveries([frame])
        assert after is not None
        assert frame[after:] == body


def test_messages_sort_by_their_sequences() -> None:
    frames = frames_of([Message(sequence, "k", b"", "s") for sequence in (1, 255, 256, 1 << 40)])
    assert [frame < lower_bound(256) for frame in frames] == [True, True, False, False]
    assert [sequence_of(frame) for frame in frames] == [1, 255, 256, 1 << 40]


def test_a_batch_with_times_passes_them_on() -> None:
    frames = frames_of([Message(sequence, "k", b"", "s") for sequence in (1, 2, 5)])
    batch = MessageBatch("s", frames, 0, array("Q", (1, 1, 1_700_000_000_000_000)))
    first, last = datetime(1970, 1, 1, 0, 0, 0, 1, UTC), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert batch.times() == [message.time for message in batch] == [first, first, last]
    assert batch[-1] == Message(5, "k", b"", "s", last)
    assert [(message.sequence, message.time) for message in batch[1:]] == [(2, first), (5, last)]


def test_more_times_than_are_remembered_are_right() -> None:
    times = range(1 << 40, (1 << 40) + 10_000)
    frames = frames_of([Message(sequence, "k", b"", "s") for sequence in range(1, 10_001)])
    found = MessageBatch("s", frames, 0, array("Q", times)).times()
    assert [microseconds_of(time) for time in found if time is not None] == list(times)


# Runs


def read_of(frames: list[bytes]) -> Batch:
    """Return the batch of a read of these frames, which is a run."""
    (batch,) = Decoder(1 << 20, 1 << 20).feed(encode_singles(frames))
    assert isinstance(batch, Batch)
    assert batch.run is not None
    return batch


def deliveries(first: int, count: int = 40, size: int = 50) -> list[bytes]:
    return [Deliver(first + number, "key", bytes(size)).encode()[0] for number in range(count)]


@pytest.mark.parametrize("first", [1, 250, 65_530, (1 << 24) - 41, 1 << 24, (1 << 32) - 40, (1 << 64) - 41])
@pytest.mark.parametrize("size", [50, 400])
def test_a_run_of_deliveries_is_checked_before_it_is_cut(first: int, size: int) -> None:
    frames = deliveries(first, size=size)
    batch = read_of(frames)
    assert batch.run is not None
    assert check_delivery_run(batch.run) == check_deliveries(frames) == len(frames[0]) - size
    assert batch.frames == frames


@pytest.mark.parametrize("first", [(1 << 24) - 20, (1 << 32) - 1])
def test_a_run_whose_sequences_change_in_their_first_bytes_is_checked_by_its_frames(first: int) -> None:
    batch = read_of(deliveries(first))
    assert batch.run is not None
    assert not check_delivery_run(batch.run)
    assert check_deliveries(batch.frames) == len(deliveries(first)[0]) - 50


@pytest.mark.parametrize("place", range(22))
def test_any_byte_that_differs_in_a_run_is_seen_as_in_frames(place: int) -> None:
    frames = deliveries(1000)
    for row in (0, 20, 39):
        changed = list(frames)
        changed[row] = frames[row][:place] + bytes((frames[row][place] ^ 1,)) + frames[row][place + 1 :]
        if body_at := check_delivery_run(read_of(changed).run):  # type: ignore[arg-type]
            assert 12 <= place < 15 or place >= 19  # in the key, or in the body
            assert body_at == check_deliveries(changed)
        assert read_of(changed).frames == changed


def test_a_run_with_gaps_or_repeated_sequences_or_other_messages() -> None:
    frames = deliveries(1, 80)
    for chosen in (frames[::2], [*frames[:20], *frames[19:40]], frames[::-1], [bytes(60)] * 20, [b"ab"] * 600):
        batch = read_of(chosen)
        assert batch.run is not None
        assert not check_delivery_run(batch.run)
        assert batch.frames == chosen


@pytest.mark.parametrize(("key", "size"), [("key", 50), ("", 60), ("a key of some length", 2000)])
def test_a_batch_of_a_run_is_that_of_its_frames_and_cuts_no_frames_for_bodies(key: str, size: int) -> None:
    frames = [Deliver(7 + number, key, bytes((number,)) * size).encode()[0] for number in range(40)]
    run = read_of(frames).run
    assert run is not None
    body_at = check_delivery_run(run)
    cut, whole = MessageBatch("s", frames, body_at), MessageBatch("s", [], body_at, run=run)
    for batch in (cut, whole):
        assert (batch.first, batch.last, len(batch), batch.octets) == (7, 46, 40, sum(map(len, frames)))
    assert whole.bodies() == cut.bodies()
    assert whole.keys() == cut.keys()
    assert whole.raw_keys() == cut.raw_keys()
    assert whole.sequences() == cut.sequences()
    assert whole.times() == cut.times()
    assert list(whole) == list(cut)
    assert repr(whole) == repr(cut)
    assert whole._run is run, "nothing above has cut the frames"
    assert list(whole[3:5]) == list(cut[3:5])
    assert whole[-1] == cut[-1]
    assert whole.frames == frames
    assert whole.bodies() == cut.bodies()


@given(st.lists(st.tuples(KEYS, BODIES), min_size=1, max_size=12), st.integers(0, 11))
def test_the_messages_before_a_damaged_one_are_found(messages: list[tuple[str, bytes]], place: int) -> None:
    frames = [Deliver(number, key, body).encode()[0] for number, (key, body) in enumerate(messages, 1)]
    assert valid_beginning(frames) == (frames, check_deliveries(frames))
    place %= len(frames)
    damaged = [*frames[:place], frames[place][:-1], *frames[place + 1 :]]
    before = frames[:place]
    assert valid_beginning(damaged) == (before, check_deliveries(before) if before else 0)
