"""ZeroMQ messaging in Python: peers that find each other, streams that are replayed, commands to fleets, and Spark.

Most programs need `PeerSocket` (51/P2P), `Node` (36/ZRE) and `Client` (ZEPS), which block and have asyncio versions in
their packages; and `Broker`, which keeps streams. The packages are layers, and imports point down only: `zambezi.wire`
turns bytes into values and back, `zambezi.zmtp` speaks ZeroMQ's wire protocol, one package per protocol is built on
these two, and `zambezi.server` runs them together.
"""

from zambezi.errors import ZambeziError
from zambezi.lazy import exports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zambezi.p2p import PeerSocket
    from zambezi.zeps import Broker, Client
    from zambezi.zre import Node

__version__ = "0.2.0"

__all__ = ["Broker", "Client", "Node", "PeerSocket", "ZambeziError", "__version__"]

__getattr__ = exports(__name__, {"Broker": "zeps", "Client": "zeps", "Node": "zre", "PeerSocket": "p2p"})
