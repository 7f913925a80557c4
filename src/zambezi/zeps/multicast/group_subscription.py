"""The part of a subscription that listens to a group: the socket, the reception, and the timers between them.

The broker (`$streams`) or the program names the group. If the stream has no group, or the client cannot join it or has
not its key, the subscription reads from the broker only, and the log says why.
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
from zambezi.zeps.multicast.receiver import GroupReceiver, join_group
from zambezi.zeps.multicast.reception import Phase, Reception, ReceptionCounters
from zambezi.zmtp.alarm import Alarm
from zambezi.zmtp.reactor import Reactor

_log: Final = logging.getLogger("zambezi.zeps")


@dataclass(frozen=True, slots=True)
class MulticastOptions:
    """The multicast options of a subscription: the group, or None for the one that the broker names; the interface."""

    group: Group | None = None
    interface: str = ""

    @classmethod
    def from_arguments(cls, multicast: bool | str, interface: str | None) -> MulticastOptions | None:
        """Return the options for the arguments of `subscribe`, None without multicast; or raise `GroupError`."""
        if not multicast:
            if interface:
                raise GroupError("interface= names the network of a group: give it only together with multicast=")
            return None
        group = Group.parse(multicast) if isinstance(multicast, str) else None
        if group is not None and group.by_libzmq:
            libzmq.library_for(group)
        wanted = interface or (group.interface if group is not None else "")
        if wanted:
            address_of(wanted)
        return cls(group, wanted)

    def group_of(self, info: StreamInfo) -> Group:
        """Return the group of a stream, or raise `GroupError`."""
        if self.group is None and not info.multicast:
            raise GroupError(f"the stream {info.stream!r} has no multicast group")
        group = self.group or Group.parse(info.multicast)
        return dataclasses.replace(group, interface=self.interface)


class GroupSubscription:
    """The group of one subscription, from when its position in the stream is known until it ends."""

    def __init__(self, reactor: Reactor, group: Group, reception: Reception, on_change: Callable[[], object]) -> None:
        self.group = group
        self.reception = reception
        self._reactor = reactor
        self._on_change = on_change  # called after datagrams were received, or a timer has fired
        self._alarm = Alarm(reactor, self._tick)
        self._held = False
        self._receiver: GroupReceiver = join_group(reactor, group, self._receive)

    @classmethod
    def join(
        cls,
        reactor: Reactor,
        options: MulticastOptions,
        info: StreamInfo,
        position: int,
        key: bytes,
        counters: ReceptionCounters,
        on_change: Callable[[], object],
    ) -> GroupSubscription | None:
        """Join the group of a stream; log a warning and return None if that is not possible."""
        try:
            group = options.group_of(info)
            if info.sealed != bool(key):
                raise GroupError(
                    f"{group} is sealed: give the group_key" if info.sealed else f"{group} is not sealed with our key"
                )
            reception = Reception(position, UUID(info.incarnation), reactor.time(), key, counters=counters)
            return cls(reactor, group, reception, on_change)
        except (GroupError, ValueError) as error:
            _log.warning("the stream %s is read from the broker only: %s", info.stream, error)
            return None

    @property
    def in_group(self) -> bool:
        """Whether messages come from the group, and the broker is not needed."""
        return self.reception.phase is Phase.GROUP

    def _receive(self, datagrams: list[bytes]) -> None:
        self.reception.receive(datagrams, self._reactor.time())
        self._changed()

    def broker_delivered(self, position: int, messages: int) -> None:
        """Note that the broker has delivered messages up to the sequence `position`."""
        self.reception.broker_delivered(position, messages, self._reactor.time())
        self._set_timer()

    def hold(self) -> None:
        """Ignore the group until `resume`: the program has not read its messages."""
        if not self._held:
            self._held = True
            self._receiver.pause()
            self.reception.hold(self._reactor.time())
            self._set_timer()

    def resume(self) -> None:
        """Listen to the group again."""
        if self._held:
            self._held = False
            self._receiver.resume()
            self.reception.resume(self._reactor.time())
            self._set_timer()

    def _changed(self) -> None:
        self._on_change()
        self._set_timer()

    def _set_timer(self) -> None:
        deadline = self.reception.deadline
        if deadline is not None:
            self._alarm.set(deadline)

    def _tick(self) -> None:
        self.reception.tick(self._reactor.time())
        self._changed()

    def close(self) -> None:
        self._alarm.end()
        self._receiver.close()
