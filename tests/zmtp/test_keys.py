"""zambezi.zmtp.keys: key pairs, and the files that hold them."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
import zmq.auth

from zambezi.errors import ZambeziError
from zambezi.zmtp import z85
from zambezi.zmtp.keys import (
    InvalidKeyError,
    KeyFileError,
    KeyPair,
    read_key_file,
    read_pair,
    read_public,
    write_pair,
)

PAIR = KeyPair.generate(seed=bytes(range(32)))
OTHER = KeyPair.generate(seed=bytes(range(1, 33)))


@pytest.fixture
def open_umask() -> Iterator[None]:
    """The most permissive umask: only this module can make a file private."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def secret_file(directory: Path, text: str, mode: int = 0o600) -> Path:
    path = directory / "some.key"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


# The pair


def test_generated_pairs_differ() -> None:
    first, second = KeyPair.generate(), KeyPair.generate()
    assert first != second
    assert len(first.public) == len(first.secret) == 32


def test_a_seed_gives_the_same_pair() -> None:
    assert KeyPair.generate(seed=bytes(range(32))) == PAIR
    assert PAIR != OTHER


def test_a_pair_is_computed_from_its_secret_key() -> None:
    assert KeyPair.from_secret(PAIR.secret) == PAIR


def test_libzmq_derives_the_same_public_key() -> None:
    assert zmq.curve_public(PAIR.secret_z85.encode()) == PAIR.public_z85.encode()


def test_z85_forms() -> None:
    assert z85.decode(PAIR.public_z85) == PAIR.public
    assert z85.decode(PAIR.secret_z85) == PAIR.secret
    assert len(PAIR.public_z85) == 40


@pytest.mark.parametrize("text", [repr(PAIR), str(PAIR), f"{PAIR}", f"{PAIR!r}", f"{[PAIR]}", "%s" % PAIR])  # noqa: UP031
def test_no_text_of_a_pair_has_the_secret(text: str) -> None:
    assert PAIR.public_z85 in text
    assert PAIR.secret_z85 not in text
    assert PAIR.secret.hex() not in text
    assert repr(PAIR.secret)[2:-1] not in text


def test_pairs_compare_by_both_keys_and_hash_alike() -> None:
    same = KeyPair(bytes(PAIR.public), bytes(PAIR.secret))
    assert same == PAIR
    assert hash(same) == hash(PAIR)
    assert KeyPair(PAIR.public, OTHER.secret) != PAIR
    assert KeyPair(OTHER.public, PAIR.secret) != PAIR
    assert PAIR != "a pair"


@pytest.mark.parametrize("length", [0, 31, 33, 40])
def test_keys_of_a_wrong_length(length: int) -> None:
    wrong = bytes(length)
    with pytest.raises(InvalidKeyError, match=f"public key has 32 bytes, not {length}"):
        KeyPair(wrong, PAIR.secret)
    with pytest.raises(InvalidKeyError, match=f"secret key has 32 bytes, not {length}"):
        KeyPair(PAIR.public, wrong)
    with pytest.raises(InvalidKeyError):
        KeyPair.from_secret(wrong)
    with pytest.raises(InvalidKeyError):
        KeyPair.generate(seed=wrong)


# Writing


def test_written_keys_are_read_back(tmp_path: Path) -> None:
    public_path, secret_path = write_pair(tmp_path, "alice", PAIR)
    assert (public_path, secret_path) == (tmp_path / "alice.pub", tmp_path / "alice.key")
    assert read_public(public_path) == PAIR.public
    assert read_key_file(secret_path).public == PAIR.public
    assert read_pair(secret_path) == PAIR
    assert PAIR.secret_z85 not in public_path.read_text()


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("force", [False, True])
def test_modes(tmp_path: Path, force: bool) -> None:
    directory = tmp_path / "new" / "keys"
    public_path, secret_path = write_pair(directory, "alice", PAIR, force=force)
    assert mode_of(directory) == 0o700
    assert mode_of(public_path) == 0o644
    assert mode_of(secret_path) == 0o600


def test_the_public_file_is_readable_under_a_strict_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        public_path, _ = write_pair(tmp_path, "alice", PAIR)
    finally:
        os.umask(before)
    assert mode_of(public_path) == 0o644


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("force", [False, True])
def test_the_secret_is_private_from_the_moment_its_file_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    created: dict[str, tuple[int, int]] = {}
    real_open = os.open

    def watching_open(path: Path, flags: int, mode: int = 0o777) -> int:
        descriptor = real_open(path, flags, mode)
        if flags & os.O_CREAT:
            created[Path(path).name] = flags, stat.S_IMODE(os.fstat(descriptor).st_mode)
        return descriptor

    monkeypatch.setattr(os, "open", watching_open)
    write_pair(tmp_path, "alice", PAIR, force=force)
    secret_files = {name: how for name, how in created.items() if ".key" in name}
    assert len(secret_files) == 1
    for flags, mode in secret_files.values():
        assert flags & os.O_EXCL
        assert mode == 0o600


