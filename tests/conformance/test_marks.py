"""tests.conformance.marks, on made-up trees."""

from pathlib import Path

import pytest

from tests.conformance.marks import BadMark, find_proofs


def tree(root: Path, text: str, name: str = "test_made_up.py") -> Path:
    (root / "tests" / "deep").mkdir(parents=True)
    (root / "tests" / "deep" / name).write_text(text, encoding="utf-8")
    return root


def names(root: Path) -> list[tuple[str, str]]:
    return [(proof.id, proof.name) for proof in find_proofs(root)]


def test_marks_on_functions_and_classes_are_found(tmp_path: Path) -> None:
    text = """
import pytest
from pytest import mark

@pytest.mark.spec("B-02", "A-01")
def test_one(): ...

@mark.spec("A-01")
async def test_two(): ...

@pytest.mark.spec("C-01")
class TestThree:
    @pytest.mark.parametrize("x", [1])
    @pytest.mark.spec("C-02")
    def test_four(self, x): ...

if True:
    @pytest.mark.spec("D-01")
    def test_five(): ...

def test_unmarked(): ...
"""
    assert names(tree(tmp_path, text)) == [
        ("A-01", "test_one"),
        ("A-01", "test_two"),
        ("B-02", "test_one"),
        ("C-01", "TestThree"),
        ("C-02", "TestThree::test_four"),
        ("D-01", "test_five"),
    ]


def test_a_proof_has_its_place(tmp_path: Path) -> None:
    (proof,) = find_proofs(tree(tmp_path, '@pytest.mark.spec("A-01")\ndef test_one(): ...\n'))
    assert (proof.path, proof.line) == ("tests/deep/test_made_up.py", 2)


@pytest.mark.parametrize("other", ["skip", "skip(reason='x')", "xfail", "xfail(strict=True)"])
def test_a_test_that_is_not_run_proves_nothing(tmp_path: Path, other: str) -> None:
    text = f'@pytest.mark.{other}\n@pytest.mark.spec("A-01")\ndef test_one(): ...\n'
    assert names(tree(tmp_path, text)) == []


def test_a_test_in_a_class_that_is_not_run_proves_nothing(tmp_path: Path) -> None:
    text = '@pytest.mark.skip\nclass TestA:\n    @pytest.mark.spec("A-01")\n    def test_one(self): ...\n'
    assert names(tree(tmp_path, text)) == []


def test_a_condition_does_not_void_a_proof(tmp_path: Path) -> None:
    text = '@pytest.mark.skipif(X, reason="")\n@pytest.mark.spec("A-01")\ndef test_one(): ...\n'
    assert names(tree(tmp_path, text)) == [("A-01", "test_one")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("@pytest.mark.spec(ID)\ndef test_one(): ...", "literal"),
        ("@pytest.mark.spec(*IDS)\ndef test_one(): ...", "literal"),
        ("@pytest.mark.spec('A-' + '01')\ndef test_one(): ...", "literal"),
        ("@pytest.mark.spec(f'A-01')\ndef test_one(): ...", "literal"),
        ("@pytest.mark.spec(1)\ndef test_one(): ...", "literal"),
        ("@pytest.mark.spec()\ndef test_one(): ...", "takes ids"),
        ("@pytest.mark.spec\ndef test_one(): ...", "takes ids"),
        ("@pytest.mark.spec('A-01', reason='x')\ndef test_one(): ...", "takes ids"),
        ("@pytest.mark.spec('A-01')\ndef helper(): ...", "does not run"),
        ("@pytest.mark.spec('A-01')\nclass Helper: ...", "does not run"),
        ("def helper():\n    @pytest.mark.spec('A-01')\n    def test_one(): ...", "does not run"),
        ("pytestmark = pytest.mark.spec('A-01')", "as a decorator"),
        ("x = pytest.param(1, marks=pytest.mark.spec('A-01'))", "as a decorator"),
        ("spec = pytest.mark.spec", "as a decorator"),
    ],
)
def test_a_mark_that_cannot_be_counted_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(BadMark, match=rf"^tests/deep/test_made_up\.py:\d+: .*{complaint}"):
        find_proofs(tree(tmp_path, text))


def test_a_mark_in_a_file_that_pytest_does_not_collect_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadMark, match="test_"):
        find_proofs(tree(tmp_path, "@pytest.mark.spec('A-01')\ndef test_one(): ...", "steps.py"))


def test_a_mark_in_a_text_is_not_a_mark(tmp_path: Path) -> None:
    assert names(tree(tmp_path, "text = '@pytest.mark.spec(ID)'\n")) == []
