"""A program that sends beacons from the address in its argument, and prints how nodes greet it."""

import contextlib
import json
import socket
import sys
import threading
from ipaddress import IPv4Interface
from uuid import uuid4

from tests.zre.member import tell
from zambezi.zmtp import ZmtpError
from zambezi.zmtp.sync import Router
from zambezi.zre.beacon import Beacon
from zambezi.zre.discovery import PORT
from zambezi.zre.messages import Hello


def main() -> None:
    address = sys.argv[1]
    broadcast = str(IPv4Interface(f"{address}/24").network.broadcast_address)
    over = threading.Event()
    with Router() as mailbox, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        port = int(mailbox.bind(f"tcp://{address}:*").rpartition(":")[2])
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.bind((address, 0))
        beacon = Beacon(uuid4(), port).encode()

        def shine() -> None:
            while not over.wait(0.2):
                sender.sendto(beacon, (broadcast, PORT))

        def listen() -> None:
            with contextlib.suppress(ZmtpError):
                while True:
                    identity, *frames = mailbox.recv()
                    hello = Hello.decode(frames)
                    tell("Hello", peer=identity[1:].hex(), endpoint=hello.endpoint)

        threads = [threading.Thread(target=target) for target in (shine, listen)]
        for thread in threads:
            thread.start()
        for line in sys.stdin:
            raise ValueError(json.loads(line))
        over.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
