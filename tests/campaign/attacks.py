"""Attacks on a running server by raw sockets, and the longest wait of a lawful client meanwhile.

Each attack is a function of the server. It returns what fell, in words, besides the figures: an empty text if nothing.
The attackers come from another address than the lawful client, so that quotas by address do not hit it.
"""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from bench.report import table
from tests.campaign.lawful import LawfulClient
from tests.campaign.raw import (
    PING_OK,
    attach,
    close_all,
    command,
    connect,
    plug,
    publish,
    read_until,
    send,
    subscribe,
)
from tests.campaign.server import Lawful, Server, Usage, Watch
from tests.zmtp.stranger import hello
from zambezi.zeps.messages import AttachOk, Invalid, Ping
from zambezi.zmtp.frames import encode

BAR: Final = 0.25  # seconds: the longest wait that an attack may cause
SETTLED: Final = 1.0  # seconds after an attack, in which its late effects are still measured
ATTACH_OK: Final = AttachOk().encode()[0]
INVALID: Final = Invalid("").encode()[0][:3]
PING: Final = encode(Ping().encode())
OUT_OF_FILES: Final = 1024


# 1. Patterns


def _patterns(server: Server, stream: str, count: int) -> str:
    sock = connect(server.ports["zeps"], attach(stream))
    send(sock, b"".join(subscribe(f"regex:{number}" + r"([\pL\pN]{9}){4}") for number in range(count)))
    send(sock, PING)
    read_until(sock, PING_OK)
    sock.close()
    return ""


def patterns_of_streams(server: Server) -> str:
    return _patterns(server, "$streams", 1000)


def patterns_of_a_stream(server: Server) -> str:
    return _patterns(server, "attacked", 180)


# 2. Prefixes


def prefixes(server: Server) -> str:
    sockets = []
    for number in range(400):
        sock = connect(server.ports["zeps"], attach("attacked"))
        send(sock, b"".join(subscribe(f"prefix:{number}-{each}") for each in range(100)))
        sockets.append(sock)
    for sock in sockets[-4:]:
        send(sock, PING)
        read_until(sock, PING_OK, seconds=60.0)
    close_all(sockets)
    return ""


# 3. Streams


def streams(server: Server) -> str:
    """Create streams, far more than the process has descriptors for."""
    for first in range(0, 700, 20):
        sockets: list[socket.socket] = []
        with contextlib.suppress(OSError):
            while len(sockets) < 20:
                sockets += [connect(server.ports["zeps"], attach(f"taken-{first + len(sockets)}"))]
        answers = [read_until(sock, b"\xaa\xa5", seconds=2.0) for sock in sockets[:1]]
        close_all(sockets)
        if not any(answers):
            break  # nobody is served any more
    return _newcomers(server, 8)


def _newcomers(server: Server, count: int) -> str:
    """Return what is wrong if new clients are not served, at once and on new streams."""
    clients = []
    try:
        for number in range(count):
            clients.append(LawfulClient(server.ports["zeps"], f"newcomer-{number}", 5.0))
            clients[-1].confirm()
    except OSError as error:
        return f"only {len(clients)} of {count} newcomers are served: {error!r}"
    return ""


def start_again(server: Server) -> str:
    server.stop()
    try:
        server.start()
    except RuntimeError as error:
        return f"the server does not start again: {str(error)[-80:]}"
    return _newcomers(server, 8)


# 4. Half-open connections


def half_open(server: Server) -> str:
    sockets: list[socket.socket] = []
    with contextlib.suppress(OSError):
        while len(sockets) < 1500:
            sockets += [plug(server.ports["zeps"])]
    until = time.monotonic() + 5.0
    served = ""
    while time.monotonic() < until:
        served = served or _newcomers(server, 1)
        time.sleep(0.5)
    close_all(sockets)
    return served or _beacons(server) or _short_log(server)


