"""zambezi.zeps.multicast.interface: the interface of a group, and the size of its datagrams."""

import socket
from types import SimpleNamespace

import psutil
import pytest

from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.interface import address_of, mtu_of

ADDRESSES = {"lo": "127.0.0.1", "eth0": "10.77.0.1", "jumbo0": "10.77.1.1"}
MTUS = {"lo": 65536, "eth0": 1500, "jumbo0": 9000}


@pytest.fixture(autouse=True)
def interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        psutil,
        "net_if_addrs",
        lambda: {
            name: [SimpleNamespace(family=socket.AF_INET, address=address)] for name, address in ADDRESSES.items()
        },
    )
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {name: SimpleNamespace(mtu=mtu) for name, mtu in MTUS.items()})


def test_an_interface_is_found_by_name_and_by_address() -> None:
    assert address_of("eth0") == address_of("10.77.0.1") == "10.77.0.1"
    with pytest.raises(GroupError, match=r"there is no interface 'eth9'.*lo \(127.0.0.1\)"):
        address_of("eth9")


@pytest.mark.parametrize(
    ("interface", "settings", "mtu"),
    [
        ("lo", "", 65_507),
        ("eth0", "", 1472),
        ("10.77.1.1", "", 8972),
        ("jumbo0", "&ttl=3", 1400),
        ("jumbo0", "&ttl=3&mtu=5000", 5000),
        ("lo", "&mtu=600", 600),
    ],
)
def test_a_datagram_is_as_large_as_the_interface_takes_it(interface: str, settings: str, mtu: int) -> None:
    assert mtu_of(Group.parse(f"udp://239.77.1.1:5680?interface={interface}{settings}")) == mtu


def test_an_interface_without_an_mtu_has_the_usual_one() -> None:
    MTUS["lo"], before = 0, MTUS["lo"]
    try:
        assert mtu_of(Group.parse("udp://239.77.1.1:5680?interface=lo")) == 1400
    finally:
        MTUS["lo"] = before
