"""Temporary checkpoints: those of processes that have ended are removed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from zambezi.spark.pipelines.checkpoints import claim, new_checkpoint, remove_unused

if TYPE_CHECKING:
    import pytest


def test_only_checkpoints_of_processes_that_have_ended_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    ended, used, new, own, foreign = (new_checkpoint() for _ in range(5))
    os.close(claim(ended))
    (ended / "offsets").mkdir()
    held = claim(used)
    mine = claim(own)
    new.mkdir()  # Spark has made it, and no process has claimed it yet
    foreign.mkdir()
    (foreign / "in-use").symlink_to(tmp_path / "elsewhere")
    remove_unused(own)
    assert sorted(tmp_path.iterdir()) == sorted([used, new, own, foreign])
    os.close(held)
    os.close(mine)
    remove_unused(own)
    assert sorted(tmp_path.iterdir()) == sorted([new, own, foreign])
