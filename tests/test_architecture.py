"""The layers of docs/architecture.md: imports point down only, and the public face is what it says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import zambezi

SOURCE = Path(zambezi.__file__).parent

# From the bottom up. What stands on one line does not know each other.
LAYERS = [
    {"errors"},
    {"wire"},
    {"zmtp"},
    {"p2p", "zre", "zeps", "mcollective"},
    {"spark"},
    {"server"},
    {"console"},
    {"cli"},
]
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}


def imported(path: Path) -> Iterator[str]:
    """The parts of zambezi that a file imports, as `zambezi.<part>`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute, so that a reader sees where they lead"
            names = [
                f"{node.module}.{alias.name}" if node.module == "zambezi" else str(node.module) for alias in node.names
            ]
        else:
            continue
        for name in names:
            if name.startswith("zambezi."):
                yield name.split(".")[1]


def upward(source: Path) -> list[str]:
    """Every import under `source` that does not point down."""
    found = []
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source).parts
        if len(inside) == 1:
            continue  # the face of the package itself
        here = inside[0]
        found += [
            f"{path.relative_to(source)} imports {there}"
            for there in imported(path)
            if there not in (here, "__version__") and HEIGHT[there] >= HEIGHT[here]
        ]
    return found


def test_imports_point_down() -> None:
    assert upward(SOURCE) == []


def test_every_part_has_its_layer() -> None:
    parts = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert parts <= set(HEIGHT)


@pytest.mark.parametrize(
    "line", ["from zambezi.p2p import PeerSocket", "import zambezi.p2p.sync", "from zambezi import cli"]
)
def test_an_import_that_points_up_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "zmtp").mkdir()
    (tmp_path / "zmtp" / "stream.py").write_text(f"import os\n{line}\n")
    assert len(upward(tmp_path)) == 1


def test_the_public_face_is_what_it_says() -> None:
    assert sorted(zambezi.__all__) == ["Broker", "Client", "Node", "PeerSocket", "ZambeziError", "__version__"]
    for name in zambezi.__all__:
        assert hasattr(zambezi, name)
