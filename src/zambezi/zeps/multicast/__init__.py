"""A stream over multicast: one publisher's flood to a thousand readers costs one send. (ZEP-16)

The broker sends what is live to a group (`feed`, `sender`); a reader takes it from there (`receiver`) as long as
nothing is missing (`reception`), and from the broker, by SUBSCRIBE, whenever something is: the journal is the repair.
`listening` is where a subscription meets the two. `datagram` is the grammar of what travels, `group` is how a group is
written down, `interface` is where it is on this host, and `libzmq` is for groups that go over NORM or PGM.
"""

from __future__ import annotations
