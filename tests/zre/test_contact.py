"""zambezi.zre.contact: the parts of contacts, which peers can make up."""

import pytest

from zambezi.zmtp import z85
from zambezi.zre import contact

KEY = bytes(range(32))


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("tcp://10.0.0.1:50000", "10.0.0.1", 50000),
        ("tcp://[::1]:5", "::1", 5),
        ("tcp://[fe80::1%eth0]:5", "fe80::1%eth0", 5),
        ("tcp://fe80::1:5", "fe80::1", 5),  # as Zyre expects it
        ("tcp://[fe80::1:5", "fe80::1", 5),  # as Zyre says it
        ("tcp://gate.example:7", "gate.example", 7),
        ("inproc://memory-1/2/3", "", None),
        ("tcp://", "", None),
        ("tcp://[", "", None),
        ("tcp://a:99999", "a", None),
        ("tcp://a:999999", "a", None),
        ("tcp://a:\u0663", "a", None),
        ("", "", None),
    ],
)
def test_the_parts_of_an_endpoint(text: str, host: str, port: int | None) -> None:
    assert (contact.host_of(text), contact.port_of(text)) == (host, port)
    keyed = contact.with_key(text, KEY)
    assert (contact.host_of(keyed), contact.port_of(keyed)) == (host, port)


def test_a_key_follows_the_endpoint() -> None:
    keyed = contact.with_key("tcp://10.0.0.1:5", KEY)
    assert keyed == f"tcp://10.0.0.1:5|{z85.encode(KEY)}"
    assert contact.endpoint_of(keyed) == "tcp://10.0.0.1:5"
    assert contact.key_of(keyed) == KEY
    assert contact.with_key("tcp://10.0.0.1:5", b"") == "tcp://10.0.0.1:5"
    assert contact.key_of("tcp://10.0.0.1:5") == b""


@pytest.mark.parametrize("key", ["", "short", "~" * 40, "#" * 40, "0" * 45])
def test_a_malformed_key_is_not_taken_for_none(key: str) -> None:
    assert contact.key_of(f"tcp://10.0.0.1:5|{key}") is None


def test_others_are_told_link_local_addresses_without_our_interface() -> None:
    assert contact.for_others("tcp://[fe80::1%eth0]:5") == "tcp://fe80::1:5"
    keyed = contact.with_key("tcp://[fe80::1%eth0]:5", KEY)
    assert contact.for_others(keyed) == contact.with_key("tcp://fe80::1:5", KEY)
    for text in ("tcp://10.0.0.1:5", "tcp://[fd00::1]:5", "tcp://fe80.example:5", "inproc://fe80::1"):
        assert contact.for_others(text) == text
