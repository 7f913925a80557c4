"""zambezi.mcollective.backlog: messages wait for absent clients, within bounds."""

from __future__ import annotations

from zambezi.mcollective.backlog import Absentee, Backlog
from zambezi.mcollective.messages import Frames
from zambezi.zmtp.frames import parts_of


def message(body: bytes) -> Frames:
    return (b"", b"MESSAGE", b"TOPIC", b"a", b"", body)


def read(backlog: Backlog, absentee: Absentee, names: list[bytes]) -> tuple[list[Frames], int]:
    found, missed = backlog.read(absentee, names)
    return [parts_of(message) for shared in found for message in shared.messages], missed


def test_clients_share_the_bytes_of_a_message() -> None:
    backlog = Backlog(100_000, 100_000)
    clients = [backlog.join([b"a"]) for _ in range(3)]
    backlog.hold(b"a", [message(b"1")])
    assert len({id(backlog.read(client, [b"a"])[0][0]) for client in clients}) == 1


def test_a_client_gets_the_messages_of_its_topics_since_it_left_in_their_order() -> None:
    backlog = Backlog(100_000, 100_000)
    ann = backlog.join([b"a", b"b"])
    assert backlog.hold(b"a", [message(b"1"), message(b"2")])
    bob = backlog.join([b"b", b"a"])
    assert backlog.hold(b"b", [message(b"3")])
    assert backlog.hold(b"a", [message(b"4")])
    assert not backlog.hold(b"c", [message(b"5")])
    assert read(backlog, ann, [b"a", b"b"]) == ([message(b"%d" % number) for number in (1, 2, 3, 4)], 0)
    assert read(backlog, bob, [b"a", b"b"]) == ([message(b"3"), message(b"4")], 0)
    assert read(backlog, bob, [b"a", b"other"]) == ([message(b"4")], 0)


def test_the_messages_go_with_the_last_client_that_they_wait_for() -> None:
    backlog = Backlog(100_000, 100_000)
    ann, bob = backlog.join([b"a"]), backlog.join([b"a", b"b"])
    backlog.hold(b"a", [message(b"1")])
    backlog.hold(b"b", [message(b"2")])
    backlog.leave(bob)
    assert (len(backlog), read(backlog, ann, [b"a"])) == (1, ([message(b"1")], 0))
    backlog.leave(ann)
    backlog.leave(ann)
    assert (len(backlog), backlog.bytes) == (0, 0)
    assert read(backlog, ann, [b"a"]) == ([], 0)


def test_a_full_backlog_forgets_the_oldest_messages_and_says_how_many() -> None:
    backlog = Backlog(10_000, 100_000)
    ann, bob = backlog.join([b"a"]), backlog.join([b"b"])
    backlog.hold(b"b", [message(b"old")])
    for number in range(1000):
        backlog.hold(b"a", [message(b"%03d" % number)])
        assert backlog.bytes <= 10_000
    late = backlog.join([b"a"])
    found, missed = read(backlog, ann, [b"a"])
    assert len(found) + missed == 1000
    assert [frames[-1] for frames in found] == [b"%03d" % number for number in range(missed, 1000)]
    assert read(backlog, bob, [b"b"]) == ([], 1)
    assert read(backlog, late, [b"a"]) == ([], 0)
    assert backlog.hold(b"b", [message(bytes(20_000))])  # larger than all
    assert read(backlog, bob, [b"b"]) == ([], 2)


def test_one_client_gets_the_last_messages_up_to_its_bound() -> None:
    backlog = Backlog(100_000, 1000)
    ann = backlog.join([b"a", b"b"])
    for number in range(10):
        backlog.hold(b"ab"[number % 2 :][:1], [message(b"%d" % number + bytes(300))])
    found, missed = read(backlog, ann, [b"a", b"b"])
    assert ([frames[-1][:1] for frames in found], missed) == ([b"8", b"9"], 8)


def test_clients_that_come_and_go_leave_nothing_behind() -> None:
    backlog = Backlog(100_000, 100_000)
    backlog.join([b"stays"])
    for _ in range(10_000):
        ann = backlog.join([b"a"])
        backlog.hold(b"a", [message(b"1")])
        backlog.leave(ann)
    assert backlog.bytes == 0
    assert len(backlog._order) <= 1000
