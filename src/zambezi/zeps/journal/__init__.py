"""The journal: streams on disk, in the octets in which they go to subscribers. docs/journal.md tells the format.

`Store` is the data directory, `Journal` one stream in it, `Reader` a place in a stream, `Span` what follows there.
"""

from zambezi.zeps.journal.entry import IndexEntry
from zambezi.zeps.journal.journal import Journal
from zambezi.zeps.journal.policy import Policy
from zambezi.zeps.journal.reader import Reader, Span
from zambezi.zeps.journal.store import Store

__all__ = ["IndexEntry", "Journal", "Policy", "Reader", "Span", "Store"]
