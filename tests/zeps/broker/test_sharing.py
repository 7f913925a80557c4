"""zambezi.zeps.broker.sharing and groups: JOIN, DONE, GIVE-BACK, KEEP, and what the file of positions knows of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.zeps.journal.streams import kill
from tests.zeps.stage import Client, Stage
from zambezi.zeps.broker import groups as groups_module
from zambezi.zeps.broker.engine import Action, Limits
from zambezi.zeps.broker.slots import SLOTS
from zambezi.zeps.broker.turns import TURN
from zambezi.zeps.directory import ReaderInfo, read_readers
from zambezi.zeps.errors import JournalFull
from zambezi.zeps.journal import Policy
from zambezi.zeps.journal.positions import GROUP
from zambezi.zeps.letters import Letter
from zambezi.zeps.messages import (
    LATEST,
    Attach,
    Claim,
    Credit,
    Deliveries,
    Detach,
    Done,
    GiveBack,
    Join,
    JoinOk,
    Keep,
    Ping,
    Publish,
    Subscribe,
    Times,
)
from zambezi.zeps.sequences import pack_sequences, unpack_deliveries

TEN = [Publish(f"k{number}", b"%d" % number) for number in range(10)]
OWNERS = (bytes((0, number)) * 8 for number in range(1, 256))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.client("s").send(*TEN)
    return stage


def join(
    stage: Stage,
    *,
    group: str = "workers",
    identity: bytes | None = None,
    pattern: str = "",
    latest: int = 0,
    in_flight: int = 1000,
    wait: int = 0,
    limit: int = 0,
    dead: str = "",
    user: str = "",
    credit: int = 1 << 30,
) -> Client:
    client = stage.client("s", user=user)
    identity = identity if identity is not None else os.urandom(16)
    client.send(Join(group, identity, pattern, latest, in_flight, wait, limit, dead), Credit(credit))
    return client


def done(*sequences: int) -> Done:
    return Done(pack_sequences(sequences))


def back(*sequences: int, delay: int = 0, seen: int = 1) -> GiveBack:
    return GiveBack(delay, seen, pack_sequences(sequences))


def counts(client: Client) -> dict[int, int]:
    """Return the deliveries that the broker told the client."""
    found: dict[int, int] = {}
    for message in client.of(Deliveries):
        found |= unpack_deliveries(message.deliveries)
    return found


def killed(stage: Stage, path: Path) -> Stage:
    """Return the stage after the kill of its broker."""
    now = stage.now
    kill(stage.store)
    again = Stage(path)
    again.now = now
    return again


def listed(stage: Stage) -> list[ReaderInfo]:
    client = stage.client("$readers/s", credit=1 << 20)
    client.send(Subscribe("", 0))
    return read_readers([message.body for message in client.delivered])


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let members give back few messages in a turn; return how many."""
    monkeypatch.setattr(groups_module, "AT_ONCE", 10)
    return TURN // groups_module._LEAVE * 10


def test_many_messages_of_members_that_leave_are_given_back_in_turns(stage: Stage, few: int) -> None:
    """Other clients do not wait for all of them."""
    publisher = stage.client("s")
    for _ in range(3):
        publisher.send(*TEN * 10)
    leaving = join(stage, in_flight=1 << 20)
    (group,) = stage.stream("s").groups._active.values()
    before = group.in_flight
    assert before > 2 * few
    stage.run()
    leaving.session.on_connection_lost()
    assert group.in_flight == before
    found = []
    while group.members:
        stage._soon.popleft()()
        assert before - group.in_flight <= few
        before = group.in_flight
        found.append(before)
    assert len(found) > 2
    other = join(stage, in_flight=1 << 20)
    while stage._soon:
        stage.run()
        other.read()
    assert other.sequences == list(range(1, stage.stream("s").journal.last + 1))


@pytest.mark.usefixtures("few")
def test_a_member_that_leaves_in_turns_can_join_again_meanwhile(stage: Stage) -> None:
    publisher = stage.client("s")
    for _ in range(3):
        publisher.send(*TEN * 10)
    me = bytes(15) + b"1"
    first = join(stage, identity=me, in_flight=1 << 20)
    had = first.sequences
    first.session.on_connection_lost()
    again = join(stage, identity=me, in_flight=1 << 20)
    while stage._soon:
        stage.run()
        again.read()
    assert again.sequences == had
    (group,) = stage.stream("s").groups._active.values()
    assert len(group.members) == 1


