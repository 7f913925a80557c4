"""zambezi.zeps.journal.recovery: after any cut of any file, a stream recovers to a prefix and continues."""

import os
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import cases
from tests.zeps.journal.streams import append, block, consistent, directory, held, kill, pieces
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal import IndexEntry, Journal, Policy, Store
from zambezi.zeps.journal.identity import FAILED, MARK, STREAM, boot_id
from zambezi.zeps.journal.segment import Name
from zambezi.zeps.journal.verify import Checked, verify

POLICY = Policy(segment=600, batch=200)
ANOTHER_BOOT = "11111111-2222-3333-4444-555555555555"


class Written:
    """A stream that was written, then closed or killed, and that a test will damage."""

    def __init__(self, path: str | Path, batches: list[list[bytes]], *, killed: bool = True) -> None:
        self.path = Path(path)
        store = Store(path, policy=POLICY)
        journal = store.open("a")
        self.messages: dict[int, bytes] = {}
        for number, batch in enumerate(batches):
            made = block(journal.last + 1, batch)
            self.messages |= dict(enumerate(pieces(made), made.first))
            journal.append(made, number + 1)
        self.entries = journal.entries(0, 1 << 30)
        self.firsts = [segment.first for segment in journal.segments]
        self.incarnation: UUID = journal.incarnation
        if killed:
            kill(store)
        else:
            store.close()

    def log(self, segment: int = -1) -> Path:
        return self.path / "a" / f"{Name(self.firsts[segment])}.log"

    def index(self, segment: int = -1) -> Path:
        return self.log(segment).with_suffix(".idx")

    def mark(self, content: str) -> None:
        (self.path / "a" / MARK).write_text(content)

    def whole(self, segment: int, octets: int) -> int:
        """Return the last sequence that is complete in the first so many bytes of a segment's log."""
        sequence = self.firsts[segment] - 1
        while sequence + 1 in self.messages and (octets := octets - len(self.messages[sequence + 1])) >= 0:
            sequence += 1
        return sequence

    def batch_at(self, segment: int, offset: int) -> IndexEntry:
        """Return the batch that contains a byte of a log."""
        after = [*self.firsts, 1 << 62][segment % len(self.firsts) + 1]
        mine = [entry for entry in self.entries if self.firsts[segment] <= entry.first < after]
        return next(entry for entry in mine if entry.offset <= offset < entry.end)

    def upto(self, last: int) -> dict[int, bytes]:
        return {sequence: message for sequence, message in self.messages.items() if sequence <= last}

    def recovered(self, check: Callable[[Journal], None]) -> None:
        """Open it twice, and check that it continues both times: a repair lasts."""
        for _ in range(2):
            with Store(self.path, policy=POLICY) as store:
                check(store.open("a"))
        with Store(self.path, policy=POLICY) as store:
            journal = store.open("a")
            last = journal.last
            new = append(journal, b"new", b"messages", now=1e6)
            assert [held(journal)[last + 1], held(journal)[last + 2]] == new
        with Store(self.path, policy=POLICY) as store:
            assert store.open("a").last == last + 2

    def expect(self, last: int, *, is_same: bool) -> None:
        """Check that it recovers to the messages up to `last`, with the same incarnation or another one."""
        after: list[UUID] = []

        def check(journal: Journal) -> None:
            assert consistent(journal) == self.upto(last)
            assert (journal.incarnation == self.incarnation) == is_same
            after.append(journal.incarnation)
            assert journal.synced == last

        self.recovered(check)
        assert len(set(after)) == 1


batches = st.lists(st.lists(st.binary(max_size=150), min_size=1, max_size=4), min_size=1, max_size=14)
parts = st.floats(0, 1)
garbage = st.binary(min_size=1, max_size=120) | st.just(bytes(64)) | st.just(bytes(4096))


def cut(path: Path, part: float) -> int:
    size = int(path.stat().st_size * part)
    os.truncate(path, size)
    return size


