"""The server of the demo: a process that can be killed and started again."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

CONFIGURATION = """
[server]
data = "{directory}/data"
level = "warning"

[zeps]
endpoint = "tcp://127.0.0.1:{zeps}"

[mcollective]
endpoint = "tcp://127.0.0.1:{mcollective}"
journal = ["*"]

[zre]
name = "server"
interface = "lo"
beacon_port = {beacons}

[console]
port = {console}
results = "{directory}/results"
"""
PATIENCE = 30.0


class ServerProcess:
    """A process that runs `zambezi serve`. A new process gets the same ports."""

    def __init__(self, directory: Path) -> None:
        (directory / "results").mkdir()
        self._path = directory / "zambezi.toml"
        self.beacon_port = free_port(socket.SOCK_DGRAM)
        self.console = ""
        self.endpoints: dict[str, str] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._path.write_text(
            CONFIGURATION.format(
                directory=directory,
                zeps=free_port(),
                mcollective=free_port(),
                console=free_port(),
                beacons=self.beacon_port,
            )
        )

    async def start(self) -> None:
        """Start the process, and wait until all its services run."""
        command = [sys.executable, "-m", "zambezi", "serve", "--config", str(self._path)]
        self._process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while "console" not in self.endpoints or not self.console:
                line = (await self._process.stdout.readline()).decode().split()
                if len(line) != 3:
                    raise RuntimeError("the server did not start")
                self.endpoints[line[0]] = line[2]
                self.console = self.endpoints.get("console", "")

    async def kill(self) -> None:
        """End the process with SIGKILL, like a crash."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()
        self.endpoints.pop("console")

    async def stop(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            await process.wait()


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
