"""ZeroMQ messaging in Python, with its own ZMTP engine.

The packages are layers, and imports point down only: `zambezi.wire` turns octets into values and back,
`zambezi.zmtp` speaks ZeroMQ's wire protocol, and one package per protocol stands on the two.
"""

from zambezi.errors import ZambeziError
from zambezi.p2p import PeerSocket
from zambezi.zre import Node

__version__ = "0.1.0"

__all__ = ["Node", "PeerSocket", "ZambeziError", "__version__"]
