"""zambezi.zmtp.endpoint: valid endpoints, and the errors of invalid ones."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.zmtp.endpoint import Endpoint, Inproc, Ipc, Tcp, host_in, parse
from zambezi.zmtp.errors import EndpointError


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("tcp://127.0.0.1:5555", Tcp("127.0.0.1", 5555, 5555)),
        ("tcp://example.org:1", Tcp("example.org", 1, 1)),
        ("tcp://[::1]:65535", Tcp("::1", 65535, 65535)),
        ("tcp://[fe80::1%lo]:80", Tcp("fe80::1%lo", 80, 80)),
        ("ipc:///run/zambezi.sock", Ipc("/run/zambezi.sock")),
        ("ipc://relative", Ipc("relative")),
        ("ipc://@abstract", Ipc("@abstract")),
        ("inproc://a name, with: anything/in it", Inproc("a name, with: anything/in it")),
    ],
)
def test_an_endpoint_is_parsed_and_printed(text: str, endpoint: Endpoint) -> None:
    assert parse(text) == endpoint
    assert str(endpoint) == text


@pytest.mark.parametrize(
    ("text", "endpoint", "shown"),
    [
        ("tcp://*:80", Tcp("0.0.0.0", 80, 80), "tcp://0.0.0.0:80"),
        ("tcp://*:*", Tcp("0.0.0.0", 0, 0), "tcp://0.0.0.0:*"),
        ("tcp://[::]:0", Tcp("::", 0, 0), "tcp://[::]:*"),
        ("tcp://127.0.0.1:49152-65535", Tcp("127.0.0.1", 49152, 65535), "tcp://127.0.0.1:49152-65535"),
        ("ipc://*", Ipc("*"), "ipc://*"),
    ],
)
def test_wildcards_and_ranges_are_for_bind_only(text: str, endpoint: Endpoint, shown: str) -> None:
    assert parse(text, binding=True) == endpoint
    assert str(endpoint) == shown
    with pytest.raises(EndpointError, match="for bind only"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is no endpoint"),
        ("127.0.0.1:5555", "is no endpoint"),
        ("udp://127.0.0.1:5555", "is no endpoint"),
        ("TCP://127.0.0.1:5555", "is no endpoint"),
        ("tcp://", "has no name after"),
        ("ipc://", "has no name after"),
        ("inproc://", "has no name after"),
        ("tcp://127.0.0.1", "has no port"),
        ("tcp://:5555", "has no port"),
        ("tcp://[]:5555", "has no host"),
        ("tcp://::1:5555", "in brackets"),
        ("tcp://h:http", "is not a port number"),
        ("tcp://h:", "is not a port number"),
        ("tcp://h:80-", "is not a port number"),
        ("tcp://h:-80", "is not a port number"),
        ("tcp://h: 80", "is not a port number"),
        ("tcp://h:8_0", "is not a port number"),
        ("tcp://h:٨٠", "is not a port number"),
        ("tcp://h:65536", "1 to 65535"),
        ("tcp://h:20-10", "begins with its lowest port"),
        ("tcp://h:0-10", "1 to 65535"),
        ("ipc://" + "x" * 108, "107 bytes"),
        ("ipc://" + "é" * 54, "107 bytes"),
        ("ipc://a\0b", "zero byte"),
    ],
)
def test_errors_say_what_is_wrong(text: str, complaint: str) -> None:
    for binding in (False, True):
        with pytest.raises(EndpointError, match=complaint) as caught:
            parse(text, binding=binding)
        assert repr(text) in str(caught.value)


def test_the_longest_path_fits() -> None:
    assert parse("ipc://" + "x" * 107) == Ipc("x" * 107)


def test_an_abstract_name_begins_with_a_zero_byte_for_the_kernel() -> None:
    assert Ipc("@name").address == "\0name"
    assert Ipc("name").address == "name"


@pytest.mark.parametrize(("host", "numeric"), [("10.0.0.1", True), ("::1", True), ("fe80::1%lo", True), ("a.b", False)])
def test_names_and_addresses_are_distinguished(host: str, numeric: bool) -> None:
    assert Tcp(host, 1, 1).numeric is numeric


@given(st.text())
def test_any_text_is_an_endpoint_or_raises_an_endpoint_error(text: str) -> None:
    for candidate in (text, "tcp://" + text, "ipc://" + text):
        try:
            endpoint = parse(candidate, binding=True)
        except EndpointError:
            continue
        assert parse(str(endpoint), binding=True) == endpoint


def test_a_port_of_thousands_of_digits_is_no_port() -> None:
    with pytest.raises(EndpointError, match="is not a port number") as refused:
        parse("tcp://h:" + "5" * 5000)
    assert len(str(refused.value)) < 500


def test_the_host_in_an_address_of_the_kernel() -> None:
    assert host_in(("::1", 5, 0, 0)) == "::1"
    assert host_in(("::ffff:10.0.0.7", 5, 0, 0)) == "10.0.0.7"
    assert host_in(("fe80::1", 5, 0, socket.if_nametoindex("lo"))) == "fe80::1%lo"
    assert host_in(("fe80::1", 5, 0, 999_999)) == "fe80::1%999999"  # the interface is gone
    assert host_in(b"/run/socket") == host_in("") == ""
