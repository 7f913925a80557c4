"""The gate of the tests with partitions cuts what it says."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.zeps.store.gate import Cut, Gate

DEADLINE = 60.0


@pytest.fixture
def pair() -> Iterator[tuple[Gate, socket.socket, socket.socket]]:
    """A gate, and both ends of a connection through it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, Gate(listener.getsockname()[1]) as gate:
        client = socket.create_connection(("127.0.0.1", gate.port), DEADLINE)
        store, _ = listener.accept()
        store.settimeout(DEADLINE)
        with client, store:
            yield gate, client, store


def is_silent(end: socket.socket) -> bool:
    """Return whether nothing arrives for a moment."""
    end.settimeout(0.05)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(DEADLINE)
    return False


def is_closed(end: socket.socket) -> bool:
    """Return whether the other end has closed the connection."""
    try:
        return end.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    ("cut", "requests_pass", "answers_pass"),
    [(Cut.BOTH, False, False), (Cut.REQUESTS, False, True), (Cut.ANSWERS, True, False), (Cut.LATE, True, True)],
)
def test_a_cut_holds_back_what_it_says_until_it_ends(
    pair: tuple[Gate, socket.socket, socket.socket], cut: Cut, requests_pass: bool, answers_pass: bool
) -> None:
    gate, client, store = pair
    gate.set(cut)
    client.sendall(b"?")
    store.sendall(b"!")
    assert store.recv(1) == b"?" if requests_pass else is_silent(store)
    assert client.recv(1) == b"!" if answers_pass else is_silent(client)
    gate.set(Cut.NONE)
    assert requests_pass or store.recv(1) == b"?"  # late, as over TCP
    assert answers_pass or client.recv(1) == b"!"
    assert gate.answered == 1


def test_a_gate_can_refuse_connections(pair: tuple[Gate, socket.socket, socket.socket]) -> None:
    gate, client, store = pair
    gate.set(Cut.REFUSED)
    assert is_closed(client)
    assert is_closed(store)
    with socket.create_connection(("127.0.0.1", gate.port), DEADLINE) as other:
        assert is_closed(other)
