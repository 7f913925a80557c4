"""zambezi.zre.interfaces: which interfaces a node uses, and which address it tells others."""

import socket
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Interface, IPv6Interface
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zre import interfaces as module
from zambezi.zre.errors import ZreError
from zambezi.zre.interfaces import Interface, choose, fit_to_tell, follow, interfaces, local_address_for, several


def interface(name: str, where: str, up: bool = True) -> Interface:
    return Interface(name, IPv6Interface(where) if ":" in where else IPv4Interface(where), up)


LO = interface("lo", "127.0.0.1/8")
ETH = interface("eth0", "10.0.0.5/24")
WIFI = interface("wlan0", "192.168.1.5/24")
LINE = interface("tun0", "10.8.0.5/32")
DOCKER = interface("docker0", "172.17.0.1/16")
LO_6 = interface("lo", "::1/128")
GLOBAL_6 = interface("eth0", "fd00::5/64")
LINK_6 = interface("eth0", "fe80::1/64")


def down(one: Interface) -> Interface:
    return replace(one, up=False)


# The interfaces of a machine


def test_the_interfaces_of_the_machine_are_read_without_link_local_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(family: int, address: str, netmask: str | None) -> SimpleNamespace:
        return SimpleNamespace(family=family, address=address, netmask=netmask)

    addresses = {
        "lo": [entry(socket.AF_INET, "127.0.0.1", "255.0.0.0"), entry(socket.AF_INET6, "::1", None)],
        "eth0": [
            entry(socket.AF_INET, "169.254.7.7", "255.255.0.0"),
            entry(socket.AF_INET, "10.0.0.5", "255.255.255.0"),
            entry(socket.AF_INET6, "fd00::5", "ffff:ffff:ffff:ffff::"),
            entry(socket.AF_INET6, "fe80::1%eth0", "ffff:ffff:ffff:ffff::"),
            entry(socket.AF_PACKET, "00:00:00:00:00:00", None),
        ],
        "off0": [entry(socket.AF_INET, "10.1.0.5", "255.255.255.0")],
        "tun0": [entry(socket.AF_INET, "10.8.0.5", None)],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    states = {name: SimpleNamespace(isup=name != "off0") for name in addresses}
    monkeypatch.setattr(psutil, "net_if_stats", lambda: states)
    found = interfaces()
    assert [one for one in found if not one.is_ipv6] == [ETH, LO, interface("off0", "10.1.0.5/24"), LINE]
    assert [one for one in found if one.is_ipv6] == [GLOBAL_6, LINK_6, LO_6]
    assert [one.name for one in found if not one.up] == ["off0"]
    assert choose(None) == [ETH]
    assert (
        choose(None, ipv6=True)
        == choose("eth0", ipv6=True)
        == choose("fd00::5")
        == choose("*", ipv6=True)
        == [GLOBAL_6]
    )
    assert choose("fe80::1") == choose("fe80::1%eth0") == choose("fe80::1", ipv6=True) == [LINK_6]
    assert choose("lo", ipv6=True) == choose("::1") == [LO_6]
    assert choose(["eth0", "fe80::1"]) == [ETH, LINK_6]
    with pytest.raises(ZreError, match=r"'tun0' is up with an IPv6 address; there are: eth0 \(fd00::5\)"):
        choose("tun0", ipv6=True)


def test_the_loopback_of_this_machine_is_there() -> None:
    (lo,) = choose("127.0.0.1")
    assert lo.where.is_loopback
    assert choose(lo.name) == [lo]


def test_an_unknown_name_is_refused_and_the_known_ones_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "interfaces", lambda: [LO, ETH, down(WIFI)])
    for wanted in ("wlan0", "eth7", "10.0.0.6", ["eth0", "eth7"]):
        with pytest.raises(ZreError, match=r"there are: lo \(127.0.0.1\), eth0 \(10.0.0.5\)$"):
            choose(wanted)
    monkeypatch.setattr(module, "interfaces", list)
    for nothing in (None, "*"):
        with pytest.raises(ZreError, match="no network interface is up"):
            choose(nothing)


# The first choice, and later ones


