"""The errors that the sockets raise. A mistake of a *peer* never raises an error in the program: it is an event."""

from __future__ import annotations

from zambezi.errors import ZambeziError


class ZmtpError(ZambeziError):
    """Base class of the errors of this package."""


class ProtocolError(ZmtpError):
    """The peer violated ZMTP. The engine raises and catches this error, and reports an event with the reason."""


class EndpointError(ZmtpError):
    """The endpoint cannot be parsed, bound or resolved."""


class SocketClosed(ZmtpError):
    """The socket is closed, or was closed while the call was waiting."""


class QueueFull(ZmtpError):
    """The message was not queued: the peer's queue is full, and the socket has `on_full="error"`."""


class TimedOut(ZmtpError, TimeoutError):
    """The call did not finish within its timeout. Nothing was sent, and nothing that arrived is lost."""


class Unroutable(ZmtpError):
    """No peer has the identity that the message is addressed to, and the ROUTER has `unroutable="error"`."""


class MessageError(ZmtpError, ValueError):
    """The message does not have a form that this socket can send."""
