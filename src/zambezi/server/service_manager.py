"""Messages to the service manager: systemd, or another one that gives `NOTIFY_SOCKET`.

The manager learns when the server is ready, reloads or stops. If it has a watchdog (`WATCHDOG_USEC`), the event loop
reports at twice that rate: a server that hangs is restarted.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress


class ServiceManager:
    """The service manager of the process. Without one, all calls do nothing."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        is_for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._interval = _seconds(environment.get("WATCHDOG_USEC", "")) / 2 if is_for_us else 0.0

    @asynccontextmanager
    async def informed(self) -> AsyncIterator[None]:
        """Say that the server is ready, keep the watchdog quiet, and say at the end that the server stops."""
        self.notify("READY=1")
        watched = asyncio.create_task(self._keep_quiet()) if self._interval else None
        try:
            yield
        finally:
            self.notify("STOPPING=1")
            if watched is not None:
                watched.cancel()

    def begin_reload(self) -> None:
        """Say that the server reads its configuration again."""
        self.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def end_reload(self) -> None:
        """Say that the configuration was read."""
        self.notify("READY=1")

    def notify(self, text: str) -> None:
        """Send a message. A manager that cannot be reached does not disturb the server."""
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            sender.sendto(text.encode(), self._address)

    async def _keep_quiet(self) -> None:
        while True:
            self.notify("WATCHDOG=1")
            await asyncio.sleep(self._interval)


def _seconds(microseconds: str) -> float:
    return int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0
