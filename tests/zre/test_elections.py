"""zambezi.zre.elections: groups of nodes elect their leaders, among themselves and with Zyre and Pyre."""

import random
from typing import Any

import pytest

from tests.zre.mesh import Member, Mesh, uuid_of
from tests.zre.zyre import ZyreMember, add_zyre
from zambezi.zre import events
from zambezi.zre.messages import Elect, Goodbye, Hello, Leader, Stable, Whisper
from zambezi.zre.outputs import Send

MANY = 60_000
G = "G"


def deliver_all(mesh: Mesh, chance: random.Random | None = None) -> None:
    """Deliver all messages under way: each connection in order, and the connections in turn, or by chance."""
    for _ in range(MANY):
        if mesh.datagrams and (chance is None or chance.random() < 0.2):
            mesh.deliver_datagram()
        elif connections := mesh.connections:
            for connection in connections if chance is None else [chance.choice(connections)]:
                if connection.open and connection.queue and mesh.leads_somewhere(connection):
                    mesh.deliver(connection)
        elif mesh.datagrams:
            mesh.deliver_datagram()
        else:
            return
    raise AssertionError("the engines do not stop talking")


def pass_time(mesh: Mesh, seconds: float, chance: random.Random | None = None) -> None:
    """Let time pass, deadline by deadline, and deliver what is under way."""
    end = mesh.now + seconds
    deliver_all(mesh, chance)
    while (due := min(member.engine.deadline for member in mesh.members.values())) <= end:
        mesh.now = max(mesh.now, due)
        for member in list(mesh.members.values()):
            if member.engine.deadline <= mesh.now:
                member.engine.tick(mesh.now)
                mesh.pump(member)
        deliver_all(mesh, chance)
    mesh.now = end


def act(mesh: Mesh, member: Member, *call: Any) -> None:
    name, *arguments = call
    getattr(member.engine, name)(*arguments)
    mesh.pump(member)


def leader_of(member: Member, group: str = G) -> int | None:
    """Return the number of the leader that a member has been told of last."""
    if isinstance(member, ZyreMember):
        leader = member.engine.leaders.get(group)  # type: ignore[attr-defined]
        return None if leader is None else int.from_bytes(leader, "big")
    found = member.engine.elections.leader(group)
    told = [event for event in member.told(events.Leader) if event.group == group]  # type: ignore[attr-defined]
    if found is not None:
        assert told[-1].peer == found
        assert told[-1].is_self == (found == member.uuid)  # type: ignore[attr-defined]
    return None if found is None else found.int


def agreed(*members: Member) -> set[int | None]:
    return {leader_of(member) for member in members if member.alive}


def contesting(mesh: Mesh, *numbers: int, **options: Any) -> list[Member]:
    members = [mesh.add(number, groups=[G], **options) for number in numbers]
    for member in members:
        act(mesh, member, "join", G, True)
    return members


def test_the_lowest_contestant_leads_and_all_members_are_told() -> None:
    mesh = Mesh()
    members = contesting(mesh, 3, 2, 4)
    watcher = mesh.add(1, groups=[G])  # the lowest, but it does not contest
    outsider = mesh.add(5)
    mesh.advance(2)
    assert agreed(*members, watcher) == {2}
    assert leader_of(outsider) is None
    told = watcher.told(events.Leader)
    assert told[-1] == events.Leader(uuid_of(2), "node2", G, False)
    assert members[1].told(events.Leader) == [events.Leader(uuid_of(2), "node2", G, True)]


def test_a_contestant_that_is_alone_leads_after_its_patience() -> None:
    mesh = Mesh()
    (ann,) = contesting(mesh, 1)
    mesh.advance(4.9)
    assert leader_of(ann) is None
    mesh.advance(0.2)
    assert leader_of(ann) == 1


def test_a_group_that_nobody_contests_has_no_leader() -> None:
    mesh = Mesh()
    members = [mesh.add(number, groups=[G]) for number in (1, 2)]
    mesh.advance(60)
    assert agreed(*members) == {None}


def test_dialects_do_not_matter() -> None:
    mesh = Mesh()
    members = contesting(mesh, 2, dialect="draft") + contesting(mesh, 3) + [mesh.add(4, groups=[G], dialect="draft")]
    mesh.advance(2)
    assert agreed(*members) == {2}


