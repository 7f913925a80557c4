"""zambezi.mcollective.register_file: what a killed process wrote is read again, and damage costs sessions only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import cases
from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.register import Record, Register
from zambezi.mcollective.register_file import RegisterFile
from zambezi.mcollective.session import Session
from zambezi.mcollective.vigil import EXPIRY


class Process:
    """A middleware's register and its file, from the start of a process to its end."""

    def __init__(self, path: Path, asleep: float = 0.0) -> None:
        self.file = RegisterFile(path, lambda: newest(path) + asleep)
        self.register = Register(Bounds(), self.file)
        self.found = self.file.open(1000.0)
        self.register.restore(self.found)
        self.file.rewrite(self.register.records.values())

    def client(self, identity: bytes = b"me", **topics: int) -> Session:
        session = Session(None, identity, "ann", "", 1000.0)
        self.register.begin(session, 10.0)
        self.register.subscribed(session, {name.encode(): since for name, since in topics.items()})
        return session

    def kill(self) -> None:
        """End the process after its last turn; the kernel closes its files, and nothing else is written."""
        self.file.flush()
        for descriptor in (self.file._log, self.file._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self.file._log = self.file._lock = -1


def newest(path: Path) -> float:
    return max((each.stat().st_mtime for each in path.glob("*.log")), default=0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


def test_a_killed_process_loses_nothing(path: Path) -> None:
    first = Process(path)
    one = first.client(b"one \xff", a=0, b=3)
    two = first.client(b"two", c=0)
    first.register.unsubscribed(one, [b"a"])
    one.sequence = 7
    first.register.advance(one)
    first.register.end(two)
    first.kill()
    second = Process(path)
    (record,) = second.found
    assert (record.user, record.identity, record.ttl, record.topics) == ("ann", b"one \xff", 10.0, {b"b": 3})
    assert (record.position, record.delimited, record.until) == (7, True, 1000.0 + EXPIRY * 10)
    second.kill()
    third = Process(path)
    assert [(each.key, each.position, each.topics) for each in third.found] == [(record.key, 7, {b"b": 3})]
    third.file.close()


def test_positions_need_no_turn(path: Path) -> None:
    first = Process(path)
    session = first.client(a=0)
    first.file.flush()
    for session.sequence in range(100):
        first.register.advance(session)
    first.kill()
    second = Process(path)
    assert [record.position for record in second.found] == [99]
    second.file.close()


def test_the_time_that_the_process_was_down_counts(path: Path) -> None:
    first = Process(path)
    first.client(a=0)
    first.file.close()
    second = Process(path, asleep=4.0)
    assert [record.until for record in second.found] == [1000.0 + EXPIRY * 10 - 4]
    second.file.close()
    third = Process(path, asleep=EXPIRY * 10)
    assert third.found == []
    third.file.close()


def test_a_client_that_says_connect_again_keeps_its_topics(path: Path) -> None:
    first = Process(path)
    session = first.client(a=0)
    first.register.begin(session, 20.0)
    first.kill()
    second = Process(path)
    assert [(record.ttl, record.topics) for record in second.found] == [(20.0, {b"a": 0})]
    second.file.close()


def test_the_log_is_written_anew_before_it_is_large(path: Path) -> None:
    process = Process(path)
    session = process.client(a=0)
    written = 0
    for _ in range(3):
        while not process.file.bloated:
            name = b"x" * 1000
            process.register.subscribed(session, {name: 0})
            process.register.unsubscribed(session, [name])
            process.file.flush()
            written += 2000
            assert written < 20_000_000
        process.file.rewrite(process.register.records.values())
        assert sum(each.stat().st_size for each in path.glob("*.log")) < 1000
    assert sorted(each.suffix for each in path.iterdir()) == ["", ".log", ".positions"]
    process.kill()
    second = Process(path)
    assert [record.topics for record in second.found] == [{b"a": 0}]
    second.file.close()


def test_torn_and_damaged_lines_cost_the_sessions_after_them(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = Process(path)
    first.client(b"one", a=0)
    first.client(b"two", b=0)
    first.kill()
    (log,) = path.glob("*.log")
    whole = log.read_bytes()
    log.write_bytes(whole[:-3])  # a torn line is no damage
    second = Process(path)
    assert [record.identity for record in second.found] == [b"one"]
    assert "damaged" not in caplog.text
    second.kill()
    (log,) = path.glob("*.log")
    bad = (b"[]", b"{}", b"nonsense", b'["sub",77,[["a",0]]]', b'["unsub",0,["zzz"]]', b'["session","x"]', b"[" * 9999)
    for line in bad:
        log.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]) + line + b"\n" + whole)
        other = RegisterFile(path)
        assert [record.identity for record in other.open(1000.0)] == [b"one"]
        other.close()
    assert caplog.text.count("damaged") == len(bad)


