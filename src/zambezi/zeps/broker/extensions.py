"""The commands of extensions that a session accepts, by its state: see `session_state` for the whole table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from zambezi.zeps.broker import sharing
from zambezi.zeps.broker.claims import acknowledge, claim
from zambezi.zeps.broker.resumption import resume, set_mark
from zambezi.zeps.broker.session_state import SessionState
from zambezi.zeps.messages import Ack, Claim, Done, GiveBack, Join, Keep, Mark, Resume, Times, Zeps

if TYPE_CHECKING:
    from zambezi.zeps.broker.session import Session


def _times(session: Session, message: Times) -> None:
    if problem := session.delivery.add_times(message):
        session.reject("misplaced", problem)


def ignore(session: Session, message: Zeps) -> None:
    """Do nothing."""


COMMANDS: Final[Mapping[tuple[SessionState, type], Callable[..., None]]] = {
    (SessionState.OPEN, Resume): resume,
    (SessionState.LEAVING, Resume): ignore,
    (SessionState.OPEN, Mark): set_mark,
    (SessionState.LEAVING, Mark): set_mark,
    (SessionState.OPEN, Times): _times,
    (SessionState.LEAVING, Times): ignore,
    (SessionState.OPEN, Claim): claim,
    (SessionState.LEAVING, Claim): ignore,
    (SessionState.OPEN, Ack): acknowledge,
    (SessionState.LEAVING, Ack): acknowledge,
    (SessionState.OPEN, Join): sharing.join,
    (SessionState.LEAVING, Join): ignore,
    (SessionState.OPEN, Done): sharing.acknowledge,
    (SessionState.LEAVING, Done): sharing.acknowledge,
    (SessionState.OPEN, GiveBack): sharing.give_back,
    (SessionState.LEAVING, GiveBack): sharing.give_back,
    (SessionState.OPEN, Keep): sharing.keep,
    (SessionState.LEAVING, Keep): ignore,
}
