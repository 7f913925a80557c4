"""zambezi.zeps.journal.ahead: small syncs are one write, and survive a power failure."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zeps.journal.streams import block, consistent, directory, held, kill
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal import Journal, Policy, Store, ahead
from zambezi.zeps.journal.ahead import AHEAD, MOST, OFTEN, ROOM
from zambezi.zeps.journal.counts import Count
from zambezi.zeps.journal.identity import MARK, boot_id
from zambezi.zeps.journal.verify import Damage, verify

ANOTHER_BOOT = "11111111-2222-3333-4444-555555555555 0\n"
ANN = b"ann-------------"
PLAIN = b"of a publisher that does not count"


def publish(journal: Journal, body: bytes = b"body") -> None:
    """Append a message of a publisher that counts its messages."""
    known = journal.counts.get(ANN) or Count(ANN, 1, 0)
    journal.append(block(journal.last + 1, [body]), 1.0, [known._replace(count=known.count + 1)])


def publish_and_sync(journal: Journal, times: int = 1) -> None:
    for _ in range(times):
        publish(journal)
        journal.sync()


class Disk:
    """The disk below a directory: what each file had when it was last synced."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._synced: dict[Path, bytes] = {}
        self._real = {name: getattr(os, name) for name in ("fsync", "fdatasync")}
        self.calls: list[str] = []
        for name in self._real:
            setattr(os, name, self._sync)

    def undo(self) -> None:
        for name, function in self._real.items():
            setattr(os, name, function)

    def _sync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self.calls.append(path.name)
        if path.is_file():
            self._synced[path] = path.read_bytes()
            return
        for gone in [one for one in self._synced if one.parent == path and not one.exists()]:
            del self._synced[gone]

    def lose_power(self, chance: Random) -> None:
        """Leave of each file what was synced, and of the rest any beginning, or zeros in place of it."""
        for path in list(self._root.rglob("*")):
            if path.suffix in (".log", ".idx", ".cnt"):
                now, had = path.read_bytes(), self._synced.get(path, b"")
                kept = now[: chance.randint(min(len(had), len(now)), max(len(had), len(now)))]
                path.write_bytes(had + kept[len(had) :] + bytes(chance.choice([0, max(0, len(now) - len(kept))])))
            elif path.name == AHEAD:
                path.write_bytes(self._synced.get(path, path.read_bytes()))
        for path, content in self._synced.items():
            if path.name == AHEAD and not path.exists():  # its removal has not reached the disk
                path.write_bytes(content)
        for path in self._root.glob(f"*/{MARK}"):
            _, _, synced = path.read_text().partition(" ")
            path.write_text(f"{ANOTHER_BOOT.split(maxsplit=1)[0]} {synced}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    found = Disk(tmp_path)
    yield found
    found.undo()


def test_small_syncs_in_a_row_need_one_file(tmp_path: Path, disk: Disk) -> None:
    with Store(tmp_path) as store:
        journal = store.open("a")
        publish_and_sync(journal, OFTEN + 1)
        assert AHEAD not in disk.calls
        publish_and_sync(journal)
        disk.calls.clear()
        publish_and_sync(journal, 5)
        assert disk.calls == [AHEAD] * 5
        assert journal.synced == journal.last == OFTEN + 7


def test_small_syncs_read_no_file(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: int) -> bytes:
        raise AssertionError("a sync has read a file")

    with Store(tmp_path) as store:
        journal = store.open("a")
        publish_and_sync(journal, OFTEN + 2)
        disk.calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", read)
            publish_and_sync(journal, 3)
        assert disk.calls == [AHEAD] * 3


def test_messages_that_come_during_a_sync_are_in_the_next_record(tmp_path: Path, disk: Disk) -> None:
    store = Store(tmp_path)
    journal = store.open("a")
    publish_and_sync(journal, OFTEN + 2)
    real = os.fdatasync

    def publish_meanwhile(descriptor: int) -> None:
        publish(journal)
        real(descriptor)

    publish(journal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdatasync", publish_meanwhile)
        assert journal.sync() == OFTEN + 3
    disk.calls.clear()
    assert journal.sync() == OFTEN + 4
    assert disk.calls == [AHEAD]
    kill(store)
    disk.lose_power(Random(5))
    with Store(tmp_path) as store:
        assert store.open("a").last == OFTEN + 4


def test_power_fails_after_small_syncs(tmp_path: Path, disk: Disk) -> None:
    store = Store(tmp_path)
    journal = store.open("a")
    publish_and_sync(journal, OFTEN + 20)
    publish(journal)
    before = consistent(journal)
    kill(store)
    disk.lose_power(Random(0))
    with Store(tmp_path) as store:
        again = store.open("a")
        assert {sequence: held(again).get(sequence) for sequence in range(1, OFTEN + 21)} == {
            sequence: message for sequence, message in before.items() if sequence <= OFTEN + 20
        }
        known = again.counts.get(ANN)
        assert known is not None
        assert known.count == again.last
        assert not (tmp_path / "a" / AHEAD).exists()
        publish_and_sync(again, 3)
        assert not [found for found in verify(again) if isinstance(found, Damage)]


def test_the_first_publisher_that_counts_comes_after_others(tmp_path: Path, disk: Disk) -> None:
    store = Store(tmp_path)
    journal = store.open("a")
    for _ in range(OFTEN + 3):
        journal.append(block(journal.last + 1, [b"plain"]), 1.0)
        journal.sync()
    publish_and_sync(journal, 3)
    kill(store)
    for path in (tmp_path / "a").glob("*.cnt"):
        path.write_bytes(b"")  # it was never synced
    disk.lose_power(Random(4))
    with Store(tmp_path) as store:
        again = store.open("a")
        known = again.counts.get(ANN)
        assert known is not None
        assert (again.last, known.count) == (OFTEN + 6, 3)


def test_a_full_file_begins_again_after_a_sync_of_the_segment(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "ROOM", 2000)
    store = Store(tmp_path)
    journal = store.open("a")
    publish_and_sync(journal, 40)
    assert (tmp_path / "a" / AHEAD).stat().st_size == 2000
    assert len([name for name in disk.calls if name.endswith(".log")]) > OFTEN + 2
    kill(store)
    disk.lose_power(Random(1))
    with Store(tmp_path) as store:
        assert store.open("a").last == 40


def test_many_bytes_are_synced_in_their_own_files(tmp_path: Path, disk: Disk) -> None:
    with Store(tmp_path) as store:
        journal = store.open("a")
        publish_and_sync(journal, OFTEN + 3)
        disk.calls.clear()
        publish(journal, bytes(MOST))
        journal.sync()
        assert AHEAD not in disk.calls
        assert len(disk.calls) == 3


def test_a_quiet_stream_needs_the_file_no_more(tmp_path: Path, disk: Disk) -> None:
    with Store(tmp_path) as store:
        journal = store.open("a")
        publish_and_sync(journal, OFTEN + 3)
        for _ in range(4):
            journal.sync()
        assert not (tmp_path / "a" / AHEAD).exists()
        disk.lose_power(Random(2))
        assert len(consistent(journal)) == journal.last


def test_a_closed_stream_has_no_such_file(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        publish_and_sync(store.open("a"), OFTEN + 3)
        assert (tmp_path / "a" / AHEAD).stat().st_size == ROOM
    assert not (tmp_path / "a" / AHEAD).exists()
    assert not (tmp_path / "a" / MARK).exists()


def test_a_killed_process_needs_no_records(tmp_path: Path) -> None:
    store = Store(tmp_path)
    journal = store.open("a")
    publish_and_sync(journal, OFTEN + 3)
    kill(store)
    assert (tmp_path / "a" / MARK).read_text().split()[0] == boot_id()
    with Store(tmp_path) as store:
        again = store.open("a")
        assert (again.last, again.incarnation) == (OFTEN + 3, journal.incarnation)
        assert not (tmp_path / "a" / AHEAD).exists()


def test_messages_that_were_truncated_do_not_come_back(tmp_path: Path, disk: Disk) -> None:
    store = Store(tmp_path)
    journal = store.open("a")
    publish_and_sync(journal, OFTEN + 5)
    journal.truncate(OFTEN + 3)
    kill(store)
    disk.lose_power(Random(3))
    with Store(tmp_path) as store:
        assert store.open("a").last == OFTEN + 3


@pytest.mark.parametrize("call", ["pwrite", "open"])
def test_without_room_for_the_file_the_stream_works_as_before(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(os, call)

    def full(first: int | str | Path, *arguments: int) -> int:
        name = Path(first) if not isinstance(first, int) else Path(f"/proc/self/fd/{first}").readlink()
        if name.name == AHEAD:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return int(real(first, *arguments))

    with Store(tmp_path) as store:
        journal = store.open("a")
        monkeypatch.setattr(os, call, full)
        publish_and_sync(journal, OFTEN + 5)
        assert journal.synced == OFTEN + 5
        assert not (tmp_path / "a" / AHEAD).exists()


def test_only_some_streams_have_the_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "FILES", len(ahead._made) + 1)
    with Store(tmp_path) as store:
        for name in ("a", "b"):
            publish_and_sync(store.open(name), OFTEN + 3)
            assert store.open(name).synced == OFTEN + 3
        assert [path.parent.name for path in tmp_path.glob(f"*/{AHEAD}")] == ["a"]
    with Store(tmp_path) as store:
        publish_and_sync(store.open("b"), OFTEN + 3)
        assert [path.parent.name for path in tmp_path.glob(f"*/{AHEAD}")] == ["b"]


def test_a_file_that_somebody_has_removed_is_not_trusted(tmp_path: Path, disk: Disk) -> None:
    with Store(tmp_path) as store:
        journal = store.open("a")
        publish_and_sync(journal, OFTEN + 3)
        (journal.directory / AHEAD).unlink()
        disk.calls.clear()
        publish_and_sync(journal)
        assert disk.calls
        assert AHEAD not in disk.calls
        assert journal.synced == journal.last == OFTEN + 4


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_a_stream_that_ends_leaves_no_file_open(end: str, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal = store.open("a")
        publish_and_sync(journal, OFTEN + 3)
        held = journal._ahead._descriptor
        assert held is not None
        assert os.fstat(held).st_size == ROOM
        getattr(journal, end)()
        assert journal._ahead._descriptor is None
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(held)


def test_a_failed_sync_of_the_file_stops_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path) as store:
        journal = store.open("a")
        publish_and_sync(journal, OFTEN + 3)

        def fail(descriptor: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        publish(journal)
        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(JournalError, match="Input/output error"):
            journal.sync()
        assert f"the messages after sequence {OFTEN + 3}" in journal.failed
        assert journal.synced == OFTEN + 3


def recovered(path: Path, content: bytes) -> int:
    """Return the last sequence of a stream whose file `ahead` has this content, after a power failure."""
    (path / "a" / AHEAD).write_bytes(content)
    (path / "a" / MARK).write_text(ANOTHER_BOOT)
    with Store(path) as store:
        return store.open("a").last


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"ZAHD", id="short"),
        pytest.param(bytes(ROOM), id="zeros"),
        pytest.param(b"\xff" * ROOM, id="ones"),
        pytest.param(b"ZAHD" + b"\xff" * 200, id="large numbers"),
    ],
)
def test_a_file_of_something_else_changes_nothing(content: bytes, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        publish_and_sync(store.open("a"), 3)
    assert recovered(tmp_path, content) == 3


def test_records_behind_a_damaged_one_do_not_count(tmp_path: Path, disk: Disk) -> None:
    store = Store(tmp_path)
    journal = store.open("a")
    publish_and_sync(journal, OFTEN + 1)
    logs = {path: path.read_bytes() for path in (tmp_path / "a").glob("0*")}
    publish_and_sync(journal, 4)
    content = (tmp_path / "a" / AHEAD).read_bytes()
    size = len(content.rstrip(b"\0")) // 4  # all records are equally long
    kill(store)
    for path, octets in logs.items():
        path.write_bytes(octets)
    damaged = bytearray(content)
    damaged[2 * size + 100] ^= 1
    assert recovered(tmp_path, bytes(damaged)) == OFTEN + 3


def test_a_record_that_would_leave_a_gap_is_not_written(tmp_path: Path, disk: Disk) -> None:
    store = Store(tmp_path)
    journal = store.open("a")
    publish_and_sync(journal, OFTEN + 3)
    content = (tmp_path / "a" / AHEAD).read_bytes()
    kill(store)
    log = next((tmp_path / "a").glob("*.log"))
    log.write_bytes(log.read_bytes()[:10])
    recovered(tmp_path, content)
    assert log.stat().st_size == 0


_KINDS = ["small", "both", "both", "both", "both", "both", "sync", "large", "plain", "truncate", "quiet", "epochs"]
steps = st.lists(st.sampled_from(_KINDS), min_size=4, max_size=40)


@settings(max_examples=cases(40))
@given(steps, st.integers(0, 1 << 32).map(Random))
def test_power_fails_at_any_time(of: list[str], chance: Random) -> None:
    """A confirmed message is in the stream afterwards, with the count of its publisher."""
    with directory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "OFTEN", 0)
        patch.setattr(ahead, "ROOM", 4000)
        patch.setattr(ahead, "MOST", 1500)
        disk = Disk(Path(path))
        try:
            store = Store(path, policy=Policy(segment=3000))
            journal = store.open("a")
            for step in of:
                _do(step, journal)
            messages, synced, known = held(journal), journal.synced, journal.counts.get(ANN)
            kill(store)
            disk.lose_power(chance)
            with Store(path, policy=Policy(segment=3000)) as again:
                found = consistent(again.open("a"))
                assert [found.get(one) for one in messages if one <= synced] == [
                    message for one, message in messages.items() if one <= synced
                ]
                after = again.open("a").counts.get(ANN)
                if known is not None:
                    lost = [one for one, message in messages.items() if one not in found and PLAIN not in message]
                    assert known.count - (0 if after is None else after.count) == len(lost)
        finally:
            disk.undo()


def _do(step: str, journal: Journal) -> None:
    if step in ("small", "large", "both"):
        publish(journal, bytes([journal.last % 256]) * (1400 if step == "large" else 5))
        if step == "both":
            journal.sync()
    elif step == "plain":
        journal.append(block(journal.last + 1, [PLAIN]), 1.0)
    elif step == "truncate":
        journal.truncate(max(journal.first - 1, journal.last - 2))
    elif step == "epochs":
        known = journal.counts.get(ANN) or Count(ANN, 1, 0)
        journal.append_counts([known], 1.0)
    else:
        for _ in range(4 if step == "quiet" else 1):
            journal.sync()
