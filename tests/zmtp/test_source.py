"""zambezi.zmtp.source: encoded messages from memory or from a file, which bypass the outbox."""

import socket
from collections import deque
from pathlib import Path

from tests.zmtp.engines import CLIENT_KEYS, SERVER_KEYS
from tests.zmtp.stranger import Stranger, hello
from zambezi.zmtp import commands
from zambezi.zmtp.frames import encode, encode_command
from zambezi.zmtp.options import Options
from zambezi.zmtp.patterns import Dealer, Router
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.security import CurveClient, CurveServer
from zambezi.zmtp.source import SLICE, Framed, Stored
from zambezi.zmtp.stream import StreamLink
from zambezi.zmtp.testing import Simulation, received


class Messages:
    """Messages that are encoded once."""

    def __init__(self, *bodies: bytes) -> None:
        self.bodies = list(bodies)
        self.octets = encode(self.bodies)


class File:
    """Messages in a file, with other bytes before and after them."""

    def __init__(self, path: Path, *bodies: bytes) -> None:
        self.messages = Messages(*bodies)
        self.reads = 0
        self._file = path.open("wb+")
        self._file.write(b"before" + self.messages.octets + b"after")
        self._file.flush()

    def stored(self) -> Stored:
        return Stored(self._file.fileno(), 6, len(self.messages.octets), self.read)

    def read(self) -> Framed:
        self.reads += 1
        return self.messages

    def close(self) -> None:
        self._file.close()


class Supply:
    """A source with a list of things to send."""

    def __init__(self) -> None:
        self.things: deque[Framed | Stored] = deque()
        self.asked = 0

    def pull(self) -> Framed | Stored | None:
        self.asked += 1
        return self.things.popleft() if self.things else None


class Hub(Router):
    """A ROUTER whose peers have a source."""

    peer: Peer

    def __init__(self, sim: Simulation, options: Options | None = None) -> None:
        super().__init__(sim, options or Options())
        self.supply = Supply()

    def attached(self, peer: Peer) -> None:
        super().attached(peer)
        self.peer = peer
        peer.feed_from(self.supply)

    @property
    def stream(self) -> StreamLink:
        (link,) = self.transport.links
        assert isinstance(link, StreamLink)
        return link


def with_a_stranger(sim: Simulation) -> tuple[Hub, Stranger]:
    """Return a hub and a peer that reads only when the test reads; the kernel buffers only few bytes."""
    hub = Hub(sim)
    stranger = Stranger.calling(hub.bind("tcp://127.0.0.1:*"), small=True)
    stranger.say(hello(identity=b"s"))
    sim.until(lambda: hub.peers)
    hub.stream._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return hub, stranger


def drained(sim: Simulation, stranger: Stranger, count: int) -> None:
    """Have the stranger read until it has `count` messages."""

    def enough() -> bool:
        stranger.heard_all()
        return len(stranger.messages) >= count

    sim.until(enough)


def fill(sim: Simulation, hub: Hub) -> int:
    """Offer messages until the kernel accepts no more; return how many were accepted."""
    taken = 0
    while hub.peer.offer(Messages(b"%08d" % taken + b"f" * 10_000)):
        taken += 1
        sim.run()
    return taken


# Over a stream


def test_a_source_is_asked_when_it_is_woken_and_until_it_has_no_more(sim: Simulation) -> None:
    hub, stranger = with_a_stranger(sim)
    with stranger:
        sim.run()
        asked = hub.supply.asked
        hub.supply.things += [Messages(b"a", b"b"), Messages(b"c" * 300)]
        sim.run()
        assert hub.supply.asked == asked  # the source was not woken
        hub.peer.wake()
        hub.peer.wake()
        assert hub.supply.asked == asked  # the link asks when the loop turns
        drained(sim, stranger, 3)
        assert stranger.messages == [[b"a"], [b"b"], [b"c" * 300]]
        assert hub.supply.asked == asked + 3
    hub.close(0)


def test_the_outbox_goes_first(sim: Simulation) -> None:
    hub, stranger = with_a_stranger(sim)
    with stranger:
        hub.supply.things += [Messages(b"1"), Messages(b"2")]
        hub.peer.wake()
        hub.try_send((b"s", b"answer"))
        drained(sim, stranger, 3)
        assert stranger.messages == [[b"answer"], [b"1"], [b"2"]]
    hub.close(0)


def test_sent_messages_go_out_between_those_of_a_source(sim: Simulation) -> None:
    hub, stranger = with_a_stranger(sim)
    with stranger:
        large = [bytes([number]) * 400_000 for number in range(6)]
        hub.supply.things += [Messages(body) for body in large]
        hub.peer.wake()
        sim.run()
        assert len(hub.supply.things) > 0  # the kernel is full, and the source is not asked for more
        hub.try_send((b"s", b"answer"))
        drained(sim, stranger, 7)
        assert [message for message in stranger.messages if message != [b"answer"]] == [[body] for body in large]
        assert stranger.messages.index([b"answer"]) < 6
    hub.close(0)


