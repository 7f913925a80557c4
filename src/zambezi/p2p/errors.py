"""The errors of PEER sockets; those of all sockets are in `zambezi.zmtp.errors`."""

from __future__ import annotations

from zambezi.zmtp.errors import ZmtpError


class NoSuchPeer(ZmtpError):
    """There is no queue with this routing id: it was never given, or its peer disconnected, or was disconnected."""
