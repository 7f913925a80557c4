"""A program that forwards TCP connections. Its arguments are the endpoint to listen at and the one to connect to, as
`address:port`. It reads the commands `pass`, `swallow` (read, and forward nothing) and `reset` (all connections).
"""

import asyncio
import contextlib
import json
import socket
import struct
import sys

from tests.zre.member import tell

AT_ONCE = struct.pack("ii", 1, 0)  # to linger for no time: a reset


class Relay:
    def __init__(self, address: str, port: int) -> None:
        self._target = address, port
        self._open: set[asyncio.StreamWriter] = set()
        self.swallowing = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            there, onward = await asyncio.open_connection(*self._target)
        except OSError:
            self._drop(writer)
            return
        self._open.add(onward)
        await asyncio.gather(self._pass_on(reader, onward, writer), self._pass_on(there, writer, onward))

    async def _pass_on(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while octets := await source.read(1 << 16):
                if self.swallowing:
                    tell("Swallowed", count=len(octets))
                else:
                    target.write(octets)
                    await target.drain()
        self._drop(target)
        self._drop(back)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        if writer in self._open:
            self._open.discard(writer)
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            writer.transport.abort()

    async def reset(self) -> int:
        writers = list(self._open)
        for writer in writers:
            self._drop(writer)
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
        return len(writers) // 2


async def main() -> None:
    (address, port), target = (argument.split(":") for argument in sys.argv[1:])
    relay = Relay(target[0], int(target[1]))
    lines = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    async with await asyncio.start_server(relay.serve, address, int(port)) as server:
        tell("Started")
        async for line in lines:
            (command,) = json.loads(line)
            if command == "reset":
                tell("Reset", count=await relay.reset())
            else:
                relay.swallowing = command == "swallow"
                tell("Obeyed", command=command)
        server.close()
        await relay.reset()
    transport.close()


if __name__ == "__main__":
    asyncio.run(main())
