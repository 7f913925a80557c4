"""The journal: streams on disk, as the bytes that go to subscribers. docs/journal.md describes the format.

`Store` is the data directory, `Journal` is one stream in it, `Reader` is a position in a stream, and `Span` is a run of
messages after that position.
"""

from zambezi.zeps.journal.entry import IndexEntry
from zambezi.zeps.journal.journal import Journal
from zambezi.zeps.journal.policy import Policy
from zambezi.zeps.journal.reader import Reader, Span
from zambezi.zeps.journal.store import Store

__all__ = ["IndexEntry", "Journal", "Policy", "Reader", "Span", "Store"]
