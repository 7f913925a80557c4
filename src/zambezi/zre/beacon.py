"""The beacon: 22 bytes by which a node tells others that it exists, and the port of its mailbox. (BCN-03)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

_HEADER: Final = b"ZRE\x01"
SIZE: Final = 22


@dataclass(frozen=True, slots=True)
class Beacon:
    """A node's UUID and the port of its mailbox; port zero says that the node leaves. (BCN-07, BCN-08)

    >>> Beacon.decode(Beacon(UUID(int=7), 49152).encode())
    Beacon(uuid=UUID('00000000-0000-0000-0000-000000000007'), port=49152)
    """

    uuid: UUID
    port: int

    def encode(self) -> bytes:
        return _HEADER + self.uuid.bytes + self.port.to_bytes(2, "big")

    @classmethod
    def decode(cls, octets: bytes) -> Beacon | None:
        """Return the beacon in a datagram; None if it contains none, and must be discarded in silence. (BCN-04)"""
        if len(octets) != SIZE or octets[:4] != _HEADER:
            return None
        return cls(UUID(bytes=octets[4:20]), int.from_bytes(octets[20:], "big"))
