"""51/P2P: the PEER socket, for programs that talk to each other as equals.

`PeerSocket` blocks, and any thread can use it; `zambezi.p2p.asyncio.PeerSocket` is its twin for asyncio. Both are
ZeroMQ's PEER on the wire, and can talk to the PEER sockets of libzmq.
"""

from __future__ import annotations

from zambezi.p2p.errors import NoSuchPeer
from zambezi.p2p.events import PeerConnected, PeerDisconnected
from zambezi.p2p.sync import PeerSocket

__all__ = ["NoSuchPeer", "PeerConnected", "PeerDisconnected", "PeerSocket"]
