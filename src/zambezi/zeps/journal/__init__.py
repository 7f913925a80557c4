"""The journal: streams on disk, as the bytes that go to subscribers. docs/journal.md describes the format.

`Store` is the data directory, `Journal` is one stream in it, `Reader` is a position in a stream, and `Span` is a run of
messages after that position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zambezi.lazy import exports

if TYPE_CHECKING:
    from zambezi.zeps.journal.entry import IndexEntry
    from zambezi.zeps.journal.journal import Journal
    from zambezi.zeps.journal.policy import Policy
    from zambezi.zeps.journal.reader import Reader, Span
    from zambezi.zeps.journal.store import Store

__all__ = ["IndexEntry", "Journal", "Policy", "Reader", "Span", "Store"]

# A client needs the entries of the index, and nothing else of this package.
__getattr__ = exports(
    __name__,
    {
        "IndexEntry": "entry",
        "Journal": "journal",
        "Policy": "policy",
        "Reader": "reader",
        "Span": "reader",
        "Store": "store",
    },
)
