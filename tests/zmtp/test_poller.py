"""zambezi.zmtp.poller: descriptors with low and with high numbers are watched alike."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.zmtp.waiting import in_loop
from zambezi.zmtp import poller as module
from zambezi.zmtp.asyncio import Dealer, Router
from zambezi.zmtp.poller import Poller, poller_of


@pytest.fixture(params=["by the loop", "by the poller"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, ...]]:
    monkeypatch.setattr(module, "DIRECT", 1 << 20 if request.param == "by the loop" else 0)
    pair = socket.socketpair()
    for one in pair:
        one.setblocking(False)
    yield pair
    for one in pair:
        one.close()


def here() -> Poller:
    return poller_of(asyncio.get_running_loop())


async def turns(count: int = 5) -> None:
    """Let the loop look at its descriptors a few times."""
    for _ in range(count):
        await asyncio.sleep(0)


@in_loop
async def test_a_callback_is_called_as_long_as_there_is_something_to_read(pair: tuple[socket.socket, ...]) -> None:
    left, right = pair
    calls: list[str] = []
    here().add_reader(left.fileno(), lambda: calls.append("first"))
    await turns()
    assert not calls
    right.send(b"x")
    await turns()
    assert len(calls) > 1
    here().add_reader(left.fileno(), lambda: calls.append("second"))
    calls.clear()
    await turns()
    assert set(calls) == {"second"}
    left.recv(1)
    await turns()
    calls.clear()
    await turns()
    assert not calls
    here().remove_reader(left.fileno())
    right.send(b"x")
    await turns()
    assert not calls
    here().remove_reader(left.fileno())  # once more: no mistake


@in_loop
async def test_readers_and_writers_of_a_descriptor_do_not_disturb_each_other(pair: tuple[socket.socket, ...]) -> None:
    left, right = pair
    calls: list[str] = []
    fd = left.fileno()

    async def called() -> set[str]:
        await turns()
        calls.clear()
        await turns()
        return set(calls)

    here().remove_writer(fd)  # it is not watched: no mistake
    here().add_writer(fd, lambda: calls.append("write"))
    assert await called() == {"write"}
    here().add_reader(fd, lambda: calls.append("read"))
    assert await called() == {"write"}
    right.send(b"x")
    assert await called() == {"write", "read"}
    here().remove_writer(fd)
    assert await called() == {"read"}
    here().add_writer(fd, lambda: calls.append("write"))
    here().remove_reader(fd)
    assert await called() == {"write"}
    here().remove_writer(fd)
    assert await called() == set()


@in_loop
async def test_the_end_of_a_connection_is_told_to_readers_and_to_writers(pair: tuple[socket.socket, ...]) -> None:
    left, right = pair
    calls: list[str] = []
    here().add_reader(left.fileno(), lambda: calls.append("read"))
    while True:  # until there is no room, so that only the end can call the writer
        try:
            left.send(bytes(100_000))
        except BlockingIOError:
            break
    here().add_writer(left.fileno(), lambda: calls.append("write"))
    await turns()
    assert not calls
    right.close()
    await turns()
    assert set(calls) == {"read", "write"}
    here().remove_reader(left.fileno())
    here().remove_writer(left.fileno())


@in_loop
async def test_a_callback_that_raises_is_reported_and_others_are_called(pair: tuple[socket.socket, ...]) -> None:
    left, right = pair
    problems: list[dict[str, Any]] = []
    calls: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    here().add_writer(left.fileno(), lambda: int("no number"))
    here().add_writer(right.fileno(), lambda: calls.append("right"))
    await turns()
    assert calls
    assert isinstance(problems[0]["exception"], ValueError)
    assert "callback" in problems[0]["message"]
    here().remove_writer(left.fileno())
    here().remove_writer(right.fileno())


def test_an_interrupt_in_a_callback_ends_the_loop(pair: tuple[socket.socket, ...]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    async def run() -> None:
        here().add_writer(pair[0].fileno(), interrupt)
        await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run())


@in_loop
async def test_a_descriptor_that_cannot_be_watched_is_not_remembered(
    pair: tuple[socket.socket, ...], tmp_path: Path
) -> None:
    with (tmp_path / "file").open("wb") as file:
        for _ in range(2):
            with pytest.raises(OSError, match="not permitted"):
                here().add_reader(file.fileno(), lambda: None)
        here().remove_reader(file.fileno())


@in_loop
async def test_a_new_descriptor_does_not_get_what_was_said_of_an_old_one_with_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "DIRECT", 0)
    calls: list[str] = []
    pairs = [socket.socketpair() for _ in range(2)]
    news: list[socket.socket] = []

    def replace() -> None:
        """Close all that are ready, and put a socket that is not ready in the place of each."""
        calls.append("replaced")
        for left, _ in pairs:
            fd = left.fileno()
            here().remove_writer(fd)
            left.close()
            new = socket.socket()
            assert new.fileno() == fd
            news.append(new)
            new.bind(("127.0.0.1", 0))
            new.listen()
            here().add_reader(fd, lambda: calls.append("read"))
            here().add_writer(fd, lambda: calls.append("written"))

    for left, _ in pairs:
        here().add_writer(left.fileno(), replace)
    await turns()
    assert calls == ["replaced"]
    for new in news:
        here().remove_reader(new.fileno())
        here().remove_writer(new.fileno())
        new.close()
    for _, right in pairs:
        right.close()


def test_a_loop_has_one_poller_which_ends_with_it() -> None:
    async def run() -> None:
        assert here() is here()

    before = len(module._POLLERS)
    asyncio.run(run())
    gc.collect()
    assert len(module._POLLERS) <= before


@in_loop
async def test_sockets_exchange_messages_through_the_poller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DIRECT", 0)
    large = bytes(5_000_000)  # more than the kernel takes at once
    async with Router() as hub:
        endpoint = hub.bind("tcp://127.0.0.1:*")
        clients = [Dealer(identity=b"%d" % number) for number in range(8)]
        for client in clients:
            client.connect(endpoint)
            await client.send(large)
        for _ in clients:
            identity, content = await hub.recv()
            assert content == large
            await hub.send([identity, content])
        for client in clients:
            assert await client.recv() == [large]
            await client.close()
