"""zambezi.zeps.broker.publishers and resumption: RESUME, epochs, fencing, marks, and what the journal knows of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zeps.journal.streams import kill
from tests.zeps.stage import Client, Stage
from zambezi.zeps.broker.engine import Limits
from zambezi.zeps.broker.publishers import name_of
from zambezi.zeps.journal import Policy
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.layout import PUBLISH
from zambezi.zeps.messages import MOST, Detach, Fenced, Mark, Ping, Publish, Resume, ResumeOk, Zeps
from zambezi.zmtp.frames import Oversize

ANN = b"ann-------------"
NONE = bytes(16)
FIRST = 1_700_000_000  # the first epoch: the time of the stage
MESSAGE = Publish("k", b"x")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path, limits=Limits(message=1000))


def resume(stage: Stage, epoch: int = 0, confirmed: int = 0, user: str = "") -> Client:
    client = stage.client("s", user=user)
    client.send(Resume(ANN, epoch, confirmed))
    return client


def answers(client: Client) -> list[Zeps]:
    """Return the messages after ATTACH-OK."""
    return client.heard[1:]


def test_a_new_publisher_has_no_messages(stage: Stage) -> None:
    client = resume(stage)
    assert answers(client) == [ResumeOk(FIRST, 0, 0, NONE, 0)]
    assert len(stage.stream("s").publishers) == 1
    client.close()
    assert len(stage.stream("s").publishers) == 0
    assert stage.stream("s").journal.counts.get(ANN) == Count(ANN, FIRST, 0)


def test_the_broker_tells_how_many_messages_it_has(stage: Stage) -> None:
    client = resume(stage)
    client.send(MESSAGE, MESSAGE, MESSAGE)
    client.close()
    assert answers(resume(stage, FIRST)) == [ResumeOk(FIRST, 3, 0, NONE, 0)]


@pytest.mark.parametrize("refused", [Oversize(2000), PUBLISH, PUBLISH + b"\xff"])
def test_messages_that_the_broker_refuses_count(stage: Stage, refused: bytes) -> None:
    client = resume(stage)
    client.send(MESSAGE, refused, MESSAGE, b"not ZEPS", Ping())
    client.close()
    assert answers(resume(stage, FIRST)) == [ResumeOk(FIRST, 3, 0, NONE, 1)]
    assert stage.stream("s").journal.last == 2


def test_messages_that_rules_forbid_count(tmp_path: Path) -> None:
    allowed = True
    with Stage(tmp_path, allow=lambda user, action, stream: allowed or action != "publish") as stage:
        client = resume(stage)
        client.send(MESSAGE)
        allowed = False
        stage.engine.apply_rules()
        client.send(MESSAGE)
        assert "may not publish" in client.reasons[0]
        allowed = True
        stage.engine.apply_rules()
        client.send(MESSAGE)
        client.close()
        assert answers(resume(stage, FIRST)) == [ResumeOk(FIRST, 3, 0, NONE, 1)]


def test_a_new_connection_with_the_same_epoch_replaces_the_old_one(stage: Stage) -> None:
    old, new = resume(stage), resume(stage, FIRST)
    assert old.gone
    assert old.of(Fenced) == []
    old.session.receive([MESSAGE.encode()[0]])
    new.send(MESSAGE, Ping())
    assert stage.stream("s").journal.last == 1
    assert new.confirmed == 1


def test_a_newer_epoch_fences_the_old_one(stage: Stage) -> None:
    old = resume(stage)
    old.send(MESSAGE)
    new = resume(stage)
    assert answers(new) == [ResumeOk(FIRST + 1, 1, 0, NONE, 0)]
    old.read()
    assert old.of(Fenced) == [Fenced(FIRST + 1)]
    assert old.parted
    old.send(MESSAGE, Ping())
    assert stage.stream("s").journal.last == 1
    again = resume(stage, FIRST)
    assert answers(again) == [Fenced(FIRST + 1)]
    assert again.parted
    assert stage.engine.counters.fenced == 2
    new.send(MESSAGE)
    assert stage.stream("s").journal.last == 2


def test_messages_of_the_old_connection_that_were_not_read_do_not_count(stage: Stage) -> None:
    old = resume(stage)
    old.send(*[MESSAGE] * 3, *[Mark(b"m" * 16)] * 200, MESSAGE)  # more than one turn of work
    old.connection.pause()
    old._inbox.append([MESSAGE.encode()[0]])
    new = resume(stage)
    assert isinstance(answers(new)[0], ResumeOk)
    told = new.of(ResumeOk)[0].count
    stage.tick()
    assert stage.stream("s").journal.last == told


def test_the_journal_knows_a_new_epoch_before_it_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    first = resume(stage)
    first.send(MESSAGE)
    assert answers(resume(stage)) == [ResumeOk(FIRST + 1, 1, 0, NONE, 0)]
    kill(stage.store)
    with Stage(tmp_path) as stage:
        assert answers(resume(stage, FIRST)) == [Fenced(FIRST + 1)]
        assert answers(resume(stage, FIRST + 1)) == [ResumeOk(FIRST + 1, 1, 0, NONE, 0)]


def test_with_sync_always_the_answer_waits_for_the_disk(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="always")) as stage:
        first = resume(stage)
        assert answers(first) == []
        stage.write_back()
        first.read()
        first.send(MESSAGE)
        second = resume(stage)
        assert answers(second) == []
        stage.write_back()
        second.read()
        assert answers(second) == [ResumeOk(FIRST + 1, 1, 0, NONE, 0)]


def test_the_client_can_know_more_than_the_broker(stage: Stage) -> None:
    client = resume(stage, 5, 100)
    assert answers(client) == [ResumeOk(5, 100, 0, NONE, 0)]
    client.send(MESSAGE)
    client.close()
    assert answers(resume(stage, 5, 7)) == [ResumeOk(5, 101, 0, NONE, 0)]


def test_a_mark_is_kept_with_the_message_after_it(stage: Stage) -> None:
    client = resume(stage)
    client.send(MESSAGE, Mark(b"m" * 16), MESSAGE)
    client.send(Mark(b"n" * 16))
    client.close()
    assert answers(resume(stage, FIRST)) == [ResumeOk(FIRST, 2, 1, b"m" * 16, 0)]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Resume(b"short", 0, 0), "has 16 bytes"),
        (Resume(NONE, 0, 0), "not all of them are zero"),
        (Resume(ANN, 0, MOST + 1), "cannot have"),
    ],
)
def test_a_resume_that_is_not_valid(stage: Stage, message: Resume, reason: str) -> None:
    client = stage.client("s")
    client.send(message)
    assert reason in client.reasons[0]
    client.send(MESSAGE, Ping())
    assert client.confirmed == 1
    client.send(Resume(ANN, 0, 0))
    assert "before the first PUBLISH" in client.reasons[1]


def test_a_connection_resumes_once(stage: Stage) -> None:
    client = resume(stage)
    client.send(Resume(b"b" * 16, 0, 0), Mark(b"short"))
    assert "it comes once" in client.reasons[0]
    assert "16 bytes" in client.reasons[1]
    plain = stage.client("s")
    plain.send(Mark(b"m" * 16))
    assert "after RESUME" in plain.reasons[0]
    reader = stage.client("$streams")
    reader.send(Resume(ANN, 0, 0))
    assert "reserved stream" in reader.reasons[0]


def test_the_highest_epoch(stage: Stage) -> None:
    resume(stage, 0xFFFFFFFF)
    assert "highest epoch" in resume(stage).reasons[0]


def test_no_user_can_take_the_publisher_of_another_one(stage: Stage) -> None:
    ann, ben = resume(stage, user="ann"), resume(stage, user="ben")
    assert answers(ann) == answers(ben) == [ResumeOk(FIRST, 0, 0, NONE, 0)]
    assert not ann.parted
    assert len({name_of(ANN, user) for user in ("", "ann", "ben")}) == 3


def test_a_publisher_that_is_dismissed_confirms_nothing_more(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client must send dropped messages again: a PING-OK would confirm them, and later messages would overtake."""
    client = resume(stage)
    client.send(MESSAGE)
    stream = stage.stream("s")
    monkeypatch.setattr("zambezi.zeps.broker.stream.WAITING", 1)
    monkeypatch.setattr(stream, "_blocked", True)
    stream._pending = [MESSAGE.encode()[0]]
    stream._pending_bytes = 9
    client.session.receive([MESSAGE.encode()[0]])
    client.read()
    assert len(client.of(Detach)) == 1
    monkeypatch.setattr(stream, "_blocked", False)
    client.send(MESSAGE, Ping())
    stream.flush()
    assert client.confirmed == 0
    assert stream.journal.last == 2
    assert answers(resume(stage, FIRST))[0] == ResumeOk(FIRST, 1, 0, NONE, 0)


