"""zambezi.mcollective.run: PUTs that follow each other to one topic, as the engine makes runs of them."""

from __future__ import annotations

import pytest

from tests.mcollective.stage import Stage
from zambezi.mcollective.outputs import Deliver
from zambezi.mcollective.run import Run
from zambezi.mcollective.session import Session, Topic


def test_a_new_run_is_empty() -> None:
    session = Session(None, b"c", "", "", 0.0)
    topic = Topic(b"a", kept=True, payer=session)
    run = Run(session, b"a", topic, kept=True)
    assert (run.session, run.name, run.topic, run.kept) == (session, b"a", topic, True)
    assert (run.messages, run.answers) == ([], [])


@pytest.mark.parametrize(
    ("topics", "lengths"),
    [("aaaa", [4]), ("aabba", [2, 2, 1]), ("ab", [1, 1]), ("aacca", [2, 1]), ("", [])],
)
def test_each_run_is_one_delivery(topics: str, lengths: list[int]) -> None:
    """No client has subscribed to c: its run ends the one before it, and is not delivered."""
    stage = Stage()
    client = stage.client()
    client.sub(b"a", b"b")
    batch = [[b"", b"PUT", b"TOPIC", topic.encode(), b"", b"x"] for topic in topics]
    stage.engine.receive(client.session, batch, stage.now)
    runs = [output.shared.messages for output in stage.engine.take() if isinstance(output, Deliver)]
    assert [len(messages) for messages in runs] == lengths
    assert stage.engine.counters.puts == len(topics)
    assert stage.engine.counters.unheard == topics.count("c")
