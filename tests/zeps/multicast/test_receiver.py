"""zambezi.zeps.multicast.receiver: datagrams come many at a time, and none while it is paused."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.zmtp.waiting import eventually, in_loop
from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast import receiver as receivers
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.receiver import AT_ONCE, UdpReceiver, join_group
from zambezi.zmtp.reactor import AsyncioReactor

GROUP = Group.parse("udp://239.77.1.1:5680")


class Ear:
    """A receiver on a socket of 127.0.0.1 instead of a group, and a socket that sends to it."""

    def __init__(self, receiver: UdpReceiver, sender: socket.socket) -> None:
        self.receiver = receiver
        self.sender = sender
        self.heard: list[list[bytes]] = []

    def send(self, count: int, start: int = 0) -> None:
        for number in range(start, start + count):
            self.sender.send(b"%d" % number)

    @property
    def datagrams(self) -> list[int]:
        return [int(datagram) for datagrams in self.heard for datagram in datagrams]


@asynccontextmanager
async def listening(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ear]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
        sender.connect(sock.getsockname())
        monkeypatch.setattr(receivers, "_open_socket", lambda _: sock)
        heard: list[list[bytes]] = []
        receiver = join_group(AsyncioReactor(asyncio.get_running_loop()), GROUP, heard.append)
        assert isinstance(receiver, UdpReceiver)
        ear = Ear(receiver, sender)
        ear.heard = heard
        try:
            yield ear
        finally:
            receiver.close()
        await eventually(lambda: sock.fileno() < 0)


@in_loop
async def test_datagrams_come_in_order_and_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(monkeypatch) as ear:
        ear.send(2 * AT_ONCE)
        await eventually(lambda: len(ear.datagrams) == 2 * AT_ONCE)
        assert ear.datagrams == list(range(2 * AT_ONCE))
        assert 1 < max(map(len, ear.heard)) <= AT_ONCE


@in_loop
async def test_while_it_is_paused_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(monkeypatch) as ear:
        ear.receiver.pause()
        ear.send(3)
        for _ in range(10):
            await asyncio.sleep(0)
        assert ear.datagrams == []
        ear.receiver.resume()
        await eventually(lambda: ear.datagrams == [0, 1, 2])


@in_loop
async def test_after_close_nothing_is_read_and_closing_again_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(monkeypatch) as ear:
        ear.receiver.close()
        ear.receiver.close()
        ear.receiver.pause()
        ear.receiver.resume()
        assert ear.datagrams == []


@in_loop
async def test_a_group_that_cannot_be_joined_is_an_error() -> None:
    reactor = AsyncioReactor(asyncio.get_running_loop())
    unknown = Group.parse("udp://239.77.1.1:5680?interface=nowhere7")
    with pytest.raises(GroupError, match="there is no interface 'nowhere7'"):
        join_group(reactor, unknown, lambda _: None)
