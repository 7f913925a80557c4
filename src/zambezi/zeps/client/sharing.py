"""The arguments of a subscription that is shared, checked."""

from __future__ import annotations

import os
from typing import Final, TypedDict

from zambezi.zeps.client.arguments import check_pattern, check_reader_name, check_stream_name
from zambezi.zeps.client.member import IN_FLIGHT, GroupMember, GroupWish
from zambezi.zeps.errors import ZepsError
from zambezi.zeps.messages import MEMBER

_MOST: Final = 0xFFFFFFFF


class SharedArguments(TypedDict, total=False):
    """The options of a shared subscription, by keyword."""

    shared: str | None  # the name of the group
    in_flight: int  # messages that the program can have without acknowledging them (1000)
    wait: float  # seconds that a member has to acknowledge a message (30)
    limit: int  # deliveries of a message, after which it is dead (no limit)
    dead: str  # the stream for dead messages; without it they are passed over


def group_member(
    arguments: SharedArguments,
    stream: str,
    pattern: str,
    since: int,
    window: int,
    ack: str,
    *,
    times: bool,
    **excluded: object,
) -> GroupMember | None:
    """Return the member of a shared subscription, or None if it is not shared; raise `ZepsError` if it is not valid.

    `excluded` are the other arguments of `subscribe`, which a shared subscription cannot have.
    """
    group = arguments.get("shared")
    if group is None:
        if unused := arguments.keys() - {"shared"}:
            raise ZepsError(f"{', '.join(sorted(unused))}: only for subscribe(shared=...)")
        return None
    if wrong := [name for name, value in excluded.items() if value]:
        raise ZepsError(f"a shared subscription has no {' and no '.join(wrong)}")
    if stream.startswith("$"):
        raise ZepsError(f"{stream!r} is a reserved stream, which has no groups")
    dead = arguments.get("dead", "")
    wish = GroupWish(
        check_reader_name(group),
        check_pattern(pattern),
        since,
        _number("in_flight", arguments.get("in_flight", IN_FLIGHT), 1),
        _milliseconds(arguments.get("wait", 0)),
        _number("limit", arguments.get("limit", 0), 0),
        check_stream_name(dead) if dead else "",
    )
    return GroupMember(stream, wish, os.urandom(MEMBER), window, is_automatic=ack == "auto", times=times)


def _number(name: str, value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST:
        raise ZepsError(f"{name} must be a whole number from {least} on, not {value!r}")
    return value


def _milliseconds(seconds: object) -> int:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds * 1000 <= _MOST:
        raise ZepsError(f"wait must be a number of seconds, not {seconds!r}")
    return max(1, int(seconds * 1000)) if seconds else 0