def test_a_directory_that_cannot_be_used_costs_the_sessions_only(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_text("a file")
    process = Process(path)
    session = process.client(a=0)
    session.sequence = 3
    process.register.advance(session)
    process.register.end(session)
    process.file.flush()
    process.file.touch()
    process.file.close()
    assert "sessions will not survive a restart" in process.file.problem
    assert caplog.text.count("sessions will not survive") == 1


def test_two_processes_do_not_share_a_directory(path: Path) -> None:
    first = Process(path)
    first.client(a=0)
    second = RegisterFile(path)
    assert second.open(1000.0) == []
    assert "another process" in second.problem
    second.rewrite([])
    second.close()
    first.kill()
    third = Process(path)
    assert len(third.found) == 1
    third.file.close()


def test_a_full_disk_ends_the_keeping_of_sessions(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    process.client(a=0)
    process.file.flush()
    assert "No space left" in process.file.problem
    process.client(b"two", a=0)
    process.file.flush()
    process.file.close()


def test_the_files_are_private(path: Path) -> None:
    process = Process(path)
    process.client(a=0)
    process.file.flush()
    modes = {each.name.partition(".")[2]: stat.S_IMODE(each.stat().st_mode) for each in path.iterdir()}
    assert modes == {"": 0o600, "log": 0o600, "positions": 0o600}
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    process.file.close()


def test_positions_of_another_size_are_ignored(path: Path) -> None:
    first = Process(path)
    first.client(a=0)
    first.kill()
    (positions,) = path.glob("*.positions")
    positions.write_bytes(b"odd")
    second = Process(path)
    assert [record.position for record in second.found] == [0]
    assert isinstance(second.found[0], Record)
    second.file.close()


@pytest.mark.parametrize("suffix", ["log", "positions"])
@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "large"])
def test_a_file_that_is_none_costs_what_is_in_it(path: Path, suffix: str, kind: str) -> None:
    first = Process(path)
    session = first.client(a=0)
    session.sequence = 7
    first.register.advance(session)
    first.kill()
    (file,) = path.glob(f"*.{suffix}")
    moved = file.rename(path.parent / "moved")
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "link":
        file.symlink_to(moved)
    elif kind == "directory":
        file.mkdir()
    else:
        file.touch()
        os.truncate(file, 1 << 30)
    found = RegisterFile(path)
    records = found.open(1000.0)
    assert [record.position for record in records] == ([] if suffix == "log" else [0])
    found.rewrite(records)
    assert not found.problem
    found.close()


Step = tuple[str, int, int]
NAMES = [b"one", b"two \xff", b"node3 1 #<Thread:0x1 run>", b"node3 1 #<Thread:0x2 run>"]
VERBS = ["connect", "sub", "unsub", "advance", "lose", "leave", "end", "kill", "rewrite"]


@settings(max_examples=cases(25), deadline=None)
@example(steps=[("connect", 0, 1), ("sub", 0, 1), ("lose", 0, 1), ("connect", 0, 2), ("sub", 0, 2), ("kill", 0, 1)])
@given(steps=st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 3), st.integers(1, 9)), max_size=60))
def test_a_process_that_is_killed_at_any_time_knows_all_sessions_again(
    steps: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("register") / "sessions"
    process = Process(path)
    sessions: dict[int, Session] = {}

    def kept(register: Register) -> dict[tuple[str, bytes], tuple[object, ...]]:
        """Return the last record of each client."""
        return {
            record.key: (record.position, record.ttl, record.resumable, record.topics)
            for record in register.records.values()
            if record.topics
        }

    for verb, client, number in steps:
        session = sessions.get(client)
        if verb == "connect":
            sessions[client] = session = session or Session(None, NAMES[client], "ann", "", 1000.0)
            process.register.begin(session, 10.0 * number)
        elif verb == "kill":
            before = kept(process.register)
            process.kill()
            sessions.clear()
            process = Process(path)
            assert kept(process.register) == before
            assert process.register.bytes == sum(record.size for record in process.register.records.values())
        elif verb == "rewrite":
            process.file.rewrite(process.register.records.values())
        elif session is not None:
            if verb == "sub":
                process.register.subscribed(session, {b"topic %d" % number: number})
            elif verb == "unsub":
                process.register.unsubscribed(session, [b"topic %d" % number])
            elif verb == "advance":
                session.sequence = number
                process.register.advance(session)
            else:
                del sessions[client]
                if verb == "lose":
                    process.register.connection_lost(session)
                elif verb == "leave":
                    process.register.disconnected(session, 1000.0)
                else:
                    process.register.end(session)
    before = kept(process.register)
    process.kill()
    process = Process(path)
    assert kept(process.register) == before
    process.file.close()
