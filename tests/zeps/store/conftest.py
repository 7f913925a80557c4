"""The stores of the tests: a directory, and `weed`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.zeps.store.weed import Weed, running_weed

if TYPE_CHECKING:
    from zambezi.zeps.store.shell import ObjectStore

pytest.importorskip("obstore", reason="obstore missing: pip install 'zambezi[store]'")


@pytest.fixture(scope="session")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weed]:
    """A store like S3, for all tests of one process."""
    with running_weed(tmp_path_factory.mktemp("weed")) as running:
        yield running


@pytest.fixture(params=["directory", pytest.param("weed", marks=pytest.mark.xdist_group("weed"))])
def real_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A prefix of a real store, for one test."""
    from zambezi.zeps.store.shell import ObjectStore

    if request.param == "directory":
        store = ObjectStore(str(tmp_path_factory.mktemp("store")))
    else:
        running: Weed = request.getfixturevalue("weed")
        store = ObjectStore(running.url(uuid4().hex), running.options)
    yield store
    store.close()
