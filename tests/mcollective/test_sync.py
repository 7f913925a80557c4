"""The blocking twins: the same names, and any thread."""

from __future__ import annotations

import inspect
import threading

import pytest

from tests.zmtp.waiting import wait_for, wait_until
from zambezi.mcollective import asyncio as twins
from zambezi.mcollective.archive import MemoryArchive
from zambezi.mcollective.errors import CommandRefused
from zambezi.mcollective.events import SessionReady
from zambezi.mcollective.sync import Connector, Fleet, Middleware
from zambezi.zmtp import Backoff, SocketClosed, TimedOut


def test_they_have_the_same_names_and_arguments() -> None:
    for ours, theirs in ((Connector, twins.Connector), (Middleware, twins.Middleware), (Fleet, twins.Fleet)):
        assert isinstance(ours, type)
        assert isinstance(theirs, type)
        names = {name for name in vars(theirs) if not name.startswith("_")}
        assert names == {name for name in vars(ours) if not name.startswith("_")}
        for name in names | {"__init__"}:
            one, other = getattr(ours, name), getattr(theirs, name)
            if callable(one):
                assert list(inspect.signature(one).parameters) == list(inspect.signature(other).parameters)


def test_all_that_a_connector_does() -> None:
    with Middleware(archive=MemoryArchive(lambda topic: topic == b"kept")) as middleware:
        endpoint = middleware.bind("tcp://127.0.0.1:*")
        with Connector(endpoint) as ann, Connector(endpoint) as bob:
            bob.connect(timeout=20)
            assert bob.connected
            ann.subscribe("a", "b")
            assert ann.subscriptions == ["a", "b"]
            bob.put("a", b"1", reply_to="bob")
            assert ann.recv(timeout=20).reply_to == "bob"
            ann.unsubscribe("a")
            bob.put("kept", b"2", confirm=True)
            ann.subscribe("kept", since=0)
            assert ann.recv(timeout=20).sequence == 1
            assert list(bob.request("NOOP")) == ["ID"]
            with pytest.raises(CommandRefused):
                bob.request("FETCH")
            with pytest.raises(TimedOut):
                ann.recv(timeout=0.01)
            assert middleware.clients == 2
            assert [each.topic for each in middleware.topics()] == [b"b", b"kept"]
            assert middleware.counters.kept == 1
            assert ann.missed == 0
        wait_until(lambda: middleware.clients == 0)


def test_threads_put_and_receive_at_once() -> None:
    with Middleware() as middleware, Connector(middleware.bind("tcp://127.0.0.1:*")) as connector:
        connector.subscribe("a")
        got: list[bytes] = []

        def receive() -> None:
            got.extend(connector.recv(timeout=20).body for _ in range(100))

        def put(number: int) -> None:
            for each in range(100):
                connector.put("a", b"%d %d" % (number, each))

        threads = [threading.Thread(target=receive) for _ in range(4)]
        threads += [threading.Thread(target=put, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got) == sorted(b"%d %d" % (number, each) for number in range(4) for each in range(100))


def test_it_comes_back_when_the_middleware_does() -> None:
    middleware = Middleware(linger=0)
    endpoint = middleware.bind("tcp://127.0.0.1:*")
    with Connector(endpoint, backoff=Backoff(0.01, 0.05)) as connector:
        connector.subscribe("a")
        assert not wait_for(connector, SessionReady).again
        middleware.close()
        with Middleware() as middleware:
            middleware.bind(endpoint)
            assert wait_for(connector, SessionReady).again
            connector.put("a", b"x")
            assert connector.recv(timeout=20).body == b"x"


def test_the_end_ends_who_waits() -> None:
    with Middleware() as middleware:
        connector = Connector(middleware.bind("tcp://127.0.0.1:*"))
        connector.subscribe("a")
        got: list[object] = []
        thread = threading.Thread(target=lambda: got.extend(connector))
        thread.start()
        connector.put("a", b"x")
        wait_until(lambda: got)
        connector.close()
        thread.join(20)
        assert not thread.is_alive()
        with pytest.raises(SocketClosed):
            connector.put("a", b"x")