def extend(path: Path, octets: bytes) -> None:
    with path.open("ab") as file:
        file.write(octets)


# Properties: the last segment


@pytest.mark.spec("ZEP-17")
@given(batches, parts, st.booleans(), st.sampled_from([None, boot_id(), ANOTHER_BOOT]))
def test_any_cut_of_the_last_log(of: list[list[bytes]], part: float, killed: bool, mark: str | None) -> None:
    """Every complete message is kept. If an indexed one is lost, the stream gets a new incarnation."""
    with directory() as path:
        written = Written(path, of, killed=killed)
        last = written.whole(-1, cut(written.log(), part))
        if mark:
            written.mark(mark)
        written.expect(last, is_same=last == max(written.messages) and mark != ANOTHER_BOOT)


@pytest.mark.spec("ZEP-17")
@given(batches, parts, st.sampled_from([None, ANOTHER_BOOT]))
def test_any_cut_of_the_last_index(of: list[list[bytes]], part: float, mark: str | None) -> None:
    with directory() as path:
        written = Written(path, of)
        cut(written.index(), part)
        if mark:
            written.mark(mark)
        written.expect(max(written.messages), is_same=mark is None)


@pytest.mark.spec("ZEP-17")
@given(batches, st.integers(0, 10), parts)
def test_a_kill_at_any_byte(of: list[list[bytes]], missing: int, part: float) -> None:
    """The log is written up to some byte, and the index of that batch is not: complete messages are kept."""
    with directory() as path:
        written = Written(path, of)
        entries = written.index().stat().st_size // 64
        missing = min(missing, entries)
        os.truncate(written.index(), 64 * (entries - missing))
        indexed = written.entries[len(written.entries) - entries : len(written.entries) - missing]
        start = indexed[-1].end if indexed else 0
        size = start + int((written.log().stat().st_size - start) * part)
        os.truncate(written.log(), size)
        written.expect(written.whole(-1, size), is_same=True)


@given(batches, garbage, garbage, st.booleans(), st.booleans())
def test_garbage_at_the_end(
    of: list[list[bytes]], log: bytes, index: bytes, spoil_log: bool, spoil_index: bool
) -> None:
    with directory() as path:
        written = Written(path, of)
        if spoil_log:
            extend(written.log(), log)
        if spoil_index:
            extend(written.index(), index)
        written.expect(max(written.messages), is_same=True)


@given(batches, parts, st.binary(min_size=1, max_size=60))
def test_garbage_in_the_middle_after_a_crash_of_the_system(of: list[list[bytes]], part: float, octets: bytes) -> None:
    """A batch of full length with a bad CRC: the log is cut there."""
    with directory() as path:
        written = Written(path, of)
        log = bytearray(written.log().read_bytes())
        offset = min(int(len(log) * part), len(log) - 1)
        octets = octets[: len(log) - offset]
        if log[offset : offset + len(octets)] == octets:
            octets = bytes([octets[0] ^ 1]) + octets[1:]
        changed = next(n for n, octet in enumerate(octets) if log[offset + n] != octet)
        log[offset : offset + len(octets)] = octets
        written.log().write_bytes(log)
        written.mark(ANOTHER_BOOT)
        written.expect(written.batch_at(-1, offset + changed).first - 1, is_same=False)


@given(batches, parts, st.binary(min_size=1, max_size=100))
def test_garbage_in_the_index_after_a_crash_of_the_system(of: list[list[bytes]], part: float, octets: bytes) -> None:
    with directory() as path:
        written = Written(path, of)
        index = bytearray(written.index().read_bytes())
        offset = int(len(index) * part)
        index[offset : offset + len(octets)] = octets
        written.index().write_bytes(index)
        written.mark(ANOTHER_BOOT)
        written.expect(max(written.messages), is_same=False)


# Properties: older segments


