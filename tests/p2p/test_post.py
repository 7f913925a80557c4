"""`Peer.post`, sending without the lock, while another thread does something at the worst moment.

`post` checks that the link will look into the mailbox, appends the message, and checks again. These tests make the time
between the two checks long enough for another thread to empty, disconnect, lose or close the queue. The rule is always
the same: either `send` returns, and the message arrives once; or `send` raises, and the message never arrives.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.zmtp.waiting import PATIENCE, wait_for, wait_until
from zambezi.p2p import NoSuchPeer, PeerConnected, PeerDisconnected, PeerSocket
from zambezi.zmtp.errors import SocketClosed, TimedOut
from zambezi.zmtp.memory import MemoryLink
from zambezi.zmtp.options import Bound
from zambezi.zmtp.peer import Peer
from zambezi.zmtp.stream import StreamLink

_names = itertools.count()


class Moment(list[bytes]):
    """A mailbox that calls a function just before, or just after, a thread appends: between the thread's two checks."""

    def __init__(self) -> None:
        self.before: Callable[[], object] | None = None
        self.after: Callable[[], object] | None = None
        self.posted = 0

    def append(self, message: bytes) -> None:
        before, self.before = self.before, None
        if before is not None:
            before()
        super().append(message)
        self.posted += 1
        after, self.after = self.after, None
        if after is not None:
            after()


class Scene:
    """A host that binds, and a guest that connects to it.

    The guest has room for one message, and has not read the first. So the host's link is `pending`: when the guest
    acknowledges the first message, the link looks into the mailbox.
    """

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.pool = pool
        self.host = PeerSocket(linger=None)
        self.guest = PeerSocket(receive_bound=Bound(1, 1000))
        self.guest.connect(self.host.bind(f"inproc://peer-post-{next(_names)}"))
        self.to_guest = wait_for(self.host, PeerConnected).routing_id
        self.peer = self.host._shell.peers[self.to_guest]
        self.host.send(self.to_guest, b"first")
        wait_until(lambda: self.guest._shell.readable)
        assert self.peer.busy

    def read_the_first(self) -> None:
        """Have the guest read the first message: the link then sends the mailbox or, if it is empty, is not pending."""
        posted = bool(self.peer._mailbox)
        assert self.guest.recv(PATIENCE)[1] == b"first"
        # Only now is the first message acknowledged. With the lock held, the second cannot have arrived yet.
        assert self.guest._waiter.call(self.guest._shell.try_recv) is None
        wait_until(lambda: not (self.peer._mailbox if posted else self.peer.busy))

    def begin_to_close(self) -> None:
        self.closing = self.pool.submit(self.host.close)
        wait_until(lambda: self.host.closed)

    def close(self) -> None:
        self.begin_to_close()
        self.closing.result(PATIENCE)

    def disconnect(self) -> None:
        self.host.disconnect(self.to_guest)

    def lose(self) -> None:
        self.guest.close(0)
        wait_for(self.host, PeerDisconnected)

    def send(self) -> None:
        self.host.send(self.to_guest, b"second", PATIENCE)

    def arrived(self) -> list[bytes]:
        """Return the messages that the guest receives until the host is closed."""
        self.pool.submit(self.host.close)
        got = []
        wait_until(lambda: self.host.closed)
        while True:
            try:
                got.append(self.guest.recv(0.01)[1])
            except TimedOut:
                if self.host._transport.closed:
                    return got


@pytest.fixture
def moment(scene: Scene) -> Moment:
    made = scene.peer._mailbox = Moment()
    return made


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ThreadPoolExecutor(4) as pool:
        one = Scene(pool)
        yield one
        one.guest.close(0)
        one.host.close(0)


