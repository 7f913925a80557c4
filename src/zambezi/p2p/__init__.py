"""51/P2P: the PEER socket, for programs that talk to each other as equals.

`PeerSocket` blocks, and any thread may use it; `zambezi.p2p.asyncio.PeerSocket` is its twin for asyncio. On the wire
both are ZeroMQ's PEER, and talk to libzmq's.
"""

from __future__ import annotations

from zambezi.p2p.errors import NoSuchPeer
from zambezi.p2p.events import PeerConnected, PeerDisconnected
from zambezi.p2p.sync import PeerSocket

__all__ = ["NoSuchPeer", "PeerConnected", "PeerDisconnected", "PeerSocket"]