@given(batches, st.integers(0, 20), parts)
def test_damage_in_an_old_log_is_reported_and_never_cut(of: list[list[bytes]], which: int, part: float) -> None:
    with directory() as path:
        written = Written(path, [*of, [b"x" * 700], [b"y"]])
        which %= len(written.firsts) - 1
        size = written.log(which).stat().st_size
        left = cut(written.log(which), part)
        kept = written.whole(which, left)
        following = written.firsts[which + 1]
        gone = range(kept + 1, following)

        def check(journal: Journal) -> None:
            assert held(journal) == {n: message for n, message in written.messages.items() if n not in gone}
            assert (journal.first, journal.last) == (1, max(written.messages))
            assert written.log(which).stat().st_size == left
            assert journal.incarnation == written.incarnation
            if left < size:
                assert [problem for problem in journal.problems if f"{kept + 1} to {following - 1}" in problem]
            else:
                assert journal.problems == []

        written.recovered(check)


@given(batches, st.integers(0, 20), parts, st.sampled_from([b"", b"garbage", bytes(100)]), st.booleans())
def test_an_old_index_is_made_anew(
    of: list[list[bytes]], which: int, part: float, octets: bytes, missing: bool
) -> None:
    with directory() as path:
        written = Written(path, [*of, [b"x" * 700], [b"y"]])
        which %= len(written.firsts) - 1
        if missing:
            written.index(which).unlink()
        else:
            cut(written.index(which), part)
            extend(written.index(which), octets)

        def check(journal: Journal) -> None:
            assert consistent(journal) == written.messages
            assert journal.incarnation == written.incarnation
            assert journal.problems == []

        written.recovered(check)


# Cases


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path, [[b"a" * 10, b"b" * 20], [b"c" * 30, b"d" * 40], [b"e" * 50]])


def test_a_missing_index_is_rebuilt(written: Written) -> None:
    written.index().unlink()
    written.expect(5, is_same=True)


def test_a_rebuilt_batch_is_as_long_as_the_policy_says(written: Written) -> None:
    written.index().unlink()
    with Store(written.path, policy=Policy(batch=90)) as store:
        assert [entry.count for entry in store.open("a").entries()] == [2, 1, 1, 1]


def test_an_index_that_lacks_an_entry_is_rebuilt(written: Written) -> None:
    index = written.index().read_bytes()
    written.index().write_bytes(index[:64] + index[128:])
    written.expect(5, is_same=True)


def test_entries_made_anew_have_the_time_of_the_log(written: Written) -> None:
    written.index().unlink()
    os.utime(written.log(), ns=(0, 7_000_000_123_456_789))
    with Store(written.path) as store:
        assert {entry.time for entry in store.open("a").entries()} == {7_000_000_123_456}


def test_but_never_an_earlier_one_than_those_before(written: Written) -> None:
    os.truncate(written.index(), 2 * 64)
    os.utime(written.log(), ns=(0, 5))
    with Store(written.path) as store:
        assert [entry.time for entry in store.open("a").entries()] == [1_000_000, 2_000_000, 2_000_000]


def test_a_torn_batch_keeps_its_time(written: Written) -> None:
    os.truncate(written.log(), written.entries[1].offset + len(written.messages[3]) + 5)
    with Store(written.path) as store:
        journal = store.open("a")
        assert [(entry.count, entry.time) for entry in journal.entries()] == [(2, 1_000_000), (1, 2_000_000)]
        assert [problem for problem in journal.problems if "sequences 4 to 5 are lost" in problem]


def test_a_sequence_that_does_not_follow_ends_the_log(written: Written) -> None:
    extend(written.log(), block(6, [b"f"]).octets + block(8, [b"h"]).octets)
    with Store(written.path) as store:
        assert list(consistent(store.open("a"))) == [1, 2, 3, 4, 5, 6]
        assert written.log().stat().st_size == store.open("a").octets