@pytest.mark.parametrize("taken", ["alice.key", "alice.pub"])
def test_existing_files_are_kept(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("precious")
    with pytest.raises(KeyFileError, match="exists already") as caught:
        write_pair(tmp_path, "alice", PAIR)
    assert caught.value.path == tmp_path / taken
    assert [path.name for path in tmp_path.iterdir()] == [taken]
    assert (tmp_path / taken).read_text() == "precious"


def test_a_symlink_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / "alice.key").symlink_to(target)
    with pytest.raises(KeyFileError, match="exists already"):
        write_pair(tmp_path, "alice", PAIR)
    write_pair(tmp_path, "alice", PAIR, force=True)
    assert not target.exists()
    assert not (tmp_path / "alice.key").is_symlink()


def test_force_replaces_both_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_pair(tmp_path, "alice", OTHER)
    (tmp_path / "alice.key").chmod(0o666)
    public_path, secret_path = write_pair(tmp_path, "alice", PAIR, force=True)
    assert read_pair(secret_path) == PAIR
    assert read_public(public_path) == PAIR.public
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alice.key", "alice.pub"]


@pytest.mark.parametrize("force", [False, True])
def test_a_failed_write_leaves_no_secret_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeyFileError, match="cannot write the keys of alice: No space left on device"):
        write_pair(tmp_path, "alice", PAIR, force=force)
    assert list(tmp_path.iterdir()) == []


def test_a_pair_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def no_public_file(path: Path, flags: int, mode: int = 0o777) -> int:
        if Path(path).suffix == ".pub":
            raise FileExistsError(17, "File exists")
        return real_open(path, flags, mode)

    monkeypatch.setattr(os, "open", no_public_file)
    with pytest.raises(KeyFileError, match="exists already"):
        write_pair(tmp_path, "alice", PAIR)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("")
    with pytest.raises(KeyFileError, match="cannot write the keys of alice"):
        write_pair(tmp_path / "keys", "alice", PAIR)


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/etc/x", "..\\x", "a\nb", "a\x00b", "\udc80"])
def test_bad_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeyFileError, match="cannot name a key"):
        write_pair(tmp_path / "keys", name, PAIR)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["alice", "sensor 7", "sensor.7", "Δelta", "alice@example.org"])
def test_good_names(tmp_path: Path, name: str) -> None:
    _, secret_path = write_pair(tmp_path, name, PAIR)
    assert read_pair(secret_path) == PAIR


# Reading


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o601, 0o666])
def test_an_exposed_secret_is_refused(tmp_path: Path, mode: int) -> None:
    _, path = write_pair(tmp_path, "alice", PAIR)
    path.chmod(mode)
    with pytest.raises(KeyFileError) as caught:
        read_pair(path)
    assert f"chmod 600 {path}" in str(caught.value)
    assert f"{mode:04o}" in str(caught.value)
    assert read_pair(path, allow_exposed=True) == PAIR


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_private_secret_is_accepted(tmp_path: Path, mode: int) -> None:
    _, path = write_pair(tmp_path, "alice", PAIR)
    path.chmod(mode)
    assert read_pair(path) == PAIR


@pytest.mark.parametrize("metadata", [None, {"email": "bob@example.org", "public-key": "not this one", "note": "#?~"}])
def test_certificates_of_pyzmq(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    public_path, secret_path = map(Path, zmq.auth.create_certificates(tmp_path, "bob", metadata=metadata))
    expected_public, expected_secret = zmq.auth.load_certificate(secret_path) if metadata is None else (None, None)
    secret_path.chmod(0o600)
    pair = read_pair(secret_path)
    assert read_public(public_path) == pair.public
    assert read_key_file(public_path).secret is None
    if expected_public is not None:
        assert (pair.public_z85.encode(), pair.secret_z85.encode()) == (expected_public, expected_secret)


def test_a_certificate_of_czmq(tmp_path: Path) -> None:
    path = tmp_path / "carol.txt"
    path.write_text(
        "#   ****  Generated on 2024-01-01 00:00:00 by CZMQ  ****\n"
        "#   ZeroMQ CURVE Public Certificate\n\n"
        "metadata\n"
        '    name = "Carol"\n'
        '    organization = "Example"\n'
        "curve\n"
        f'    public-key = "{PAIR.public_z85}"\n'
    )
    assert read_public(path) == PAIR.public


@pytest.mark.parametrize("line", ["{key}", "{key}\n", "# a comment\n\n{key}\r\n", "\ufeff{key}\n", "{key}  \n"])
def test_a_bare_public_key(tmp_path: Path, line: str) -> None:
    path = tmp_path / "dave.pub"
    path.write_text(line.format(key=PAIR.public_z85), encoding="utf-8", newline="")
    assert read_public(path) == PAIR.public


@pytest.mark.parametrize(
    "form",
    [
        'public-key="{key}"',
        "public-key = '{key}'",
        '  public-key = "{key}"  # mine',
        'version = 1\npublic-key = "{key}"',
    ],
)
def test_forms_of_a_setting(tmp_path: Path, form: str) -> None:
    path = tmp_path / "dave.pub"
    path.write_text(form.format(key=PAIR.public_z85))
    assert read_public(path) == PAIR.public


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("", "holds no public key", None),
        ("# nothing\n", "holds no public key", None),
        ("metadata\n    public-key = 'x'\n", "holds no public key", None),
        ("what is this?\n", "neither a setting, nor a comment", 1),
        ("\n" + "~" * 40, "neither a setting, nor a comment", 2),
        (f'#\npublic-key = "{PAIR.public_z85[:-1]}"', "public-key has 39 characters, not 40", 2),
        (f'public-key = "{PAIR.public_z85}', "not in quotes, or is cut off", 1),
        (f"public-key = {PAIR.public_z85}", "not in quotes", 1),
        (f"public-key={PAIR.public_z85[:29]}", "not in quotes", 1),
        (f'public-key = "{PAIR.public_z85[:-1]}~"', "not a Z85 character, character 40", 1),
        (f'public-key = "{"#" * 40}"', "more than 2^32 - 1, character 1", 1),
        (f'public-key = "{"0" * 40}"', "all zeros", 1),
        ("%" * 40, "more than 2^32 - 1, character 1", 1),
        (f"{PAIR.public_z85}\n{OTHER.public_z85}", "a second public-key", 2),
        (f'{PAIR.public_z85}\npublic-key = "{PAIR.public_z85}"', "a second public-key", 2),
    ],
)
def test_broken_files(tmp_path: Path, text: str, problem: str, line: int | None) -> None:
    path = tmp_path / "broken.pub"
    path.write_text(text)
    with pytest.raises(KeyFileError) as caught:
        read_public(path)
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.line == line


