"""The profile of a node: the name, headers and groups that it tells its peers, and the HELLO that carries them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final
from uuid import UUID

from zambezi.wire import dictionary, string, strings
from zambezi.wire.text import as_bytes
from zambezi.zre import bounds
from zambezi.zre.dialect import Dialect, Frames, Greeting
from zambezi.zre.errors import ZreError

_LONGEST_STRING: Final = 255  # bytes: a string has one byte for its length
_OTHER_FIELDS: Final = 1024  # bytes of a HELLO for its endpoint, its name, and the header of gossip


class Profile:
    """The facts about a node that its peers are told. `status` counts the changes of its groups. (GRP-01, GRP-02)"""

    def __init__(self, uuid: UUID, name: str, headers: Mapping[str, str], groups: Iterable[str]) -> None:
        self.name = _checked("the name of a node", name) or uuid.hex[:6]
        self.headers = {_checked_header(key): value for key, value in headers.items()}
        self.groups = {_checked("the name of a group", group) for group in groups}
        _check_bounds(self.headers, self.groups)
        self.status = len(self.groups) & 0xFF
        self._encoded_groups = {string.encode(group): group for group in self.groups}
        self._hellos: dict[tuple[str, str], Frames] = {}  # by endpoint and dialect, until the profile changes

    def join(self, group: str) -> bool:
        """Add a group; return False if the node is in it already."""
        if group in self.groups:
            return False
        encoded = string.encode(_checked("the name of a group", group))
        _check_bounds(self.headers, {*self.groups, group})
        self._encoded_groups[encoded] = group
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

    def rename(self, name: str) -> bool:
        """Change the name; return False if it is the same."""
        if _checked("the name of a node", name) == self.name:
            return False
        if not name:
            raise ZreError("the name of a node cannot become empty")
        self.name = name
        self._hellos.clear()
        return True

    def set_header(self, key: str, value: str | None) -> bool:
        """Set a header, or remove it with None; return False if nothing changes."""
        if self.headers.get(key) == value:
            return False
        headers = {name: kept for name, kept in self.headers.items() if name != key}
        if value is not None:
            headers[_checked_header(key)] = value
        _check_bounds(headers, self.groups)
        self.headers = headers
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


def _check_bounds(headers: Mapping[str, str], groups: Collection[str]) -> None:
    """Raise `ZreError` if peers would refuse a HELLO with these headers and groups."""
    for subject, count, most in (("headers", len(headers), bounds.HEADERS), ("groups", len(groups), bounds.GROUPS)):
        if count > most:
            raise ZreError(f"a node can have at most {most} {subject}, not {count}")
    size = len(strings.encode([*groups])) + len(dictionary.encode(headers))
    if size > bounds.HELLO - _OTHER_FIELDS:
        raise ZreError(
            f"the headers and groups of a node can have at most {bounds.HELLO - _OTHER_FIELDS} bytes in its HELLO, "
            f"not {size}"
        )


def _checked_header(name: str) -> str:
    if not name:
        raise ZreError("a header needs a name, such as X-ROLE")
    return _checked("the name of a header", name)


def _checked(subject: str, text: str) -> str:
    """Return a text that a string of a message can carry; raise `ZreError` if it is too long."""
    size = len(as_bytes(text))
    if size > _LONGEST_STRING:
        raise ZreError(f"{subject} can have at most {_LONGEST_STRING} bytes, not {size}: {text[:20]}...")
    return text