def test_a_message_of_several_megabytes_is_walked(tmp_path: Path) -> None:
    written = Written(tmp_path, [[b"a"]])
    extend(written.log(), block(2, [b"x" * 5_000_000, b"y"]).octets)
    with Store(tmp_path) as store:
        journal = store.open("a")
        assert [entry.count for entry in journal.entries()] == [1, 1, 1]
        assert held(journal)[3] == pieces(block(3, [b"y"]))[0]


def test_a_killed_process_leaves_its_mark_and_has_lost_nothing(written: Written) -> None:
    assert (written.path / "a" / MARK).read_text().split()[0] == boot_id()
    written.expect(5, is_same=True)
    assert not (written.path / "a" / MARK).exists()


@pytest.mark.parametrize("mark", [ANOTHER_BOOT, FAILED, "", "\udcff"])
def test_a_mark_of_another_boot_makes_it_another_stream(mark: str, written: Written) -> None:
    (written.path / "a" / MARK).write_bytes(mark.encode(errors="surrogateescape"))
    written.expect(5, is_same=False)


def test_damage_in_the_middle_is_looked_for_after_a_crash_of_the_system_only(written: Written) -> None:
    """A killed process can damage only the tail, and to read all of every stream would take long."""
    octets = bytearray(written.log().read_bytes())
    octets[20] ^= 1
    written.log().write_bytes(octets)
    with Store(written.path) as store:
        assert store.open("a").last == 5
    written.mark(ANOTHER_BOOT)
    with Store(written.path) as store:
        journal = store.open("a")
        assert journal.last == 0
        assert [problem for problem in journal.problems if "the batch of 1 to 2 did not have its CRC" in problem]


def test_the_last_batch_is_always_checked(written: Written) -> None:
    octets = bytearray(written.log().read_bytes())
    octets[-1] ^= 1
    written.log().write_bytes(octets)
    written.expect(4, is_same=False)


def test_no_segment_at_all_is_another_stream(written: Written) -> None:
    written.log().unlink()
    written.index().unlink()
    written.expect(0, is_same=False)


def rotated(path: Path) -> Written:
    """Two segments: the first has more than 700 bytes."""
    return Written(path, [[b"a" * 700], [b"b"]])


def test_an_interrupted_removal_is_finished(tmp_path: Path) -> None:
    written = rotated(tmp_path)
    written.log(0).unlink()
    with Store(tmp_path) as store:
        journal = store.open("a")
        assert (journal.first, journal.last) == (2, 2)
        assert journal.incarnation == written.incarnation
    assert not written.index(0).exists()


def test_a_last_log_that_is_missing_is_told_and_makes_it_another_stream(tmp_path: Path) -> None:
    written = rotated(tmp_path)
    written.log().unlink()
    with Store(tmp_path) as store:
        journal = store.open("a")
        assert journal.last == 1
        assert journal.incarnation != written.incarnation
        assert "the log of the messages from 2 on is missing: they are lost" in journal.problems[0]


def test_a_rotation_that_was_interrupted_before_its_index_was_made(tmp_path: Path) -> None:
    written = rotated(tmp_path)
    (tmp_path / "a" / f"{Name(3)}.log").touch()
    with Store(tmp_path) as store:
        journal = store.open("a")
        assert list(consistent(journal)) == [1, 2]
        assert (journal.last, journal.incarnation) == (2, written.incarnation)
        append(journal, b"c")
        assert [segment.first for segment in journal.segments] == [1, 2, 3]


def test_a_crash_that_left_the_new_segment_empty_and_the_one_before_torn(tmp_path: Path) -> None:
    written = rotated(tmp_path)
    os.truncate(written.log(1), 0)
    os.truncate(written.index(1), 0)
    os.truncate(written.log(0), 300)
    written.mark(ANOTHER_BOOT)
    with Store(tmp_path) as store:
        journal = store.open("a")
        assert (journal.first, journal.last) == (1, 0)
        assert journal.incarnation != written.incarnation
    assert not written.log(1).exists()


