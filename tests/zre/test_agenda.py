"""zambezi.zre.agenda: one entry for each peer, however often it is put off."""

from hypothesis import given
from hypothesis import strategies as st

from zambezi.zre.agenda import NEVER, Agenda
from zambezi.zre.dialect import STABLE
from zambezi.zre.peer import Peer


def peer(key: bytes) -> Peer:
    return Peer(key, "tcp://10.0.0.1:1", STABLE, 0.0)


def test_an_empty_agenda_has_no_deadline() -> None:
    agenda = Agenda({})
    assert agenda.deadline == NEVER
    assert list(agenda.due(1000.0)) == []


def test_a_peer_that_is_put_off_is_due_later_and_has_one_entry() -> None:
    ann = peer(b"ann")
    agenda = Agenda({b"ann": ann})
    for time in range(1, 1000):
        agenda.set(ann, float(time))
    assert len(agenda) == 1
    assert agenda.deadline == 1.0  # where it began; to move the entry would cost something
    assert list(agenda.due(1.0)) == []
    assert agenda.deadline == 999.0
    assert list(agenda.due(999.0)) == [ann]
    assert len(agenda) == 0


def test_an_earlier_time_replaces_a_later_one() -> None:
    ann, bob = peer(b"ann"), peer(b"bob")
    agenda = Agenda({b"ann": ann, b"bob": bob})
    agenda.set(ann, 10.0)
    agenda.set(bob, 5.0)
    agenda.set(ann, 2.0)
    assert agenda.deadline == 2.0
    assert list(agenda.due(7.0)) == [ann, bob]
    assert list(agenda.due(11.0)) == []


def test_the_caller_can_set_times_while_it_looks() -> None:
    ann = peer(b"ann")
    agenda = Agenda({b"ann": ann})
    agenda.set(ann, 1.0)
    seen = []
    for each in agenda.due(3.0):
        seen.append(each.due)
        agenda.set(each, each.due + 1.0)
    assert seen == [1.0, 2.0, 3.0]
    assert agenda.deadline == 4.0


def test_peers_that_are_gone_are_not_due_and_do_not_fill_the_agenda() -> None:
    peers: dict[bytes, Peer] = {}
    agenda = Agenda(peers)
    for number in range(10_000):
        gone = peers[b"%d" % number] = peer(b"%d" % number)
        agenda.set(gone, float(number))
        del peers[gone.key]
    assert len(agenda) < 2000
    assert list(agenda.due(1e6)) == []
    assert len(agenda) == 0


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 50), st.booleans()), max_size=60))
def test_every_peer_is_due_at_the_time_that_was_set_last(steps: list[tuple[bytes, int, bool]]) -> None:
    peers = {key: peer(key) for key in (b"a", b"b", b"c")}
    agenda = Agenda(peers)
    wanted: dict[bytes, int] = {}
    now = 0
    for key, wait, passes in steps:
        if passes:
            now += wait
            assert {each.key for each in agenda.due(now)} == {key for key, due in wanted.items() if due <= now}
            wanted = {key: due for key, due in wanted.items() if due > now}
        else:
            wanted[key] = now + wait
            agenda.set(peers[key], now + wait)
        assert agenda.deadline <= min(wanted.values(), default=NEVER)
