"""Elections with Zyre 2.0.1 with drafts, as recorded: what it sent to a node of ours, and the answers that it took."""

from uuid import UUID

import pytest

from tests.interop.test_pyre import network, theirs
from tests.zre import namespaces
from tests.zre.member import Member
from tests.zre.namespaces import Network
from zambezi.zre import events
from zambezi.zre.engine import Engine
from zambezi.zre.outputs import Send

__all__ = ["network"]

ZYRE = UUID("dd01f803-513d-4002-9abf-d867c22606c2")
IDENTITY = b"\x01" + ZYRE.bytes
DIGITS = "4444303146383033353133443430303239414246443836374332323630364332"
HELLO = "aaa101020001157463703a2f2f31302e37372e302e313a343931353200000001000000044348415401027a7900000000"
ELECT = "aaa1080200020443484154 20" + DIGITS
LEADER = "aaa1090200030443484154 20" + DIGITS
GOODBYE = "aaa10a020004"
NOW = 1000.0


def receive(ours: Engine, text: str) -> None:
    ours.receive(IDENTITY, [bytes.fromhex(text)], NOW)


def said(ours: Engine) -> list[str]:
    """Return the messages that go out, after the pause before an answer."""
    ours.tick(NOW)
    ours.tick(NOW + 0.2)
    return [output.frames[0].hex() for output in ours.take() if isinstance(output, Send)]


def member(number: int) -> Engine:
    ours = Engine(UUID(int=number), "ann", lambda _: "tcp://10.77.0.1:59266", groups=["CHAT"])
    ours.start(59266, NOW)
    receive(ours, HELLO)
    ours.take()
    return ours


def test_a_member_that_does_not_contest_lets_the_election_of_zyre_end() -> None:
    ours = member(0xF << 124)
    receive(ours, ELECT)
    assert said(ours) == [bytes.fromhex(ELECT).hex()]
    receive(ours, LEADER)
    outputs = ours.take()
    assert outputs == [
        events.Leader(ZYRE, "zy", "CHAT", False),
        Send(ZYRE.bytes, (bytes.fromhex(LEADER),)),
    ] or outputs == [
        Send(ZYRE.bytes, (bytes.fromhex(LEADER),)),
        events.Leader(ZYRE, "zy", "CHAT", False),
    ]
    receive(ours, GOODBYE)
    assert events.Exit(ZYRE, "zy", "it left") in ours.take()
    assert ours.elections.leader("CHAT") is None


def test_a_lower_contestant_wins_against_zyre() -> None:
    ours = member(1)
    ours.join("CHAT", contest=True)
    receive(ours, ELECT)
    digits = ours.uuid.hex.upper().encode().hex()
    assert said(ours) == ["aaa1080200020443484154" + "20" + digits]
    receive(ours, "aaa1080200030443484154 20" + digits)
    assert said(ours) == ["aaa1090200030443484154" + "20" + digits]
    assert ours.elections.leader("CHAT") == ours.uuid
    receive(ours, "aaa1090200040443484154 20" + digits)
    assert said(ours) == []


@pytest.mark.skipif(bool(namespaces.allowed()), reason=namespaces.allowed() or "-")
def test_pyre_is_left_out_of_an_election_and_stays(network: Network) -> None:
    their = theirs(network.host(), "their", groups=["CHAT"])
    ours = Member.all_ours(*[(network.host(), name, {"contest": ["CHAT"], "evasive": 1.0}) for name in ("ann", "bob")])
    lowest = min(member.uuid for member in ours)
    for member in ours:
        member.meet(their)
        member.wait_for("Leader", group="CHAT", peer=lowest)
        their.meet(member)
        member.whisper(their, "hello")
        their.wait_for("Whisper", peer=member.uuid, content=["hello"])
        assert their.story_of(member) == ["Enter"]
        assert member.story_of(their) == ["Enter"]
