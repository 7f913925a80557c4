"""A stream over multicast: one publisher's flood to a thousand readers costs one send. (ZEP-16)

The broker sends what is live to a group (`feed`, `sender`); a reader takes it from there as long as nothing is missing
(`reception`), and from the broker, by SUBSCRIBE, whenever something is: the journal is the repair. `datagram` is the
grammar of what travels, and `group` is how a group is written down.
"""

from __future__ import annotations