@pytest.mark.usefixtures("few")
def test_a_broker_that_ends_while_a_member_leaves_keeps_its_messages(stage: Stage, tmp_path: Path) -> None:
    publisher = stage.client("s")
    for _ in range(3):
        publisher.send(*TEN * 10)
    first = join(stage, in_flight=1 << 20)
    had = first.sequences
    first.session.on_connection_lost()
    stage.close()
    stage.run()
    with Stage(tmp_path) as again:
        assert join(again, in_flight=1 << 20).sequences == had


def test_members_share_the_messages(stage: Stage) -> None:
    first = join(stage)
    assert first.of(JoinOk) == [JoinOk(30_000, 0, "")]
    assert first.sequences == list(range(1, 11))
    second = join(stage)
    first.send(done(*first.sequences))
    stage.client("s").send(*TEN)
    first.read(), second.read()
    assert second.sequences
    assert sorted([*first.sequences, *second.sequences]) == list(range(1, 21))


def test_live_messages_go_out_without_reading_the_journal(stage: Stage) -> None:
    member = join(stage, latest=LATEST)
    publisher = stage.client("s")
    publisher.publish("k", b"live")
    assert [message.sequence for message in member.read() if message in member.delivered] == [11]


def test_a_member_that_goes_gives_back_with_a_count(stage: Stage) -> None:
    first = join(stage)
    first.send(done(1, 2, 3))
    first.close()
    second = join(stage)
    assert second.sequences == list(range(4, 11))
    assert counts(second) == dict.fromkeys(range(4, 11), 2)


def test_acknowledgements_that_were_confirmed_survive_the_kill_of_the_broker(stage: Stage, tmp_path: Path) -> None:
    member = join(stage)
    member.send(done(2, 3, 7), Ping())
    assert member.confirmed == 1
    again = killed(stage, tmp_path)
    assert join(again).sequences == [1, 4, 5, 6, 8, 9, 10]


def test_the_list_tells_how_far_a_group_was_before_the_kill_of_the_broker(stage: Stage, tmp_path: Path) -> None:
    member = join(stage)
    member.send(done(*range(1, 8)), done(9), Ping())
    (info,) = listed(killed(stage, tmp_path))
    assert (info.position, info.lag) == (7, 3)


def test_a_group_goes_on_after_an_orderly_end(stage: Stage, tmp_path: Path) -> None:
    member = join(stage)
    member.send(done(1, 2), back(3))
    stage.engine.detach_all()
    member.send(done(4))  # it has seen DETACH
    member.close()
    stage.run()
    stage.close()
    again = Stage(tmp_path)
    member = join(again)
    assert sorted(member.sequences) == [3, 5, 6, 7, 8, 9, 10]
    assert counts(member)[3] == 3


def test_confirmations_wait_for_the_disk(tmp_path: Path) -> None:
    stage = Stage(tmp_path, policy=Policy(sync="always"))
    publisher = stage.client("s")
    publisher.send(*TEN, Ping())
    stage.write_back()
    member = join(stage)
    member.send(done(1), Ping())
    assert member.confirmed == 0
    stage.write_back()
    member.read()
    assert member.confirmed == 1


