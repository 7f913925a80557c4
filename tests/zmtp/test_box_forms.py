"""zambezi.zmtp.box_forms: frames whose sizes come again, compared with frames that are sealed and opened one by one."""

from __future__ import annotations

from itertools import cycle, islice, repeat

import pytest

from tests.zmtp.engines import CLIENT_KEYS, SERVER_KEYS
from zambezi.zmtp import box
from zambezi.zmtp.box import Opener, Sealer, shared_key
from zambezi.zmtp.box_forms import _KEPT, _NOTED, COUNT, LARGEST, Forms, OpenForm, SealForm, Sizes
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.frames import COMMAND, MORE, Batch, Decoder

KEY = shared_key(SERVER_KEYS.public, CLIENT_KEYS.secret)
CLIENT, SERVER = b"CurveZMQMESSAGEC", b"CurveZMQMESSAGES"
MESSAGE = (b"", b"MESSAGE", b"TOPIC", b"mcollective", b"", b"x" * 300)


@pytest.fixture(autouse=True)
def _new_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test begin without forms."""
    monkeypatch.setattr(box, "_OPEN_FORMS", Forms(OpenForm))
    monkeypatch.setattr(box, "_SEAL_FORMS", Forms(lambda sizes: SealForm(sizes, [box._HEADS[n + 1] for n in sizes])))


def sealed_each(flags: list[int], payloads: list[bytes], first: int = 1, prefix: bytes = CLIENT) -> list[bytes]:
    """Return the boxed frames, each sealed alone."""
    one = Sealer(KEY, prefix, first)
    return [one.seal([flag], [payload]) for flag, payload in zip(flags, payloads, strict=True)]


def bodies(octets: bytes) -> list[bytes]:
    return [
        frame for item in Decoder(1 << 20, 1 << 20).feed(octets) if isinstance(item, Batch) for frame in item.frames
    ]


def frames(count: int, message: tuple[bytes, ...] = MESSAGE) -> tuple[list[int], list[bytes]]:
    """Return the flags and payloads of frames of equal messages."""
    marks = [MORE] * (len(message) - 1) + [0]
    return list(islice(cycle(marks), count)), list(islice(cycle(message), count))


def forms_in(forms: Forms[OpenForm] | Forms[SealForm]) -> int:
    return len(forms._kept)


@pytest.mark.parametrize("count", [COUNT - 1, COUNT, 4 * COUNT, 4 * COUNT + 7])
@pytest.mark.parametrize("prefix", [CLIENT, SERVER])
def test_frames_of_a_form_are_sealed_and_opened_as_each_alone(count: int, prefix: bytes) -> None:
    flags, payloads = frames(count)
    payloads = [payload[:-1] + bytes((number % 256,)) if payload else b"" for number, payload in enumerate(payloads)]
    for first in (1, 1 + count, 2**63):
        sealed = Sealer(KEY, prefix, first).seal(flags, payloads)
        assert sealed == b"".join(sealed_each(flags, payloads, first, prefix))
        opened, found = bytearray(), list[bytes]()
        Opener(KEY, prefix, (first - 1).to_bytes(8, "big")).open(bodies(sealed), opened, found)
        assert (list(opened), found) == (flags, payloads)
    assert forms_in(box._SEAL_FORMS) == forms_in(box._OPEN_FORMS) == (count >= COUNT)


def test_one_form_serves_both_directions() -> None:
    flags, payloads = frames(COUNT)
    for prefix in (CLIENT, CLIENT, SERVER, CLIENT):
        sealed = Sealer(KEY, prefix, 5).seal(flags, payloads)
        assert sealed == b"".join(sealed_each(flags, payloads, 5, prefix))


def test_commands_and_empty_frames_are_in_a_form() -> None:
    payloads = [b""] * COUNT
    for _ in range(3):
        sealed = Sealer(KEY, CLIENT, 1).seal(repeat(COMMAND), payloads)
        opened, found = bytearray(), list[bytes]()
        Opener(KEY, CLIENT, bytes(8)).open(bodies(sealed), opened, found)
        assert (list(opened), found) == ([COMMAND] * COUNT, payloads)


@pytest.mark.parametrize("place", [0, 1, 29, COUNT - 1])
@pytest.mark.parametrize("octet", [0, 7, 8, 15, 16, 31, 32])
def test_a_wrong_frame_of_a_form_is_refused_and_those_before_it_are_opened(place: int, octet: int) -> None:
    flags, payloads = frames(COUNT)
    sealed = [bodies(one)[0] for one in sealed_each(flags, payloads)]
    for _ in range(2):
        Opener(KEY, CLIENT, bytes(8)).open(sealed, bytearray(), [])
    wrong = bytearray(sealed[place])
    wrong[octet] ^= 1
    opened, found = bytearray(), list[bytes]()
    with pytest.raises(ProtocolError, match="CURVE"):
        Opener(KEY, CLIENT, bytes(8)).open([*sealed[:place], bytes(wrong), *sealed[place + 1 :]], opened, found)
    assert found == payloads[:place]


def test_a_repeated_form_is_refused() -> None:
    flags, payloads = frames(COUNT)
    sealed = [bodies(one)[0] for one in sealed_each(flags, payloads)]
    one = Opener(KEY, CLIENT, bytes(8))
    one.open(sealed, bytearray(), [])
    for _ in range(2):
        with pytest.raises(ProtocolError, match="did not grow"):
            one.open(sealed, bytearray(), [])


def test_a_form_is_made_when_sizes_come_again_and_for_one_thread_at_a_time() -> None:
    made: list[Sizes] = []

    def make(sizes: Sizes) -> list[Sizes]:
        made.append(sizes)
        return [sizes]

    forms = Forms(make)
    sizes = (1,) * COUNT
    assert forms.take(sizes) is None
    form = forms.take(sizes)
    assert form == [sizes]
    assert forms.take(sizes) is not form  # another thread gets its own
    forms.give_back(sizes, form)
    assert forms.take(sizes) is form
    assert forms.take((1,) * (COUNT - 1)) is None
    large = (LARGEST,) * COUNT
    assert [forms.take(large) for _ in range(3)] == [None] * 3
    assert made == [sizes] * 2


def test_forms_are_bounded() -> None:
    forms = Forms(lambda sizes: [sizes])
    for size in range(2 * _NOTED):
        sizes = (size % 1000,) * COUNT
        forms.take(sizes)
        form = forms.take(sizes)
        assert form is not None
        forms.give_back(sizes, form)
    assert len(forms._kept) == _KEPT
    assert len(forms._noted) <= _NOTED
    assert forms.take((2 * _NOTED - 1,) * COUNT) is not None  # the last one is there
