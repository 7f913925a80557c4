"""A fixture for all tests of commands."""

import logging
from collections.abc import Iterator

import pytest

from tests.zmtp.waiting import PATIENCE


@pytest.fixture(autouse=True, scope="session")
def patience() -> Iterator[None]:
    """Let commands that only look wait for longer than people would: the machine can be busy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zambezi.cli.client.LOOK", PATIENCE)
        yield


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Restore the log of the process, which a server changes, for the next test."""
    loggers = [logging.getLogger(name) for name in ("zambezi", "asyncio", "aiohttp")]
    before = [(logger.handlers.copy(), logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
