"""CURVE key pairs, and the files that hold them.

A pair lives in two files. `NAME.pub` may be given to anybody; `NAME.key` holds the secret as well and stays
where it was made:

    # Zambezi CURVE secret key of alice: keep it private.
    public-key = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
    secret-key = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"

Two more forms are read, so that nobody has to make new keys: a line that is nothing but a public key, and the
certificates of CZMQ and pyzmq (ZPL: the same two settings, indented under a `curve` section).

The secret is never in a repr, in an error or in a log, and its file is private from its first octet on: it is
created with its final permissions, never made private afterwards.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nacl.bindings import crypto_box_keypair, crypto_box_seed_keypair, crypto_scalarmult_base, sodium_memcmp

from zambezi.errors import ZambeziError
from zambezi.zmtp import z85

KEY_OCTETS: Final = 32
KEY_CHARACTERS: Final = 40
PUBLIC_SUFFIX: Final = ".pub"
SECRET_SUFFIX: Final = ".key"  # noqa: S105 - the name of a file, not a password

_PUBLIC_MODE: Final = 0o644
_SECRET_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
# A certificate with a page of metadata has a few kilobytes; whatever is larger was not meant to be a key.
_FILE_LIMIT: Final = 65_536

_KEY_SETTING: Final = re.compile(r"(?P<name>public-key|secret-key)\s*=\s*(?P<value>.*)")
_QUOTED: Final = re.compile(r"""(?P<quote>["'])(?P<text>[^"']*)(?P=quote)\s*(#.*)?""")
_SETTING: Final = re.compile(r"[A-Za-z0-9_./-]+\s*=.*")
_SECTION: Final = re.compile(r"[A-Za-z0-9_./-]+\s*(#.*)?")


class InvalidKeyError(ZambeziError):
    """Octets that cannot be a CURVE key."""


class KeyFileError(ZambeziError):
    """A key file that cannot be read or written: which one, where in it, and what to do."""

    def __init__(self, path: Path, problem: str, line: int | None = None) -> None:
        place = f"{path}" if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {problem}")
        self.path = path
        self.problem = problem
        self.line = line


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyPair:
    """A CURVE key pair: 32 octets of public key, 32 of secret key.

    >>> pair = KeyPair.generate(seed=bytes(32))
    >>> pair == KeyPair.from_secret(pair.secret)
    True
    """

    public: bytes
    secret: bytes

    def __post_init__(self) -> None:
        for name, key in (("public", self.public), ("secret", self.secret)):
            if len(key) != KEY_OCTETS:
                raise InvalidKeyError(f"a {name} key has {KEY_OCTETS} octets, not {len(key)}")

    @classmethod
    def generate(cls, seed: bytes | None = None) -> KeyPair:
        """A new pair from the system's random source, or always the same one from a `seed` of 32 octets."""
        if seed is None:
            public, secret = crypto_box_keypair()
        elif len(seed) != KEY_OCTETS:
            raise InvalidKeyError(f"a seed has {KEY_OCTETS} octets, not {len(seed)}")
        else:
            public, secret = crypto_box_seed_keypair(seed)
        return cls(public, secret)

    @classmethod
    def from_secret(cls, secret: bytes) -> KeyPair:
        """The pair that `secret` belongs to."""
        if len(secret) != KEY_OCTETS:
            raise InvalidKeyError(f"a secret key has {KEY_OCTETS} octets, not {len(secret)}")
        return cls(crypto_scalarmult_base(secret), secret)

    @property
    def public_z85(self) -> str:
        """The public key as 40 characters of Z85."""
        return z85.encode(self.public)

    @property
    def secret_z85(self) -> str:
        """The secret key as 40 characters of Z85: for whoever must store it, never for display."""
        return z85.encode(self.secret)

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public_z85!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyPair):
            return NotImplemented
        # `&` and not `and`: the time taken must not tell which half differs.
        return sodium_memcmp(self.public, other.public) & sodium_memcmp(self.secret, other.secret)

    def __hash__(self) -> int:
        return hash(self.public)


@dataclass(frozen=True, slots=True)
class KeyFile:
    """What a key file holds: a public key, and the secret one if it is a secret file."""

    public: bytes
    secret: bytes | None = field(default=None, repr=False)


def write_pair(
    directory: str | os.PathLike[str], name: str, pair: KeyPair, *, force: bool = False
) -> tuple[Path, Path]:
    """Write `NAME.pub` and `NAME.key` into `directory`, and return their paths in this order.

    A missing directory is created, private. Existing files are an error unless `force`, and then each is
    replaced as a whole: a reader finds the old file or the new one, never a part.
    """
    place = Path(directory)
    _check_name(name, place)
    public_path = place / f"{name}{PUBLIC_SUFFIX}"
    secret_path = place / f"{name}{SECRET_SUFFIX}"
    if not force:
        for path in (secret_path, public_path):
            if path.exists() or path.is_symlink():
                raise _already_exists(path)
    public_line = f'public-key = "{pair.public_z85}"\n'
    public_text = f"# Zambezi CURVE public key of {name}: give it to whoever should know {name}.\n{public_line}"
    secret_line = f'secret-key = "{pair.secret_z85}"\n'
    secret_text = f"# Zambezi CURVE secret key of {name}: keep it private.\n{public_line}{secret_line}"
    try:
        place.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        # The secret file goes first: it holds both keys, so a crash in between loses nothing.
        if force:
            _replace(secret_path, secret_text, _SECRET_MODE)
            _replace(public_path, public_text, _PUBLIC_MODE)
        else:
            _create(secret_path, secret_text, _SECRET_MODE)
            try:
                _create(public_path, public_text, _PUBLIC_MODE)
            except BaseException:
                secret_path.unlink()
                raise
        _sync_directory(place)
    except OSError as error:
        raise KeyFileError(place, f"cannot write the keys of {name}: {error.strerror or error}") from error
    return public_path, secret_path


def read_public(path: str | os.PathLike[str]) -> bytes:
    """The public key in the file at `path`, whichever kind of key file it is."""
    return read_key_file(path).public


def read_pair(path: str | os.PathLike[str], *, allow_exposed: bool = False) -> KeyPair:
    """The key pair in the secret file at `path`.

    A file that its group or others can use is refused, as ssh does, unless `allow_exposed`.
    """
    place = Path(path)
    text, mode = _read(place)
    if mode & _OTHERS and not allow_exposed:
        raise KeyFileError(
            place,
            f"the secret key is exposed to other users (mode {stat.S_IMODE(mode):04o}); "
            f"make it private: chmod 600 {place}",
        )
    content = _parse(place, text)
    if content.secret is None:
        raise KeyFileError(
            place,
            f"holds no secret key; give the file that does (NAME{SECRET_SUFFIX}, pyzmq: NAME.key_secret)",
        )
    pair = KeyPair.from_secret(content.secret)
    if pair.public != content.public:
        raise KeyFileError(place, "the public key does not belong to the secret key; make a new pair")
    return pair


def read_key_file(path: str | os.PathLike[str]) -> KeyFile:
    """What the key file at `path` holds; no permissions are asked for."""
    place = Path(path)
    text, _ = _read(place)
    return _parse(place, text)


def _check_name(name: str, directory: Path) -> None:
    if not name:
        problem = "it is empty"
    elif name.startswith("."):
        problem = "it begins with a dot"
    elif "/" in name or "\\" in name:
        problem = "it has a slash; give the directory by itself"
    elif not name.isprintable():
        problem = "it has characters that cannot be printed"
    else:
        return
    raise KeyFileError(directory, f"{name!a} cannot name a key: {problem}")


def _already_exists(path: Path) -> KeyFileError:
    return KeyFileError(path, "exists already; choose another name, or force it to be replaced: the old key is lost")


def _create(path: Path, text: str, mode: int) -> None:
    try:
        # O_EXCL also refuses a symlink, so nobody can have the secret written elsewhere.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise _already_exists(path) from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            # The umask can only have taken permissions away.
            os.fchmod(descriptor, mode)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        path.unlink()
        raise


def _replace(path: Path, text: str, mode: int) -> None:
    # The leading dot keeps a keyring from reading it, the random part keeps two writers apart.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    _create(draft, text, mode)
    try:
        draft.replace(path)
    except BaseException:
        draft.unlink()
        raise


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> tuple[str, int]:
    """The text and the mode of a regular file: from one descriptor, so that they are of the same file."""
    try:
        # O_NONBLOCK: opening a named pipe that nobody writes to must not wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise KeyFileError(path, "is not a regular file")
            octets = file.read(_FILE_LIMIT + 1)
    except OSError as error:
        raise KeyFileError(path, f"cannot be read: {error.strerror or error}") from error
    if len(octets) > _FILE_LIMIT:
        raise KeyFileError(path, f"is larger than {_FILE_LIMIT} octets, so it is no key file")
    try:
        return octets.decode("utf-8-sig"), mode
    except UnicodeDecodeError:
        # The decoding error would carry the content of the file.
        raise KeyFileError(path, "is not UTF-8 text, so it is no key file") from None


def _parse(path: Path, text: str) -> KeyFile:
    found: dict[str, bytes] = {}
    section = ""
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.strip()
        # A key cannot begin with "#", although it is a Z85 character: such a group is above 2^32 - 1.
        if not content or content.startswith("#"):
            continue
        indented = line[0] in " \t"
        if not indented:
            section = ""
        elif section not in ("", "curve"):
            continue
        # Before the bare key: "=" and "-" are Z85 characters too.
        setting = _KEY_SETTING.fullmatch(content)
        if setting:
            name = setting["name"]
            key = _key(path, number, name, _unquote(path, number, name, setting["value"]))
        elif len(content) == KEY_CHARACTERS and not indented and all(one in z85.ALPHABET for one in content):
            name = "public-key"
            key = _key(path, number, name, content)
        elif _SETTING.fullmatch(content):
            continue
        elif _SECTION.fullmatch(content):
            section = content.partition("#")[0].strip()
            continue
        else:
            raise KeyFileError(
                path, "is neither a setting, nor a comment, nor a public key of 40 Z85 characters", number
            )
        if name in found:
            raise KeyFileError(path, f"a second {name}; keep one key in a file", number)
        found[name] = key
    if "public-key" not in found:
        raise KeyFileError(path, 'holds no public key; it needs a line public-key = "<40 Z85 characters>"')
    return KeyFile(found["public-key"], found.get("secret-key"))


def _unquote(path: Path, line: int, name: str, value: str) -> str:
    quoted = _QUOTED.fullmatch(value)
    if quoted is None:
        raise KeyFileError(path, f'{name} is not in quotes, or is cut off; write {name} = "<40 characters>"', line)
    return quoted["text"]


def _key(path: Path, line: int, name: str, text: str) -> bytes:
    if len(text) != KEY_CHARACTERS:
        raise KeyFileError(path, f"{name} has {len(text)} characters, not {KEY_CHARACTERS}; copy it again", line)
    try:
        key = z85.decode(text)
    except z85.Z85Error as error:
        raise KeyFileError(path, f"{name} is not Z85 ({error.problem}, character {error.position + 1})", line) from None
    if not any(key):
        # CZMQ writes zeros where a key was never set.
        raise KeyFileError(path, f"{name} is all zeros, which is no key; make a new pair", line)
    return key