def test_sequences_are_not_used_again_when_an_empty_segment_goes(tmp_path: Path) -> None:
    """Only the name of the segment shows that there were messages before it."""
    written = rotated(tmp_path)
    os.truncate(written.log(1), 0)
    os.truncate(written.index(1), 0)
    os.truncate(written.log(0), 300)
    os.truncate(written.index(0), 0)
    written.expect(0, is_same=False)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"format": 3}', b'{"format": 3, "name": 3}', None])
def test_a_damaged_identity_is_made_anew(content: bytes | None, written: Written) -> None:
    path = written.path / "a" / STREAM
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with Store(written.path) as store:
        assert store.names() == ["a"]
        assert [problem for problem in store.problems if STREAM in problem]
        assert [problem for problem in store.open("a").problems if "created again" in problem]
        assert store.names() == ["a"]
        assert store.problems == []
    written.expect(5, is_same=False)


def test_but_not_if_the_name_is_lost_with_it(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        journal = store.open("x" * 250)
        journal.close()
        (journal.directory / STREAM).write_bytes(b"")
        assert store.names() == []
        with pytest.raises(JournalError, match=r"stream.json is damaged .*: restore it, or move its directory away"):
            store.open("x" * 250)


def test_a_segment_without_counts_gets_no_file_of_counts(tmp_path: Path) -> None:
    """Old segments have none, and an empty one would look damaged."""
    written = Written(tmp_path, [[b"x" * 100] * 5] * 6)
    for first in written.firsts[:-2]:
        (tmp_path / "a" / f"{Name(first)}.cnt").unlink()
    with Store(tmp_path, policy=POLICY) as store:
        assert all(isinstance(one, Checked) for one in verify(store.open("a")))
    assert len(list((tmp_path / "a").glob("*.cnt"))) == 2


def test_a_newer_format_is_not_touched(written: Written) -> None:
    path = written.path / "a" / STREAM
    path.write_text('{"format": 4, "name": "a"}')
    with Store(written.path) as store:
        assert store.names() == []
        assert "unknown format 4" in store.problems[0]
        with pytest.raises(JournalError, match="unknown format 4; this release reads 3: use the release that wrote it"):
            store.open("a")
    assert path.read_text() == '{"format": 4, "name": "a"}'


def test_a_repair_that_finds_no_room_says_so_and_loses_nothing(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.index().unlink()

    def pwrite(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with Store(written.path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", pwrite)
            with pytest.raises(JournalError, match=r"stream 'a' cannot be opened: .*No space left on device"):
                store.open("a")
        assert list(consistent(store.open("a"))) == [1, 2, 3, 4, 5]


@settings(max_examples=cases(10))
@given(st.lists(st.tuples(batches, parts, st.booleans()), min_size=2, max_size=4))
def test_crash_after_crash(lives: list[tuple[list[list[bytes]], float, bool]]) -> None:
    """Killed at some byte, opened, written to, killed again: no sequence is skipped, or used for two messages."""
    with directory() as path:
        known: dict[int, bytes] = {}
        incarnations = set()
        for of, part, spoil in lives:
            store = Store(path, policy=POLICY)
            journal = store.open("a")
            incarnations.add(journal.incarnation)
            assert consistent(journal) == known
            for batch in of:
                made = block(journal.last + 1, batch)
                known |= dict(enumerate(pieces(made), made.first))
                journal.append(made, 1.0)
            segment = journal.segments[-1]
            kill(store)
            if spoil:
                # An unfinished batch: some bytes of the log, none of the index.
                made = block(max(known) + 1, [b"on", b"its", b"way"])
                size = int(len(made.octets) * part)
                extend(Path(segment.path + ".log"), made.octets[:size])
                whole = [message for message, stop in zip(pieces(made), made.starts[1:], strict=True) if stop <= size]
                known |= dict(enumerate(whole, made.first))
        with Store(path, policy=POLICY) as store:
            assert consistent(store.open("a")) == known
            incarnations.add(store.open("a").incarnation)
        assert len(incarnations) == 1
