"""zambezi.zre.datagrams: the UDP sockets of beacons. tests/zre/test_ipv6.py has multicasts, in namespaces."""

import socket
from ipaddress import IPv4Interface, IPv6Interface

import pytest

from tests.zre.ipv6 import NO_IPV6, has_ipv6
from zambezi.zre import datagrams
from zambezi.zre.interfaces import Interface

LO = Interface("lo", IPv4Interface("127.0.0.1/8"))
LO_6 = Interface("lo", IPv6Interface("::1/128"))


def test_a_broadcast_is_heard_by_all_listeners_of_the_port() -> None:
    with datagrams.listen_4(0) as first:
        port = first.getsockname()[1]
        with datagrams.listen_4(port) as second, datagrams.sender(LO) as sender:
            sender.sendto(b"beacon", datagrams.target(LO, port))
            for listener in (first, second):
                listener.settimeout(60)
                assert datagrams.receive_4(listener) == (b"beacon", "127.0.0.1", 0)


@pytest.mark.skipif(not has_ipv6(), reason=NO_IPV6)
def test_a_datagram_to_one_address_of_ipv6_has_no_interface() -> None:
    with datagrams.listen_6(0, [datagrams.index_of(LO_6)]) as listener, datagrams.sender(LO_6) as sender:
        listener.settimeout(60)
        sender.sendto(b"beacon", ("::1", listener.getsockname()[1]))
        assert datagrams.receive_6(listener) == (b"beacon", "::1", 0)


def test_beacons_go_to_all_nodes_of_the_network() -> None:
    assert datagrams.target(LO, 5670) == ("127.255.255.255", 5670)
    assert datagrams.target(LO_6, 5670) == ("ff02::1", 5670, 0, socket.if_nametoindex("lo"))


def test_an_interface_that_is_gone_is_an_error_of_the_system() -> None:
    for interface in (
        Interface("gone0", IPv6Interface("fe80::1/64")),
        Interface("gone0", IPv4Interface("10.9.9.9/24")),
    ):
        with pytest.raises(OSError, match=r"."):
            datagrams.sender(interface)
