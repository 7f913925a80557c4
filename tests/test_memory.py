"""zambezi.memory: a busy process keeps the memory that it frees."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from zambezi.memory import keep_memory

if TYPE_CHECKING:
    import pytest


def test_the_c_library_is_asked_to_keep_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[int, int] = {}

    class Library:
        def mallopt(self, parameter: int, value: int) -> int:
            options[parameter] = value
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())
    assert keep_memory()
    assert options == {-3: 32 << 20, -1: 64 << 20, -2: 16 << 20}


def test_a_c_library_without_mallopt_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not keep_memory()
