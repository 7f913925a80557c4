"""zambezi.zmtp.keyring: a directory of keys that changes, and files that cannot be used."""

import errno
import os
from pathlib import Path

import pytest
import zmq.auth

from zambezi.zmtp import keyring as module
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.keys import KeyPair, read_key_file, read_public, write_pair

ALICE, BOB, CAROL = (KeyPair.generate(seed=bytes([number]) * 32) for number in (1, 2, 3))
# Long after any file of these tests was written, so that the keyring trusts fingerprints.
LATER = 1 << 62


def allow(directory: Path, name: str, pair: KeyPair) -> Path:
    path = directory / name
    path.write_text(f'public-key = "{pair.public_z85}"\n')
    return path


def test_every_public_key_is_allowed_by_its_name(tmp_path: Path) -> None:
    allow(tmp_path, "alice.pub", ALICE)
    allow(tmp_path, "bob.key", BOB)
    (tmp_path / "carol.pub").write_text(CAROL.public_z85)
    ring = Keyring(tmp_path)
    assert ring.keys == {ALICE.public: ("alice",), BOB.public: ("bob",), CAROL.public: ("carol",)}
    assert ring.name_of(BOB.public) == "bob"
    assert ring.problems == {}
    assert len(ring) == 3
    assert ALICE.public in ring


def test_a_certificate_of_pyzmq_is_allowed(tmp_path: Path) -> None:
    public_path, _ = map(Path, zmq.auth.create_certificates(tmp_path, "bob"))
    ring = Keyring(tmp_path)
    assert ring.name_of(read_public(public_path)) == "bob"
    assert ring.problems == {}


def test_an_unknown_key_has_no_name(tmp_path: Path) -> None:
    allow(tmp_path, "alice.pub", ALICE)
    ring = Keyring(tmp_path)
    assert ring.name_of(BOB.public) is None
    assert ring.name_of(b"") is None
    assert BOB.public not in ring


