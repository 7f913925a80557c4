"""Journals: segments, index files, identities and marks that another program wrote, or a disk damaged."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.campaign.target import Target
from tests.zeps.journal.streams import append, directory
from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal import Journal, Policy, Store
from zambezi.zeps.journal.entry import SIZE, unpack
from zambezi.zeps.journal.extract import messages
from zambezi.zeps.journal.identity import MARK
from zambezi.zeps.journal.verify import verify
from zambezi.zeps.layout import ENTRY_FIELDS

POLICY = Policy(segment=600, batch=200, sync="never")
NAME = "prices"


def read_all(journal: Journal) -> list[int]:
    """Read a journal in every way; return the sequences of its messages. Each way may refuse it."""
    for _ in verify(journal):
        pass
    with suppress(JournalError):
        list(messages(journal, 0, 1 << 62))
    sequences: list[int] = []
    reader = journal.reader(journal.first - 1)
    while (span := reader.peek(1 << 16)) is not None:
        made = span.read()
        sequences += range(made.first, made.last + 1)
        reader.skip(span)
    return sequences


class Journals(Target):
    """A stream with one or two changed files: read without repair, then repaired, appended to and read again.

    `crafted` entries of an index have valid checks: an attacker can compute a CRC.
    """

    name = "journals"
    share = 2
    errors = (JournalError,)

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        self._held = directory()
        self._path = Path(self._held.__enter__())
        with Store(self._path / "seed", policy=POLICY) as store:
            journal = store.open(NAME)
            for number in range(12):
                append(journal, *[b"%d" % number * 8] * (1 + number % 4), now=1.0 + number)
        (self._path / "seed" / NAME / MARK).write_text("another boot\n")
        self._seed = {path.name: path.read_bytes() for path in (self._path / "seed" / NAME).iterdir()}
        self._names = sorted(self._seed)
        self._data = self._path / "data"

    def feed(self) -> None:
        below = self.mutator.below
        changed = dict(self._seed)
        if below(2):
            del changed[MARK]
        for _ in range(1 + below(2)):
            name = self._names[below(len(self._names))]
            if name not in changed:
                continue
            if name.endswith(".idx") and below(2):
                changed[name] = self._craft(changed[name])
            elif below(20) == 0:
                del changed[name]
            else:
                changed[name] = self.mutator.mutate(
                    changed[name], changed.get(self._names[below(len(self._names))], b"")
                )
        self.history = [
            part for name in changed if changed[name] != self._seed.get(name) for part in (name.encode(), changed[name])
        ]
        self._write(changed)
        self._read()
        with Store(self._data, policy=POLICY) as store:
            self._repair(store)

    def _craft(self, octets: bytes) -> bytes:
        """Change a field of an entry, and give it a valid check."""
        below = self.mutator.below
        at = below(max(1, len(octets) // SIZE)) * SIZE
        entry = unpack(octets, at)
        if entry is None:
            return octets
        field = entry._fields[below(len(entry._fields))]
        size = ENTRY_FIELDS.get(field, 4)
        value = int.from_bytes(self.mutator.mutate(getattr(entry, field).to_bytes(size))[:size])
        return octets[:at] + entry._replace(**{field: value}).pack() + octets[at + SIZE :]

    def _write(self, files: dict[str, bytes]) -> None:
        stream = self._data / NAME
        shutil.rmtree(self._data, ignore_errors=True)
        stream.mkdir(parents=True)
        for name, octets in files.items():
            (stream / name).write_bytes(octets)

    def _read(self) -> None:
        with Store(self._data, write=False) as store:
            store.names()
            try:
                read_all(store.open(NAME))
            except JournalError:
                return

    def _repair(self, store: Store) -> None:
        store.names()
        journal = store.open(NAME)
        last = journal.last
        append(journal, b"new", now=50.0)
        if journal.last != last + 1:
            raise AssertionError(f"after {last} came {journal.last}")
        sequences = read_all(journal)
        if sequences != sorted(set(sequences)):
            raise AssertionError("a sequence occurs twice, or out of order")

    def check(self) -> None:
        self._write({name: octets for name, octets in self._seed.items() if name != MARK})
        with Store(self._data, policy=POLICY) as store:
            assert read_all(store.open(NAME)) == list(range(1, 31))

    def renew(self) -> None:
        shutil.rmtree(self._data, ignore_errors=True)

    def close(self) -> None:
        self._held.__exit__(None, None, None)


TARGETS = [Journals]
