"""docs/mesh.md: each call and each event of Zyre has ours, and ours exist on both faces."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import zambezi
import zambezi.zre.asyncio as aio
from zambezi.zre import events, sync
from zambezi.zre.options import NodeOptions
from zambezi.zre.peer_info import PeerInfo

PAGE = (Path(__file__).parents[2] / "docs" / "mesh.md").read_text()
# The public calls of Zyre's header, drafts included, without those that test Zyre itself.
CALLS = (
    "destroy dump gossip_bind gossip_connect gossip_connect_curve gossip_unpublish join leave name new own_groups "
    "peer_address peer_groups peer_header_value peers peers_by_group print recv require_peer set_advertised_endpoint "
    "set_beacon_peer_port set_contest_in_group set_endpoint set_evasive_timeout set_expired_timeout set_header "
    "set_interface set_interval set_name set_port set_silent_timeout set_verbose set_zap_domain set_zcert shout shouts "
    "socket socket_zmq start stop uuid version whisper whispers"
)
EVENTS = ("ENTER", "EXIT", "JOIN", "LEAVE", "WHISPER", "SHOUT", "EVASIVE", "SILENT", "LEADER", "STOP")


def rows(heading: str) -> list[tuple[str, str]]:
    """Return the rows of the table with a heading."""
    table = PAGE[PAGE.index(heading) :].split("\n\n")[0]
    lines = [line.strip("|").split(" | ") for line in table.splitlines()[2:]]
    return [(left, right) for left, right in lines]


def names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_every_call_of_zyre_is_in_the_table() -> None:
    found = [name.removeprefix("zyre_") for left, _ in rows("| Zyre | here |") for name in names(left)]
    assert sorted(set(found) - {"event_new"}) == sorted(CALLS.split())
    assert len(found) == len(set(found))


@pytest.mark.parametrize("node", [sync.Node, aio.Node], ids=["blocking", "asyncio"])
def test_every_name_of_ours_in_the_table_exists_on_both_faces(node: type) -> None:
    options = {field.name for field in fields(NodeOptions)}
    known = {"with", "linger=0", "bytes", "str", "select", "poll", "selectors", "zambezi.__version__"}
    assert zambezi.__version__
    for _, right in rows("| Zyre | here |"):
        for text in names(right):
            if text in known or text.startswith("Node("):
                continue
            word = re.split(r"[(.]", text)[0]
            assert hasattr(node, word) or word in options, text
            if (inner := re.fullmatch(r"peer\(uuid\)\.(\w+)", text)) is not None:
                assert inner[1] in {field.name for field in fields(PeerInfo)}


def test_every_event_of_zyre_has_ours() -> None:
    table = rows("| Zyre's event | here |")
    assert sorted(name for left, _ in table for name in names(left)) == sorted(EVENTS)
    for left, right in table:
        for name in names(left):
            if name != "STOP":
                assert hasattr(events, name.capitalize())
                assert name.capitalize() in names(right)


def test_both_faces_have_the_same_public_names() -> None:
    def public(node: type) -> set[str]:
        return {name for name in dir(node) if not name.startswith("_")}

    assert public(sync.Node) == public(aio.Node)
