"""36/ZRE: nodes that find each other on a network, form groups and send messages; and ZRE/LOG, the log of a mesh.

`Node` blocks, and any thread can use it; `zambezi.zre.asyncio.Node` is its twin for asyncio. The events, the errors and
the network in memory for simulations are for both.
"""

from __future__ import annotations

from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.errors import NodeStopped, NoSuchPeer, ZreError
from zambezi.zre.events import Enter, Evasive, Event, Exit, Join, Leader, Leave, Shout, Silent, Whisper
from zambezi.zre.peer_info import PeerInfo
from zambezi.zre.sync import Node

__all__ = [
    "Enter",
    "Evasive",
    "Event",
    "Exit",
    "Join",
    "Leader",
    "Leave",
    "MemoryNetwork",
    "NoSuchPeer",
    "Node",
    "NodeStopped",
    "PeerInfo",
    "Shout",
    "Silent",
    "Whisper",
    "ZreError",
]
