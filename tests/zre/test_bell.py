"""zambezi.zre.bell: a descriptor that is readable while events wait."""

import gc
import os
import select

import pytest

from zambezi.zre.bell import Bell


def readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def test_the_descriptor_is_readable_while_the_bell_rings() -> None:
    bell = Bell()
    assert not readable(bell.fileno())
    bell.ring()
    bell.ring()
    assert readable(bell.fileno())
    bell.silence()
    assert not readable(bell.fileno())
    bell.silence()


def test_a_program_that_reads_the_descriptor_does_no_harm() -> None:
    bell = Bell()
    bell.ring()
    os.read(bell.fileno(), 10)
    bell.silence()
    bell.ring()
    assert readable(bell.fileno())


def test_the_descriptor_is_closed_with_the_bell() -> None:
    bell = Bell()
    descriptor = bell.fileno()
    del bell
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
