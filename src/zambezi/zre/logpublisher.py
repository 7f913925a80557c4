"""The PUB socket by which a node reports to log services. (LOG-02)

A PUB forgets what nobody subscribes to, and a service that was just found has not subscribed yet. What is reported in
that moment, the most interesting one, is kept for it: some hundreds of logs, until its subscription comes.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Final

from zambezi.zmtp.core import Options
from zambezi.zmtp.patterns import Pub
from zambezi.zmtp.pipe import Pipe
from zambezi.zmtp.reactor import Reactor

BACKLOG: Final = 500


class LogPublisher(Pub):
    """A PUB with a memory for services that are not there yet."""

    def __init__(self, reactor: Reactor, options: Options, chance: random.Random | None = None) -> None:
        super().__init__(reactor, options, chance)
        self._backlogs: dict[Pipe, deque[bytes]] = {}

    def connect(self, text: str) -> Pipe:
        pipe = super().connect(text)
        self._backlogs[pipe] = deque(maxlen=BACKLOG)
        return pipe

    def detach(self, pipe: Pipe) -> None:
        super().detach(pipe)
        if pipe in self.connectors:
            self._backlogs[pipe] = deque(maxlen=BACKLOG)

    def leave(self, pipe: Pipe, linger: float | None) -> None:
        self._backlogs.pop(pipe, None)
        super().leave(pipe, linger)

    def subscribed_to(self, pipe: Pipe, prefix: bytes, cancel: bool) -> None:
        super().subscribed_to(pipe, prefix, cancel)
        if not cancel:
            for log in self._backlogs.pop(pipe, ()):
                pipe.push(log)

    def publish(self, log: bytes) -> None:
        """Report to all services: now, or as soon as they are there."""
        for backlog in self._backlogs.values():
            if len(backlog) == BACKLOG:
                self.counters.dropped += 1
            backlog.append(log)
        self.try_send(log)
