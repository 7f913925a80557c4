"""Messages that go out after commands about them, in one piece."""

from __future__ import annotations

from collections.abc import Sequence

from zambezi.zeps.block import Block
from zambezi.zeps.layout import frame_header


class PrefixedBlock:
    """Commands, and the messages of a block after them; or only the commands, if the messages follow from a file."""

    __slots__ = ("_block", "_prefixes")

    def __init__(self, prefixes: Sequence[bytes], block: Block | None = None) -> None:
        self._prefixes = prefixes
        self._block = block

    @property
    def octets(self) -> bytes:
        """The messages with their frame headers."""
        begin = b"".join([frame_header(len(one)) + one for one in self._prefixes])
        return begin + self._block.octets if self._block is not None else begin

    @property
    def bodies(self) -> list[bytes]:
        """The messages without their frame headers."""
        return [*self._prefixes, *(self._block.bodies if self._block is not None else ())]
