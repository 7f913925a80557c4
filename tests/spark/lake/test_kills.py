"""Exactly once: a program that archives is killed at random moments, and every message is in the table once."""

from __future__ import annotations

import random

import pytest

from tests.spark.lake import kills


@pytest.mark.timeout(600)
def test_every_message_is_in_the_table_once() -> None:
    assert kills.run(3, random.randrange(1 << 32)) > 0


@pytest.mark.xdist_group("weed")
@pytest.mark.timeout(600)
def test_every_message_is_in_an_object_store_once() -> None:
    assert kills.run(2, random.randrange(1 << 32), weed=True) > 0
