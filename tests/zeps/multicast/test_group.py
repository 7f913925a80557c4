"""How a group is written down."""

import pytest

from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast.group import Group


def test_a_group_with_all_its_settings() -> None:
    group = Group.parse("udp://239.77.1.1:5680?interface=lo&ttl=4&rate=50M&mtu=9000&loop=0")
    assert group == Group("udp", "239.77.1.1", 5680, "lo", 4, 50 << 20, 9000, False)
    assert str(group) == "udp://239.77.1.1:5680"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("239.77.1.1:5680", "it begins with udp://"),
        ("tcp://239.77.1.1:5680", "it begins with udp://"),
        ("udp://10.0.0.1:5680", "224.0.0.0 to 239.255.255.255"),
        ("udp://host:5680", "224.0.0.0 to 239.255.255.255"),
        ("udp://239.77.1.1", "a port is missing"),
        ("udp://239.77.1.1:99999", "the port is 1 to 65535"),
        ("udp://239.77.1.1:1?ttl=256", "ttl is 0 to 255"),
        ("udp://239.77.1.1:1?mtu=10", "mtu is 256 to 65507"),
        ("udp://239.77.1.1:1?rate=fast", "rate is 1 to"),
        ("udp://239.77.1.1:1?loop=yes", "is none of"),
        ("udp://239.77.1.1:1?speed=1", "is none of"),
    ],
)
def test_a_mistake_is_told_with_what_to_write(text: str, told: str) -> None:
    with pytest.raises(GroupError, match="write one such as udp://") as caught:
        Group.parse(text)
    assert told in str(caught.value)
