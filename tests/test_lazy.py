"""Programs and commands import what they use (`zambezi.lazy`, `cli` and `__main__`)."""

import signal
import subprocess
import sys
from importlib import import_module

import pytest

from tests.zmtp.waiting import PATIENCE

PACKAGES = ["zambezi", "zambezi.zeps", "zambezi.server", "zambezi.server.config"]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_the_names_that_it_exports_and_no_others(name: str) -> None:
    package = import_module(name)
    for exported in package.__all__:
        assert getattr(package, exported) is not None
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nonsense'"):
        package.nonsense  # noqa: B018 - the look-up is the test


def run(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=PATIENCE
    )


def test_a_command_imports_its_own_modules_only() -> None:
    done = run(
        "import sys; before = set(sys.modules)\n"
        "import zambezi.__main__\n"
        "assert not {'enum', 'signal', 'typing'} & sys.modules.keys() - before\n"
        "from zambezi.cli import main\n"
        "def imported(*names): return [name for name in names if name in sys.modules]\n"
        "assert main(['--version']) == 0\n"
        "assert not imported('asyncio', 'zambezi.zmtp'), 'version'\n"
        "assert main(['--help']) == main([]) == 0\n"
        "assert not imported('asyncio', 'zambezi.zmtp'), 'help'\n"
        "assert main(['keygen', '--help']) == 0\n"
        "assert not imported('asyncio', 'rich', 'zambezi.zeps'), 'keygen'\n"
        "assert main(['pub', '--help']) == 0\n"
        "assert not imported('rich', 'zambezi.zeps.broker', 'zambezi.zre', 'zambezi.mcollective',\n"
        "                    'zambezi.server.config.settings'), 'pub'\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


# Sends SIGINT to itself at an import, or when the interpreter ends.
INTERRUPTED = """
import atexit, os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["zambezi", "pub", "--help"]
def interrupt(): os.kill(os.getpid(), signal.SIGINT)
def watch(event, arguments):
    if event == "import" and arguments[0] == {name!r}: interrupt()
sys.addaudithook(watch)
if {name!r} == "end": atexit.register(interrupt)
runpy.run_module("zambezi", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("moment", ["zambezi.cli", "argparse", "zambezi.cli.client", "nacl.bindings", "end"])
def test_ctrl_c_at_any_moment_leaves_no_traceback(moment: str) -> None:
    done = run(INTERRUPTED.format(name=moment))
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
