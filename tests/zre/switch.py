"""A switch that loses, delays and shuffles packets: many kernels have no netem. Its ports are the arguments.

Every packet that comes in by one port goes out by all others, as with a hub. `PACKET_VNET_HDR` puts in front of each
packet the work that the kernel has left for the network card (checksums, segments), so that it can be done later.
"""

import contextlib
import heapq
import itertools
import json
import random
import select
import socket
import sys
import time

from tests.zre.member import tell

SOL_PACKET, PACKET_IGNORE_OUTGOING, PACKET_VNET_HDR = 263, 23, 15
ALL_PROTOCOLS = 3
LOSS, DELAY, SHUFFLED, HURRY = 0.03, 0.02, 0.2, 0.015


def open_port(name: str) -> socket.socket:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    port.bind((name, ALL_PROTOCOLS))
    port.setblocking(False)
    return port


def main() -> None:
    ports = [open_port(name) for name in sys.argv[1:]]
    chance = random.Random(1)
    numbers = itertools.count()
    queue: list[tuple[float, int, socket.socket, bytes]] = []
    lost = overtaken = last = 0
    tell("Started")
    while True:
        wait = max(0.0, queue[0][0] - time.monotonic()) if queue else None
        ready, _, _ = select.select([*ports, sys.stdin], [], [], wait)
        for port in ports:
            if port not in ready:
                continue
            packet = port.recv(1 << 17)
            for other in ports:
                if other is port:
                    continue
                if chance.random() < LOSS:
                    lost += 1
                    continue
                due = time.monotonic() + DELAY - (HURRY if chance.random() < SHUFFLED else 0)
                heapq.heappush(queue, (due, next(numbers), other, packet))
        while queue and queue[0][0] <= time.monotonic():
            _, number, other, packet = heapq.heappop(queue)
            overtaken += number < last
            last = number
            with contextlib.suppress(OSError):  # a real switch drops it too if its queue is full
                other.send(packet)
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if not line:
                return
            assert json.loads(line) == ["count"]
            tell("Counts", lost=lost, overtaken=overtaken)


if __name__ == "__main__":
    main()
