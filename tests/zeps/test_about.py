"""Every log record about a stream has its fields: the stream, and the reason if the text has one."""

import ast
import re
from pathlib import Path

from zambezi.zeps.about import about

SOURCE = Path(__file__).parents[2] / "src" / "zambezi"
PLACES = ("console", "server", "zeps/broker", "zeps/journal", "zeps/store", "zeps/administration")
LEVELS = ("info", "warning", "error", "exception")


def test_the_fields() -> None:
    assert about("prices") == {"stream": "prices"}
    assert about("prices", ValueError("no")) == {"stream": "prices", "reason": "no"}


def log_calls() -> list[tuple[str, ast.Call]]:
    return [
        (f"{path.relative_to(SOURCE)}:{node.lineno}", node)
        for place in PLACES
        for path in sorted((SOURCE / place).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVELS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "_log"
    ]


def test_every_line_about_a_stream_has_fields() -> None:
    calls = log_calls()
    assert len(calls) > 20
    for place, call in calls:
        (text, *_) = call.args
        assert isinstance(text, ast.Constant), f"{place}: the first argument must be a text"
        assert "%r" not in str(text.value), f"{place}: say it in words, not as Python writes it"
        if re.search(r"\bstream %[sa]", str(text.value)):
            extra = [keyword for keyword in call.keywords if keyword.arg == "extra"]
            assert extra, f"{place}: add extra=about(...)"