def test_a_message_is_posted_if_nothing_happens_meanwhile(scene: Scene, moment: Moment) -> None:
    scene.send()
    assert moment.posted == 1
    assert scene.arrived() == [b"first", b"second"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_link_has_just_emptied_the_mailbox(scene: Scene, moment: Moment, when: str) -> None:
    setattr(moment, when, scene.read_the_first)
    scene.send()
    assert moment.posted == 1
    assert scene.guest.recv(PATIENCE)[1] == b"second"
    assert scene.arrived() == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_queue_is_disconnected_while_it_lingers(scene: Scene, moment: Moment, when: str) -> None:
    setattr(moment, when, scene.disconnect)
    with pytest.raises(NoSuchPeer):
        scene.send()
    assert moment.posted == 1
    assert scene.arrived() == [b"first"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_socket_begins_to_close_and_lingers(scene: Scene, moment: Moment, when: str) -> None:
    setattr(moment, when, scene.begin_to_close)
    with pytest.raises(SocketClosed):
        scene.send()
    assert moment.posted == 1
    assert scene.arrived() == [b"first"]
    scene.closing.result(PATIENCE)


def test_the_queue_is_emptied_and_disconnected(scene: Scene, moment: Moment) -> None:
    def both() -> None:
        scene.read_the_first()
        scene.disconnect()

    moment.before = both
    with pytest.raises(NoSuchPeer):
        scene.send()
    assert scene.arrived() == []


def test_the_queue_is_emptied_and_the_socket_closed(scene: Scene, moment: Moment) -> None:
    def both() -> None:
        scene.read_the_first()
        scene.close()

    moment.before = both
    with pytest.raises(SocketClosed):
        scene.send()
    assert scene.arrived() == []


@pytest.mark.parametrize("ending", ["begin_to_close", "disconnect"])
def test_a_message_that_is_taken_back_does_not_keep_the_peer_open(scene: Scene, moment: Moment, ending: str) -> None:
    """The thread that takes the last message back must also end the peer; else a close would hang for ever."""
    moment.before = scene.read_the_first
    moment.after = getattr(scene, ending)
    with pytest.raises((SocketClosed, NoSuchPeer)):
        scene.send()
    wait_until(lambda: not scene.host._transport.links)
    assert scene.arrived() == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_guest_leaves(scene: Scene, moment: Moment, when: str) -> None:
    setattr(moment, when, scene.lose)
    with pytest.raises(NoSuchPeer):
        scene.send()
    assert moment.posted == 1
    with pytest.raises(NoSuchPeer):
        scene.send()


@pytest.mark.parametrize("kind", [StreamLink, MemoryLink])
@pytest.mark.parametrize("ending", ["close", "disconnect"])
def test_a_message_is_posted_after_the_last_look_into_the_mailbox(
    monkeypatch: pytest.MonkeyPatch, ending: str, kind: type[StreamLink | MemoryLink]
) -> None:
    transport = "tcp://127.0.0.1:*" if kind is StreamLink else f"inproc://peer-post-{next(_names)}"
    reached, go = threading.Event(), threading.Event()
    post, finish = Peer.post, kind.finish

    def late(peer: Peer, message: bytes) -> bool:
        reached.set()
        go.wait(PATIENCE)
        return post(peer, message)

    def ends(link: StreamLink | MemoryLink) -> None:
        if link.peer is peer:
            go.set()
            wait_until(lambda: peer._mailbox)
        finish(link)  # type: ignore[arg-type]

    with PeerSocket(linger=None) as host, PeerSocket() as guest, ThreadPoolExecutor(1) as pool:
        guest.connect(host.bind(transport))
        to_guest = wait_for(host, PeerConnected).routing_id
        peer = host._shell.peers[to_guest]
        monkeypatch.setattr(kind, "pending", True)  # as if the link would look into the mailbox once more
        monkeypatch.setattr(kind, "finish", ends)
        monkeypatch.setattr(Peer, "post", late)
        sending = pool.submit(host.send, to_guest, b"in between")
        assert reached.wait(PATIENCE)
        if ending == "close":
            host.close()
        else:
            host.disconnect(to_guest)
        assert isinstance(sending.exception(PATIENCE), SocketClosed if ending == "close" else NoSuchPeer)
        wait_for(guest, PeerDisconnected)
        with pytest.raises(TimedOut):
            guest.recv(0)
