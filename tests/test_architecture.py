"""The layers of docs/architecture.md: imports point down only, and the public face is what it says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import zambezi
from tools.generate import PACKAGES, generate

SOURCE = Path(zambezi.__file__).parent

# From the bottom up. What stands on one line does not know each other.
LAYERS = [
    {"errors", "lazy", "memory"},
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
    """Yield the packages of zambezi that a file imports."""
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


# The seam: protocols know `zambezi.zmtp.transport` and `zambezi.zmtp.peer`, and not how connections come to be.
PRIVATE = {"busy_links", "connector", "handshakes", "listener", "memory", "stream"}


def modules(source: Path) -> Iterator[tuple[str, Path]]:
    """Every file of a package under `source`, with the name of the package."""
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source).parts
        if len(inside) > 1:
            yield inside[0], path


NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}  # public, whatever they look like


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE


def private_names(tree: ast.AST) -> set[str]:
    """The private names that a file makes: functions, classes, variables, attributes and slots."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            names.add(node.value)
    return set(filter(is_private, names))


def trespasses(source: Path) -> list[str]:
    """Every private module or name of one package that another package uses."""
    trees = [(package, path, ast.parse(path.read_text())) for package, path in modules(source)]
    made: dict[str, set[str]] = {}
    for package, _, tree in trees:
        made.setdefault(package, set()).update(private_names(tree))
    found = []
    for package, path, tree in trees:
        foreign = set().union(*(names for other, names in made.items() if other != package)) - made[package]
        for node in ast.walk(tree):
            used: set[str] = set()
            line = getattr(node, "lineno", 0)
            if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                used = {node.attr} & foreign  # what a class inherits it may use, by `self`
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zambezi."):
                used = {alias.name for alias in node.names if is_private(alias.name)}
                parts = str(node.module).split(".")[1:]
                if parts[0] == "zmtp" != package:
                    used |= PRIVATE & {*parts[1:2], *(alias.name for alias in node.names if len(parts) == 1)}
            found += [f"{path.relative_to(source)}:{line} uses {name}" for name in sorted(used)]
    return found


def test_no_package_uses_what_is_private_to_another() -> None:
    assert trespasses(SOURCE) == []


@pytest.mark.parametrize(
    "line",
    [
        "from zambezi.zmtp.stream import StreamLink",
        "from zambezi.zmtp import memory",
        "from zambezi.zmtp.transport import _nothing",
        "def look(transport): return transport._leaving",
    ],
)
def test_a_trespass_is_found(line: str, tmp_path: Path) -> None:
    for package, text in (("zmtp", "class Transport:\n    def __init__(self): self._leaving = {}\n"), ("zre", line)):
        (tmp_path / package).mkdir()
        (tmp_path / package / "node.py").write_text(text)
    assert len(trespasses(tmp_path)) == 1


def test_the_blocking_faces_are_generated_from_the_asyncio_ones() -> None:
    for package in PACKAGES:
        face = SOURCE / package / "sync.py"
        assert face.read_text() == generate((SOURCE / package / "asyncio.py").read_text()), "run `make generate`"


def test_the_public_face_is_what_it_says() -> None:
    assert sorted(zambezi.__all__) == ["Broker", "Client", "Node", "PeerSocket", "ZambeziError", "__version__"]
    for name in zambezi.__all__:
        assert hasattr(zambezi, name)
