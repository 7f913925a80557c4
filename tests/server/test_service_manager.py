"""zambezi.server.service_manager: what systemd is told."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.zmtp.waiting import PATIENCE
from zambezi.server.service_manager import ServiceManager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(PATIENCE)
        yield receiver


def address(manager: socket.socket) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(manager.getsockname())}


def test_a_server_is_ready_reloads_and_stops(manager: socket.socket) -> None:
    server = ServiceManager(address(manager))

    async def serve() -> None:
        async with server.informed():
            assert manager.recv(100) == b"READY=1"
            server.begin_reload()
            assert manager.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
            server.end_reload()
            assert manager.recv(100) == b"READY=1"
        assert manager.recv(100) == b"STOPPING=1"

    asyncio.run(serve())


def test_the_event_loop_keeps_the_watchdog_quiet(manager: socket.socket) -> None:
    watchdog = {"WATCHDOG_USEC": "2000", "WATCHDOG_PID": str(os.getpid())}

    async def serve() -> None:
        manager.setblocking(False)
        loop = asyncio.get_running_loop()
        async with ServiceManager(address(manager) | watchdog).informed():
            for expected in (b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1", b"WATCHDOG=1"):
                assert await asyncio.wait_for(loop.sock_recv(manager, 100), PATIENCE) == expected

    asyncio.run(serve())


@pytest.mark.parametrize("others", [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "often"}])
def test_a_watchdog_for_another_process_or_without_a_number_is_ignored(
    manager: socket.socket, others: dict[str, str]
) -> None:
    async def serve() -> None:
        async with ServiceManager(address(manager) | {"WATCHDOG_USEC": "2000"} | others).informed():
            pass

    asyncio.run(serve())
    assert [manager.recv(100), manager.recv(100)] == [b"READY=1", b"STOPPING=1"]


def test_without_a_manager_or_with_one_that_is_gone_nothing_happens(tmp_path: Path) -> None:
    for environment in ({}, {"NOTIFY_SOCKET": str(tmp_path / "gone")}, {"NOTIFY_SOCKET": "@gone"}):
        ServiceManager(environment).notify("READY=1")


def test_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("")  # the kernel chooses an abstract name
        receiver.settimeout(PATIENCE)
        name: bytes = receiver.getsockname()
        ServiceManager({"NOTIFY_SOCKET": f"@{name[1:].decode()}"}).notify("READY=1")
        assert receiver.recv(100) == b"READY=1"