def _beacons(server: Server) -> str:
    """Return what is wrong if the node of the mesh sends no beacons any more."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("", server.beacon_port))
        listener.settimeout(5.0)
        try:
            listener.recv(64)
        except TimeoutError:
            return "the node of the mesh sends no beacons any more"
    return ""


def _short_log(server: Server) -> str:
    size = server.log.stat().st_size
    return f"the log has {size >> 10} KiB" if size > 1 << 18 else ""


# 6. Large messages


def large_hello(server: Server) -> str:
    """Send one HELLO of the mesh with 6 million headers."""
    count = 6_000_000
    head = b"\xaa\xa1\x01\x02\x00\x01" + b"\x11tcp://127.0.0.1:9" + bytes(4) + b"\x00\x01x" + count.to_bytes(4)
    headers = b"".join([b"\x08%08d\0\0\0\0" % number for number in range(count)])
    sock = connect(server.ports["zre"], identity=b"\x01" + UUID(int=9).bytes)
    send(sock, encode([head + headers]))
    time.sleep(1.0)
    sock.close()
    return ""


def unfinished_messages(server: Server) -> str:
    """Send 14 of 15 MiB on 40 connections, and keep them."""
    sockets = []
    piece = b"x" * (14 << 20)
    for _ in range(40):
        sock = connect(server.ports["zeps"], attach("attacked"))
        send(sock, b"\x02" + (15 << 20).to_bytes(8) + piece)
        sockets.append(sock)
    time.sleep(0.5)
    used = server.usage().memory
    close_all(sockets)
    return f"unfinished input takes {used >> 20} MiB" if used > 300 << 20 else ""


# 11. Tiny frames


def tiny_frames(server: Server) -> str:
    sockets = [connect(server.ports["zeps"], attach("attacked")) for _ in range(4)]
    left = {sock: memoryview(b"\0\0" * 400_000) for sock in sockets}
    until = time.monotonic() + 20.0
    for sock in sockets:
        sock.setblocking(False)
    while left and time.monotonic() < until:
        for sock in list(left):
            try:
                left[sock] = left[sock][sock.send(left[sock]) :]
            except BlockingIOError:
                with contextlib.suppress(OSError):
                    sock.recv(1 << 20)
                time.sleep(0.001)
                continue
            except OSError:
                left[sock] = memoryview(b"")
            if not left[sock]:
                del left[sock]
    close_all(sockets)
    return ""


# 12. Topics


def topics(server: Server) -> str:
    """Subscribe one client to as many topics as it gets, on as many connections as it wants."""
    port = server.ports["mcollective"]
    sockets = []
    for number in range(11):
        sock = connect(port)
        send(sock, command(b"CONNECT", b"VERSION", b"0.2", b"ID", b"c"))
        for first in range(0, 10_000, 1000):
            names = [b"taken.%d.%d" % (number, each) for each in range(first, first + 1000)]
            send(sock, command(b"SUB", b"ID", b"s", b"", *names))
        send(sock, command(b"NOOP", b"ID", b"last"))
        read_until(sock, b"last")
        sockets.append(sock)
    lawful = plug(port, "127.0.0.1")
    send(lawful, hello("DEALER", b"lawful") + command(b"CONNECT", b"VERSION", b"0.2"))
    send(lawful, command(b"SUB", b"ID", b"mine", b"", b"free") + command(b"PUT", b"TOPIC", b"free", b"", b"body"))
    heard = read_until(lawful, b"body", seconds=10.0)
    close_all([*sockets, lawful])
    return "" if heard else "no other client can subscribe to a new topic"


# 13. The console


def slow_readers(server: Server) -> str:
    """Make the console's state large, ask for it hundreds of times, and do not read the answers."""
    clients = []
    for number in range(200):
        clients.append(connect(server.ports["zeps"], attach(f"attacked-{number % 20}")))
        send(clients[-1], b"".join(subscribe(f"prefix:{number}-{each}-" + "x" * 230) for each in range(100)) + PING)
        read_until(clients[-1], PING_OK, seconds=2.0)
    sockets = []
    request = b"GET /api/state HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.ports["console"]
    for _ in range(300):
        try:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.bind(("127.0.0.2", 0))
            sock.settimeout(5.0)
            sock.connect(("127.0.0.1", server.ports["console"]))
        except OSError:
            break
        send(sock, request * 20)
        sockets.append(sock)
    time.sleep(2.0)
    problem = ""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.ports['console']}/healthz", timeout=5.0) as answer:
            problem = "" if answer.status == 200 else f"/healthz says {answer.status}"
    except OSError as error:
        problem = f"/healthz does not answer: {error}"
    close_all([*sockets, *clients])
    return problem


