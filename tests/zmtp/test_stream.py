"""zambezi.zmtp.stream: bytes between the kernel and the engine, broken connections, and farewells."""

import fcntl
import itertools
import socket
import termios
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.zmtp.stranger import Stranger, hello
from tests.zmtp.waiting import wait_until
from zambezi.zmtp import commands
from zambezi.zmtp.connection import Heartbeat, Limits
from zambezi.zmtp.events import Connected, Disconnected, HandshakeFailed, Retrying
from zambezi.zmtp.frames import Frames, Message, encode, encode_command
from zambezi.zmtp.greeting import Greeting
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.options import Bound, Options
from zambezi.zmtp.patterns import Dealer, Pub, Router
from zambezi.zmtp.security import CurveClient, CurveServer
from zambezi.zmtp.stream import READ_MOST, READ_SLOW, StreamLink
from zambezi.zmtp.testing import Simulation, closed, history, received


class Server:
    """A bare listening socket that accepts strangers."""

    def __init__(self) -> None:
        self.sock = socket.socket()
        # Accepted sockets inherit it: the kernel buffers only few bytes that are not read.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.bind(("127.0.0.1", 0))
        self.sock.listen()
        self.sock.setblocking(False)
        self.endpoint = f"tcp://127.0.0.1:{self.sock.getsockname()[1]}"

    def accept(self, sim: Simulation) -> Stranger:
        found: list[Stranger] = []

        def knocked() -> bool:
            try:
                found.append(Stranger(self.sock.accept()[0]))
            except BlockingIOError:
                return False
            return True

        sim.until(knocked)
        return found[0]

    def close(self) -> None:
        self.sock.close()


@pytest.fixture
def server() -> Iterator[Server]:
    listening = Server()
    yield listening
    listening.close()


# Messages both ways


def test_messages_of_all_sizes_arrive_in_order(sim: Simulation) -> None:
    hub = Router(sim, Options())
    client = Dealer(sim, Options(identity=b"c"))
    client.connect(hub.bind("tcp://127.0.0.1:*"))
    messages: list[Frames] = [b"x" * size for size in (0, 1, 255, 256, 65535, 3_000_000)]
    messages.append((b"", b"y" * 300, b""))
    for message in messages:
        assert client.try_send(message)
    got: list[list[bytes]] = []

    def all_there() -> bool:
        got.extend(received(hub))
        return len(got) == len(messages)

    sim.until(all_there)
    assert got == [[b"c", *([message] if isinstance(message, bytes) else message)] for message in messages]
    client.close(0)
    hub.close(0)