def test_a_file_goes_out_as_it_is(sim: Simulation, tmp_path: Path) -> None:
    hub, stranger = with_a_stranger(sim)
    bodies = [b"%06d" % number + b"x" * (number % 700) for number in range(5000)]
    file = File(tmp_path / "log", *bodies)
    assert len(file.messages.octets) > 4 * SLICE
    with stranger:
        hub.supply.things += [file.stored(), Messages(b"in between"), file.stored()]
        hub.peer.wake()
        drained(sim, stranger, 10_001)
        assert stranger.messages == [[body] for body in [*bodies, b"in between", *bodies]]
        assert file.reads == 0  # sendfile: the process did not read it
    hub.close(0)
    file.close()


def test_nothing_gets_into_the_middle_of_a_file(sim: Simulation, tmp_path: Path) -> None:
    hub, stranger = with_a_stranger(sim)
    bodies = [b"%06d" % number + b"x" * 300 for number in range(5000)]
    file = File(tmp_path / "log", *bodies)
    with stranger:
        hub.supply.things += [file.stored(), file.stored()]
        hub.peer.wake()
        sim.run()
        # A heartbeat must be answered, and a message sent, while the file is under way.
        stranger.say(encode_command(commands.command(commands.PING, bytes(2) + b"context")))
        hub.try_send((b"s", b"answer"))
        assert not hub.peer.offer(Messages(b"offered"))
        drained(sim, stranger, 10_001)
        at = stranger.messages.index([b"answer"])
        assert at % 5000 == 0
        del stranger.messages[at]
        assert stranger.messages == [[body] for body in [*bodies, *bodies]]
        assert commands.PONG in stranger.commands
    hub.close(0)
    file.close()


def test_a_file_that_ends_too_soon_ends_the_connection(sim: Simulation, tmp_path: Path) -> None:
    hub, stranger = with_a_stranger(sim)
    file = File(tmp_path / "log", b"x" * 1000)
    with stranger:
        hub.supply.things.append(Stored(file.stored()._fd, 6, 5000, file.read))
        hub.peer.wake()
        sim.until(lambda: not hub.peers)
        stranger.listen_to_the_end()
        assert stranger.messages == [[b"x" * 1000]]
    hub.close(0)
    file.close()


def test_a_source_has_no_more_than_its_turn(sim: Simulation) -> None:
    hub, stranger = with_a_stranger(sim)
    hub.stream._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    with stranger:
        hub.supply.things += [Messages(b"%d" % number) for number in range(100)]
        hub.stream.flush()
        assert len(hub.supply.things) > 50  # the rest waits until the loop turns
        drained(sim, stranger, 100)
        assert stranger.messages == [[b"%d" % number] for number in range(100)]
    hub.close(0)


def test_an_offer_is_accepted_at_once(sim: Simulation) -> None:
    hub, stranger = with_a_stranger(sim)
    with stranger:
        assert hub.peer.offer(Messages(b"a", b"b"))
        stranger.heard_all()
        assert stranger.messages == [[b"a"], [b"b"]]
    hub.close(0)


def test_queued_messages_go_out_before_an_offer(sim: Simulation) -> None:
    hub, stranger = with_a_stranger(sim)
    with stranger:
        hub.try_send((b"s", b"first"))
        hub.try_send((b"s", b"second"))
        assert hub.peer.offer(Messages(b"third"))
        drained(sim, stranger, 3)
        assert stranger.messages == [[b"first"], [b"second"], [b"third"]]
    hub.close(0)


def test_an_offer_that_the_kernel_accepts_in_part_has_succeeded(sim: Simulation) -> None:
    hub, stranger = with_a_stranger(sim)
    with stranger:
        body = b"large" * 1_000_000
        assert hub.peer.offer(Messages(body))
        assert not hub.peer.offer(Messages(b"refused"))
        hub.supply.things.append(Messages(b"after"))
        asked = hub.supply.asked
        hub.peer.wake()
        sim.run()
        assert hub.supply.asked == asked
        drained(sim, stranger, 2)
        assert stranger.messages == [[body], [b"after"]]
        assert hub.peer.offer(Messages(b"again"))
        drained(sim, stranger, 3)
    hub.close(0)


def test_after_a_refused_offer_the_source_is_asked(sim: Simulation) -> None:
    hub, stranger = with_a_stranger(sim)
    with stranger:
        taken = fill(sim, hub)
        assert not hub.peer.offer(Messages(b"refused"))
        hub.supply.things.append(Messages(b"from the source"))
        drained(sim, stranger, taken + 1)
        assert [message[0][:8] for message in stranger.messages[:-1]] == [b"%08d" % number for number in range(taken)]
        assert stranger.messages[-1] == [b"from the source"]
    hub.close(0)


