"""zambezi.wire: the public names of the package, and the examples in its documentation."""

import doctest
import re
from pathlib import Path

import zambezi.wire


def test_the_public_names() -> None:
    assert sorted(zambezi.wire.__all__) == zambezi.wire.__all__
    assert set(zambezi.wire.__all__) == {
        *("Message", "field", "constant", "Octets", "Dictionary"),
        *("number_1", "number_2", "number_4", "number_8"),
        *("string", "longstr", "strings", "dictionary", "chunk", "msg", "choice"),
        *(
            "WireError",
            "TooMany",
            "Truncated",
            "TrailingOctets",
            "BadSignature",
            "UnknownCommand",
            "BadValue",
            "Unencodable",
        ),
    }
    for name in zambezi.wire.__all__:
        assert hasattr(zambezi.wire, name)


def test_the_example_in_the_docstring_runs() -> None:
    result = doctest.testmod(zambezi.wire)
    assert result.attempted >= 4
    assert result.failed == 0


def test_the_example_of_the_wire_layer_in_the_readme_runs() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    examples = [code for code in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "zambezi.wire" in code]
    for code in examples:
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