def test_a_full_disk_delays_confirmations_and_loses_nothing(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = join(stage)
    positions = stage.stream("s").journal.positions
    with monkeypatch.context() as patch:
        patch.setattr(positions, "_append", _raise_full)
        member.send(done(1, 2), Ping())
        assert member.confirmed == 0
        member.send(done(3))
        assert "no room" in stage.stream("s").groups.problem
    stage.tick()
    member.read()
    assert member.confirmed == 1
    assert stage.stream("s").groups.problem == ""
    assert join(killed(stage, tmp_path)).sequences == list(range(4, 11))


def _raise_full(octets: bytes) -> None:
    raise JournalFull("no room")


def test_messages_that_are_not_acknowledged_in_time_come_again(stage: Stage) -> None:
    member = join(stage, wait=2000, in_flight=3)
    member.send(done(1))
    stage.pass_time(1.9)
    member.send(Keep(pack_sequences([2])))
    stage.pass_time(0.2)
    assert not counts(member)
    stage.pass_time(2)
    member.read()
    assert counts(member) == {2: 2, 3: 2, 4: 2}


def test_a_message_can_be_given_back_now_or_for_later(stage: Stage) -> None:
    member = join(stage, in_flight=10)
    member.send(back(2), back(3, delay=1500))
    assert counts(member) == {2: 2}
    assert member.sequences[10:] == [2]
    stage.pass_time(1.6)
    member.read()
    assert member.sequences[11:] == [3]


# Dead letters


def letters(stage: Stage, stream: str = "dead") -> list[tuple[Letter, bytes, str]]:
    client = stage.client(stream, credit=1 << 20)
    client.subscribe()
    return [(*Letter.parse(message.body), message.key) for message in client.delivered]


def test_a_message_at_the_limit_becomes_a_dead_letter_once(stage: Stage, tmp_path: Path) -> None:
    member = join(stage, limit=2, dead="dead")
    assert member.of(JoinOk) == [JoinOk(30_000, 2, "dead")]
    member.send(done(*range(2, 11)))
    member.send(back(1))
    member.send(back(1))
    expected = [(Letter("s", 1, "k0", "workers", 2), b"0", "k0")]
    assert letters(stage) == expected
    assert listed(stage)[0].letters == 1
    again = killed(stage, tmp_path)
    assert join(again).sequences == []
    assert letters(again) == expected


def test_a_letter_that_was_written_before_a_crash_is_not_written_again(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = join(stage, limit=1, dead="dead")
    groups = stage.stream("s").groups
    member.send(done(*range(3, 11)), Ping())
    with monkeypatch.context() as patch:
        patch.setattr(groups, "_note_changed", lambda group: None)  # the kill comes before the state is written
        member.send(back(1, 2))
    assert len(letters(stage)) == 2
    again = killed(stage, tmp_path)
    assert join(again).sequences == []
    assert len(letters(again)) == 2
    again = killed(again, tmp_path)
    assert join(again).sequences == []
    assert len(letters(again)) == 2


def give_letters_to_a_slow_disk(stage: Stage) -> None:
    """Let a member give back two messages that become letters, and leave: their stream waits for its disk."""
    stage.client("s").send(*TEN, Ping())
    stage.client("dead").send(Ping())
    stage.write_back()
    member = join(stage, limit=1, dead="dead")
    member.send(done(*range(3, 11)))
    stage.write_back()
    member.send(back(1, 2))
    member.close()


def test_letters_that_wait_for_the_disk_when_the_broker_ends_are_not_written_again(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="always")) as stage:
        give_letters_to_a_slow_disk(stage)
    with Stage(tmp_path) as again:
        assert join(again).sequences == []
        assert [letter.sequence for letter, _, _ in letters(again)] == [1, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"key": "remove_group", "stream": "s", "group": "workers"},
        {"key": "set_group", "stream": "s", "group": "workers", "latest": 0},
        {"key": "truncate", "stream": "s", "after": 1},
        {"key": "delete", "stream": "s"},
        {"key": "delete", "stream": "dead"},
    ],
)
def test_an_operator_can_change_what_letters_need_while_they_wait_for_the_disk(
    tmp_path: Path, change: dict[str, object]
) -> None:
    with Stage(tmp_path, policy=Policy(sync="always")) as stage:
        give_letters_to_a_slow_disk(stage)
        publisher = stage.client("dead")
        publisher.send(TEN[0], Ping())
        admin = order(stage, **change)  # type: ignore[arg-type]
        for _ in range(3):
            stage.write_back()
            stage.tick()
        admin.read(), publisher.read()
        assert (admin.reasons, admin.confirmed) == ([], 1)
        assert publisher.confirmed or publisher.reasons
        other = join(stage, group="others")
        stage.write_back()
        other.send(done(1), Ping())
        stage.write_back()
        other.read()
        assert other.confirmed == 1


def test_letters_wait_for_their_stream(stage: Stage) -> None:
    member = join(stage, limit=1, dead="dead")
    admin = stage.client("$admin")
    admin.send(Publish("delete", json.dumps({"stream": "dead"}).encode()), Ping())
    stage.slow = True
    member.send(back(1))
    assert listed(stage)[0].problem == "there is no stream dead"
    stage.let_disk_work()
    stage.slow = False
    stage.tick()
    assert [letter.sequence for letter, _, _ in letters(stage)] == [1]
    assert listed(stage)[0].problem == ""


