"""zambezi.zre.sync: what threads add. See test_faces for the rest."""

import threading

from tests.zmtp.waiting import wait_until
from zambezi.zre import MemoryNetwork, Whisper
from zambezi.zre.sync import Node


def test_any_thread_can_use_a_node() -> None:
    network = MemoryNetwork()
    heard: list[bytes] = []
    with Node("ann", network=network) as ann, Node("bob", network=network) as bob:
        wait_until(lambda: ann.peers and bob.peers)

        def listen() -> None:
            heard.extend(event.data for event in bob if isinstance(event, Whisper))

        def talk(number: int) -> None:
            for each in range(100):
                ann.whisper(bob.uuid, b"%d %d" % (number, each))

        listeners = [threading.Thread(target=listen) for _ in range(2)]
        talkers = [threading.Thread(target=talk, args=(number,)) for number in range(4)]
        for thread in (*listeners, *talkers):
            thread.start()
        for thread in talkers:
            thread.join(60)
        wait_until(lambda: len(heard) == 400)
        bob.stop()
        for thread in listeners:
            thread.join(60)
            assert not thread.is_alive()
    assert sorted(heard) == sorted(b"%d %d" % (number, each) for number in range(4) for each in range(100))
