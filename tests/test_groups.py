"""The groups of pytest-xdist: tests of one group share a worker, and with it an expensive fixture."""

import os

import pytest


@pytest.mark.xdist_group("groups")
def test_a_worker_knows_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    """Without the suffix the scheduler ignores groups, and each worker starts a Spark session and builds the site."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@groups")
