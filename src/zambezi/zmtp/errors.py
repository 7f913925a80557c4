"""The errors that users of the sockets meet. What a *peer* does wrong is never raised at the user: it is an event."""

from __future__ import annotations

from zambezi.errors import ZambeziError


class ZmtpError(ZambeziError):
    """The base of everything that this package raises."""


class ProtocolError(ZmtpError):
    """The peer broke ZMTP. Raised and caught inside the engine; it surfaces as an event with the reason."""


class EndpointError(ZmtpError):
    """An endpoint that cannot be understood, bound or resolved."""


class SocketClosed(ZmtpError):
    """The socket is closed, or was closed while the call was waiting."""


class QueueFull(ZmtpError):
    """The message was not queued: the peer's queue is at its bound and the socket's policy is `error`."""


class TimedOut(ZmtpError, TimeoutError):
    """The call did not finish within its timeout. Nothing was sent, and nothing that arrived is lost."""


class Unroutable(ZmtpError):
    """No peer has the identity that the message is addressed to, and the ROUTER is set to report it."""


class MessageError(ZmtpError, ValueError):
    """A message that this socket cannot send as it was given."""