@pytest.mark.parametrize("goes", ["leaves", "stops", "dies"])
def test_the_next_contestant_takes_over_when_the_leader_goes(goes: str) -> None:
    mesh = Mesh()
    first, second, third = contesting(mesh, 1, 2, 3)
    mesh.advance(2)
    assert agreed(first, second, third) == {1}
    match goes:
        case "leaves":
            act(mesh, first, "leave", G)
            assert leader_of(first) is None
        case "stops":
            mesh.stop(first)
        case "dies":
            mesh.kill(first)
    mesh.advance(40 if goes == "dies" else 1)
    assert agreed(second, third) == {2}
    mesh.kill(second)
    mesh.advance(40)
    assert leader_of(third) == 3  # at once, when all others are gone


def test_a_claimant_that_dies_in_the_middle_of_an_election_is_replaced() -> None:
    mesh = Mesh()
    members = contesting(mesh, 1, 2, 3)
    for _ in range(10):
        if mesh.datagrams:
            mesh.deliver_datagram()
        for connection in mesh.connections:
            mesh.deliver(connection)
            if any(leader_of(member) for member in members):
                break
    mesh.kill(members[0])
    mesh.advance(60)
    assert agreed(*members[1:]) == {2}


def test_each_side_of_a_cut_has_a_leader_and_the_lower_one_leads_when_it_is_healed() -> None:
    mesh = Mesh()
    ann, bob, cid, dan = contesting(mesh, 1, 2, 3, 4)
    mesh.advance(2)
    mesh.cut = {frozenset((one, other)) for one in (1, 2) for other in (3, 4)}
    for member in (ann, bob, cid, dan):
        member.beacons = False
    mesh.advance(60)
    assert agreed(ann, bob) == {1}
    assert agreed(cid, dan) == {3}
    mesh.cut.clear()
    for member in (ann, bob, cid, dan):
        member.beacons = True
    mesh.advance(60)
    assert agreed(ann, bob, cid, dan) == {1}


def test_a_member_that_comes_later_learns_the_leader() -> None:
    mesh = Mesh()
    members = contesting(mesh, 1, 2)
    mesh.advance(10)
    late, other = mesh.add(5, groups=[G]), mesh.add(6)
    mesh.advance(2)
    act(mesh, other, "join", G)
    mesh.advance(0.5)
    assert agreed(*members, late, other) == {1}
    assert [len(member.told(events.Leader)) for member in (*members, late, other)] == [1, 1, 1, 1]


def test_a_lower_contestant_that_comes_later_takes_over() -> None:
    mesh = Mesh()
    members = contesting(mesh, 5, 6)
    mesh.advance(10)
    assert agreed(*members) == {5}
    members += contesting(mesh, 2)
    mesh.advance(10)
    assert agreed(*members) == {2}


def test_a_group_can_be_contested_after_it_was_joined_and_keeps_a_lower_leader() -> None:
    mesh = Mesh()
    ann, bob = mesh.add(1, groups=[G]), mesh.add(2, groups=[G])
    mesh.advance(2)
    act(mesh, bob, "join", G, True)
    mesh.advance(1)
    assert agreed(ann, bob) == {2}
    act(mesh, ann, "join", G, True)
    act(mesh, ann, "join", G, True)
    mesh.advance(1)
    assert agreed(ann, bob) == {1}


def test_a_session_that_begins_anew_knows_the_leader() -> None:
    mesh = Mesh()
    members = contesting(mesh, 1, 2, 3)
    mesh.advance(10)
    for member in members:
        act(mesh, member, "set_header", "X-SERVICE", f"tcp://10.0.0.1:{member.number}", mesh.now)
        mesh.advance(10)
    assert agreed(*members) == {1}


def test_a_claimant_that_never_leads_is_set_aside() -> None:
    mesh = Mesh()
    ann, bob = contesting(mesh, 4, 5)
    mesh.advance(10)
    act(mesh, ann, "join", "X")
    puppet = uuid_of(1)
    for member in (ann, bob):
        for message in (
            Hello(1, "tcp://10.0.0.1:1", [G], 1, "mute", {}),
            Elect(2, G, puppet.hex.upper()),
        ):
            member.engine.receive(b"\x01" + puppet.bytes, list(message.encode()), mesh.now)
        member.engine.take()
    assert agreed(ann, bob) == {None}
    for _ in range(25):
        for member in (ann, bob):
            member.engine.peers[puppet.bytes].hear(mesh.now)
            member.connections.pop(puppet.bytes, None)
            member.engine.tick(mesh.now)
            for output in member.engine.take():
                if not isinstance(output, Send) or output.peer != puppet.bytes:
                    mesh._do(member, output)
        mesh.settle()
        mesh.now += 1
    assert agreed(ann, bob) == {4}


