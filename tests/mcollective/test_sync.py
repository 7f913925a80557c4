"""zambezi.mcollective.sync: what threads add. See test_faces for the rest."""

from __future__ import annotations

import threading

from zambezi.mcollective.sync import Connector, Middleware


def test_threads_put_and_receive_at_once() -> None:
    with Middleware() as middleware, Connector(middleware.bind("tcp://127.0.0.1:*")) as connector:
        connector.subscribe("a")
        got: list[bytes] = []

        def receive() -> None:
            got.extend(connector.recv(timeout=60).body for _ in range(100))

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
