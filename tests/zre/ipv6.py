"""Whether this machine has IPv6 on its loopback."""

import functools
import socket

NO_IPV6 = "this machine has no IPv6 on its loopback"


@functools.cache
def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
