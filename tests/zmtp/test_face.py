"""zambezi.zmtp.face: the forms of messages; and that both faces have the same methods."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zmtp import asyncio as aio
from zambezi.zmtp import sync
from zambezi.zmtp.errors import MessageError
from zambezi.zmtp.face import Sendable, SocketArguments, as_message, as_messages
from zambezi.zmtp.frames import parts_of


def view(octets: bytes) -> memoryview:
    return memoryview(octets)


FRAME = st.one_of(st.binary(), st.binary().map(bytearray), st.binary().map(view))


@given(st.lists(FRAME, min_size=1))
def test_any_buffers_become_a_message(frames: list[bytes]) -> None:
    for given_as in (list(frames), tuple(frames)):
        assert parts_of(as_message(given_as)) == tuple(map(bytes, frames))
    assert as_message(frames[0]) == bytes(frames[0])


def test_mutable_buffers_are_copied() -> None:
    buffer = bytearray(b"before")
    messages = [as_message(buffer), as_message([b"x", buffer]), as_message(memoryview(buffer))]
    buffer[:] = b"after!"
    assert messages == [b"before", (b"x", b"before"), b"before"]


@pytest.mark.parametrize("message", ["text", 5, None, {b"a"}, ["text"], [b"a", 5], [None], iter([b"a"])])
def test_other_types_are_no_message(message: object) -> None:
    with pytest.raises(MessageError, match=r"not (str|int|NoneType|set|list_iterator)"):
        as_message(message)  # type: ignore[arg-type]


def test_a_message_has_at_least_one_frame() -> None:
    with pytest.raises(MessageError, match="at least one frame"):
        as_message([])
    assert as_message([b""]) == b""


def test_a_batch_is_not_a_message() -> None:
    for batch in (b"x", bytearray(b"x"), memoryview(b"x"), "x"):
        with pytest.raises(MessageError, match="to send one message, use send"):
            as_messages(batch)  # type: ignore[arg-type]
    with pytest.raises(MessageError, match="not str"):
        as_messages([b"good", "bad"])  # type: ignore[list-item]


def test_a_batch_is_any_iterable_of_messages() -> None:
    single = [b"a", b"b"]
    assert as_messages(single) is single
    mixed: list[Sendable] = [b"a", [b"b", b"c"], bytearray(b"d")]
    assert as_messages(iter(mixed)) == [b"a", (b"b", b"c"), b"d"]
    assert as_messages([]) == []


KINDS = ["Dealer", "Router", "Pub", "XPub", "Sub", "XSub"]
WAYS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_faces_are_twins(kind: str) -> None:
    there, here = getattr(aio, kind), getattr(sync, kind)
    assert inspect.getdoc(there) == inspect.getdoc(here)
    names = {name for name in dir(there) if not name.startswith("_")}
    assert names == {name for name in dir(here) if not name.startswith("_")}
    for name in names:
        if callable(getattr(there, name)):
            theirs, ours = (inspect.signature(getattr(face, name)) for face in (there, here))
            assert theirs.parameters == ours.parameters
            assert inspect.getdoc(getattr(there, name)) == inspect.getdoc(getattr(here, name))
    assert inspect.signature(there) == inspect.signature(here)
    for way, twin in WAYS.items():
        assert hasattr(there, way)
        assert hasattr(here, twin)


def test_both_faces_take_the_same_options() -> None:
    from dataclasses import fields

    from zambezi.zmtp.options import Options

    assert set(SocketArguments.__annotations__) == {field.name for field in fields(Options)}
