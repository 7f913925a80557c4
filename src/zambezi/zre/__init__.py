"""36/ZRE: nodes that find each other on a network, form groups and talk; and ZRE/LOG, by which a mesh is watched.

`Node` blocks, and any thread may use it; `zambezi.zre.asyncio.Node` is its twin for asyncio. Here is also what both
need: events, errors, and a network in memory for simulations.
"""

from __future__ import annotations

from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.errors import NodeStopped, NoSuchPeer, ZreError
from zambezi.zre.events import Enter, Evasive, Event, Exit, Join, Leave, Shout, Silent, Whisper
from zambezi.zre.node import PeerInfo
from zambezi.zre.sync import Node

__all__ = [
    "Enter",
    "Evasive",
    "Event",
    "Exit",
    "Join",
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
