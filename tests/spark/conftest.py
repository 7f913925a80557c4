"""Without pyspark the tests of this directory are skipped, with a reason."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

_MISSING = [name for name in ("pyspark", "pyarrow", "numpy") if importlib.util.find_spec(name) is None]


class _Skipped(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        pytest.skip(f"{', '.join(_MISSING)} missing: pip install 'zambezi[spark]'", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.File | None:
    return _Skipped.from_parent(parent, path=module_path) if _MISSING else None
