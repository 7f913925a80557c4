"""A stream over multicast: live messages reach a thousand subscribers with one send. (ZEP-16)

The broker sends the live messages to a group: `feed` makes the datagrams, and `sender` sends them. A subscriber
receives them (`receiver`) as long as none is missing (`reception`). If one is missing, the subscriber gets it from the
broker, by SUBSCRIBE: the journal repairs every loss. `group_subscription` connects a subscription with its group.
`datagram` is the grammar of the datagrams, `group` parses the address of a group, `interface` finds the network
interface, and `libzmq` is for groups over NORM or PGM.
"""

from __future__ import annotations
