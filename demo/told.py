"""The output of the demo."""

from __future__ import annotations

import time

_BEGAN = time.monotonic()


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def say(text: str) -> None:
    print(f"  {time.monotonic() - _BEGAN:5.1f} s  {text}", flush=True)
