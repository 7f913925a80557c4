"""A process that is killed while it writes loses no message whose append had returned."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.zeps.journal.streams import consistent
from tests.zmtp.waiting import PATIENCE
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.messages import Deliver

WRITER = """
import os, sys
from zambezi.zeps.block import deliver
from zambezi.zeps.journal import Policy, Store
from zambezi.zeps.messages import Publish

journal = Store(sys.argv[1], policy=Policy(segment=200_000, batch=3_000)).open("a")
while True:
    first = journal.last + 1
    bodies = [b"%d" % sequence * (1 + sequence % 400) for sequence in range(first, first + 1 + first % 9)]
    journal.append(deliver([Publish("key", body).encode()[0] for body in bodies], first), 1.0)
    os.write(1, b"%d\\n" % journal.last)
"""


@pytest.mark.spec("ZEP-09", "ZEP-17")
def test_killed_again_and_again(tmp_path: Path) -> None:
    incarnations = set()
    confirmed = 0
    for life in range(6):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
            try:
                assert writer.stdout is not None
                goal = confirmed + 300 * (life + 1)
                deadline = time.monotonic() + PATIENCE
                while confirmed < goal:
                    assert time.monotonic() < deadline
                    confirmed = int(writer.stdout.readline())
            finally:
                writer.kill()
            whole = [line for line in writer.stdout.read().split(b"\n")[:-1] if line]
            confirmed = max([confirmed, *map(int, whole)])
        with Store(tmp_path, policy=Policy(segment=200_000)) as store:
            journal = store.open("a")
            incarnations.add(journal.incarnation)
            found = consistent(journal)
            assert list(found) == list(range(1, journal.last + 1))
            assert journal.last >= confirmed
            assert journal.problems == []
            for sequence, message in found.items():
                body = Deliver.decode([message[9 if message[0] else 2 :]]).body
                assert body == b"%d" % sequence * (1 + sequence % 400)
            confirmed = journal.last
    assert len(incarnations) == 1
