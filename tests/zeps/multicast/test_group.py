"""zambezi.zeps.multicast.group: the notation of a group."""

import pytest

from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast.group import Group


def test_a_group_with_all_its_settings() -> None:
    group = Group.parse("udp://239.77.1.1:5680?interface=lo&ttl=4&rate=50M&mtu=9000&loop=0")
    assert group == Group("udp", "239.77.1.1", 5680, "lo", 4, 50 << 20, 9000, False)
    assert str(group) == "udp://239.77.1.1:5680"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("239.77.1.1:5680", "it must begin with udp://"),
        ("tcp://239.77.1.1:5680", "it must begin with udp://"),
        ("udp://10.0.0.1:5680", "224.0.0.0 to 239.255.255.255"),
        ("udp://host:5680", "224.0.0.0 to 239.255.255.255"),
        ("udp://239.77.1.1", "the port is missing"),
        ("udp://239.77.1.1:99999", "the port must be 1 to 65535"),
        ("udp://239.77.1.1:1?ttl=256", "ttl must be 0 to 255"),
        ("udp://239.77.1.1:1?mtu=10", "mtu must be 256 to 65507"),
        ("udp://239.77.1.1:1?rate=fast", "rate must be 1 to"),
        ("udp://239.77.1.1:1?loop=yes", "is not one of"),
        ("udp://239.77.1.1:1?speed=1", "is not one of"),
    ],
)
def test_an_error_says_what_to_write(text: str, reason: str) -> None:
    with pytest.raises(GroupError, match="write it like udp://") as caught:
        Group.parse(text)
    assert reason in str(caught.value)
