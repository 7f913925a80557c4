"""zambezi.zre.face: the two faces are twins, and take what the documentation says."""

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zambezi
from zambezi.zmtp.errors import MessageError
from zambezi.zre import MemoryNetwork, sync
from zambezi.zre import asyncio as aio
from zambezi.zre.face import NodeArguments, frames_of
from zambezi.zre.options import NodeOptions

ROOT = Path(__file__).parents[2]


def public(kind: type) -> dict[str, Any]:
    return {name: member for name, member in vars(kind).items() if not name.startswith("_")}


@pytest.mark.parametrize("name", ["Node", "LogService"])
def test_the_faces_have_the_same_names_and_arguments(name: str) -> None:
    ours, theirs = public(getattr(sync, name)), public(getattr(aio, name))
    assert ours.keys() == theirs.keys()
    for key, member in ours.items():
        if inspect.isfunction(member):
            assert inspect.signature(member) == inspect.signature(theirs[key]), key
            assert member.__doc__ == theirs[key].__doc__, key
        else:
            assert isinstance(member, property) == isinstance(theirs[key], property)


def test_every_option_can_be_given_and_is_explained() -> None:
    options = {field.name for field in fields(NodeOptions)}
    assert set(NodeArguments.__annotations__) == options
    page = (ROOT / "docs" / "mesh.md").read_text()
    table = page[page.index("## Options of a node") :].split("\n## ")[0]
    names = " ".join(line.split("|")[1] for line in table.splitlines() if "|" in line)
    explained = set(re.findall(r"`([a-z0-9_]+)`", names))
    assert explained == options


def test_the_package_exports_the_blocking_node() -> None:
    assert zambezi.Node is zambezi.zre.Node is sync.Node


@given(st.lists(st.binary(max_size=10), min_size=1, max_size=4))
def test_messages_are_given_as_one_frame_or_several(frames: list[bytes]) -> None:
    assert frames_of(frames) == frames_of(tuple(map(bytearray, frames))) == tuple(frames)
    assert frames_of(frames[0]) == (frames[0],)
    assert frames_of("é") == (b"\xc3\xa9",)


@pytest.mark.parametrize("nonsense", [5, None, [], ["text"]])
def test_an_argument_that_is_no_message_raises(nonsense: Any) -> None:
    with pytest.raises(MessageError):
        frames_of(nonsense)


def test_a_node_shows_who_it_is() -> None:
    with sync.Node("ann", network=MemoryNetwork()) as ann:
        assert repr(ann) == f"<Node ann {ann.uuid.hex[:6]} with 0 peers>"
        assert (ann.name, ann.groups, ann.peers, ann.unsent) == ("ann", frozenset(), [], [])
