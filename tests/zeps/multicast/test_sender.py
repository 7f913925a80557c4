"""zambezi.zeps.multicast.sender: as many datagrams in one call as the kernel takes."""

import errno
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zeps.multicast import sender
from zambezi.zeps.multicast.feed import Pieces
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.sender import MOST, UdpSender, runs

GROUP = Group.parse("udp://239.77.1.1:5680")


def of_sizes(sizes: Sequence[int]) -> list[Pieces]:
    return [(b"head", bytes([number % 256]) * (size - 4)) for number, size in enumerate(sizes)]


@given(st.lists(st.sampled_from([4, 50, 100, 1400, 65_507]), max_size=200), st.integers(1, 64))
def test_the_system_would_cut_a_call_into_the_same_datagrams(sizes: list[int], most: int) -> None:
    datagrams = of_sizes(sizes)
    cut = []
    for run, size in runs(datagrams, most):
        octets = b"".join(b"".join(one) for one in run)
        assert len(run) <= most
        assert len(run) == 1 or len(octets) <= MOST
        cut += [octets[start : start + size] for start in range(0, len(octets), size)]
    assert cut == [b"".join(one) for one in datagrams]


def test_datagrams_of_one_size_go_together() -> None:
    assert [len(run) for run, _ in runs(of_sizes([1400] * 100 + [70, 1400]), 64)] == [46, 46, 9, 1]


class Socket:
    """A socket that accepts calls, or raises errors."""

    def __init__(self, *problems: int) -> None:
        self.calls: list[tuple[int, bool]] = []  # bytes, and whether the kernel must split them
        self._problems = list(problems)

    def sendmsg(self, pieces: Sequence[bytes], ancillary: Sequence[Any], _flags: int, _target: object) -> None:
        self.calls.append((sum(map(len, pieces)), bool(ancillary)))
        problem = self._problems.pop(0) if self._problems else 0
        if problem:
            raise OSError(problem, "")


def outlet_on(sock: Socket, monkeypatch: pytest.MonkeyPatch) -> UdpSender:
    monkeypatch.setattr(sender, "_open_socket", lambda _: sock)
    return UdpSender(GROUP)


def test_a_system_that_cannot_cut_gets_them_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sock = Socket(errno.EIO)
    outlet = outlet_on(sock, monkeypatch)
    assert outlet.send(of_sizes([100] * 3)) == 0
    assert sock.calls == [(300, True), (100, False), (100, False), (100, False)]
    sock.calls.clear()
    assert outlet.send(of_sizes([100] * 2)) == 0
    assert sock.calls == [(100, False), (100, False)]


def test_datagrams_that_a_full_queue_rejects_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    sock = Socket(errno.EAGAIN, 0, errno.ENOBUFS)
    outlet = outlet_on(sock, monkeypatch)
    assert outlet.send(of_sizes([100] * 3)) == 3
    assert outlet.send(of_sizes([100] * 3)) == 0
    assert outlet.send(of_sizes([100])) == 1
    assert sock.calls == [(300, True), (300, True), (100, False)]
