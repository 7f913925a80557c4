"""The errors of PEER sockets; those of all sockets are in `zambezi.zmtp.errors`."""

from __future__ import annotations

from zambezi.zmtp.errors import ZmtpError


class NoSuchPeer(ZmtpError):
    """No peer has this routing id: either the socket never assigned it, or one of the two sides disconnected."""