def test_every_beginning_of_a_file_is_refused(tmp_path: Path) -> None:
    public_path, _ = write_pair(tmp_path, "alice", PAIR)
    whole = public_path.read_text().rstrip("\n")
    for length in range(len(whole)):
        public_path.write_text(whole[:length])
        with pytest.raises(KeyFileError):
            read_public(public_path)


@pytest.mark.parametrize(
    "spoil", [lambda text: text[:-3], lambda text: text[:-2] + "~", lambda text: "#####" + text[5:]]
)
def test_errors_never_quote_a_secret(tmp_path: Path, spoil: object) -> None:
    assert callable(spoil)
    secret = spoil(PAIR.secret_z85)
    path = secret_file(tmp_path, f'public-key = "{PAIR.public_z85}"\nsecret-key = "{secret}"\n')
    with pytest.raises(KeyFileError) as caught:
        read_pair(path)
    assert caught.value.line == 2
    assert caught.value.__cause__ is None
    for start in range(len(secret) - 4):
        assert secret[start : start + 5] not in str(caught.value)


def test_a_pair_needs_its_secret(tmp_path: Path) -> None:
    path = secret_file(tmp_path, PAIR.public_z85)
    with pytest.raises(KeyFileError, match="holds no secret key"):
        read_pair(path)


def test_a_secret_file_is_not_taken_for_a_public_one(tmp_path: Path) -> None:
    public_path, path = write_pair(tmp_path, "alice", PAIR)
    with pytest.raises(KeyFileError) as caught:
        read_public(path)
    assert str(caught.value) == f"{path}: holds a secret key, which must stay with its owner; use {public_path}"
    assert PAIR.secret_z85 not in str(caught.value)
    public_path.unlink()
    with pytest.raises(KeyFileError, match=r"; use the public file \(NAME\.pub, pyzmq: NAME\.key\)"):
        read_public(path)


def test_keys_that_do_not_belong_together(tmp_path: Path) -> None:
    path = secret_file(tmp_path, f'public-key = "{OTHER.public_z85}"\nsecret-key = "{PAIR.secret_z85}"\n')
    with pytest.raises(KeyFileError, match="does not belong to the secret key"):
        read_pair(path)


def test_a_key_file_hides_its_secret(tmp_path: Path) -> None:
    _, path = write_pair(tmp_path, "alice", PAIR)
    content = read_key_file(path)
    assert content.secret == PAIR.secret
    assert repr(PAIR.secret) not in repr(content)


def test_other_files_than_regular_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot be read: No such file or directory"):
        read_public(tmp_path / "missing.pub")
    with pytest.raises(KeyFileError):
        read_public(tmp_path)
    pipe = tmp_path / "pipe.pub"
    os.mkfifo(pipe)
    with pytest.raises(KeyFileError, match="not a regular file"):
        read_public(pipe)


def test_files_that_are_not_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary.pub"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KeyFileError, match="not UTF-8"):
        read_public(path)


def test_large_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.pub"
    path.write_text("#" * 65_537)
    with pytest.raises(KeyFileError, match="larger than 65536 bytes"):
        read_public(path)


def test_errors_belong_to_the_family() -> None:
    assert issubclass(KeyFileError, ZambeziError)
    assert issubclass(InvalidKeyError, ZambeziError)
