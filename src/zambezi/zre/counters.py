"""Counters of what a node discarded or refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(slots=True)
class Counters:
    """The number of beacons, messages and peers that a node discarded or refused, by reason."""

    bad_beacons: int = 0  # BCN-04
    bad_identities: int = 0  # MBX-08
    bad_messages: int = 0  # SIG-01, SIG-02, or malformed
    before_hello: int = 0  # HEL-02
    unknown_commands: int = 0
    gaps: int = 0  # SEQ-02
    status_mismatches: int = 0  # GRP-03
    dropped: int = 0  # a message of the program to a peer whose queue was full, with `on_full="drop"`
    not_members: int = 0  # a SHOUT to a group that we are not in, or not any more
    refused_strangers: int = 0  # a node that we found, above `max_strangers`
    refused_peers: int = 0  # a node that greeted us, above `max_peers`
    refused_hellos: int = 0  # a HELLO that is too large, or has too many groups or headers
    refused_endpoints: int = 0  # an endpoint in HELLO or gossip to which we do not connect
    refused_claims: int = 0  # a node at an endpoint that another peer has, which answers there
    refused_groups: int = 0  # a JOIN of a peer that is in too many groups
    refused_keys: int = 0  # a node whose key is not allowed, or not the one that it proves
    other_beacons: int = 0  # a beacon with a key, if our node has none of its own, or one without a key
    bad_tuples: int = 0  # a message of zgossip that is malformed, or not the tuple of a node
    refused_tuples: int = 0  # a tuple above the bound, or one that another link told differently
    unproved_beacons: int = (
        0  # a beacon that names another port for a peer, in a mesh with keys, where it proves nothing
    )


class Refusals:
    """The refusals of a node, summed up for its log: an attack makes one line in a minute, not one for each message."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._logged = Counters()
        self._next = 0.0

    def news(self, now: float) -> str:
        """Return what was refused since the last line; empty if nothing was, or that line is less than a minute old.

        >>> counters = Counters(refused_hellos=2)
        >>> refusals = Refusals(counters)
        >>> refusals.news(100.0)
        '2 refused HELLOs'
        >>> counters.refused_hellos += 1
        >>> refusals.news(101.0), refusals.news(160.0)
        ('', '1 refused HELLOs')
        """
        if now < self._next:
            return ""
        news = [
            f"{count} {text}"
            for name, text in _REFUSALS.items()
            if (count := getattr(self._counters, name) - getattr(self._logged, name))
        ]
        self._next = now + (_MINUTE if news else _SECOND)  # a node asks after every read
        if news:
            self._logged = replace(self._counters)
        return ", ".join(news)


_SECOND: Final = 1.0
_MINUTE: Final = 60.0
_REFUSALS: Final = {
    "refused_strangers": "refused nodes that we found",
    "refused_peers": "refused nodes that greeted us",
    "refused_hellos": "refused HELLOs",
    "refused_endpoints": "refused endpoints",
    "refused_claims": "refused nodes at the endpoint of another peer",
    "refused_groups": "refused groups",
    "refused_keys": "refused keys",
    "other_beacons": "beacons of nodes with other security",
    "refused_tuples": "refused tuples of zgossip",
    "unproved_beacons": "beacons without proof that say that a peer moved",
}
