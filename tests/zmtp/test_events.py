"""zambezi.zmtp.events: events in words, for logs."""

from __future__ import annotations

import pytest

from zambezi.zmtp.events import (
    Connected,
    Disconnected,
    HandshakeFailed,
    KeyRefused,
    Listening,
    Refused,
    Retrying,
    SocketEvent,
)

AT = "tcp://127.0.0.1:5671"


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Listening(AT), f"{AT} accepts connections"),
        (Connected(AT, "10.0.0.7", b"", "ann", "DEALER"), f"{AT}: a DEALER at 10.0.0.7 is connected, user ann"),
        (Connected(AT, "", b"", "", "SUB"), f"{AT}: a SUB is connected"),
        (Disconnected(AT, "10.0.0.7", b"", "gone"), f"{AT}: the connection of a peer at 10.0.0.7 ended: gone"),
        (Retrying(AT, 3, 0.25, "refused"), f"{AT}: attempt 3 to connect follows in 0.2 s: refused"),
        (HandshakeFailed(AT, "10.0.0.7", "slow"), f"{AT}: the handshake with a peer at 10.0.0.7 failed: slow"),
        (KeyRefused(AT, "10.0.0.7", "new", "k"), f"{AT}: the handshake with a peer at 10.0.0.7 failed: new"),
        (Refused(AT, "", "full"), f"{AT}: a connection was refused: full"),
    ],
)
def test_events_are_told_in_words(event: SocketEvent, text: str) -> None:
    assert str(event) == text
