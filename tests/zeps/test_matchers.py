"""zambezi.zeps.matchers: which keys a pattern matches, and hostile patterns."""

import fnmatch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import cases
from zambezi.zeps.errors import PatternError
from zambezi.zeps.matchers import KeyTest, Matchers


def matches(pattern: str, key: bytes) -> bool:
    return bool(Matchers().parse(pattern)(key))


@pytest.mark.spec("ZEP-13")
@pytest.mark.parametrize(
    ("pattern", "wanted", "unwanted"),
    [
        ("", [b"", b"anything", b"\xff"], []),
        ("temp.", [b"temp.", b"temp.kitchen"], [b"temp", b"", b"Temp.kitchen", b"a.temp."]),
        ("prefix:temp.", [b"temp.kitchen"], [b"prefix:temp.kitchen"]),
        ("prefix:glob:", [b"glob:", b"glob:x"], [b"glob"]),
        ("unheard:of", [b"unheard:of", b"unheard:of it"], [b"of", b"unheard:"]),
        (":", [b":", b":x"], [b"x:"]),
        ("exact:temp", [b"temp"], [b"temp.", b"tem", b"", b"exact:temp"]),
        ("exact:", [b""], [b"x"]),
        ("exact:exact:", [b"exact:"], [b""]),
        ("glob:*.kitchen", [b"temp.kitchen", b".kitchen", b"\xff\n.kitchen"], [b"temp.kitchen.", b"kitchen"]),
        ("glob:s?", [b"s1", "s\u00e9".encode()], [b"s", b"s12"]),
        ("glob:[a-c]x", [b"ax", b"cx"], [b"dx", b"x", b"[a-c]x"]),
        ("glob:[!a-c]x", [b"dx", "\u00e9x".encode()], [b"ax", b"x"]),
        ("glob:[]]", [b"]"], [b"[]]"]),
        ("glob:[!]]", [b"x"], [b"]"]),
        ("glob:[^a]", [b"^", b"a"], [b"b"]),
        ("glob:[a", [b"[a"], [b"a"]),
        ("glob:", [b""], [b"x"]),
        ("glob:a.b", [b"a.b"], [b"axb", b"a.b\n"]),
        ("glob:(a|b)+$", [b"(a|b)+$"], [b"a", b"ab"]),
        ("regex:^s[0-9]+$", [b"s1", b"s42"], [b"s", b"as1", b"s1\n"]),
        ("regex:b", [b"abc"], [b"ac"]),
        ("regex:", [b"", b"x"], []),
        ("regex:(?i)temp", [b"TEMP.1"], [b"tmp"]),
    ],
)
def test_which_keys_patterns_match(pattern: str, wanted: list[bytes], unwanted: list[bytes]) -> None:
    assert [key for key in wanted if not matches(pattern, key)] == []
    assert [key for key in unwanted if matches(pattern, key)] == []


@pytest.mark.spec("ZEP-13")
def test_patterns_and_keys_are_bytes() -> None:
    odd = b"\xff\xfe".decode("utf-8", "surrogateescape")
    assert matches(odd, b"\xff\xfe\xfd")
    assert not matches(odd, b"\xff")
    assert matches(f"exact:{odd}", b"\xff\xfe")
    assert matches(f"glob:{odd}*", b"\xff\xfe and more")
    assert matches(f"glob:?{odd[1]}", b"\xff\xfe")
    assert matches(f"regex:^{odd}$", b"\xff\xfe")
    assert not matches(f"regex:^{odd}$", b"\xff\xfe\xfe")
    assert matches("glob:*", b"\xff")


@pytest.mark.spec("ZEP-13")
def test_more_matchers_can_be_registered() -> None:
    matchers = Matchers()

    def longer(rest: bytes) -> KeyTest:
        if not rest.isdigit():
            raise PatternError(f"longer: takes a number, not {rest!r}")
        return lambda key: len(key) > int(rest)

    assert matchers.split("longer:3") == ("prefix", b"longer:3")
    matchers.register("longer", longer)
    assert matchers.split("longer:3") == ("longer", b"3")
    assert matchers.parse("longer:3")(b"four")
    assert not matchers.parse("longer:3")(b"abc")
    with pytest.raises(PatternError, match="takes a number"):
        matchers.parse("longer:x")
    assert matchers.names == ["exact", "glob", "longer", "prefix", "regex"]
    assert Matchers().names == ["exact", "glob", "prefix", "regex"]


def test_mistakes_of_a_matcher_stay_with_it(caplog: pytest.LogCaptureFixture) -> None:
    matchers = Matchers()

    def longer(rest: bytes) -> KeyTest:
        least = int(rest)
        return lambda key: 1000 // (len(key) - least) > 0

    matchers.register("longer", longer)
    with pytest.raises(PatternError, match="'longer' failed on this pattern"):
        matchers.parse("longer:three")
    test = matchers.parse("longer:3")
    assert test(b"four")
    assert not test(b"abc")
    assert "failed on the key b'abc'" in caplog.text


