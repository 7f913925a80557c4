"""zambezi.zre.sync: nodes that block."""

import threading

import pytest

from tests.zmtp.waiting import wait_until
from zambezi.zmtp.errors import TimedOut
from zambezi.zre import Enter, Exit, MemoryNetwork, NodeStopped, Shout
from zambezi.zre.log import What
from zambezi.zre.sync import LogService, Node


def test_they_meet_talk_and_part() -> None:
    network = MemoryNetwork()
    with Node("ann", network=network, groups=["CHAT"]) as ann:
        with Node("bob", network=network) as bob:
            assert isinstance(ann.recv(20), Enter)
            wait_until(lambda: bob.peers and "CHAT" in bob.peers[0].groups)
            assert bob.shout("CHAT", b"hello") == 1
            heard = ann.recv(20)
            assert isinstance(heard, Shout)
            assert heard.data == b"hello"
        gone = ann.recv(20)
        assert isinstance(gone, Exit)
        assert gone.reason == "it left"
        with pytest.raises(TimedOut):
            ann.recv(0.001)


def test_a_thread_that_waits_is_woken_by_stop() -> None:
    node = Node("ann", network=MemoryNetwork())
    node.start()
    ended = []
    thread = threading.Thread(target=lambda: ended.append(list(node)))
    thread.start()
    node.stop()
    thread.join(20)
    assert ended == [[]]
    with pytest.raises(NodeStopped):
        node.join("A")


def test_logs_are_collected() -> None:
    network = MemoryNetwork()
    with Node("collector", network=network) as collector, LogService(collector) as service:
        with Node("ann", network=network, log=True) as ann:
            wait_until(lambda: ann.peers)
            ann.join("CHAT")
            assert [service.recv(20).log.event for _ in range(2)] == [What.ENTER, What.JOIN]
        assert service.discarded == 0


def test_a_log_service_is_waited_for_with_a_bound_and_ends_those_who_wait() -> None:
    with Node("collector", network=MemoryNetwork()) as collector, LogService(collector) as service:
        with pytest.raises(TimedOut, match="no log came within"):
            service.recv(0.001)
        ended = []
        thread = threading.Thread(target=lambda: ended.append(list(service)))
        thread.start()
        service.close()
        thread.join(20)
        assert ended == [[]]
        with pytest.raises(NodeStopped, match="log service is closed"):
            service.recv()


def test_several_threads_may_wait() -> None:
    network = MemoryNetwork()
    with Node("ann", network=network) as ann:
        heard: list[str] = []
        threads = [threading.Thread(target=lambda: heard.append(ann.recv(20).name)) for _ in range(2)]
        for thread in threads:
            thread.start()
        with Node("bob", network=network), Node("cid", network=network):
            for thread in threads:
                thread.join(20)
        assert sorted(heard) == ["bob", "cid"]
