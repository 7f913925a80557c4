"""A mesh of our nodes and of Pyre, another implementation of 36/ZRE; each node is a program on its own host."""

import itertools
import json
from collections.abc import Iterator

import pytest

from tests.zre import namespaces
from tests.zre.member import Member, converse
from tests.zre.namespaces import Host, Network

# The last begins like a word of our own extension, which Pyre has not announced: it is content like any other.
CONTENTS = [["hello"], [""], ["a", "b", "c"], ["", "", ""], ["x" * 255], ["y" * 100_000], ["\x00zambezi-gossip"]]

pytestmark = pytest.mark.skipif(bool(namespaces.allowed()), reason=namespaces.allowed() or "-")


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as one:
        yield one
        for program in one.programs:
            assert "Exception in thread" not in program.errors()


def theirs(host: Host, name: str, **options: object) -> Member:
    return Member(host.start("tests.interop.pyre_node", json.dumps({"name": name, **options})))


def pair(network: Network) -> tuple[Member, Member]:
    """Start one of our nodes and one of Pyre, and wait until they have met."""
    our = Member.ours(network.host(), "our", headers={"X-ROLE": "ours", "X-LONG": "x" * 1000}, groups=["OURS"])
    their = theirs(network.host(), "their", headers={"X-ROLE": "theirs"}, groups=["THEIRS"])
    our.meet(their)
    their.meet(our)
    return our, their


def healthy(*ours: Member) -> None:
    """Check that our node discarded nothing that Pyre sent."""
    for member in ours:
        assert not any(member.ask("counters").values())


def test_each_enters_with_its_name_headers_and_groups(network: Network) -> None:
    our, their = pair(network)
    enter = our.wait_for("Enter", peer=their.uuid)
    assert (enter["name"], enter["headers"]) == ("their", {"X-ROLE": "theirs"})
    assert enter["endpoint"] == their.endpoint
    our.wait_for("Join", peer=their.uuid, group="THEIRS")
    enter = their.wait_for("Enter", peer=our.uuid)
    assert (enter["name"], enter["headers"]) == (
        "our",
        {"X-ROLE": "ours", "X-LONG": "x" * 1000, "X-ZAMBEZI-ELECTIONS": ""},
    )
    # Pyre prints the endpoint at which it found us by our beacon; the port is always that of our mailbox.
    assert enter["endpoint"].endswith(our.endpoint.removeprefix("tcp://"))
    their.wait_for("Join", peer=our.uuid, group="OURS")
    healthy(our)


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_nodes_that_start_later_are_found_too(network: Network, first: str) -> None:
    if first == "ours":
        our = Member.ours(network.host(), "our")
        their = theirs(network.host(), "their")
    else:
        their = theirs(network.host(), "their")
        our = Member.ours(network.host(), "our")
    our.meet(their)
    their.meet(our)
    converse(our, their)
    assert our.story_of(their) == their.story_of(our) == ["Enter"]
    healthy(our)


def test_groups_are_joined_and_left_by_both(network: Network) -> None:
    our, their = pair(network)
    for member, other in ((our, their), (their, our)):
        for round_number in (1, 2):
            member.join("CHAT")
            other.wait_for("Join", round_number, peer=member.uuid, group="CHAT")
            other.shout("CHAT", f"round {round_number}")
            member.wait_for("Shout", peer=other.uuid, group="CHAT", content=[f"round {round_number}"])
            member.leave("CHAT")
            other.wait_for("Leave", round_number, peer=member.uuid, group="CHAT")
    converse(our, their)
    healthy(our)


def test_any_content_is_whispered_and_shouted_by_both(network: Network) -> None:
    our, their = pair(network)
    our.wait_for("Join", peer=their.uuid, group="THEIRS")
    their.wait_for("Join", peer=our.uuid, group="OURS")
    for content in CONTENTS:
        our.whisper(their, *content)
        their.wait_for("Whisper", peer=our.uuid, content=content)
        their.whisper(our, *content)
        our.wait_for("Whisper", peer=their.uuid, content=content)
        our.shout("THEIRS", *content)
        their.wait_for("Shout", peer=our.uuid, group="THEIRS", content=content)
        their.shout("OURS", *content)
        our.wait_for("Shout", peer=their.uuid, group="OURS", content=content)
    healthy(our)


def test_messages_come_in_order_in_both_directions(network: Network) -> None:
    our, their = pair(network)
    for number in range(1000):
        our.whisper(their, f"{number}")
        their.whisper(our, f"{number}")
    for member, other in ((our, their), (their, our)):
        member.wait_for("Whisper", 1000, peer=other.uuid)
        assert member.whispers_of(other) == [[f"{number}"] for number in range(1000)]
        assert member.story_of(other) == ["Enter"]
    healthy(our)