@pytest.mark.parametrize(
    ("wanted", "before", "found", "chosen"),
    [
        # one that is usable
        (None, [], [ETH, LO, WIFI], [ETH]),
        (None, [], [LO], [LO]),
        (None, [], [LO, LINE], [LINE]),
        (None, [], [down(ETH), LO], [LO]),
        (None, [LO], [LO, WIFI], [WIFI]),  # another interface has come up
        (None, [WIFI], [DOCKER, ETH, LO, WIFI], [WIFI]),  # no reason to change
        (None, [WIFI], [LO, down(WIFI)], [WIFI]),  # it can be up again soon
        (None, [WIFI], [ETH, LO, down(WIFI)], [ETH]),
        (None, [ETH], [interface("eth0", "10.0.0.77/24"), DOCKER, LO], [interface("eth0", "10.0.0.77/24")]),
        (None, [ETH], [DOCKER, interface("eth0", "10.0.0.77/24"), LO], [interface("eth0", "10.0.0.77/24")]),
        (None, [ETH], [LO], [LO]),
        (None, [ETH], [], [ETH]),
        # all
        ("*", [], [ETH, LO, LINE, WIFI], [ETH, WIFI]),
        ("*", [], [LO], [LO]),
        ("*", [LO], [ETH, LO], [ETH]),
        ("*", [ETH], [ETH, LO, WIFI], [ETH, WIFI]),
        ("*", [ETH, WIFI], [ETH, LO, down(WIFI)], [ETH, WIFI]),
        ("*", [ETH], [ETH, LO, down(WIFI)], [ETH]),
        ("*", [ETH, WIFI], [ETH, LO], [ETH]),
        ("*", [ETH], [], [ETH]),
        # some by name or address
        ("lo", [], [ETH, LO], [LO]),
        ("10.0.0.5", [], [LO, ETH], [ETH]),
        (["wlan0", "eth0"], [], [ETH, LO, WIFI], [WIFI, ETH]),
        (["eth0", "10.0.0.5"], [], [ETH, LO], [ETH]),
        ("eth0", [ETH], [interface("eth0", "10.0.0.77/24"), LO], [interface("eth0", "10.0.0.77/24")]),
        ("eth0", [ETH], [interface("eth0", "10.0.0.2/24"), ETH], [ETH]),  # a second address
        ("eth0", [ETH], [LO, WIFI], [ETH]),  # the node waits for it
        ("eth0", [ETH], [down(ETH), LO], [ETH]),
        (["eth0", "wlan0"], [ETH, WIFI], [LO, WIFI], [WIFI]),
        (["eth0", "wlan0"], [WIFI], [ETH, LO, WIFI], [ETH, WIFI]),
    ],
)
def test_a_node_follows(
    wanted: str | Sequence[str] | None, before: list[Interface], found: list[Interface], chosen: list[Interface]
) -> None:
    assert follow(wanted, before, found) == chosen
    assert follow(wanted, chosen, found) == chosen  # and stays there


SOME = st.lists(st.sampled_from([LO, ETH, WIFI, LINE, DOCKER, down(ETH), down(WIFI)]), unique_by=lambda one: one.name)


@given(st.sampled_from([None, "*", "eth0", ["eth0", "wlan0"]]), SOME, SOME)
def test_a_node_always_has_an_interface_and_keeps_it(
    wanted: str | list[str] | None, before: list[Interface], found: list[Interface]
) -> None:
    chosen = follow(wanted, before, found)
    assert set(chosen) <= {*before, *found}
    assert chosen or not before
    assert follow(wanted, chosen, found) == chosen


def test_a_program_can_ask_for_several_interfaces() -> None:
    assert [several(wanted) for wanted in (None, "*", "eth0", ["eth0"], ["eth0", "wlan0"])] == [0, 1, 0, 0, 1]


# Addresses


def test_an_interface_reaches_the_addresses_of_its_network() -> None:
    assert (ETH.address, ETH.broadcast, str(ETH)) == ("10.0.0.5", "10.0.0.255", "eth0 (10.0.0.5)")
    assert ETH.reaches("10.0.0.250")
    assert not ETH.reaches("10.0.1.5")
    assert [one.outside for one in (ETH, LO, LINE)] == [True, False, False]


@pytest.mark.parametrize(
    ("address", "fit"),
    [("10.0.0.1", True), ("127.0.0.1", True), ("0.0.0.0", False), ("169.254.1.1", False), ("224.0.0.1", False)],
)
def test_which_addresses_can_be_told(address: str, fit: bool) -> None:
    assert fit_to_tell(address) == fit


def test_the_address_that_leads_to_another_is_remembered_until_routes_change() -> None:
    module.routes_changed()
    assert local_address_for("127.0.0.9") == "127.0.0.1"
    assert local_address_for.cache_info().currsize == 1
    module.routes_changed()
    assert local_address_for.cache_info().currsize == 0


# IPv6


def test_an_address_of_ipv6_is_told_with_its_interface_if_it_is_link_local() -> None:
    assert (GLOBAL_6.address, LINK_6.address, LO_6.address) == ("fd00::5", "fe80::1%eth0", "::1")
    assert str(LINK_6) == "eth0 (fe80::1)"
    assert {one.broadcast for one in (GLOBAL_6, LINK_6, LO_6)} == {"ff02::1"}
    assert [one.outside for one in (GLOBAL_6, LINK_6, LO_6)] == [True, True, False]


def test_an_address_of_ipv6_is_reached_on_its_interface() -> None:
    assert GLOBAL_6.reaches("fd00::9")
    assert not GLOBAL_6.reaches("fd01::9")
    assert not GLOBAL_6.reaches("10.0.0.9")
    assert not ETH.reaches("fd00::9")
    assert LINK_6.reaches("fe80::9%eth0")
    assert GLOBAL_6.reaches("fe80::9%eth0")
    assert not LINK_6.reaches("fe80::9%eth1")


def test_a_global_address_is_preferred_and_one_of_each_interface_is_used() -> None:
    other = interface("eth1", "fe80::2/64")
    found = [ETH, LINK_6, GLOBAL_6, other, LO_6]
    assert follow(None, (), found, True) == [GLOBAL_6]
    assert follow("*", (), found, True) == [GLOBAL_6, other]
    assert follow("eth1", (), found, True) == [other]
    assert follow("eth0", [LINK_6], found, True) == [LINK_6]  # it is used already
    assert follow(None, (), [ETH, LO_6], True) == [LO_6]
    assert follow(None, (), found) == [ETH]
