"""Build the packages in dist/, check them, and try them in empty environments.

    python -m tools.dist

The wheel is built from the sdist, so what the sdist lacks is missed here. Each trial has an environment of its own,
with the wheel and one extra: the core must work without any.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tools.smoke import PARTS

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SMOKE = ROOT / "tools" / "smoke.py"


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
    packages = sorted(map(str, DIST.iterdir()))
    run(sys.executable, "-m", "twine", "check", "--strict", *packages)
    (wheel,) = DIST.glob("*.whl")
    for part in PARTS:
        try_part(part, wheel)
    for package in packages:
        print(f"{Path(package).relative_to(ROOT)}: {Path(package).stat().st_size:,} bytes")


def try_part(part: str, wheel: Path) -> None:
    """Install the wheel with one extra into an empty environment, and use it there."""
    with tempfile.TemporaryDirectory(prefix="zambezi-dist-") as place:
        venv.create(place, with_pip=True)
        python = str(Path(place) / "bin" / "python")
        wanted = str(wheel) if part == "core" else f"{wheel}[{part}]"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted)
        run(python, "-I", str(SMOKE), part, directory=place)


def run(*command: str, directory: str | None = None) -> None:
    subprocess.run(command, check=True, cwd=directory)


if __name__ == "__main__":
    main()