# Only peers that know the commands get them


def test_a_peer_that_has_not_shown_that_it_knows_elections_is_left_out() -> None:
    mesh = Mesh()
    (ann,) = contesting(mesh, 1)
    pyre = uuid_of(9)
    ann.engine.receive(b"\x01" + pyre.bytes, list(Hello(1, "tcp://10.0.0.9:1", [G], 1, "pyre", {}).encode()), mesh.now)
    said = []
    for _ in range(7):
        ann.engine.tick(mesh.now)
        outputs = ann.engine.take()
        said += [Stable.decode(list(one.frames)) for one in outputs if isinstance(one, Send)]
        mesh.now += 1
    ann.engine.stop()
    said += [Stable.decode(list(one.frames)) for one in ann.engine.take() if isinstance(one, Send)]
    assert not [message for message in said if isinstance(message, Elect | Leader | Goodbye)]
    assert ann.engine.counters.unknown_commands == 0


@pytest.mark.parametrize(
    ("text", "reason"), [("", "bad_messages"), ("G" * 32, "bad_messages"), ("A" * 31, "bad_messages")]
)
def test_a_candidate_that_is_no_uuid_is_counted(text: str, reason: str) -> None:
    mesh = Mesh()
    (ann,) = contesting(mesh, 1)
    peer = uuid_of(9)
    for message in (Hello(1, "tcp://10.0.0.9:1", [G], 1, "zyre", {}), Elect(2, G, text), Leader(3, G, text)):
        ann.engine.receive(b"\x01" + peer.bytes, list(message.encode()), mesh.now)
    assert getattr(ann.engine.counters, reason) == 2


def test_an_election_in_a_group_of_others_is_counted_and_no_more() -> None:
    mesh = Mesh()
    (ann,) = contesting(mesh, 1)
    peer = uuid_of(9)
    hello = Hello(1, "tcp://10.0.0.9:1", ["H"], 1, "zyre", {})
    for message in (hello, Elect(2, "H", peer.hex), Elect(3, G, peer.hex), Leader(4, G, peer.hex)):
        ann.engine.receive(b"\x01" + peer.bytes, list(message.encode()), mesh.now)
    assert ann.engine.counters.not_members == 3
    assert ann.engine.elections.leader(G) is None


def test_no_peer_can_make_another_one_the_leader() -> None:
    mesh = Mesh()
    members = contesting(mesh, 3, 4)
    mesh.advance(10)
    liar = uuid_of(9)
    victim = members[1]
    for message in (
        Hello(1, "tcp://10.0.0.9:1", [G], 1, "liar", {}),
        Elect(2, G, uuid_of(2).hex),
        Leader(3, G, uuid_of(2).hex),
        Leader(4, G, members[1].uuid.hex),
    ):
        victim.engine.receive(b"\x01" + liar.bytes, list(message.encode()), mesh.now)
    assert leader_of(victim) == 3


def test_the_commands_are_those_of_zyre() -> None:
    mesh = Mesh()
    (ann,) = contesting(mesh, 1)
    zyre = uuid_of(9)
    hello = Hello(1, "tcp://10.0.0.9:1", [G], 1, "zyre", {"X-PUBLICKEY": "k"})
    ann.engine.receive(b"\x01" + zyre.bytes, list(hello.encode()), mesh.now)
    ann.engine.receive(b"\x01" + zyre.bytes, list(Elect(2, G, ann.uuid.hex.upper()).encode()), mesh.now)
    ann.engine.tick(mesh.now)
    ann.engine.tick(mesh.now + 0.1)
    said = [one.frames[0].hex() for one in ann.engine.take() if isinstance(one, Send)]
    digits = ann.uuid.hex.upper().encode().hex()
    assert said[1:] == ["aaa1080200020147" + "20" + digits, "aaa1090200030147" + "20" + digits]


def test_goodbye_ends_a_peer() -> None:
    mesh = Mesh()
    (ann,) = contesting(mesh, 1)
    zyre = uuid_of(9)
    for message in (Hello(1, "tcp://10.0.0.9:1", [G], 1, "zyre", {}), Whisper(2, [b"x"]), Goodbye(3)):
        ann.engine.receive(b"\x01" + zyre.bytes, list(message.encode()), mesh.now)
    assert [event.reason for event in ann.engine.take() if isinstance(event, events.Exit)] == ["it left"]


# With Zyre