def test_without_a_stream_for_letters_a_message_is_passed_over(stage: Stage) -> None:
    member = join(stage, limit=1)
    member.send(back(*range(1, 11)))
    assert (listed(stage)[0].letters, listed(stage)[0].position) == (10, 10)


def test_dead_letters_need_permission(tmp_path: Path) -> None:
    def allow(user: str, action: Action, stream: str) -> bool:
        return action == "subscribe" or stream == "s"

    stage = Stage(tmp_path, allow=allow)
    stage.client("s").send(*TEN)
    for name, reason in (("other", "may not publish"), ("s", "choose another"), ("$admin", "choose another")):
        assert reason in join(stage, dead=name, limit=1).reasons[0]


# Bad input


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"group": ""}, "needs a name"),
        ({"group": "g" * 249}, "at most 248 bytes"),
        ({"identity": b"short"}, "has 16 bytes"),
        ({"identity": bytes(16)}, "has 16 bytes"),
        ({"in_flight": 0}, "at least one"),
        ({"wait": 0xFFFFFFFF}, "to acknowledge"),
        ({"pattern": "regex:("}, "regex"),
        ({"latest": 4711}, "the last sequence"),
        ({"latest": (1 << 63) | (1 << 50)}, "in the future"),
    ],
)
def test_a_join_that_is_not_valid_is_refused(stage: Stage, change: dict[str, object], reason: str) -> None:
    client = join(stage, **change)  # type: ignore[arg-type]
    assert reason in client.reasons[0]
    assert not stage.stream("s").groups.is_active
    assert len(stage.stream("s").groups) == 0


def test_a_group_has_one_pattern(stage: Stage) -> None:
    member = join(stage, pattern="exact:k1")
    assert member.sequences == [2]
    other = join(stage, pattern="k2")
    assert "has the pattern 'exact:k1', not 'k2'" in other.reasons[0]
    member.close()
    assert "has the pattern" in join(stage, pattern="k2").reasons[0]
    assert not stage.stream("s").groups.is_active


def test_the_newest_member_decides_about_time_and_limit(stage: Stage) -> None:
    join(stage, wait=1000, limit=3)
    assert join(stage).of(JoinOk) == [JoinOk(1000, 3, "")]
    assert join(stage, limit=5).of(JoinOk) == [JoinOk(1000, 5, "")]


def test_a_message_has_a_bounded_number_of_sequences(stage: Stage) -> None:
    member = join(stage)
    member.send(done(*range(1, 8193)), done(*range(1, 8194)), Keep(pack_sequences(range(8193))))
    assert [reason.partition(":")[0] for reason in member.reasons] == [
        "a message has at most 8192 sequences, not 8193"
    ] * 2


def test_commands_out_of_place_are_refused(stage: Stage) -> None:
    stranger = stage.client("s")
    stranger.send(done(1), back(1), Keep(b""))
    assert len(stranger.reasons) == 3
    member = join(stage)
    member.send(Join("workers", b"x" * 16, "", 0, 1, 0, 0, ""), Subscribe("", 0), Done(b"odd"), Times(b""))
    member.send(Claim("name", b"x" * 16, 0, 0))
    assert len(member.reasons) == 5
    subscriber = stage.client("s", credit=10)
    subscriber.send(Join("workers", b"x" * 16, "", 0, 1, 0, 0, ""))
    assert "JOIN is not allowed here" in subscriber.reasons[0]
    report = stage.client("$streams")
    report.send(Join("workers", b"x" * 16, "", 0, 1, 0, 0, ""))
    assert report.reasons


def test_members_cannot_touch_the_messages_of_others(stage: Stage) -> None:
    first, second = join(stage, in_flight=3), join(stage)
    theirs = first.sequences
    second.send(done(*theirs, 4711), back(*theirs, 1 << 63), Keep(pack_sequences(theirs)))
    assert listed(stage)[0].unknown == 3 * len(theirs) + 2
    first.close()
    stage.run()
    second.read()
    assert set(theirs) <= set(second.sequences)


