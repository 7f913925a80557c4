"""The outbox of a node: what its shell must do, in order, and the messages to peers with their sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zambezi.wire import Message
from zambezi.zre.dialect import Dialect, Frames
from zambezi.zre.outputs import Output, Send
from zambezi.zre.peer import Peer


class Outbox(list[Output]):
    """The outputs for the shell, in order."""

    def take(self) -> list[Output]:
        """Return all outputs, and forget them."""
        if not self:
            return []
        outputs = list(self)
        self.clear()
        return outputs

    def send(self, peer: Peer, message: Message) -> None:
        """Send a message to a peer."""
        self._send_frames(peer, message.encode())

    def ping(self, peer: Peer) -> None:
        """Send a PING to a peer, and count it until it is answered."""
        peer.pings += 1
        self.send(peer, peer.dialect.ping(0))

    def send_all(self, peers: Iterable[Peer], make: Callable[[Dialect], Message]) -> None:
        """Send the same message to many peers, encoded once for each dialect."""
        encoded: dict[str, Frames] = {}
        for peer in peers:
            frames = encoded.get(peer.dialect.name)
            if frames is None:
                frames = encoded[peer.dialect.name] = make(peer.dialect).encode()
            self._send_frames(peer, frames)

    def _send_frames(self, peer: Peer, frames: Frames) -> None:
        peer.sent = (peer.sent + 1) & 0xFFFF  # SEQ-01
        self.append(Send(peer.key, peer.dialect.numbered(frames, peer.sent)))
