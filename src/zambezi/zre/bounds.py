"""The bounds of what a peer can tell a node. Any host that reaches the mailbox of a mesh without keys is a peer.

A HELLO is small, however large the messages of programs can be: it is refused by its size before it is decoded, and by
its counts before the first group or header is read. Nodes of ours refuse to tell more than they would accept.
"""

from __future__ import annotations

from typing import Final

MESSAGE: Final = 1 << 20  # bytes of a WHISPER or SHOUT by default, see `NodeOptions.max_message`
LEAST_MESSAGE: Final = 1 << 16  # a HELLO must fit
HELLO: Final = 1 << 16  # bytes of a HELLO
HEADERS: Final = 256  # of a peer; services are headers
GROUPS: Final = 1_000  # of a peer
ITEM: Final = 64  # bytes that one group or header costs besides its text
PEER: Final = HELLO + ITEM * (HEADERS + GROUPS)  # bytes of the groups and headers of one peer,
PEERS: Final = 64 << 20  # and of all peers of a node
TUPLES: Final = 10_000  # of zgossip in a table
GOSSIP: Final = 1_000  # entries in one WHISPER
