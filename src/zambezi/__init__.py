"""ZeroMQ messaging in Python that finds its peers, remembers its streams and feeds Spark.

Here is what most programs need: `PeerSocket` (51/P2P), `Node` (36/ZRE) and `Client` (ZEPS), which block, and have twins
for asyncio in their packages; and `Broker`, which keeps streams. The packages are layers, and imports point down only:
`zambezi.wire` turns octets into values and back, `zambezi.zmtp` speaks ZeroMQ's wire protocol, one package per protocol
stands on the two, and `zambezi.server` puts them together.
"""

from zambezi.errors import ZambeziError
from zambezi.p2p import PeerSocket
from zambezi.zeps import Broker, Client
from zambezi.zre import Node

__version__ = "0.1.0"

__all__ = ["Broker", "Client", "Node", "PeerSocket", "ZambeziError", "__version__"]