def test_scan_returns_whether_keys_changed(tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    assert ring.scan() is False
    assert ring.generation == 0
    path = allow(tmp_path, "alice.pub", ALICE)
    assert ring.name_of(ALICE.public) is None
    assert ring.scan() is True
    assert ring.name_of(ALICE.public) == "alice"
    assert ring.generation == 1
    assert ring.scan() is False
    path.unlink()
    assert ring.scan() is True
    assert ring.keys == {}
    assert ring.generation == 2


def test_a_rename_is_a_change(tmp_path: Path) -> None:
    path = allow(tmp_path, "alice.pub", ALICE)
    ring = Keyring(tmp_path)
    path.rename(tmp_path / "alicia.pub")
    assert ring.scan() is True
    assert ring.name_of(ALICE.public) == "alicia"


def test_a_touched_file_is_no_change(tmp_path: Path) -> None:
    path = allow(tmp_path, "alice.pub", ALICE)
    ring = Keyring(tmp_path)
    os.utime(path, ns=(1, 1))
    assert ring.scan() is False


def test_an_earlier_view_stays_as_it_was(tmp_path: Path) -> None:
    path = allow(tmp_path, "alice.pub", ALICE)
    ring = Keyring(tmp_path)
    before = ring.keys
    path.unlink()
    ring.scan()
    assert before == {ALICE.public: ("alice",)}
    with pytest.raises(TypeError):
        before[BOB.public] = ("bob",)  # type: ignore[index]


def test_a_key_in_two_files_is_allowed_until_both_are_gone(tmp_path: Path) -> None:
    first = allow(tmp_path, "alice.pub", ALICE)
    second = allow(tmp_path, "laptop.pub", ALICE)
    ring = Keyring(tmp_path)
    assert ring.keys == {ALICE.public: ("alice", "laptop")}
    first.unlink()
    assert ring.scan() is True
    assert ring.name_of(ALICE.public) == "laptop"
    second.unlink()
    assert ring.scan() is True
    assert ring.name_of(ALICE.public) is None


def test_two_files_of_one_name_allow_two_keys(tmp_path: Path) -> None:
    allow(tmp_path, "alice.pub", ALICE)
    allow(tmp_path, "alice.key", BOB)
    ring = Keyring(tmp_path)
    assert ring.keys == {ALICE.public: ("alice",), BOB.public: ("alice",)}


def test_a_bad_file_is_reported_and_leaves_the_others_alone(tmp_path: Path) -> None:
    allow(tmp_path, "alice.pub", ALICE)
    bad = tmp_path / "bob.pub"
    bad.write_text("public-key = oops")
    ring = Keyring(tmp_path)
    assert ring.keys == {ALICE.public: ("alice",)}
    assert list(ring.problems) == [bad]
    assert str(bad) in ring.problems[bad]
    allow(tmp_path, "bob.pub", BOB)
    assert ring.scan() is True
    assert ring.problems == {}


def test_a_half_written_file_fails_closed_until_it_is_whole(tmp_path: Path) -> None:
    path = allow(tmp_path, "alice.pub", ALICE)
    whole = path.read_text()
    ring = Keyring(tmp_path)
    path.write_text(whole[:30])
    assert ring.scan() is True
    assert ring.keys == {}
    assert path in ring.problems
    path.write_text(whole)
    assert ring.scan() is True
    assert ring.name_of(ALICE.public) == "alice"
    assert ring.problems == {}


def test_a_secret_does_not_allow_its_public_key(tmp_path: Path) -> None:
    public_path, secret_path = write_pair(tmp_path, "alice", ALICE)
    ring = Keyring(tmp_path)
    assert ring.keys == {ALICE.public: ("alice",)}
    assert list(ring.problems) == [secret_path]
    assert "holds a secret key" in ring.problems[secret_path]
    public_path.unlink()
    ring.scan()
    assert ring.keys == {}


def test_other_files_are_ignored(tmp_path: Path) -> None:
    for name in (
        "README",
        "alice.pub~",
        "alice.pub.bak",
        ".alice.pub",
        ".alice.key.0123",
        "alice.key_secret",
    ):
        allow(tmp_path, name, ALICE)
    ring = Keyring(tmp_path)
    assert ring.keys == {}
    assert ring.problems == {}


def test_a_missing_directory_is_an_empty_ring(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    ring = Keyring(directory)
    assert ring.keys == {}
    assert "No such file or directory" in ring.problems[directory]
    directory.mkdir()
    allow(directory, "alice.pub", ALICE)
    assert ring.scan() is True
    assert ring.problems == {}
    (directory / "alice.pub").unlink()
    directory.rmdir()
    assert ring.scan() is True
    assert ring.keys == {}
    assert directory in ring.problems


def test_symlinks_are_followed(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    directory.mkdir()
    first = allow(tmp_path, "first", ALICE)
    link = directory / "alice.pub"
    link.symlink_to(first)
    ring = Keyring(directory)
    assert ring.name_of(ALICE.public) == "alice"
    first.unlink()
    assert ring.scan() is True
    assert ring.keys == {}
    assert link in ring.problems


def test_other_files_than_regular_ones_are_reported_and_never_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pub")
    (tmp_path / "folder.pub").mkdir()
    ring = Keyring(tmp_path)
    assert ring.keys == {}
    assert sorted(path.name for path in ring.problems) == ["folder.pub", "pipe.pub"]


@pytest.mark.parametrize("name", [b"evil\nname.pub", b"\xff.pub"])
def test_a_name_that_cannot_be_printed_is_reported(tmp_path: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text(ALICE.public_z85)
    ring = Keyring(tmp_path)
    assert ring.keys == {}
    (problem,) = ring.problems.values()
    assert problem.isascii()
    assert problem.isprintable()


# Files that are read again


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    real = read_key_file

    def counting(path: Path) -> object:
        names.append(path.name)
        return real(path)

    monkeypatch.setattr(module, "read_key_file", counting)
    return names


def test_an_unchanged_file_is_read_once(tmp_path: Path, reads: list[str]) -> None:
    allow(tmp_path, "alice.pub", ALICE)
    (tmp_path / "bad.pub").write_text("bad")
    ring = Keyring(tmp_path)
    ring.scan(LATER)
    reads.clear()
    assert ring.scan(LATER) is False
    assert reads == []
    assert list(ring.problems) == [tmp_path / "bad.pub"]
    allow(tmp_path, "bob.pub", BOB)
    assert ring.scan(LATER) is True
    assert reads == ["bob.pub"]


def test_a_file_that_was_just_written_is_read_again(tmp_path: Path, reads: list[str]) -> None:
    """A second write of the same size in the same tick of the clock does not change the fingerprint."""
    path = allow(tmp_path, "alice.pub", ALICE)
    ring = Keyring(tmp_path)
    reads.clear()
    ring.scan(path.stat().st_mtime_ns)
    assert reads == ["alice.pub"]


def test_a_change_that_keeps_time_and_size_is_noticed(tmp_path: Path) -> None:
    path = allow(tmp_path, "alice.pub", ALICE)
    os.utime(path, ns=(1, 1))
    ring = Keyring(tmp_path)
    ring.scan(LATER)
    replacement = allow(tmp_path, "draft", BOB)
    os.utime(replacement, ns=(1, 1))
    replacement.replace(path)
    assert ring.scan(LATER) is True
    assert ring.keys == {BOB.public: ("alice",)}


# A busy machine


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_machine_without_descriptors_keeps_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    allow(tmp_path, "alice.pub", ALICE)
    ring = Keyring(tmp_path)

    def exhausted(path: Path) -> object:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", exhausted)
        assert ring.scan() is False
    assert ring.name_of(ALICE.public) == "alice"
    assert os.strerror(code) in ring.problems[tmp_path]
    ring.scan()
    assert ring.problems == {}


def test_a_directory_that_may_not_be_listed_allows_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(tmp_path, "alice.pub", ALICE)
    ring = Keyring(tmp_path)

    def forbidden(path: Path) -> object:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "scandir", forbidden)
    assert ring.scan() is True
    assert ring.keys == {}


def test_a_file_that_could_not_be_opened_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = allow(tmp_path, "alice.pub", ALICE)

    def exhausted(path: Path, flags: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", exhausted)
        ring = Keyring(tmp_path)
        ring.scan(LATER)
    assert "Too many open files" in ring.problems[path]
    assert ring.scan(LATER) is True
    assert ring.name_of(ALICE.public) == "alice"


def test_repr(tmp_path: Path) -> None:
    allow(tmp_path, "alice.pub", ALICE)
    assert repr(Keyring(tmp_path)) == f"Keyring({str(tmp_path)!r}, keys=1, problems=0)"
