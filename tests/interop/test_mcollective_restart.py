"""A server that is killed and started again, and daemons on libzmq, which do not notice or have given up."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.libzmq import PATIENCE, Theirs
from tests.interop.ruby import RubyConnector
from zambezi.mcollective.sync import Connector
from zambezi.zmtp.sync import Router

CONFIG = """[server]
data = "{path}/data"
[zeps]
endpoint = "tcp://127.0.0.1:*"
[mcollective]
endpoint = "{endpoint}"
journal = ["mcollective nodes *"]
[zre]
enabled = false
[console]
enabled = false
"""
DIRECT, BROADCAST = "mcollective nodes node3", "mcollective discovery"


class Service:
    """A server in a process of its own."""

    def __init__(self, path: Path) -> None:
        with Router(linger=0) as router:
            self.endpoint = router.bind("tcp://127.0.0.1:*")  # a free port, the same after each restart
        self._config = path / "zambezi.toml"
        self._config.write_text(CONFIG.format(path=path, endpoint=self.endpoint))
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "zambezi", "serve", "--config", str(self._config)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        while "mcollective at" not in self._process.stdout.readline():
            assert self._process.poll() is None, "the server did not start"

    def end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    yield service
    service.end(signal.SIGKILL)


def put(service: Service, topic: str, body: bytes) -> None:
    with Connector(service.endpoint) as connector:
        connector.put(topic, body, confirm=True, timeout=PATIENCE)


def until_heard(service: Service, daemon: RubyConnector, topic: str) -> None:
    """PUT until the daemon, whose topic is not kept, is connected again and hears it."""
    for number in range(1000):
        put(service, topic, b"%d" % number)
        if daemon.sock.poll(50):
            return
    pytest.fail("it did not come back")


both_ends = pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])


@both_ends
def test_a_daemon_does_not_notice_a_restart_and_misses_no_kept_message(
    service: Service, number: signal.Signals
) -> None:
    """libzmq connects again, and the connector says nothing: it would wait for its topics in vain for a whole TTL."""
    with Theirs() as theirs:
        daemon = RubyConnector(theirs, service.endpoint, reconnect_ivl=300)
        daemon.connect(ttl=60_000)
        daemon.subscribe(DIRECT.encode(), BROADCAST.encode())
        put(service, DIRECT, b"before")
        assert daemon.receive()[1] == [b"before"]
        put(service, "other", b"x")  # the answer to it tells that the server has noted what the daemon got
        service.end(number)
        service.start()
        put(service, DIRECT, b"between")  # as a rule before the daemon is back
        assert daemon.receive()[1] == [b"between"]  # and not "before" again
        put(service, BROADCAST, b"after")
        assert daemon.receive()[1] == [b"after"]


def test_a_message_right_after_a_restart_waits_for_the_daemon(service: Service) -> None:
    """The daemon is not connected yet, and its session goes on a moment later: its topics count nevertheless."""
    with Theirs() as theirs:
        daemon = RubyConnector(theirs, service.endpoint, reconnect_ivl=300)
        daemon.connect(ttl=60_000)
        daemon.subscribe(BROADCAST.encode())
        for number in range(3):
            service.end(signal.SIGKILL)
            service.start()
            put(service, BROADCAST, b"at once %d" % number)
            assert daemon.receive()[1] == [b"at once %d" % number]


@both_ends
def test_a_connector_that_gave_up_comes_back_with_another_identity_and_misses_no_kept_message(
    service: Service, number: signal.Signals
) -> None:
    with Theirs() as theirs:
        daemon = RubyConnector(theirs, service.endpoint)
        daemon.connect(ttl=60_000)
        daemon.subscribe(DIRECT.encode())
        put(service, DIRECT, b"before")
        assert daemon.receive()[1] == [b"before"]
        put(service, "other", b"x")  # the answer to it tells that the server has noted what the daemon got
        service.end(number)
        daemon.sock.close()  # it was silent for longer than the connector waits: the connector makes another socket
        service.start()
        put(service, DIRECT, b"between")
        again = RubyConnector(theirs, service.endpoint, thread=4)
        again.connect(ttl=60_000)
        again.subscribe(DIRECT.encode(), BROADCAST.encode())  # all topics in one SUB; the OK comes first
        assert again.receive()[1] == [b"between"]


def test_a_daemon_goes_on_after_many_restarts(service: Service) -> None:
    with Theirs() as theirs:
        daemon = RubyConnector(theirs, service.endpoint)
        daemon.connect(ttl=60_000)
        daemon.subscribe(BROADCAST.encode())
        for _ in range(3):
            service.end(signal.SIGKILL)
            service.start()
        until_heard(service, daemon, BROADCAST)