# 18. Clients that read


def many_pings(server: Server) -> str:
    sock = connect(server.ports["zeps"], attach("attacked") + PING * 20_000)
    found = read_until(sock, PING_OK, 20_000)
    sock.close()
    return "" if found == 20_000 else f"only {found} of 20000 PINGs were answered"


def large_publish(server: Server) -> str:
    """Publish a message above the limit: the answer is INVALID, and the connection stays."""
    sock = connect(server.ports["zeps"], attach("attacked"))
    read_until(sock, ATTACH_OK)
    send(sock, publish("key", b"x" * (17 << 20)))
    told = read_until(sock, INVALID)
    send(sock, PING)
    answered = read_until(sock, PING_OK, seconds=5.0) if told else 0
    sock.close()
    if not told:
        return "no INVALID came"
    return "" if answered else "the connection did not stay"


def nothing(server: Server) -> str:
    time.sleep(3.0)
    return ""


@dataclass(frozen=True)
class Attack:
    """An attack, and the point of the list of attacks that it is for."""

    name: str
    point: int
    run: Callable[[Server], str]
    after: Callable[[Server], str] | None = None  # a check after the lawful client has ended
    descriptors: int = 0


ATTACKS: Final = (
    Attack("none", 0, nothing),
    Attack("1,000 patterns on $streams", 1, patterns_of_streams),
    Attack("180 patterns on a stream", 1, patterns_of_a_stream),
    Attack("40,000 prefixes, closed at once", 2, prefixes),
    Attack("700 streams", 3, streams, start_again, OUT_OF_FILES),
    Attack("1,500 half-open connections", 4, half_open, None, OUT_OF_FILES),
    Attack("HELLO with 6 million headers", 6, large_hello),
    Attack("40 unfinished messages of 14 MiB", 6, unfinished_messages),
    Attack("1.6 million empty frames", 11, tiny_frames),
    Attack("110,000 topics", 12, topics),
    Attack("300 slow readers of the console", 13, slow_readers),
    Attack("20,000 PINGs in one burst", 18, many_pings),
    Attack("a PUBLISH above the limit", 18, large_publish),
)


@dataclass(frozen=True)
class Outcome:
    """The effect of an attack on a server."""

    attack: Attack
    stall: float  # seconds
    answers: int  # that the lawful client got
    before: Usage
    most: Usage
    after: Usage
    problems: tuple[str, ...]

    @property
    def held(self) -> bool:
        return self.stall <= BAR and not self.problems


def carry_out(attack: Attack) -> Outcome:
    """Start a server and a lawful client, attack, and measure."""
    with Server(descriptors=attack.descriptors) as server:
        lawful = Lawful(server.ports["zeps"])
        time.sleep(0.5)
        watch = Watch(server)
        began = time.monotonic()
        problems = [attack.run(server)]
        time.sleep(SETTLED)
        watch.end()
        stall, answers, problem = lawful.stop(began)
        problems += [f"the lawful client: {problem}" if problem else ""]
        problems += ["" if server.alive else "the server ended"]
        after = server.usage() if server.alive else watch.most
        if attack.after is not None and server.alive:
            problems.append(attack.after(server))
    return Outcome(attack, stall, answers, watch.before, watch.most, after, tuple(filter(None, problems)))


def report(outcomes: list[Outcome]) -> str:
    """Return the outcomes as a table."""
    heads = ["attack", "point", "longest stall", "answers", "memory (MiB)", "descriptors", "held"]
    rows = [
        [
            one.attack.name,
            str(one.attack.point or "-"),
            f"{one.stall * 1000:,.0f} ms",
            str(one.answers),
            " → ".join(f"{usage.memory >> 20}" for usage in (one.before, one.most, one.after)),
            " → ".join(str(usage.descriptors) for usage in (one.before, one.most, one.after)),
            "; ".join(one.problems) or ("yes" if one.held else "no"),
        ]
        for one in outcomes
    ]
    return table(heads, rows)
