"""The queues of a server, with their lengths and bounds: every queue has a bound.

Where every client has its own queue, the report has the longest one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zambezi.server.server import Server


@dataclass(frozen=True, slots=True)
class Queue:
    """The length of a queue, and its bound. Its name is one word: metrics have it as a label.

    `outgoing` is in bytes (messages that wait for one client), and so are `unwritten` (messages of one stream that wait
    for the disk) and `reserve` (messages above the full queues of all clients). The others are counts.
    """

    service: str
    queue: str
    length: int
    bound: int


def queues_of(server: Server) -> list[Queue]:
    """Return all queues of a server."""
    services = {"zeps": server.broker, "mcollective": server.middleware, "zre": server.node}
    return [
        Queue(name, queue, length, bound)
        for name, service in services.items()
        if service is not None
        for queue, length, bound in service.queues
    ]
