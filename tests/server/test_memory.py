"""What the C library is told."""

import ctypes

import pytest

from zambezi.server import memory


def test_it_is_told_and_says_whether_it_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[int, int] = {}

    class Library:
        def mallopt(self, parameter: int, value: int) -> int:
            told[parameter] = value
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())
    assert memory.keep_memory()
    assert told == {-3: 32 << 20, -1: 64 << 20, -2: 16 << 20}


def test_a_library_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not memory.keep_memory()
