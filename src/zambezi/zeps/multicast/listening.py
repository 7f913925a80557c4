"""A subscription's ear in a group: the membership, the reconciliation, and the timers between them.

Which group it is, is learned from the broker (`$streams`), or told by the program. Whoever cannot join, has not the
key, or asks for a stream that has no group, reads from the broker alone, and the log says why.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from zambezi.zeps.directory import StreamInfo
from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast import libzmq
from zambezi.zeps.multicast.group import Group
from zambezi.zeps.multicast.interface import address_of
from zambezi.zeps.multicast.receiver import Receiver, receiver_of
from zambezi.zeps.multicast.reception import Phase, Reception, ReceptionCounters
from zambezi.zmtp.reactor import Reactor, Timer

_log: Final = logging.getLogger("zambezi.zeps")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a program says of multicast: the group, or nothing for what the broker tells; and the interface."""

    group: Group | None = None
    interface: str = ""

    @classmethod
    def of(cls, multicast: bool | str, interface: str | None) -> Wish | None:
        """The arguments of `subscribe`; `GroupError` for what cannot be, here and now."""
        if not multicast:
            if interface:
                raise GroupError("interface= is of use with multicast=True only: the network where the group is")
            return None
        group = Group.parse(multicast) if isinstance(multicast, str) else None
        if group is not None and group.by_libzmq:
            libzmq.library_for(group)
        wanted = interface or (group.interface if group is not None else "")
        if wanted:
            address_of(wanted)
        return cls(group, wanted)

    def group_of(self, info: StreamInfo) -> Group:
        """The group of a stream."""
        if self.group is None and not info.multicast:
            raise GroupError(f"the stream {info.stream!r} has no multicast group")
        group = self.group or Group.parse(info.multicast)
        return dataclasses.replace(group, interface=self.interface)


class Listening:
    """The ear of one subscription, from when its place in the stream is known until it ends."""

    def __init__(self, reactor: Reactor, group: Group, reception: Reception, on_change: Callable[[], object]) -> None:
        self.group = group
        self.reception = reception
        self._reactor = reactor
        self._on_change = on_change  # called after messages were handed out, or time has passed
        self._timer: Timer | None = None
        self._armed = 0.0  # when the timer fires
        self._held = False
        self._closed = False
        self._receiver: Receiver = receiver_of(reactor, group, self._receive)

    @classmethod
    def to(
        cls,
        reactor: Reactor,
        wish: Wish,
        info: StreamInfo,
        position: int,
        key: bytes,
        counters: ReceptionCounters,
        on_change: Callable[[], object],
    ) -> Listening | None:
        """Listen to the group of a stream, if there is one that can be listened to."""
        try:
            group = wish.group_of(info)
            if info.sealed != bool(key):
                raise GroupError(
                    f"{group} is sealed: give the group_key" if info.sealed else f"{group} is not sealed with our key"
                )
            reception = Reception(position, UUID(info.incarnation), reactor.time(), key, counters=counters)
            return cls(reactor, group, reception, on_change)
        except (GroupError, ValueError) as error:
            _log.warning("the stream %s is read from the broker alone: %s", info.stream, error)
            return None

    @property
    def in_group(self) -> bool:
        """Whether messages come from the group, and the broker is not needed."""
        return self.reception.phase is Phase.GROUP

    def _receive(self, datagrams: list[bytes]) -> None:
        self.reception.datagrams(datagrams, self._reactor.time())
        self._changed()

    def reached(self, position: int, messages: int) -> None:
        """The broker has sent messages."""
        self.reception.reached(position, messages, self._reactor.time())
        self._arm()

    def hold(self) -> None:
        """The program has enough for now: what comes by the group meanwhile is not even looked at."""
        if not self._held:
            self._held = True
            self._receiver.pause()
            self.reception.hold(self._reactor.time())
            self._arm()

    def release(self) -> None:
        """The program has room again."""
        if self._held:
            self._held = False
            self._receiver.resume()
            self.reception.release(self._reactor.time())
            self._arm()

    def _changed(self) -> None:
        self._on_change()
        self._arm()

    def _arm(self) -> None:
        """Be called when the reception wants to be, or earlier."""
        deadline = self.reception.deadline
        if self._closed or deadline is None or (self._timer is not None and self._armed <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed = deadline
        self._timer = self._reactor.call_at(deadline, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.reception.tick(self._reactor.time())
        self._changed()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._closed = True
        self._receiver.close()
