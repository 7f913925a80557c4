"""Finds the spec marks on the tests, by reading the source.

The marks are read from the syntax tree and not collected from a run of pytest: it takes no import, so it is
quick, the same under xdist, and the same on a machine where half of the tests are skipped. The price is that
a mark must be plain: on a test function or a test class, called, with ids as literals. Whatever else looks
like a spec mark is refused, since it would otherwise be overlooked in silence.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

# A test that is not run, or that is expected to fail, proves nothing. skipif is another matter: it runs where
# it can, and continuous integration is such a place.
_VOID = {"skip", "xfail"}


class BadMark(Exception):
    """A spec mark that cannot be counted; the text begins with its file and line."""


@dataclass(frozen=True, order=True)
class Proof:
    """One id on one test. `path` is relative to the root of the project; `name` is as pytest has it."""

    id: str
    path: str
    name: str
    line: int


def find_proofs(root: Path, directory: str = "tests") -> list[Proof]:
    """All spec marks in the test files under a directory of the project, in order."""
    found: list[Proof] = []
    for path in sorted((root / directory).rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"), relative)
        counted = list(_marked(tree, relative, ()))
        _refuse_overlooked(tree, relative, {id(mark) for mark, _ in counted})
        if counted and not path.name.startswith("test_"):
            raise BadMark(f"{relative}: spec marks count in test_*.py only, where pytest finds them")
        found.extend(proof for _, proofs in counted for proof in proofs)
    return sorted(found)


def _marked(node: ast.AST, path: str, outer: tuple[Definition, ...]) -> Iterator[tuple[ast.Attribute, list[Proof]]]:
    """Each spec mark that decorates a definition, with what it proves."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Definition):
            yield from _marked(child, path, outer)
            continue
        chain = (*outer, child)
        for decorator in child.decorator_list:
            call = decorator.func if isinstance(decorator, ast.Call) else decorator
            if isinstance(call, ast.Attribute) and _mark_name(call) == "spec":
                ids = _literal_ids(decorator, path)
                _refuse_unless_test(chain, path)
                name = "::".join(each.name for each in chain)
                void = any(_is_void(each) for each in chain)
                yield call, [] if void else [Proof(each, path, name, child.lineno) for each in ids]
        yield from _marked(child, path, chain)


def _mark_name(node: ast.AST) -> str | None:
    """`spec` for `pytest.mark.spec` and `mark.spec`."""
    match node:
        case ast.Attribute(attr=name, value=ast.Attribute(attr="mark") | ast.Name(id="mark")):
            return name
    return None


def _literal_ids(decorator: ast.expr, path: str) -> list[str]:
    where = f"{path}:{decorator.lineno}"
    if not isinstance(decorator, ast.Call) or not decorator.args or decorator.keywords:
        raise BadMark(f"{where}: a spec mark takes ids, and nothing but ids")
    ids = []
    for argument in decorator.args:
        match argument:
            case ast.Constant(value=str() as text):
                ids.append(text)
            case _:
                raise BadMark(f"{where}: write the ids of a spec mark as literal strings")
    return ids


def _refuse_unless_test(chain: tuple[Definition, ...], path: str) -> None:
    for each in chain:
        if not each.name.startswith("Test" if isinstance(each, ast.ClassDef) else "test"):
            raise BadMark(f"{path}:{each.lineno}: {each.name} has a spec mark but pytest does not run it")


def _is_void(definition: Definition) -> bool:
    calls = (each.func if isinstance(each, ast.Call) else each for each in definition.decorator_list)
    return any(_mark_name(call) in _VOID for call in calls)


def _refuse_overlooked(tree: ast.AST, path: str, counted: set[int]) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _mark_name(node) == "spec" and id(node) not in counted:
            raise BadMark(f"{path}:{node.lineno}: a spec mark stands as a decorator, on a test or a test class")