def test_a_program_that_joins_again_replaces_its_old_connection(stage: Stage) -> None:
    first = join(stage, identity=b"x" * 16)
    second = join(stage, identity=b"x" * 16)
    assert first.gone
    assert second.sequences == list(range(1, 11))
    assert listed(stage)[0].members == 1


def test_a_group_belongs_to_the_user_that_has_made_it(stage: Stage, tmp_path: Path) -> None:
    member = join(stage, user="ann")
    assert "belongs to another user" in join(stage, user="ben").reasons[0]
    assert join(stage, user="ann").of(JoinOk)
    member.send(done(1))
    again = killed(stage, tmp_path)
    assert "belongs to another user" in join(again, user="ben").reasons[0]
    assert join(again, user="ann").sequences == list(range(2, 11))
    assert join(again, group="for all").of(JoinOk)
    assert join(again, group="for all", user="ben").of(JoinOk)


def test_timers_do_not_multiply(stage: Stage) -> None:
    member = join(stage, wait=60_000)
    for delay in range(200, 0, -1):
        member.send(back(1, delay=delay))
        stage.pass_time(0.0005)
    stage.pass_time(1)
    assert len(stage._later) <= 2


def test_a_byte_of_credit_is_enough_for_a_message(stage: Stage) -> None:
    member = join(stage, credit=1)
    assert member.sequences == [1]
    member.send(done(1), Credit(20))
    assert member.sequences == [1, 2]