def test_two_programs_never_have_the_same_epoch(tmp_path: Path) -> None:
    """The first one has not published when the broker is killed; then another program begins."""
    stage = Stage(tmp_path)
    resume(stage)
    kill(stage.store)
    with Stage(tmp_path) as stage:
        assert answers(resume(stage)) == [ResumeOk(FIRST + 1, 0, 0, NONE, 0)]
        assert answers(resume(stage, FIRST)) == [Fenced(FIRST + 1)]


def test_a_program_stays_fenced_although_its_publisher_was_forgotten(stage: Stage) -> None:
    for _ in range(3):
        resume(stage).close()
    stage.stream("s").journal.counts.forget_before(1e12)
    stage.now += 10
    assert answers(resume(stage)) == [ResumeOk(FIRST + 10, 0, 0, NONE, 0)]
    assert answers(resume(stage, FIRST + 2)) == [Fenced(FIRST + 10)]


@pytest.mark.parametrize("refused", [Oversize(2000), PUBLISH + b"\xff"])
def test_all_messages_count_if_the_connection_ends_while_they_wait(stage: Stage, refused: bytes) -> None:
    client = resume(stage)
    client.session.receive([MESSAGE.encode()[0], refused, Mark(b"m" * 16).encode()[0]] * 100)
    client.close()
    stage.run()
    assert answers(resume(stage, FIRST)) == [ResumeOk(FIRST, 200, 200, b"m" * 16, 100)]
    assert stage.stream("s").journal.last == 100


