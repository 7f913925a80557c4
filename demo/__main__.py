"""A small session between Zambezi's sockets and pyzmq's, told as it happens. Everything stays on loopback."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from pathlib import Path

import zmq

from zambezi.zmtp import (
    Authenticator,
    CurveServer,
    Disconnected,
    HandshakeFailed,
    KeyPair,
    Keyring,
    SocketEvent,
    sync,
    write_pair,
)
from zambezi.zmtp.asyncio import Dealer, Pub, Router, Socket

PATIENCE = 10.0


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


async def in_thread(work: object, *args: object) -> object:
    """Run pyzmq's blocking calls beside our event loop."""
    assert callable(work)
    return await asyncio.get_running_loop().run_in_executor(None, work, *args)


async def until(socket: Socket, kind: type[SocketEvent]) -> SocketEvent:
    """The next event of a kind."""
    while True:
        event = await socket.next_event(PATIENCE)
        if isinstance(event, kind):
            return event


async def request_and_reply(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    title("1. A pyzmq DEALER asks, our ROUTER answers")
    async with Router() as router:
        endpoint = router.bind("tcp://127.0.0.1:*")
        say(f"our ROUTER listens on {endpoint}")

        def ask() -> list[bytes]:
            with context.socket(zmq.DEALER) as dealer:
                dealer.setsockopt(zmq.IDENTITY, b"pyzmq-1")
                dealer.rcvtimeo = int(PATIENCE * 1000)
                dealer.connect(endpoint)
                dealer.send_multipart([b"how long is", b"the Zambezi?"])
                return dealer.recv_multipart()

        asking = asyncio.create_task(in_thread(ask))
        identity, *question = await router.recv(PATIENCE)
        say(f"from {identity.decode()}: {b' '.join(question).decode()}")
        await router.send([identity, b"2,574 km"])
        say(f"pyzmq got {await asking!r}")


async def publish(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    title("2. Our PUB publishes, a pyzmq SUB wants only some of it")
    async with Pub() as publisher:
        endpoint = publisher.bind("tcp://127.0.0.1:*")
        subscribed = threading.Event()

        def subscribe() -> list[bytes]:
            with context.socket(zmq.SUB) as subscriber:
                subscriber.subscribe(b"level.")
                subscriber.rcvtimeo = int(PATIENCE * 1000)
                subscriber.connect(endpoint)
                first = subscriber.recv_multipart()
                subscribed.set()
                return first

        reading = asyncio.create_task(in_thread(subscribe))
        while not subscribed.is_set():
            await publisher.send([b"wind.kariba", b"12 km/h"])
            await publisher.send([b"level.kariba", b"478.4 m"])
            await asyncio.sleep(0.01)
        say(f"of wind.* and level.* it received {await reading!r}, and nothing of wind.*")


async def encrypt(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    title("3. CURVE: only known keys get in, and a removed key is cut at once")
    with tempfile.TemporaryDirectory() as folder:
        server, friend = KeyPair.generate(), KeyPair.generate()
        write_pair(folder, "friend", friend)
        (Path(folder) / "friend.key").unlink()
        ring = Keyring(folder)
        say(f"the key directory allows: {', '.join(name for names in ring.keys.values() for name in names)}")
        async with Router(security=CurveServer(server), authenticator=Authenticator(keys=ring)) as router:
            endpoint = router.bind("tcp://127.0.0.1:*")

            def client(keys: KeyPair) -> zmq.Socket[bytes]:
                dealer = context.socket(zmq.DEALER)
                dealer.linger = 0
                dealer.curve_serverkey = server.public_z85.encode()
                dealer.curve_publickey = keys.public_z85.encode()
                dealer.curve_secretkey = keys.secret_z85.encode()
                dealer.connect(endpoint)
                return dealer

            with client(friend) as known:
                known.send(b"hello, encrypted")
                _, text = await router.recv(PATIENCE)
                say(f"friend says: {text.decode()}")
                with client(KeyPair.generate()) as stranger:
                    stranger.send(b"let me in")
                    failed = await until(router, HandshakeFailed)
                    assert isinstance(failed, HandshakeFailed)
                    say(f"a stranger is refused: {failed.reason}")
                (Path(folder) / "friend.pub").unlink()
                say("friend.pub is removed from the directory ...")
                gone = await until(router, Disconnected)
                assert isinstance(gone, Disconnected)
                say(f"... and the connection is cut: {gone.reason}")


async def in_bulk() -> None:
    title("4. In bulk: 500,000 messages of 100 octets from our DEALER to our ROUTER, in one process")
    count = 500_000
    async with Router() as router, Dealer() as dealer:
        dealer.connect(router.bind("tcp://127.0.0.1:*"))
        await dealer.send(b"begin")
        await router.recv(PATIENCE)

        async def produce() -> None:
            for _ in range(count // 500):
                await dealer.send_batch([b"x" * 100] * 500)

        start = time.perf_counter()
        producing = asyncio.create_task(produce())
        left = count
        while left:
            left -= len(await router.recv_batch(PATIENCE))
        took = time.perf_counter() - start
        await producing
    say(f"{count / took:,.0f} messages per second, both sides together on one core")


def blocking() -> None:
    title("5. The same sockets without an event loop, for scripts")
    with sync.Router() as router, sync.Dealer(identity=b"script") as dealer:
        dealer.connect(router.bind("inproc://demo"))
        dealer.send(b"no await needed")
        say(f"received {router.recv(PATIENCE)!r}")


async def main() -> None:
    print("Zambezi speaks ZMTP 3.1: what follows is real traffic between its sockets and libzmq's, on loopback.")
    say(f"libzmq {zmq.zmq_version()}, pyzmq {zmq.__version__}")
    with zmq.Context() as context:
        await request_and_reply(context)
        await publish(context)
        await encrypt(context)
    await in_bulk()
    blocking()
    print("\nDone. Next: README.md shows the sockets, docs/ has the rest.")


if __name__ == "__main__":
    asyncio.run(main())
