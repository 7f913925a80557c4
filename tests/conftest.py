"""The configuration and the fixtures of all tests."""

import signal
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from zambezi.zmtp.testing import Simulation

# The time that an example takes says something about the machine, not about the code: a loaded machine, or the first
# run, in which hypothesis builds its Unicode tables, must not fail a property.
settings.register_profile("zambezi", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("zambezi")

# A shell starts background jobs with SIGINT ignored, and the commands that tests interrupt would inherit that.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def sim() -> Iterator[Simulation]:
    """A simulated event loop, whose kernel sockets are closed at the end of the test."""
    with Simulation() as simulation:
        yield simulation