def test_a_client_that_may_not_publish_leaves_nothing_in_the_journal(tmp_path: Path) -> None:
    allowed = True
    with Stage(tmp_path, allow=lambda user, action, stream: allowed or action != "publish") as stage:
        good = resume(stage)
        good.send(MESSAGE)
        counts = stage.stream("s").journal.counts
        allowed = False
        stage.engine.apply_rules()
        before = list(counts.states())
        for number in range(1, 20):
            bad = stage.client("s")
            bad.send(Resume(ANN if number == 7 else bytes([number] * 16), 0, 0))
            assert "may not publish" in bad.reasons[0]
        assert list(counts.states()) == before
        assert not good.parted
        allowed = True
        stage.engine.apply_rules()
        bad.send(Resume(b"b" * 16, 0, 0))
        assert len(bad.of(ResumeOk)) == 1
        good.send(MESSAGE, Ping())
        assert good.confirmed == 1


def test_sessions_that_end_while_the_disk_is_full_leave_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    resume(stage)
    stream = stage.stream("s")
    monkeypatch.setattr(stream, "_blocked", True)
    for number in range(1, 50):
        client = stage.client("s")
        client.send(Resume(bytes([number] * 16), 0, 0))
        assert answers(client) == []
        client.close()
    assert len(stream.publishers.unwritten) == 0
    assert len(stream.publishers) == 1
    assert sum(map(len, stream._barriers.values())) == 0


def test_connected_publishers_are_not_forgotten_for_silent_ones(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="never", publishers=5)) as stage:
        good = resume(stage)
        good.send(MESSAGE)
        for number in range(1, 50):
            client = stage.client("s")
            client.send(Resume(bytes([number] * 16), 0, 0), MESSAGE)
            client.close()
        counts = stage.stream("s").journal.counts
        assert counts.get(ANN) == Count(ANN, FIRST, 1)
        assert len(counts) == 5


def test_the_publishers_of_all_streams_together_are_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zambezi.zeps.broker.engine.PUBLISHERS", 10)
    for name, count in (("s", 3), ("t", 12)):
        for number in range(1, count + 1):
            client = stage.client(name)
            client.send(Resume(bytes([number] * 16), 0, 0), MESSAGE)
            client.close()
    stage.tick()
    assert (len(stage.stream("s").journal.counts), len(stage.stream("t").journal.counts)) == (3, 7)
    assert stage.stream("t").journal.counts.forgotten == 5
