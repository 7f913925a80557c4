"""What all tests share."""

import signal
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from zambezi.zmtp.testing import Simulation

# How long an example takes says something about the machine, not about the code: a loaded machine, or the
# first run, when hypothesis builds its Unicode tables, must not fail a property.
settings.register_profile("zambezi", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("zambezi")

# A run in the background may have been started with SIGINT ignored, and so would the commands that tests interrupt.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation() as s:
        yield s
