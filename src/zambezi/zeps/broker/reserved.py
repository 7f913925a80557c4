"""Attaching to a reserved stream: a desk, to which clients publish, or a report."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from zambezi.zeps.broker.desks import open_desk
from zambezi.zeps.broker.seeking import Sought
from zambezi.zeps.directory import BROKERS, ELSEWHERE, REPLIES, REQUESTS, subject_of
from zambezi.zeps.errors import ZepsError

if TYPE_CHECKING:
    from zambezi.zeps.broker.session import Session


def attach_reserved(session: Session, name: str) -> None:
    """Attach a session to a reserved stream, when it is known where the stream is that it is about."""
    about = subject_of(name).removeprefix(REQUESTS).removeprefix(REPLIES)
    if about != name and session.engine.find(about) is None:
        try:
            if session.engine.seek(about, Sought(partial(_go_on, session, name))):
                session.await_stream()
                return
        except ZepsError as error:
            session.reject("attach", str(error))
            return
    _attach(session, name)


def _go_on(session: Session, name: str, problem: str) -> None:
    session.go_on_attaching(partial(session.reject, "attach", problem) if problem else partial(_attach, session, name))


def _attach(session: Session, name: str) -> None:
    engine = session.engine
    desk = open_desk(name, engine, session, session.outlet)
    if desk is not None:
        session.open_desk(desk, name)
        return
    about = subject_of(name)
    if about != name and not engine.allows(session, "subscribe", about):
        session.reject("forbidden", f"{session.user_name} may not subscribe to the stream {about}")
        return
    report = engine.reports.open_report(name, session.outlet)
    if report is None and name in (BROKERS, ELSEWHERE):
        session.reject("attach", "this broker shares no object store with other brokers")
        return
    if report is None:
        session.reject("attach", f"there is no reserved stream {name}, or no stream that it could describe")
        return
    session.open_report(report, name)
