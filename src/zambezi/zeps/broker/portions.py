"""The messages for a member of a group as they go out: after a DELIVERIES, where one is needed."""

from __future__ import annotations

from collections.abc import Sequence

from zambezi.zeps.block import Block
from zambezi.zeps.broker.group_member import Portion
from zambezi.zeps.layout import frame_header
from zambezi.zeps.messages import Deliveries
from zambezi.zeps.sequences import pack_deliveries


class PrefixedBlock:
    """A DELIVERIES, and the messages that it is about."""

    __slots__ = ("_block", "_prefix")

    def __init__(self, deliveries: Sequence[tuple[int, int]], block: Block) -> None:
        self._prefix = Deliveries(pack_deliveries(deliveries)).encode()[0]
        self._block = block

    @property
    def octets(self) -> bytes:
        """The messages with their frame headers."""
        return frame_header(len(self._prefix)) + self._prefix + self._block.octets

    @property
    def bodies(self) -> list[bytes]:
        """The messages without their frame headers."""
        return [self._prefix, *self._block.bodies]


def framed(portion: Portion) -> PrefixedBlock | Block:
    """Return the messages for a member, as they go out."""
    if portion.deliveries or not portion.in_order:
        return PrefixedBlock(portion.deliveries, portion.block)
    return portion.block
