"""The profile of a node: the name, headers and groups that it tells its peers, and the HELLO that carries them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from zambezi.wire import string
from zambezi.wire.text import as_bytes
from zambezi.zre.dialect import Dialect, Frames, Greeting
from zambezi.zre.errors import ZreError

_LONGEST_STRING: Final = 255  # bytes: a string has one byte for its length


class Profile:
    """The facts about a node that its peers are told. `status` counts the changes of its groups. (GRP-01, GRP-02)"""

    def __init__(self, uuid: UUID, name: str, headers: Mapping[str, str], groups: Iterable[str]) -> None:
        self.name = _checked("the name of a node", name) or uuid.hex[:6]
        self.headers = {_checked("the name of a header", key): value for key, value in headers.items()}
        self.groups = {_checked("the name of a group", group) for group in groups}
        self.status = len(self.groups) & 0xFF
        self._encoded_groups = {string.encode(group): group for group in self.groups}
        self._hellos: dict[tuple[str, str], Frames] = {}  # by endpoint and dialect, until the profile changes

    def join(self, group: str) -> bool:
        """Add a group; return False if the node is in it already."""
        if group in self.groups:
            return False
        self._encoded_groups[string.encode(_checked("the name of a group", group))] = group
        self.groups.add(group)
        self._count_change()
        return True

    def leave(self, group: str) -> bool:
        """Remove a group; return False if the node is not in it."""
        if group not in self.groups:
            return False
        self.groups.discard(group)
        self._encoded_groups.pop(string.encode(group), None)
        self._count_change()
        return True

    def _count_change(self) -> None:
        self.status = (self.status + 1) & 0xFF
        self._hellos.clear()

    def announce(self, service: str, endpoint: str) -> bool:
        """Add the header of a service; return False if it is there already."""
        if self.headers.get(service) == endpoint:
            return False
        self.headers[_checked("the name of a service", service)] = endpoint
        self._hellos.clear()
        return True

    def own_group(self, encoded: bytes) -> str | None:
        """Return the group whose encoded name stands in a SHOUT; None if the node is not in it."""
        return self._encoded_groups.get(encoded)

    def hello(self, mailbox: str, dialect: Dialect, extra: Mapping[str, str]) -> Frames:
        """Return the HELLO in a dialect, with the endpoint of our mailbox; `extra` headers depend on that alone."""
        frames = self._hellos.get((mailbox, dialect.name))
        if frames is None:
            headers = {**self.headers, **extra}
            greeting = Greeting(mailbox, sorted(self.groups), self.status, self.name, headers)
            frames = self._hellos[mailbox, dialect.name] = dialect.greet(greeting).encode()
        return frames

    def moved(self) -> None:
        """Forget the HELLOs with endpoints of a mailbox that is elsewhere now."""
        self._hellos.clear()


def _checked(subject: str, text: str) -> str:
    """Return a text that a string of a message can carry; raise `ZreError` if it is too long."""
    size = len(as_bytes(text))
    if size > _LONGEST_STRING:
        raise ZreError(f"{subject} can have at most {_LONGEST_STRING} bytes, not {size}: {text[:20]}...")
    return text
