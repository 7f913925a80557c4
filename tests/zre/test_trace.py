"""zambezi.zre.trace: a line for each message, beacon, connection and event."""

import logging
from uuid import UUID

import pytest

from zambezi.zmtp.testing import Simulation
from zambezi.zre import outputs
from zambezi.zre.discovery import MemoryNetwork
from zambezi.zre.node import NodeShell
from zambezi.zre.options import NodeOptions
from zambezi.zre.trace import Trace


def test_a_trace_shows_how_two_nodes_meet_and_talk(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zambezi.zre.trace")
    sim, network = Simulation(0.0), MemoryNetwork()
    ann = NodeShell(sim, "ann", NodeOptions(uuid=UUID(int=1 << 124), network=network, trace=True))
    bob = NodeShell(sim, "bob", NodeOptions(uuid=UUID(int=2 << 124), network=network, groups=["CHAT"]))
    for node in (ann, bob):
        node.start()
    sim.run_until(2.0)
    ann.shout("CHAT", (b"hello", b"all"))
    ann.set_trace(False)
    ann.shout("CHAT", (b"not traced",))
    text = "\n".join(record.message for record in caplog.records)
    for line in (
        "ann > all: BEACON 10000000 port",
        ": BEACON 20000000 port",
        "ann + 20000000: connect to inproc://",
        "HELLO sequence=1 endpoint=inproc://",
        "groups=CHAT",
        "ann * bob (20000000): Enter endpoint=inproc://",
        "ann * bob (20000000): Join group=CHAT",
        "ann > bob (20000000): SHOUT sequence=2 group=CHAT 2 frames, 8 bytes",
    ):
        assert line in text
    assert "not traced" not in text
    assert text.count("SHOUT") == 1
    for node in (ann, bob):
        node.crash()


def test_messages_of_strangers_are_shown_and_harmless(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zambezi.zre.trace")
    trace = Trace("a\x1b", {})
    trace.received(b"\x01" + bytes(16), [b"nonsense"])
    trace.received(b"\x01" + bytes(16), [bytes.fromhex("aaa1040200020343")])
    trace.received(b"", [bytes.fromhex("aaa1010900020343")])
    trace.received_beacon(b"\x1b[2J", "10.0.0.1")
    trace.done(outputs.Disconnect(b"seed tcp://10.0.0.9:1"))
    lines = [record.message for record in caplog.records]
    assert lines[0] == "a\\x1b < 00000000: 8 bytes without the signature of ZRE"
    assert lines[1].startswith("a\\x1b < 00000000: malformed: ")
    assert lines[3] == "a\\x1b < 10.0.0.1: 4 bytes that are no beacon"
    assert lines[4] == "a\\x1b - seed tcp://10.0.0.9:1: disconnect"
