"""CURVE key pairs, and the files that hold them.

A pair is kept in two files. `NAME.pub` is public; `NAME.key` also contains the secret key, and must stay where it was
created:

    # Zambezi CURVE secret key of alice: keep it private.
    public-key = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
    secret-key = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"

Two more forms can be read, so that users can keep their keys: a line with nothing but a public key, and the
certificates of CZMQ and pyzmq (ZPL: the same two settings, indented under a `curve` section).

The secret key never appears in a repr, an error or a log. Its file is private from the first byte on: it is created
with its final permissions.
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
# A certificate with a page of metadata has a few kilobytes; a larger file is not a key file.
_FILE_LIMIT: Final = 65_536

_KEY_SETTING: Final = re.compile(r"(?P<name>public-key|secret-key)\s*=\s*(?P<value>.*)")
_QUOTED: Final = re.compile(r"""(?P<quote>["'])(?P<text>[^"']*)(?P=quote)\s*(#.*)?""")
_SETTING: Final = re.compile(r"[A-Za-z0-9_./-]+\s*=.*")
_SECTION: Final = re.compile(r"[A-Za-z0-9_./-]+\s*(#.*)?")


class InvalidKeyError(ZambeziError):
    """These bytes cannot be a CURVE key."""


class KeyFileError(ZambeziError):
    """A key file cannot be read or written. The text says which file, the line in it, and what to do."""

    def __init__(self, path: Path, problem: str, line: int | None = None) -> None:
        place = f"{path}" if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {problem}")
        self.path = path
        self.problem = problem
        self.line = line


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyPair:
    """A CURVE key pair: a public key and a secret key of 32 bytes each.

    >>> pair = KeyPair.generate(seed=bytes(32))
    >>> pair == KeyPair.from_secret(pair.secret)
    True
    """

    public: bytes
    secret: bytes

    def __post_init__(self) -> None:
        for name, key in (("public", self.public), ("secret", self.secret)):
            if len(key) != KEY_OCTETS:
                raise InvalidKeyError(f"a {name} key has {KEY_OCTETS} bytes, not {len(key)}")

    @classmethod
    def generate(cls, seed: bytes | None = None) -> KeyPair:
        """Return a new random pair, or, for a `seed` of 32 bytes, always the same pair."""
        if seed is None:
            public, secret = crypto_box_keypair()
        elif len(seed) != KEY_OCTETS:
            raise InvalidKeyError(f"a seed has {KEY_OCTETS} bytes, not {len(seed)}")
        else:
            public, secret = crypto_box_seed_keypair(seed)
        return cls(public, secret)

    @classmethod
    def from_secret(cls, secret: bytes) -> KeyPair:
        """Return the pair that has this secret key."""
        if len(secret) != KEY_OCTETS:
            raise InvalidKeyError(f"a secret key has {KEY_OCTETS} bytes, not {len(secret)}")
        return cls(crypto_scalarmult_base(secret), secret)

    @property
    def public_z85(self) -> str:
        """The public key as 40 characters of Z85."""
        return z85.encode(self.public)

    @property
    def secret_z85(self) -> str:
        """The secret key as 40 characters of Z85. Store it; never display it."""
        return z85.encode(self.secret)

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public_z85!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyPair):
            return NotImplemented
        # `&` and not `and`: the time that it takes must not reveal which half differs.
        return sodium_memcmp(self.public, other.public) & sodium_memcmp(self.secret, other.secret)

    def __hash__(self) -> int:
        return hash(self.public)


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The content of a key file: a public key and, if it is a secret file, the secret key."""

    public: bytes
    secret: bytes | None = field(default=None, repr=False)


def write_pair(
    directory: str | os.PathLike[str], name: str, pair: KeyPair, *, force: bool = False
) -> tuple[Path, Path]:
    """Write `NAME.pub` and `NAME.key` into `directory`, and return their paths in this order.

    A missing directory is created with private permissions. If a file exists, raise `KeyFileError`; with `force`,
    replace it atomically: a reader finds the old file or the new one, never a part.
    """
    place = Path(directory)
    if problem := name_problem(name):
        raise KeyFileError(place, f"{name!a} cannot name a key: {problem}")
    public_path = place / f"{name}{PUBLIC_SUFFIX}"
    secret_path = place / f"{name}{SECRET_SUFFIX}"
    if not force:
        for path in (secret_path, public_path):
            if path.exists() or path.is_symlink():
                raise _already_exists(path)
    public_line = f'public-key = "{pair.public_z85}"\n'
    public_text = f"# Zambezi CURVE public key of {name}: give it to the peers of {name}.\n{public_line}"
    secret_line = f'secret-key = "{pair.secret_z85}"\n'
    secret_text = f"# Zambezi CURVE secret key of {name}: keep it private.\n{public_line}{secret_line}"
    try:
        place.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        # The secret file is written first: it contains both keys, so a crash in between loses nothing.
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
    """Return the public key in a public file. A secret file is refused: it must stay with its owner."""
    place = Path(path)
    content = read_key_file(place)
    if content.secret is not None:
        public = place.with_suffix(PUBLIC_SUFFIX)
        use = f"{public}" if public.exists() else f"the public file (NAME{PUBLIC_SUFFIX}, pyzmq: NAME.key)"
        raise KeyFileError(place, f"holds a secret key, which must stay with its owner; use {use}")
    return content.public


def read_pair(path: str | os.PathLike[str], *, allow_exposed: bool = False) -> KeyPair:
    """Return the key pair in a secret file.

    A file that other users can read or write is refused, as in ssh, unless `allow_exposed` is True.
    """
    place = Path(path)
    text, mode = _read(place)
    content = _parse(place, text)
    if content.secret is None:
        secret = place.with_suffix(SECRET_SUFFIX)
        use = f"{secret}" if secret.exists() else f"the file that does (NAME{SECRET_SUFFIX}, pyzmq: NAME.key_secret)"
        raise KeyFileError(place, f"holds no secret key; use {use}")
    if mode & _OTHERS and not allow_exposed:
        raise KeyFileError(
            place,
            f"the secret key is exposed to other users (mode {stat.S_IMODE(mode):04o}); "
            f"make it private: chmod 600 {place}",
        )
    pair = KeyPair.from_secret(content.secret)
    if pair.public != content.public:
        raise KeyFileError(place, "the public key does not belong to the secret key; make a new pair")
    return pair


def read_key_file(path: str | os.PathLike[str]) -> KeyFile:
    """Return the content of a key file, whatever its permissions."""
    place = Path(path)
    text, _ = _read(place)
    return _parse(place, text)


def name_problem(name: str) -> str:
    """Return why a text cannot name a key; empty if it can."""
    if not name:
        return "it is empty"
    if name.startswith("."):
        return "it begins with a dot"
    if "/" in name or "\\" in name:
        return "it contains a slash; name the directory apart from it"
    return "" if name.isprintable() else "it contains characters that cannot be printed"


def _already_exists(path: Path) -> KeyFileError:
    return KeyFileError(path, "exists already; choose another name, or replace it by force, which destroys the old key")


def _create(path: Path, text: str, mode: int) -> None:
    try:
        # O_EXCL also refuses a symlink, so an attacker cannot redirect the secret to another place.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise _already_exists(path) from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            # The umask may have removed permissions.
            os.fchmod(descriptor, mode)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        path.unlink()
        raise


def _replace(path: Path, text: str, mode: int) -> None:
    # Because of the leading dot no keyring reads the draft; the random part keeps two writers apart.
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
    """Return the text and the mode of a regular file, both from one descriptor, so that they are of the same file."""
    try:
        # O_NONBLOCK: to open a named pipe that has no writer must not wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise KeyFileError(path, "is not a regular file")
            octets = file.read(_FILE_LIMIT + 1)
    except OSError as error:
        meant = path.with_name(path.name + SECRET_SUFFIX)
        hint = f"; there is {meant}" if isinstance(error, FileNotFoundError) and meant.exists() else ""
        raise KeyFileError(path, f"cannot be read: {error.strerror or error}{hint}") from error
    if len(octets) > _FILE_LIMIT:
        raise KeyFileError(path, f"is larger than {_FILE_LIMIT} bytes, so it is not a key file")
    try:
        return octets.decode("utf-8-sig"), mode
    except UnicodeDecodeError:
        # `from None`: the decoding error would show the content of the file.
        raise KeyFileError(path, "is not UTF-8 text, so it is not a key file") from None


def _parse(path: Path, text: str) -> KeyFile:
    found: dict[str, bytes] = {}
    section = ""
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.strip()
        # A key cannot begin with "#", although that is a Z85 character: such a group would be above 2^32 - 1.
        if not content or content.startswith("#"):
            continue
        indented = line[0] in " \t"
        if not indented:
            section = ""
        elif section not in ("", "curve"):
            continue
        # This must come before the bare key: "=" and "-" are Z85 characters, too.
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
            raise KeyFileError(path, f"has a second {name}; keep one key in each file", number)
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
        # CZMQ writes zeros if a key was never set.
        raise KeyFileError(path, f"{name} is all zeros, which is not a key; make a new pair", line)
    return key
