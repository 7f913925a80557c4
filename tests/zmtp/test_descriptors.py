"""zambezi.zmtp.descriptors: the reserve that connections leave to the rest of the process."""

import resource
import sys

import pytest

from zambezi.zmtp.descriptors import usable


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (64, 56),
        (256, 224),
        (1024, 896),
        (20_000, 19_744),
        (1 << 20, (1 << 20) - 256),
        (resource.RLIM_INFINITY, sys.maxsize),
    ],
)
def test_some_descriptors_stay_in_reserve(limit: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert usable() == expected