def test_a_long_key_and_a_long_name(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.client("s").publish("k" * 255, b"")
    member = join(stage, group="g" * 248)
    assert member.keys == ["k" * 255]
    member.send(done(1), Ping())
    assert member.confirmed == 1
    assert [info.reader for info in listed(stage)] == ["g" * 248]


def test_there_is_a_limit_to_groups(tmp_path: Path) -> None:
    stage = Stage(tmp_path, policy=Policy(sync="never", readers=2))
    stage.client("s").send(*TEN)
    join(stage, group="a"), join(stage, group="b")
    assert "the limit" in join(stage, group="c").reasons[0]
    assert join(stage, group="b").of(JoinOk)


def test_many_groups_share_the_messages_in_flight(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "_ROOM", 16)
    monkeypatch.setattr(groups_module, "_LEAST_ROOM", 1)
    members = [join(stage, group=f"g{number}") for number in range(32)]
    assert [len(member.sequences) for member in members[:3]] == [10, 8, 4]
    assert [len(member.sequences) for member in members[16:]] == [1] * 16
    for member in members:
        member.close()
    stage.run()
    again = join(stage, group="g31")  # the states of groups without members count, too
    assert len(again.sequences) == 1
    for number in range(31):
        stage.stream("s").groups.remove(f"g{number}")
    again.close()
    stage.run()
    assert join(stage, group="g31").sequences == list(range(1, 11))


# Streams that lose messages


def test_retention_removes_what_is_in_flight(stage: Stage) -> None:
    member = join(stage)
    journal = stage.stream("s").journal
    journal.trim(8)
    assert journal.first == 8
    member.send(back(*range(1, 11)))
    assert member.sequences[10:] == [8, 9, 10]
    assert listed(stage)[0].missed == 7


def order(stage: Stage, key: str, **content: object) -> Client:
    client = stage.client("$admin")
    client.send(Publish(key, json.dumps(content).encode()), Ping())
    return client


def test_a_stream_that_is_truncated_takes_the_positions_of_groups_back(stage: Stage) -> None:
    member = join(stage)
    member.send(done(1, 3, 7, 8), Ping())
    order(stage, "truncate", stream="s", after=5)
    member.read()
    assert member.of(Detach)
    member.close()
    stage.client("s").send(*TEN)
    assert join(stage).sequences == [2, 4, 5, *range(6, 16)]


def test_a_stream_that_is_deleted_takes_its_groups_away(stage: Stage) -> None:
    member = join(stage)
    member.send(done(1), Ping())
    order(stage, "delete", stream="s")
    member.read()
    assert member.of(Detach)
    member.close()
    stage.client("s").send(*TEN)
    assert len(stage.stream("s").groups) == 0
    assert join(stage).sequences == list(range(1, 11))


def test_a_rule_that_changes_takes_a_member_out(tmp_path: Path) -> None:
    rules = {"subscribe"}
    stage = Stage(tmp_path, allow=lambda user, action, stream: action in rules or user == "root")
    stage.client("s", user="root").send(*TEN)
    member = join(stage, user="ann")
    rules.clear()
    stage.engine.apply_rules()
    member.read()
    assert "may not subscribe" in member.reasons[0]
    assert not stage.stream("s").groups.is_active
    assert "may not subscribe" in join(stage, user="ann").reasons[0]


def test_a_client_that_leaves_gives_back(stage: Stage) -> None:
    member = join(stage)
    member.send(done(1), back(*range(2, 11), seen=0), Ping(), Detach())
    assert "DetachOk" in member.said
    second = join(stage)
    assert second.sequences == list(range(2, 11))
    assert not counts(second)


# For operators


def test_groups_are_listed_set_and_removed(stage: Stage) -> None:
    first = join(stage, limit=5, wait=1000)
    first.send(done(1, 2), back(5, delay=60_000))
    info = listed(stage)[0]
    assert (info.reader, info.shared, info.position, info.lag) == ("workers", True, 2, 8)
    assert (info.limit, info.wait, info.in_flight, info.returned, info.members) == (5, 1000, 7, 1, 1)
    assert info.shares == ({"member": "test", "in_flight": 7, "delivered": 10, "done": 2, "late": False},)
    assert "members" in order(stage, "set_group", stream="s", group="workers", latest=0).reasons[0]
    assert "members" in order(stage, "remove_group", stream="s", group="workers").reasons[0]
    first.close()
    info = listed(stage)[0]
    assert (info.position, info.limit, info.returned, info.members) == (2, 5, 8, 0)
    assert order(stage, "set_group", stream="s", group="workers", latest=8).reasons == []
    assert listed(stage)[0].position == 8
    assert join(stage).sequences == [9, 10]
    assert "no group" in order(stage, "remove_group", stream="s", group="other").reasons[0]


def test_a_group_that_is_removed_begins_anew(stage: Stage) -> None:
    member = join(stage)
    member.send(done(1))
    member.close()
    assert order(stage, "remove_group", stream="s", group="workers").reasons == []
    assert listed(stage) == []
    assert join(stage).sequences == list(range(1, 11))


def test_groups_without_members_use_no_memory_but_their_state(stage: Stage) -> None:
    for number in range(50):
        member = join(stage, group=f"g{number}")
        member.send(done(*range(1, 6)))
        member.close()
        stage.run()
    groups = stage.stream("s").groups
    assert not groups.is_active
    assert len(groups) == 50
    assert max(len(state.payload) for state in stage.stream("s").journal.positions.all(GROUP)) < 400


def test_a_damaged_state_begins_again_after_its_position(stage: Stage, tmp_path: Path) -> None:
    member = join(stage)
    member.send(done(1, 2, 3))
    member.close()
    stage.run()
    positions = stage.stream("s").journal.positions
    state = positions.get(GROUP, "workers")
    assert state is not None
    positions.write([state._replace(payload=b"nonsense")])
    assert join(stage).sequences == list(range(4, 11))


def test_a_heavy_pattern_does_not_keep_others_waiting(tmp_path: Path) -> None:
    stage = Stage(tmp_path, limits=Limits())
    client = stage.client("s")
    client.publish_many([f"key {number}" for number in range(3000)])
    member = join(stage, pattern="regex:.*9.*9.*")
    expected = [number + 1 for number in range(3000) if str(number).count("9") >= 2]
    assert member.sequences == expected
    client.publish_many([f"key {number}" for number in range(3000)])
    member.read()
    assert len(member.sequences) == 2 * len(expected)


def test_cold_messages_are_loaded_by_another_thread(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("zambezi.zeps.journal.reader.is_cached", lambda descriptor, offset: False)
        member = join(stage)
        assert member.sequences == []
        assert len(stage.warming) == 1
        stage.warm_up()
        member.read()
        assert member.sequences == list(range(1, 11))
        member.send(back(4))
        stage.warm_up()
        member.read()
        assert member.sequences[10:] == [4]


def test_the_slots_are_enough_for_a_thousand_members() -> None:
    assert SLOTS >= 1000


def test_a_second_attach_changes_nothing(stage: Stage) -> None:
    member = join(stage)
    member.send(Attach("s"))
    assert member.reasons
    member.send(done(1), Ping())
    assert member.confirmed == 1
