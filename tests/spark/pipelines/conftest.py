"""The fixtures of the tests of pipelines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.pipelines.frames import caching
from zambezi.spark.pipelines.pipeline import Cache


@pytest.fixture
def cache() -> Iterator[Cache]:
    """The function with which reports share tables: each table is computed once in a test."""
    with caching() as cache:
        yield cache
