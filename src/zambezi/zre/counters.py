"""Counters of what a node discarded or refused."""

from __future__ import annotations

from dataclasses import dataclass


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
    not_members: int = 0  # a SHOUT to a group that we are not in, or not any more
    refused_strangers: int = 0  # a node that we found, above `max_strangers`
    refused_peers: int = 0  # a node that greeted us, above `max_peers`
