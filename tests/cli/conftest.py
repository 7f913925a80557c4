"""A fixture for all tests of commands."""

from collections.abc import Iterator

import pytest

from tests.zmtp.waiting import PATIENCE


@pytest.fixture(autouse=True, scope="session")
def patience() -> Iterator[None]:
    """Let commands that only look wait for longer than people would: the machine can be busy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zambezi.cli.client.LOOK", PATIENCE)
        yield
