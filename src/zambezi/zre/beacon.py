"""The beacon: 22 bytes by which a node tells others that it exists, and the port of its mailbox. (BCN-03)

A node with keys of its own sends the beacon of Zyre's version 3: the same with version 3, and its public key at the
end, so 54 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from uuid import UUID

from zambezi.zmtp.keys import KEY_OCTETS

_HEADER: Final = b"ZRE\x01"
_KEYED: Final = b"ZRE\x03"
_PORT: Final = 20  # the offset of the port,
_KEY: Final = 22  # and of the key


@dataclass(frozen=True, slots=True)
class Beacon:
    """A node's UUID and the port of its mailbox; port zero says that the node leaves. (BCN-07, BCN-08)

    >>> Beacon.decode(Beacon(UUID(int=7), 49152).encode())
    Beacon(uuid=UUID('00000000-0000-0000-0000-000000000007'), port=49152, key=b'')
    """

    uuid: UUID
    port: int
    key: bytes = b""

    def encode(self) -> bytes:
        return (_KEYED if self.key else _HEADER) + self.uuid.bytes + self.port.to_bytes(2, "big") + self.key

    @classmethod
    @lru_cache(maxsize=4096)  # a beacon reaches all nodes of a process, and there can be a thousand
    def decode(cls, octets: bytes) -> Beacon | None:
        """Return the beacon in a datagram; None if it contains none, and must be discarded in silence. (BCN-04)"""
        size = {_HEADER: _KEY, _KEYED: _KEY + KEY_OCTETS}.get(octets[:4])
        if len(octets) != size:
            return None
        return cls(UUID(bytes=octets[4:_PORT]), int.from_bytes(octets[_PORT:_KEY], "big"), octets[_KEY:])