def test_nothing_is_offered_to_a_connection_that_is_gone(sim: Simulation) -> None:
    hub, stranger = with_a_stranger(sim)
    with stranger:
        fill(sim, hub)
    sim.until(lambda: not hub.peers)
    assert not hub.peer.offer(Messages(b"too late"))
    hub.peer.wake()
    sim.run()
    assert hub.peer.take_queue() == []  # its owner can read it again
    hub.close(0)


def test_an_offer_may_find_that_the_connection_is_gone(sim: Simulation) -> None:
    hub, stranger = with_a_stranger(sim)
    hub.stream._sock.shutdown(socket.SHUT_WR)
    assert not hub.peer.offer(Messages(b"too late"))
    assert not hub.peers
    with stranger:
        pass
    hub.close(0)


# In boxes


def sealed(sim: Simulation) -> tuple[Hub, Dealer]:
    hub = Hub(sim, Options(security=CurveServer(SERVER_KEYS)))
    client = Dealer(sim, Options(identity=b"c", security=CurveClient(SERVER_KEYS.public, CLIENT_KEYS)))
    client.connect(hub.bind("tcp://127.0.0.1:*"))
    sim.until(lambda: hub.peers)
    hub.stream._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return hub, client


def gathered(sim: Simulation, client: Dealer, count: int) -> list[bytes]:
    got: list[bytes] = []

    def enough() -> bool:
        got.extend(message[0] for message in received(client))
        return len(got) >= count

    sim.until(enough)
    return got


def test_a_source_goes_out_in_boxes(sim: Simulation, tmp_path: Path) -> None:
    hub, client = sealed(sim)
    bodies = [b"%06d" % number + b"x" * (number % 500) for number in range(3000)]
    file = File(tmp_path / "log", *bodies)
    hub.supply.things += [file.stored(), Messages(b"a", b"b")]
    hub.peer.wake()
    hub.try_send((b"c", b"answer"))
    assert gathered(sim, client, 3003) == [b"answer", *bodies, b"a", b"b"]
    assert file.reads == 1
    client.close(0)
    hub.close(0)
    file.close()


def test_a_sealed_offer_goes_out_even_if_the_kernel_accepts_nothing(sim: Simulation) -> None:
    hub, client = sealed(sim)
    offers: list[bytes] = []
    wanted: list[bytes] = []
    # The client does not read until its queue is full: then the buffers of the kernel are full, too.
    for number in range(2000):
        body = b"%06d" % number + b"x" * 5000
        offers.append(body)
        if hub.peer.offer(Messages(body)):
            wanted.append(body)
        if number % 7 == 0:
            sim.run()
    assert len(wanted) < len(offers)
    assert gathered(sim, client, len(wanted)) == wanted
    assert hub.peer.offer(Messages(b"again"))
    assert gathered(sim, client, 1) == [b"again"]
    client.close(0)
    hub.close(0)


# In memory


def in_memory(sim: Simulation) -> tuple[Hub, Dealer]:
    hub = Hub(sim)
    hub.bind("inproc://source")
    client = Dealer(sim, Options(identity=b"c"))
    client.connect("inproc://source")
    sim.until(lambda: hub.peers)
    return hub, client


def test_a_source_in_memory(sim: Simulation, tmp_path: Path) -> None:
    hub, client = in_memory(sim)
    file = File(tmp_path / "log", b"in", b"a", b"file")
    hub.supply.things += [Messages(b"1", b"2"), file.stored(), Messages(b"3")]
    hub.peer.wake()
    hub.try_send((b"c", b"answer"))
    assert gathered(sim, client, 7) == [b"answer", b"1", b"2", b"in", b"a", b"file", b"3"]
    client.close(0)
    hub.close(0)
    file.close()


def test_an_offer_in_memory_waits_for_no_other(sim: Simulation) -> None:
    hub, client = in_memory(sim)
    assert hub.peer.offer(Messages(b"a", b"b"))
    assert not hub.peer.offer(Messages(b"refused"))  # one is under way
    hub.supply.things.append(Messages(b"c"))
    assert gathered(sim, client, 3) == [b"a", b"b", b"c"]
    assert hub.peer.offer(Messages(b"d"))
    assert gathered(sim, client, 1) == [b"d"]
    client.close(0)
    sim.run()
    assert not hub.peer.offer(Messages(b"too late"))
    hub.close(0)


def test_a_source_in_memory_waits_for_a_reader_that_stalls(sim: Simulation) -> None:
    hub, client = in_memory(sim)
    hub.supply.things += [Messages(*[b"%d" % number] * 1000) for number in range(100)]
    hub.peer.wake()
    sim.run()
    assert len(hub.supply.things) > 80  # the queue of the reader is bounded, and the rest stays in the source
    assert gathered(sim, client, 100_000) == [b"%d" % number for number in range(100) for _ in range(1000)]
    client.close(0)
    hub.close(0)
