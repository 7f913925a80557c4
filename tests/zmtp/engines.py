"""Two engines that are connected to each other, and bytes that are cut into reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from hypothesis import strategies as st

from zambezi.zmtp.authenticator import Authenticator
from zambezi.zmtp.connection import Connection, Event, Ready
from zambezi.zmtp.frames import Batch, CommandFrame, Oversize
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.security import CurveClient, CurveServer, Null, PlainClient, PlainServer, Security

SERVER_KEYS, CLIENT_KEYS, OTHER_KEYS = (KeyPair.generate(seed=bytes([number]) * 32) for number in (1, 2, 3))
PASSWORD = "open sesame"
MECHANISMS = ("NULL", "PLAIN", "CURVE")

Kind = TypeVar("Kind")

# Sizes of reads, which are used in turn, again and again: any way to cut a stream.
READS = st.lists(st.integers(1, 30) | st.integers(1, 100_000), min_size=1, max_size=20)


def cut(octets: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """Yield the bytes in reads of the given sizes, which are used in turn."""
    pos = turn = 0
    while pos < len(octets):
        size = sizes[turn % len(sizes)]
        yield octets[pos : pos + size]
        pos += size
        turn += 1


def halves(at: int) -> Callable[[bytes], Iterable[bytes]]:
    """Return a function that cuts bytes in two at `at`."""
    return lambda octets: [piece for piece in (octets[:at], octets[at:]) if piece]


def securities(mechanism: str) -> tuple[Security, Security]:
    """Return the securities of a client and a server that accept each other."""
    if mechanism == "NULL":
        return Null(), Null()
    if mechanism == "PLAIN":
        return PlainClient("ali", PASSWORD), PlainServer()
    return CurveClient(SERVER_KEYS.public, CLIENT_KEYS), CurveServer(SERVER_KEYS)


def guard(mechanism: str) -> Authenticator:
    """Return an authenticator that allows the client of `securities`."""
    if mechanism == "PLAIN":
        return Authenticator(users={"ali": PASSWORD})
    if mechanism == "CURVE":
        return Authenticator(keys={"ali": CLIENT_KEYS.public})
    return Authenticator()


def pair(mechanism: str, client_type: str = "DEALER", server_type: str = "ROUTER") -> tuple[Connection, Connection]:
    client, server = securities(mechanism)
    return (
        Connection(client_type, 0.0, identity=b"me", security=client),
        Connection(server_type, 0.0, security=server, authenticator=guard(mechanism)),
    )


def exchange(
    one: Connection,
    other: Connection,
    now: float = 0.0,
    into_reads: Callable[[bytes], Iterable[bytes]] = lambda octets: [octets],
) -> tuple[list[Event], list[Event]]:
    """Pass the output of each engine to the other, until both have none; return the events of `one` and of `other`."""
    events: tuple[list[Event], list[Event]] = ([], [])
    while one.output or other.output:
        for sender, receiver, seen in ((one, other, events[1]), (other, one, events[0])):
            output = sender.take_output()
            for read in into_reads(output) if output else ():
                seen.extend(receiver.receive(read, now))
    return events


def connected(
    mechanism: str = "NULL", client_type: str = "DEALER", server_type: str = "ROUTER"
) -> tuple[Connection, Connection]:
    """Return two engines after their handshake."""
    client, server = pair(mechanism, client_type, server_type)
    for events in exchange(client, server):
        assert [type(event) for event in events] == [Ready]
    return client, server


def flat(items: Iterable[Event | CommandFrame | Oversize]) -> list[object]:
    """Return messages, each as the list of its frames, and commands, however they were grouped into batches."""
    things: list[object] = []
    for item in items:
        if isinstance(item, Batch):
            things += item
        else:
            things.append(item)
    return things


def only(events: Sequence[Event], kind: type[Kind]) -> Kind:
    """Return the only event, which must be of this type."""
    assert len(events) == 1, events
    event = events[0]
    assert isinstance(event, kind), event
    return event
