"""The entries of an index as a numpy table, for files and for objects of a store."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from zambezi.zeps.journal.entry import SIZE
from zambezi.zeps.layout import ENTRY_FIELDS

# An index entry as a numpy type.
ENTRY: Final = np.dtype([(name, f">u{size}") for name, size in ENTRY_FIELDS.items()])

assert ENTRY.itemsize == SIZE


def are_consecutive(entries: npt.NDArray[np.void]) -> bool:
    """Return whether each entry covers sequences, and begins where the one before it ends."""
    sequences = entries["count"] + entries["gap"]
    ends = np.stack([entries["first"] + sequences, entries["offset"] + entries["length"]])
    begins = np.stack([entries["first"], entries["offset"]])
    return bool((ends[:, :-1] == begins[:, 1:]).all() and sequences.all())
