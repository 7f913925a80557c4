"""zambezi.zeps.multicast.libzmq: real NORM and PGM if libzmq supports them, and a clear error if not."""

import ctypes
import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.zeps.multicast.test_namespaces import Readers, Station
from tests.zre import namespaces
from tests.zre.namespaces import Network
from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.group_subscription import MulticastOptions
from zambezi.zeps.multicast.libzmq import library_for

NORM = Group.parse("norm://239.77.1.1:5680")
EPGM = Group.parse("epgm://239.77.1.1:5680")
# Debian's libzmq has both protocols, and that in pyzmq's wheels has neither.
LIBZMQ = "libzmq.so.5"


def lacks(feature: str) -> str:
    """Return why a protocol cannot be tested, or an empty text if it can."""
    try:
        has = ctypes.CDLL(LIBZMQ).zmq_has
    except OSError:
        return "libzmq is not installed (on Debian: apt-get install libzmq5)"
    has.argtypes = [ctypes.c_char_p]
    return "" if has(feature.encode()) else f"this libzmq has no {feature}"


def without(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    def find(name: str) -> Any:
        if module is None:
            raise ImportError(name)
        return module

    monkeypatch.setattr(importlib, "import_module", find)


@pytest.mark.parametrize("group", [NORM, EPGM])
def test_without_pyzmq_the_error_says_how_to_install_it(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, None)
    with pytest.raises(GroupError, match=r"needs pyzmq, which is not installed.*--no-binary"):
        library_for(group)


@pytest.mark.parametrize(("group", "feature"), [(NORM, "NORM"), (EPGM, "PGM")])
def test_a_libzmq_without_the_protocol_is_an_error(group: Group, feature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, SimpleNamespace(has=lambda _: False, __version__="27"))
    with pytest.raises(GroupError, match=f"needs a libzmq with {feature}, and that of pyzmq 27 lacks it.*udp://"):
        library_for(group)
    with pytest.raises(GroupError, match="or use udp://"):
        MulticastOptions.from_arguments(f"{group.scheme}://239.77.1.1:5680", None)


@pytest.mark.spec("ZEP-16")
@pytest.mark.skipif(bool(namespaces.allowed()), reason=namespaces.allowed() or "-")
@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(scheme, marks=pytest.mark.skipif(bool(lacks(feature)), reason=lacks(feature) or "-"))
        for scheme, feature in (("norm", "norm"), ("epgm", "pgm"))
    ],
)
def test_every_message_comes_once_and_in_order(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """libzmq's NORM serves only receivers that exist when a sender begins; others read from the broker."""
    monkeypatch.setenv("LD_PRELOAD", LIBZMQ)  # pyzmq uses it instead of its own
    with Network() as network:
        station = Station(network.host(), tmp_path, group=f"{scheme}://239.77.1.1:5680?interface=eth0")
        readers = Readers(network.host(), station)
        readers.join("one", "two", goal=4000)
        station.publish(1000)
        station.published()
        station.restart()
        station.publish(3000)
        station.published()
        counters = readers.arrive("one", "two")
        assert any(one["from_group"] for one in counters.values())