def test_a_message_without_frames_is_refused_here_for_it_would_end_them(network: Network) -> None:
    our, their = pair(network)
    our.wait_for("Join", peer=their.uuid, group="THEIRS")
    our.whisper(their)
    our.shout("THEIRS")
    our.wait_for("Error", 2, kind="MessageError")
    converse(our, their)
    assert their.story_of(our, "Enter", "Exit", "Whisper", "Shout") == ["Enter", "Whisper"]
    healthy(our)


def test_a_goodbye_is_understood_by_both(network: Network) -> None:
    our, their = pair(network)
    second = theirs(network.host(), "second")
    our.meet(second)
    second.meet(our)
    their.stop()
    assert our.wait_for("Exit", peer=their.uuid)["reason"] == "it left"
    assert our.story_of(their) == ["Enter", "Exit"]
    assert our.stop() == ""
    second.wait_for("Exit", peer=our.uuid)
    assert second.story_of(our) == ["Enter", "Exit"]


def test_last_words_are_read_before_the_goodbye(network: Network) -> None:
    our, their = pair(network)
    for number in range(1000):
        our.whisper(their, f"{number}")
    assert our.stop() == ""
    their.wait_for("Exit", peer=our.uuid)
    assert their.whispers_of(our) == [[f"{number}"] for number in range(1000)]


def test_one_of_theirs_that_is_killed_expires_and_another_takes_its_place(network: Network) -> None:
    our, their = pair(network)
    their.kill()
    assert our.wait_for("Exit", peer=their.uuid)["reason"] == "silent for 7.5 s"
    assert our.story_of(their, "Enter", "Evasive", "Silent", "Exit")[-3:] == ["Evasive", "Silent", "Exit"]
    assert our.story_of(their) == ["Enter", "Exit"]
    again = theirs(network.host(), "again")
    our.meet(again)
    again.meet(our)
    converse(our, again)


def test_one_of_ours_that_is_killed_and_restarts_with_its_uuid_enters_again(network: Network) -> None:
    their, host, uuid = theirs(network.host(), "their", groups=["CHAT"]), network.host(), "7" * 32
    our = Member.ours(host, "our", uuid=uuid)
    their.meet(our)
    our.meet(their)
    our.kill()
    again = Member.ours(host, "again", uuid=uuid)
    assert their.wait_for("Enter", 2, peer=uuid)["name"] == "again"
    again.meet(their)
    again.wait_for("Join", peer=their.uuid, group="CHAT")
    converse(again, their)


def test_their_silence_is_broken_by_our_ping(network: Network) -> None:
    """Pyre sends a beacon once a second. With `evasive` below that, our node sends PING, and Pyre answers."""
    our = Member.ours(network.host(), "our", evasive=0.3, expired=10.0)
    their = theirs(network.host(), "their")
    our.meet(their)
    their.meet(our)
    our.wait_for("Evasive", 3, peer=their.uuid)
    converse(our, their)
    assert our.story_of(their) == their.story_of(our) == ["Enter"]
    healthy(our)


def test_a_cut_ends_in_a_new_enter_though_they_have_more_patience(network: Network) -> None:
    """Our node gives up Pyre, and Pyre does not: our new HELLO tells it that a new session begins."""
    our = Member.ours(network.host(), "our", groups=["OURS"])
    cut = network.host()
    their = theirs(cut, "their", groups=["THEIRS"])
    our.meet(their)
    their.meet(our)
    cut.unplug()
    our.wait_for("Exit", peer=their.uuid)
    cut.plug()
    our.wait_for("Enter", 2, peer=their.uuid)
    their.wait_for("Enter", 2, peer=our.uuid)
    converse(our, their)
    our.wait_for("Join", 2, peer=their.uuid, group="THEIRS")
    their.wait_for("Join", 2, peer=our.uuid, group="OURS")
    assert our.story_of(their) == ["Enter", "Exit", "Enter"]


def test_several_of_ours_and_of_theirs_are_one_mesh(network: Network) -> None:
    hosts = [network.host() for _ in range(3)]
    chat: dict[str, object] = {"groups": ["CHAT"]}
    ours = Member.all_ours(*((host, f"our {number}", chat) for number, host in enumerate(hosts)))
    others = [theirs(host, f"their {number}", groups=["CHAT"]) for number, host in enumerate(hosts)]
    mesh = [*ours, *others]
    for member, other in itertools.permutations(mesh, 2):
        member.wait_for("Join", peer=other.uuid, group="CHAT")
    converse(*mesh)
    for member in mesh:
        member.shout("CHAT", f"from {member.name}")
    for member, other in itertools.permutations(mesh, 2):
        member.wait_for("Shout", peer=other.uuid, group="CHAT", content=[f"from {other.name}"])
        assert member.story_of(other) == ["Enter"]
    healthy(*ours)
    assert ours[0].stop() == ""
    others[0].stop()
    for member in (*ours[1:], *others[1:]):
        member.wait_for("Exit", peer=ours[0].uuid)
        member.wait_for("Exit", peer=others[0].uuid)
    converse(*ours[1:], *others[1:], word="still here")
