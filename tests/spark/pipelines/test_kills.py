"""Exactly once: the driver of `archive` is killed at a random moment, and every message is there once.

The next run follows the streams until Ctrl-C.

`make campaign` kills it twenty times.
"""

from __future__ import annotations

import random

import pytest

from tests.spark import kills


@pytest.mark.xdist_group("spark-clusters")
@pytest.mark.timeout(1200)
def test_every_message_is_archived_once_if_the_driver_is_killed() -> None:
    assert kills.run(1, random.randrange(1 << 32)) > 0
