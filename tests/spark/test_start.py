"""Ctrl-C while Spark starts: a command ends at once, and Java with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.spark.journal import numbered, write
from tests.zmtp.waiting import PATIENCE, wait_until

# A Java that has a version, and never starts.
JAVA = """#!/bin/sh
[ "$*" = -version ] && echo 'openjdk version "17.0.1"' && exit
echo $$ > {place}/started.new
mv {place}/started.new {place}/started
exec sleep 600
"""
COMMANDS = (
    ("sql", "-e", "SELECT 1", "--path", "{}/data"),
    ("pipeline", "run", "traffic", "--path", "{}/data", "--out", "{}/out"),
)


def is_running(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_signal_ends_a_command_whose_java_does_not_start(
    command: tuple[str, ...], number: signal.Signals, tmp_path: Path
) -> None:
    write(tmp_path / "data", "s", numbered(3))
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA.format(place=tmp_path))
    java.chmod(0o755)
    arguments = [part.format(tmp_path) for part in command]
    running = subprocess.Popen(
        [sys.executable, "-m", "zambezi", *arguments],
        env=os.environ | {"JAVA_HOME": str(java.parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    started = tmp_path / "started"
    wait_until(lambda: started.exists() or running.poll() is not None)
    running.send_signal(number)
    output, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 128 + number, (output, errors)
    assert "Traceback" not in errors
    java_process = int(started.read_text())
    wait_until(lambda: not is_running(java_process))