@pytest.mark.parametrize("zambezi", [1, 5])
@pytest.mark.parametrize("contestants", [{2}, {2, 3}, {4}, {2, 3, 4}])
@pytest.mark.parametrize("order", ["zyre first", "zambezi first"])
def test_a_group_of_zyre_nodes_has_a_leader_with_a_member_that_does_not_contest(
    zambezi: int, order: str, contestants: set[int]
) -> None:
    mesh = Mesh()
    if order == "zambezi first":
        ours = mesh.add(zambezi, groups=[G])
        pass_time(mesh, 1)
    zyres = [add_zyre(mesh, number, {G}, {G} if number in contestants else set()) for number in (2, 3, 4)]
    pass_time(mesh, 1)
    if order == "zyre first":
        ours = mesh.add(zambezi, groups=[G])
        pass_time(mesh, 1)
    pass_time(mesh, 1)
    (leader,) = agreed(ours, *zyres)
    assert leader in contestants  # with Zyre the lowest one does not always win


@pytest.mark.parametrize("zambezi", [1, 5])
@pytest.mark.parametrize("others", [(2,), (2, 3), (2, 3, 4)])
def test_a_node_contests_among_zyre_nodes(zambezi: int, others: tuple[int, ...]) -> None:
    mesh = Mesh()
    zyres = [add_zyre(mesh, number, {G}, {G}) for number in others]
    pass_time(mesh, 1)
    (ours,) = contesting(mesh, zambezi)
    pass_time(mesh, 1)
    (leader,) = agreed(ours, *zyres)
    assert leader == 1 if zambezi == 1 else leader in others


def test_a_zyre_node_that_comes_later_agrees() -> None:
    mesh = Mesh()
    members = contesting(mesh, 1, 2)
    pass_time(mesh, 10)
    members.append(add_zyre(mesh, 3, {G}, {G}))
    pass_time(mesh, 1)
    assert agreed(*members) == {1}
    members.append(mesh.add(4, groups=[G]))  # now the Zyre node begins an election anew
    pass_time(mesh, 1)
    assert agreed(*members) == {1}


def test_zyre_nodes_that_do_not_contest_are_told_where_all_peers_know_elections() -> None:
    mesh = Mesh()
    zyres = [add_zyre(mesh, number, {G}) for number in (3, 4)]
    members = contesting(mesh, 5, 6, all_elect=True)
    pass_time(mesh, 1)
    assert agreed(*members, *zyres) == {5}


# Whatever the order of messages


@pytest.mark.parametrize("seed", range(30))
def test_members_agree_on_one_leader_whatever_the_order_of_messages(seed: int) -> None:
    chance = random.Random(seed)
    mesh = Mesh()
    members = []
    for number in chance.sample(range(1, 100), 9):
        member = mesh.add(number, groups=[G], dialect=chance.choice(["stable", "stable", "draft"]))
        members.append(member)
        if chance.random() < 0.6:
            act(mesh, member, "join", G, True)
        for _ in range(chance.randrange(200)):
            if mesh.connections:
                mesh.deliver(chance.choice(mesh.connections))
    act(mesh, members[-1], "join", G, True)
    victim = chance.choice(members[:-1])
    match chance.choice(["leaves", "stops", "dies", "stays"]):
        case "leaves":
            act(mesh, victim, "leave", G)
        case "stops":
            mesh.stop(victim)
        case "dies":
            mesh.kill(victim)
    pass_time(mesh, 60, chance)
    voters = [member for member in members if member.alive and G in member.engine.profile.groups]
    claims = {number_of(member) for member in voters if contests(member)}
    assert agreed(*voters) == {min(claims)}
    assert sum(leader_of(member) == number_of(member) for member in voters) == 1


def number_of(member: Member) -> int:
    return member.uuid.int


def contests(member: Member) -> bool:
    return member.engine.elections.contests(G)


@pytest.mark.parametrize("seed", range(20))
def test_members_agree_in_a_group_with_zyre_nodes_whatever_the_order_of_messages(seed: int) -> None:
    """Zyre nodes sometimes do not end an election in such orders, also among themselves. Ours agree all the same."""
    chance = random.Random(seed)
    mesh = Mesh()
    ours = []
    for number in chance.sample(range(1, 100), 6):
        if chance.random() < 0.5:
            add_zyre(mesh, number, {G}, {G} if chance.random() < 0.5 else set())
        else:
            ours.append(mesh.add(number, groups=[G]))
            act(mesh, ours[-1], "join", G, True)
        pass_time(mesh, 1, chance)
    pass_time(mesh, 60, chance)
    if ours:
        (leader,) = agreed(*ours)
        assert leader is not None
