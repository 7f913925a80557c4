"""The reserved streams to which clients publish, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zambezi.zeps.broker.administration import OrderDesk
from zambezi.zeps.broker.desk import Desk
from zambezi.zeps.broker.last_messages import LastMessages
from zambezi.zeps.broker.ranges import Ranges
from zambezi.zeps.directory import LAST, ORDERS, RANGES

if TYPE_CHECKING:
    from zambezi.zeps.broker.cursor import Outlet
    from zambezi.zeps.broker.engine import Engine
    from zambezi.zeps.broker.session import Session


def open_desk(name: str, engine: Engine, session: Session, outlet: Outlet) -> Desk | None:
    """Return the desk of a reserved stream for a session; None if it is another stream."""
    if name == ORDERS:
        return OrderDesk(engine, session)
    if name == RANGES:
        return Ranges(engine, session, outlet)
    if name == LAST:
        return LastMessages(engine, session, outlet)
    return engine.exchange.open(name, session, outlet)
