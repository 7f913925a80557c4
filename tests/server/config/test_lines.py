"""The lines of the keys in a text."""

import tomllib

import pytest

from zambezi.server.config.lines import KeyLines, KeyPath

TEXT = '''a.b = 1
[x."y.z"]
k = [ "]", # [
  "b" ]
'q' = """
[not.a.table]
k2 = \\"""
"""
t = "a#b" # c
[[r]]
[[r]]
n = 'x'
[r.s]
m = { a = [1], b = "}" }
z = "\\\\"
last = true
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 1),
        (("a", "b"), 1),
        (("x", "y.z"), 2),
        (("x", "y.z", "k"), 3),
        (("x", "y.z", "q"), 5),
        (("x", "y.z", "t"), 9),
        (("r",), 10),
        (("r", 0), 10),
        (("r", 1), 11),
        (("r", 1, "n"), 12),
        (("r", 1, "s"), 13),
        (("r", 1, "s", "m"), 14),
        (("r", 1, "s", "m", "a"), 14),
        (("r", 1, "s", "z"), 15),
        (("r", 1, "s", "last"), 16),
        (("r", 0, "missing"), 10),
        (("not",), 0),
        (("k2",), 0),
    ],
)
def test_every_key_has_its_line(path: KeyPath, line: int) -> None:
    tomllib.loads(TEXT)  # it is TOML
    assert KeyLines(TEXT).line(path) == line
