"""tests.conformance.report: its logic on made-up rules, and the real page against the real tests."""

from functools import cache
from pathlib import Path

import pytest

from tests.conformance import report
from tests.conformance.marks import Proof, find_proofs
from tests.conformance.report import Requirement, read_requirements, render, unknown, unproved

RULES = [
    Requirement("SEQ-01", "Two", "MUST", "Count | always"),
    Requirement("SEQ-02", "Two", "SHALL", "No gaps"),
    Requirement("P2P-01", "One", "MAY", "Talk"),
]
PROOFS = [
    Proof("SEQ-01", "tests/a/test_a.py", "test_one", 7),
    Proof("SEQ-01", "tests/b/test_b.py", "TestB::two", 9),
]


def test_the_page() -> None:
    page = render(RULES, PROOFS)
    assert page.startswith("# Conformance\n")
    assert page.endswith(
        """
| protocol | rules | proved | not yet |
| --- | --- | --- | --- |
| One | 1 | 0 | 1 |
| Two | 2 | 1 | 1 |
| all | 3 | 1 | 2 |

## One

| id | level | rule | tests |
| --- | --- | --- | --- |
| P2P-01 | MAY | Talk | not yet |

## Two

| id | level | rule | tests |
| --- | --- | --- | --- |
| SEQ-01 | MUST | Count \\| always | [test_one](../tests/a/test_a.py)<br>[TestB::two](../tests/b/test_b.py) |
| SEQ-02 | SHALL | No gaps | not yet |
"""
    )


def test_the_page_does_not_change_when_a_test_moves_within_its_file() -> None:
    moved = [Proof(each.id, each.path, each.name, each.line + 1) for each in PROOFS]
    assert render(RULES, moved) == render(RULES, PROOFS)


def test_an_unknown_id_is_told_with_its_place() -> None:
    stray = Proof("SEQ-99", "tests/a/test_a.py", "test_one", 7)
    assert unknown(RULES, PROOFS) == []
    assert unknown(RULES, [*PROOFS, stray]) == ["tests/a/test_a.py:7: SEQ-99"]


def test_an_implemented_prefix_needs_every_rule_proved() -> None:
    assert unproved(RULES, PROOFS, set()) == []
    assert unproved(RULES, PROOFS, {"SEQ"}) == ["SEQ-02"]
    assert unproved(RULES, PROOFS, {"SEQ", "P2P"}) == ["SEQ-02", "P2P-01"]
    assert unproved(RULES, [*PROOFS, Proof("SEQ-02", "t", "t", 1)], {"SEQ"}) == []


def test_an_implemented_prefix_that_no_rule_has_is_told() -> None:
    assert unproved(RULES, PROOFS, {"SQE"}) == ["SQE"]


def test_an_id_is_listed_once(tmp_path: Path) -> None:
    path = tmp_path / "twice.csv"
    path.write_text("id,source,level,requirement\nA-01,One,MAY,x\nA-01,One,MAY,y\n", encoding="utf-8")
    with pytest.raises(ValueError, match="A-01 twice"):
        read_requirements(path)


def test_main_writes_the_page_and_fails_on_unknown_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tests").mkdir()
    test = tmp_path / "tests" / "test_made_up.py"
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "PAGE", tmp_path / "conformance.md")

    test.write_text("@pytest.mark.spec('SEQ-02')\ndef test_one(): ...\n", encoding="utf-8")
    assert report.main() == 0
    assert "[test_one](../tests/test_made_up.py)" in (tmp_path / "conformance.md").read_text(encoding="utf-8")

    test.write_text("@pytest.mark.spec('NO-01')\ndef test_one(): ...\n", encoding="utf-8")
    assert report.main() == 1
    assert "tests/test_made_up.py:2: NO-01" in capsys.readouterr().out


# The project itself


@cache
def proofs() -> list[Proof]:
    return find_proofs(report.ROOT)


def test_the_list_of_rules_is_whole() -> None:
    rules = read_requirements()
    assert len(rules) == 96
    assert {rule.source for rule in rules} == {"ZRE stable", "ZRE draft", "51/P2P", "MCollective", "ZEPS"}
    assert {rule.level for rule in rules} <= {"MUST", "MUST NOT", "SHALL", "SHALL NOT", "SHOULD", "MAY"}
    assert all(rule.text and rule.prefix for rule in rules)


@pytest.mark.xdist_group("marks")
def test_every_mark_has_an_id_of_the_list() -> None:
    assert unknown(read_requirements(), proofs()) == []


@pytest.mark.xdist_group("marks")
def test_every_rule_of_what_is_implemented_is_proved() -> None:
    assert unproved(read_requirements(), proofs()) == []


@pytest.mark.xdist_group("marks")
def test_the_page_is_up_to_date() -> None:
    page = report.PAGE.read_text(encoding="utf-8")
    assert page == render(read_requirements(), proofs()), "run `make conformance`"