def test_a_matcher_has_a_word_of_its_own() -> None:
    matchers = Matchers()
    with pytest.raises(PatternError, match="already"):
        matchers.register("glob", lambda _: lambda _: True)
    for name in ("", "two words", "a:b", "-"):
        with pytest.raises(PatternError, match="a word"):
            matchers.register(name, lambda _: lambda _: True)


@pytest.mark.parametrize(
    "pattern",
    [
        "regex:(",
        "regex:[",
        "regex:a{1001}",
        "regex:((a{100}){100}){100}",
        "regex:(?=a)",
        r"regex:(a)\1",
        "regex:*",
        "regex:" + "(" * 249,
        r"regex:\q",
        "regex:(?P<a",
        "glob:[z-a]",
        "regex:\udcff(",
    ],
)
def test_a_pattern_that_cannot_be_understood_is_an_error(pattern: str) -> None:
    with pytest.raises(PatternError, match="cannot be understood"):
        Matchers().parse(pattern)


# A backtracking engine would never finish most of these; none may be slow here.
@pytest.mark.spec("ZEP-13")
@pytest.mark.parametrize(
    "pattern",
    [
        "regex:(x+x+)+y",
        "regex:(a*)*b",
        "regex:(a|a)*b",
        "regex:(a|aa)+$",
        "regex:" + "a?" * 80 + "a" * 80,
        "regex:(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)[0-9]",
        "regex:" + "(" * 100 + "a*" + ")*" * 70,
        "regex:" + "|".join("a" * size for size in range(20)) + "$",
        "regex:(?:(?:a{10}){10}){10}",
        r"regex:[\s\S]{200}[\s\S]{200}.{500}",
        r"regex:(\pL\pN){30}",
        "glob:" + "*a" * 120,
        "glob:" + "*?" * 120,
        "glob:" + "[!a]" * 60,
    ],
)
def test_no_pattern_is_slow(pattern: str) -> None:
    try:
        test = Matchers().parse(pattern)
    except PatternError:
        return  # that is an answer too
    for key in (b"a" * 255, b"x" * 254 + b"!", b"\xff" * 255, "\u00e9".encode() * 127, bytes(range(255))):
        for _ in range(20):
            test(key)


@settings(max_examples=cases(100))
@given(st.text("ab*?[]!-^\\.", max_size=8), st.text("ab*[]!-^\\.", max_size=6))
@example("[!]a]", "b")
@example("[]-a]", "^")
def test_a_glob_matches_like_fnmatch(pattern: str, key: str) -> None:
    try:
        found = matches(f"glob:{pattern}", key.encode())
    except PatternError:
        assert "-" in pattern  # a range that ends before it begins
        return
    assert found == fnmatch.fnmatchcase(key, pattern)


@given(st.binary(max_size=255), st.binary(max_size=255))
def test_any_text_is_a_pattern_or_an_error(pattern: bytes, key: bytes) -> None:
    matchers = Matchers()
    for name in ("", "prefix:", "exact:", "glob:", "regex:"):
        try:
            test = matchers.parse(name + pattern.decode("utf-8", "surrogateescape"))
        except PatternError:
            continue
        test(key)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_prefix_and_exact_compare_bytes(rest: bytes, key: bytes) -> None:
    text = rest.decode("utf-8", "surrogateescape")
    assert matches(f"prefix:{text}", key) == key.startswith(rest)
    assert matches(f"exact:{text}", key) == (key == rest)
    assert matches(f"prefix:{text}", rest + key)
    assert matches(f"exact:{text}", rest)


# Bounds


def test_equal_patterns_are_compiled_once() -> None:
    matchers = Matchers()
    assert matchers.parse("regex:a+b") is matchers.parse("regex:a+b")
    assert matchers.compiled == 1


def test_patterns_that_are_not_used_are_forgotten() -> None:
    matchers = Matchers()
    for number in range(1000):
        matchers.parse(f"regex:{number}+")
    assert matchers.compiled < 200


def test_the_number_of_compiled_patterns_is_bounded() -> None:
    matchers = Matchers(most=10)
    used = [matchers.parse(f"glob:{number}?") for number in range(10)]
    with pytest.raises(PatternError, match="uses 10 glob and regex patterns already, the limit: use a prefix"):
        matchers.parse("glob:10?")
    assert matchers.parse("glob:3?") is used[3]
    assert matchers.parse("glob:10*")(b"10.x")  # needs no program
    used.pop()
    assert matchers.parse("glob:10?")(b"10x")


def test_a_pattern_that_needs_a_large_program_is_refused() -> None:
    with pytest.raises(PatternError, match="pattern too large"):
        Matchers().parse(r"regex:1([\pL\pN]{9}){4}")
    assert Matchers().parse(r"regex:^\pL+$")("r\u00e9gion".encode())


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_simple_globs_match_as_others_do(glob: str, key: str) -> None:
    assert matches(f"glob:{glob}", key.encode()) == fnmatch.fnmatchcase(key, glob)