class Writes(list[bytes]):
    """Record the writes of all sockets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        send = socket.socket.send

        def noted(sock: socket.socket, data: memoryview) -> int:
            self.append(bytes(data))
            return send(sock, data)

        monkeypatch.setattr(socket.socket, "send", noted)


def test_a_greeting_that_has_arrived_is_answered_with_one_write(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Router(sim, Options())
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")) as stranger:
        stranger.say(Greeting("NULL").encode())
        wait_until(lambda: delivered(stranger.sock))
        writes = Writes(monkeypatch)
        sim.until(lambda: writes)
        assert writes == [hello("ROUTER")]
    hub.close(0)


def test_a_greeting_is_sent_without_waiting_for_the_other(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Router(sim, Options())
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")) as stranger:
        writes = Writes(monkeypatch)
        sim.until(lambda: writes)
        assert writes == [Greeting("NULL").encode()]
        stranger.say(Greeting("NULL").encode())
        sim.until(lambda: len(writes) == 2)
        assert b"".join(writes) == hello("ROUTER")
    hub.close(0)


def test_messages_that_waited_go_out_with_the_end_of_the_handshake(
    sim: Simulation, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = Writes(monkeypatch)
    client = Dealer(sim, Options(identity=b"c"))
    client.connect(server.endpoint)
    client.try_send(b"first")
    client.try_send((b"second", b"of two"))
    with server.accept(sim) as stranger:
        sim.until(lambda: writes)
        stranger.say(hello("ROUTER"))
        sim.until(lambda: client.transport.links and next(iter(client.transport.links)).idle and len(writes) > 1)
        sim.run()
        greeting = Greeting("NULL").encode()
        rest = hello("DEALER", b"c")[len(greeting) :] + encode([b"first", (b"second", b"of two")])
        assert writes == [greeting, rest]
    client.close(0)


def delivered(sock: socket.socket) -> bool:
    """Return whether the kernel of the other side has everything that was sent."""
    return fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)) == bytes(4)


def test_a_message_after_a_quiet_moment_goes_out_at_once(sim: Simulation) -> None:
    hub = Router(sim, Options())
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")) as stranger:
        stranger.say(hello(identity=b"s"))
        sim.until(lambda: hub.peers)
        sim.advance(1.0)
        hub.try_send((b"s", b"at once"))
        hub.try_send((b"s", b"with its neighbours"))
        stranger.heard_all()
        assert stranger.messages == [[b"at once"]]
        hub.try_send((b"s", b"like this"))
        sim.run()
        stranger.heard_all()
        assert stranger.messages == [[b"at once"], [b"with its neighbours"], [b"like this"]]
    hub.close(0)


def test_a_full_inbox_stops_reading_until_it_has_room(sim: Simulation) -> None:
    hub = Router(sim, Options(receive_bound=Bound(100, 1 << 20)))
    client = Dealer(sim, Options(identity=b"c", send_bound=Bound(1000, 1 << 16)))
    client.connect(hub.bind("tcp://127.0.0.1:*"))
    sim.until(lambda: hub.peers)
    message = b"x" * 10_000
    sent = 0
    while True:
        if not client.try_send(message):
            sim.run(0.05)
            if not client.try_send(message):
                break
        sent += 1
        sim.run()
    # One read can exceed the bound, but no more than one.
    assert hub.inbox.octets < (1 << 20) + (1 << 18)
    got = 0

    def read_all() -> bool:
        nonlocal got
        got += len(received(hub))
        return got == sent

    sim.until(read_all)
    assert client.try_send(message)
    client.close(0)
    hub.close(0)


# A connection that breaks


def curve_or_null(mechanism: str) -> tuple[Options, Options]:
    if mechanism == "NULL":
        return Options(identity=b"c"), Options()
    pair = KeyPair.generate(seed=b"s" * 32)
    return Options(identity=b"c", security=CurveClient(pair.public)), Options(security=CurveServer(pair))


@pytest.mark.parametrize("cut", [0, 1, 5000, 100_000])
def test_messages_that_the_kernel_did_not_accept_whole_are_sent_again(
    sim: Simulation, server: Server, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted: list[int] = []  # by the kernel, in bytes, for each connection of the client
    senders: list[socket.socket] = []
    send = socket.socket.send

    def counted(sock: socket.socket, octets: memoryview) -> int:
        if sock not in senders:
            senders.append(sock)
            accepted.append(0)
        count = send(sock, octets)
        accepted[senders.index(sock)] += count
        return count

    monkeypatch.setattr(socket.socket, "send", counted)
    messages = [b"%06d" % number * (1 + number % 400) for number in range(3000)]
    ends = list(itertools.accumulate(len(encode([message])) for message in messages))
    client = Dealer(sim, Options(send_bound=Bound(100_000, 1 << 30)))
    events = history(client)
    client.connect(server.endpoint)
    with server.accept(sim) as stranger:
        stranger.say(hello("ROUTER"))
        sim.until(lambda: any(isinstance(event, Connected) for event in events))
        greeted = accepted[0]
        for message in messages:
            client.try_send(message)
        # The stranger reads nothing, so the kernel accepts bytes until it is full; or the stranger makes a little room.
        sim.run(0.05)
        if cut:
            stranger.listen(cut)
        sim.run()
        assert greeted < accepted[0] < greeted + ends[-1]
        # The stranger reads all accepted bytes, and the connection ends in the middle of a message.
        wait_until(lambda: stranger.heard_all() and stranger.octets == accepted[0])
        first = [message[0] for message in stranger.messages]
    sim.until(lambda: any(isinstance(event, Disconnected) for event in events))
    whole = bisect_right(ends, accepted[0] - greeted)
    sim.advance(1.0)
    with server.accept(sim) as stranger:
        stranger.say(hello("ROUTER"))
        sim.until(lambda: stranger.heard_all() and stranger.messages and stranger.messages[-1] == [messages[-1]])
        second = [message[0] for message in stranger.messages]
    # No message twice, none out of order, and none missing, except those sent to a connection that was closing already.
    assert second == messages[whole:]
    assert first == messages[: len(first)]
    assert 0 < len(first) <= whole
    client.close(0)


def test_curve_puts_back_the_same_messages(sim: Simulation) -> None:
    clients, servers = curve_or_null("CURVE")
    hub = Router(sim, servers)
    client = Dealer(sim, clients)
    client.connect(hub.bind("tcp://127.0.0.1:*"))
    sim.until(lambda: hub.peers and client.transport.links and next(iter(client.transport.links)).peer.connected)
    link = next(iter(client.transport.links))
    assert isinstance(link, StreamLink)
    messages: list[Message] = [b"a" * 100, (b"b", b"c" * 1000), b"", b"d" * 70_000]
    sizes = [len(link.connection.encode([message])) for message in messages]
    block = memoryview(bytes(sum(sizes)))
    for gone in range(0, len(block), 37):
        link._inflight = messages
        whole = next(index for index in range(4, -1, -1) if sum(sizes[:index]) <= gone)
        assert link._unfinished(block[gone:]) == messages[whole:]
    # Commands precede the messages of a block: while they have not gone out, no message has.
    assert link._unfinished(memoryview(bytes(sum(sizes) + 10))) == messages
    link._inflight = []
    client.close(0)
    hub.close(0)


def test_a_reset_has_a_reason(sim: Simulation) -> None:
    hub = Router(sim, Options())
    events = history(hub)
    stranger = Stranger.calling(hub.bind("tcp://127.0.0.1:*"))
    stranger.say(hello(identity=b"s"))
    sim.until(lambda: hub.peers)
    stranger.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    stranger.close()
    sim.until(lambda: not hub.peers)
    assert isinstance(events[-1], Disconnected)
    assert events[-1].reason == "connection reset by peer"
    hub.close(0)


def test_messages_before_a_violation_are_received(sim: Simulation) -> None:
    hub = Router(sim, Options())
    events = history(hub)
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")) as stranger:
        stranger.say(hello(identity=b"s") + encode([b"good"]) + b"\xff" * 9)
        sim.until(lambda: any(isinstance(event, Disconnected) for event in events))
        assert isinstance(events[-1], Disconnected)
        assert "reserved bits" in events[-1].reason
        assert received(hub) == [[b"s", b"good"]]
        stranger.listen_to_the_end()
    hub.close(0)


# Malicious peers


@pytest.mark.parametrize("word", [b"", b"\xff", hello()[:63], hello()[:70]])
def test_a_handshake_that_takes_too_long_is_ended(sim: Simulation, word: bytes) -> None:
    hub = Router(sim, Options(limits=Limits(handshake_time=2.0)))
    events = history(hub)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with Stranger.calling(endpoint) as slow, Stranger.calling(endpoint) as good:
        slow.say(word)
        good.say(hello(identity=b"good"))
        sim.until(lambda: len(hub.transport.links) == 2 and hub.peers)
        sim.advance(1.9)
        good.say(encode([b"x"]))
        sim.until(lambda: hub.readable)
        assert not [event for event in events if isinstance(event, HandshakeFailed)]
        sim.advance(0.2)
        assert events[-1] == HandshakeFailed(endpoint, "127.0.0.1", "the handshake took longer than 2 s")
        assert list(hub.peers) == [b"good"]
        sim.run()
        slow.listen_to_the_end()
        assert received(hub) == [[b"good", b"x"]]
    hub.close(0)


def test_single_bytes_do_not_extend_the_handshake(sim: Simulation) -> None:
    hub = Router(sim, Options(limits=Limits(handshake_time=2.0)))
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")) as slow:
        for octet in hello():
            if hub.counters.handshakes_failed:
                break
            slow.sock.send(bytes((octet,)))
            sim.run(0.01)
            sim.advance(0.1)
        assert hub.counters.handshakes_failed == 1
        assert sim.now <= 1002.2
    hub.close(0)


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"\xff" * 64, hello()[:64] + b"\x00\x05hello", b"\x16\x03\x01" * 99],
)
def test_garbage_is_an_event_and_does_not_affect_other_peers(sim: Simulation, garbage: bytes) -> None:
    hub = Router(sim, Options())
    events = history(hub)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with Stranger.calling(endpoint) as bad, Stranger.calling(endpoint) as good:
        good.say(hello(identity=b"good"))
        sim.until(lambda: hub.peers)
        bad.say(garbage)
        sim.until(lambda: hub.counters.handshakes_failed)
        failed = events[-1]
        assert isinstance(failed, HandshakeFailed)
        assert failed.reason
        bad.listen_to_the_end()
        good.say(encode([b"x"]))
        sim.until(lambda: hub.readable)
        assert received(hub) == [[b"good", b"x"]]
    hub.close(0)


def test_a_peer_that_never_reads_costs_no_more_than_its_bound(sim: Simulation) -> None:
    pub = Pub(sim, Options(send_bound=Bound(1000, 1 << 20), on_full="drop"))
    endpoint = pub.bind("tcp://127.0.0.1:*")
    with Stranger.calling(endpoint, small=True) as deaf, Stranger.calling(endpoint) as good:
        for stranger in (deaf, good):
            stranger.say(hello("SUB") + encode([b"\x01"]))
        sim.until(lambda: len(pub.subscriptions.match(b"x")) == 2)
        count, message = 3000, b"x" * 10_000
        for _ in range(count):
            pub.try_send(message)
            good.heard_all()
            sim.run()
        sim.until(lambda: good.listen(1 << 20) or len(good.messages) == count)
        held = [link for link in pub.transport.links if not link.idle]
        assert len(held) == 1
        assert held[0].peer.queued <= (1 << 20) + len(message)
        assert pub.counters.dropped > 1000
        assert not deaf.messages
    pub.close(0)


def test_a_peer_that_pings_and_never_reads_does_not_fill_the_memory(sim: Simulation) -> None:
    hub = Router(sim, Options())
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*"), small=True) as deaf:
        deaf.say(hello(identity=b"deaf"))
        sim.until(lambda: hub.peers)
        link = next(iter(hub.transport.links))
        assert isinstance(link, StreamLink)
        pings = encode_command(commands.ping(0, b"0123456789abcdef")) * 10_000
        deaf.sock.setblocking(False)
        for _ in range(60):
            try:
                rest = pings[deaf.sock.send(pings) :]
                while rest:
                    sim.run()
                    rest = rest[deaf.sock.send(rest) :]
            except BlockingIOError:
                break  # this side stops reading until the peer reads: that bounds the memory, too
            sim.run()
        assert not link.idle
        assert len(link.connection.take_output()) < 1 << 20
    hub.close(0)


def test_repeated_handovers_do_not_exceed_the_bound(sim: Simulation) -> None:
    hub = Router(sim, Options(receive_bound=Bound(10, 1 << 20)), handover=True)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with ExitStack() as strangers:
        for number in range(10):
            stranger = strangers.enter_context(Stranger.calling(endpoint))
            stranger.say(hello(identity=b"s"))
            before = hub.peers.get(b"s")
            sim.until(lambda before=before: hub.peers.get(b"s") not in (None, before))  # type: ignore[misc]
            stranger.say(encode([b"%d" % number] * 10))
            sim.run(0.02)
        assert received(hub)[:10] == [[b"s", b"0"]] * 10
        assert len(received(hub)) == 0
        sim.until(lambda: hub.readable)
        assert received(hub) == [[b"s", b"9"]] * 10
    hub.close(0)


# Silence


def test_a_peer_that_does_not_answer_a_ping_is_disconnected(sim: Simulation) -> None:
    hub = Router(sim, Options(heartbeat=Heartbeat(1.0, timeout=3.0)))
    events = history(hub)
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")) as silent:
        silent.say(hello(identity=b"silent"))
        sim.until(lambda: hub.peers)
        sim.advance(3.9)
        assert hub.peers
        sim.advance(0.2)
        assert not hub.peers
        assert isinstance(events[-1], Disconnected)
        assert events[-1].reason == "the peer sent nothing for 3 s after a PING"
        silent.listen_to_the_end()
        assert silent.commands.count(b"PING") == 3
    hub.close(0)


def test_heartbeats_keep_idle_peers_together(sim: Simulation) -> None:
    hub = Router(sim, Options(heartbeat=Heartbeat(1.0, timeout=2.0, ttl=3.0)))
    client = Dealer(sim, Options(identity=b"c"))
    events = history(client)
    client.connect(hub.bind("tcp://127.0.0.1:*"))
    sim.until(lambda: hub.peers and client.transport.links)
    for _ in range(200):
        sim.advance(0.1)
        sim.run(0.001)
    assert [type(event) for event in events] == [Connected]
    client.close(0)
    hub.close(0)


def test_a_peer_that_is_silent_for_its_time_to_live_is_disconnected(sim: Simulation) -> None:
    hub = Router(sim, Options())
    events = history(hub)
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")) as silent:
        silent.say(hello(identity=b"silent") + encode_command(commands.ping(2.0)))
        sim.until(lambda: hub.peers and sim.alarms and sim.alarms[0] <= sim.now + 2.0)
        sim.advance(1.9)
        assert hub.peers
        sim.advance(0.2)
        assert not hub.peers
        assert isinstance(events[-1], Disconnected)
        assert "sent nothing for 2 s" in events[-1].reason
    hub.close(0)


def test_a_peer_is_not_silent_while_we_do_not_read(sim: Simulation) -> None:
    hub = Router(sim, Options(heartbeat=Heartbeat(1.0), receive_bound=Bound(1, 1000)))
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")) as stranger:
        stranger.say(hello(identity=b"s") + encode([b"x"]))
        sim.until(lambda: hub.readable)
        sim.advance(60)
        assert hub.peers
    hub.close(0)


# Farewells


def test_a_peer_that_is_slow_to_read_receives_everything(sim: Simulation) -> None:
    hub = Router(sim, Options(send_bound=Bound(10_000, 1 << 26)))
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*"), small=True) as slow:
        slow.say(hello(identity=b"slow"))
        sim.until(lambda: hub.peers)
        for number in range(2000):
            hub.try_send((b"slow", b"%06d" % number * 500))
        sim.run()
        hub.close(None)
        sim.run()
        assert not closed(hub)
        slow.say(encode([b"said after the close"]) * 1000)
        sim.until(lambda: slow.heard_all() and hub.transport.farewells)
        # The kernel has the last bytes; the farewell reads and discards what still arrives, and ends.
        slow.say(encode([b"and more"]))
        sim.run(0.01)
        sim.advance(1.1)
        assert closed(hub)
        slow.listen_to_the_end()
        assert [int(message[0][:6]) for message in slow.messages] == list(range(2000))
        assert hub.counters.abandoned == 0


def test_closing_ends_as_soon_as_the_kernel_has_the_last_byte(sim: Simulation) -> None:
    hub = Router(sim, Options(send_bound=Bound(10_000, 1 << 26)))
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*"), small=True) as slow:
        slow.say(hello(identity=b"slow"))
        sim.until(lambda: hub.peers)
        hub.try_send((b"slow", b"x" * 20_000_000))  # one block: the outbox is empty while it goes out
        sim.run()
        hub.close(None)
        assert not closed(hub)
        sim.until(lambda: slow.heard_all() and hub.transport.farewells)
        sim.until(lambda: slow.heard_all() and slow.ended)
        slow.close()
        sim.until(lambda: hub.closed)
        assert slow.messages == [[b"x" * 20_000_000]]


def test_messages_that_do_not_go_out_in_time_are_counted(sim: Simulation) -> None:
    hub = Router(sim, Options(send_bound=Bound(10_000, 1 << 26)))
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*"), small=True) as deaf:
        deaf.say(hello(identity=b"deaf"))
        sim.until(lambda: hub.peers)
        for _ in range(10):
            hub.try_send((b"deaf", b"x" * 5_000_000))
        sim.run()
        hub.close(3.0)
        sim.advance(2.9)
        assert not closed(hub)
        sim.advance(0.2)
        assert closed(hub)
        assert 8 <= hub.counters.abandoned <= 10
        assert not sim.watched


def test_a_farewell_does_not_last_for_ever(sim: Simulation) -> None:
    hub = Router(sim, Options())
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")) as stranger:
        stranger.say(hello(identity=b"s"))
        sim.until(lambda: hub.peers)
        hub.close(None)
        assert not closed(hub)
        sim.advance(1.1)
        assert closed(hub)
        assert not sim.watched
        assert sim.alarms == []


def test_without_linger_there_is_no_farewell(sim: Simulation) -> None:
    hub = Router(sim, Options())
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with Stranger.calling(endpoint) as stranger, Stranger.calling(endpoint) as greeting:
        stranger.say(hello(identity=b"s"))
        greeting.say(b"\xff")
        sim.until(lambda: hub.peers and len(hub.transport.links) == 2)
        hub.close(0)
        assert closed(hub)
        assert not sim.watched


# Identities in use


def test_a_second_peer_of_an_identity_is_accepted_when_the_first_has_gone(sim: Simulation) -> None:
    hub = Router(sim, Options())
    ours = history(hub)
    endpoint = hub.bind("tcp://127.0.0.1:*")
    first = Stranger.calling(endpoint)
    first.say(hello(identity=b"name"))
    sim.until(lambda: hub.peers)
    second = Dealer(sim, Options(identity=b"name"))
    theirs = history(second)
    second.connect(endpoint)
    sim.until(lambda: any(isinstance(event, Retrying) for event in theirs))
    assert HandshakeFailed(endpoint, "127.0.0.1", "the identity is in use by another connection") in ours
    # We just close: a peer that receives ERROR would never come back.
    assert "the peer closed the connection" in next(event.reason for event in theirs if isinstance(event, Retrying))
    first.close()
    sim.until(lambda: not hub.peers)
    sim.advance(1.0)
    sim.until(lambda: hub.peers)
    second.close(0)
    hub.close(0)


def test_attempts_with_an_identity_in_use_become_rare(sim: Simulation) -> None:
    hub = Router(sim, Options())
    endpoint = hub.bind("tcp://127.0.0.1:*")
    with Stranger.calling(endpoint) as first:
        first.say(hello(identity=b"name"))
        sim.until(lambda: hub.peers)
        second = Dealer(sim, Options(identity=b"name"))
        theirs = history(second)
        second.connect(endpoint)
        tries: list[Retrying] = []

        def tried(count: int) -> bool:
            tries[:] = [event for event in theirs if isinstance(event, Retrying)]
            return len(tries) == count

        for count in range(1, 6):
            sim.until(lambda count=count: tried(count))  # type: ignore[misc]
            sim.advance(tries[-1].delay)
        assert [event.attempt for event in tries] == [1, 2, 3, 4, 5]
        second.close(0)
    hub.close(0)


# Heartbeats of the kernel


@pytest.mark.parametrize(("version", "kept"), [((3, 0), True), ((3, 1), False)])
def test_the_kernel_probes_a_peer_that_knows_no_heartbeats(
    sim: Simulation, version: tuple[int, int], kept: bool
) -> None:
    hub = Router(sim, Options(heartbeat=Heartbeat(10.0, 29.5)))
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")) as stranger:
        stranger.say(hello(identity=b"s", version=version))
        sim.until(lambda: hub.peers)
        (link,) = hub.transport.links
        assert isinstance(link, StreamLink)
        sock = link._sock
        assert bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)) is kept
        if kept:
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            assert [sock.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [10, 10, 3]
    hub.close(0)


@pytest.mark.parametrize(("seconds", "octets"), [(0.0, READ_MOST), (1.0, READ_SLOW)])
def test_reads_are_small_from_a_peer_whose_bytes_are_much_work(
    seconds: float, octets: int, sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other links wait while the bytes of one read are handled, such as a flood of commands."""
    clock = itertools.count(0.0, seconds)
    monkeypatch.setattr("zambezi.zmtp.stream.thread_time", lambda: next(clock))
    hub = Router(sim, Options())
    with Stranger.calling(hub.bind("tcp://127.0.0.1:*")) as stranger:
        stranger.say(hello(identity=b"s"))
        sim.until(lambda: hub.peers)
        (link,) = hub.transport.links
        assert isinstance(link, StreamLink)
        for _ in range(8):
            stranger.say(encode([bytes(1_000_000)]))
            sim.until(lambda: hub.readable)
            received(hub)
            if link._read == octets:
                break
        assert link._read == octets
    hub.close(0)
