"""zambezi.mcollective.agents: how agents are declared, and which arguments they accept."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from zambezi.mcollective.agents import action, agent, convert, describe, is_agent
from zambezi.mcollective.errors import AgentError


@agent("packages")
class Packages:
    """Installs things.

    And removes them.
    """

    @action
    def install(self, name: str, version: str | None = None, force: bool = False) -> dict[str, object]:
        """Install a package."""
        return {"name": name, "version": version, "force": force}

    @action
    async def count(self, *, kind: Literal["all", "new"] = "all") -> int:
        return len(kind)

    def helper(self) -> None:
        """Not an action."""


def test_an_agent_is_described_by_its_class() -> None:
    found = describe(Packages())
    assert (found.name, found.summary) == ("packages", "Installs things.")
    assert sorted(found.actions) == ["count", "install"]
    assert found.actions["install"].summary == "Install a package."
    assert found.actions["install"].signature == "name: str, version: str | None = None, force: bool = False"
    assert found.actions["count"].signature == "kind: Literal['all', 'new'] = 'all'"


def test_an_action_is_called_with_arguments_of_its_types() -> None:
    install = describe(Packages()).actions["install"]
    assert install.prepare({"name": "vim"})() == {"name": "vim", "version": None, "force": False}
    assert install.prepare({"name": "vim", "version": None, "force": "yes"})()["force"] is True


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "needs the argument 'name'; it takes"),
        ({"name": "vim", "colour": "red"}, "no argument 'colour'; it takes"),
        ({"name": 7}, "name must be str, but 7 is not"),
        ({"name": "vim", "force": "perhaps"}, "force must be bool, but 'perhaps' is not"),
    ],
)
def test_other_arguments_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(AgentError, match=words):
        describe(Packages()).actions["install"].prepare(arguments)


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ("7", int, 7),
        (7, float, 7.0),
        ("7.5", float, 7.5),
        ("no", bool, False),
        ("a,b", list, ["a", "b"]),
        (["1", 2], list[int], [1, 2]),
        ("1,2", list[int], [1, 2]),
        ({"a": "1"}, dict[str, int], {"a": 1}),
        ("2", Literal[1, 2], 2),
        ("7", int | None, 7),
        ("7", int | str, "7"),
        (None, int | None, None),
        ([1, {"a": None}], Any, [1, {"a": None}]),
        ({"a": 1}, dict, {"a": 1}),
    ],
)
def test_values_are_read_as_their_types(value: object, hint: Any, expected: object) -> None:
    found = convert(value, hint)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("x", int),
        (1.5, int),
        (True, int),
        (1, bool),
        (None, str),
        ("x", Literal["a"]),
        ([1], dict[str, int]),
        ("x", int | float),
    ],
)
def test_values_of_other_types_are_not(value: object, hint: Any) -> None:
    with pytest.raises(ValueError, match=r"is not|none of these"):
        convert(value, hint)


def test_what_is_no_agent_is_told_what_is_missing() -> None:
    class Plain:
        pass

    @agent("idle")
    class Idle:
        pass

    @agent("odd")
    class Untyped:
        @action
        def act(self, thing) -> None:  # type: ignore[no-untyped-def]
            pass

    @agent("odd")
    class Strange:
        @action
        def act(self, thing: set[int]) -> None:
            pass

    @agent("odd")
    class Star:
        @action
        def act(self, *things: int) -> None:
            pass

    for cls, words in (
        (Plain, "write @agent"),
        (Idle, "write @action"),
        (Untyped, "has no type"),
        (Strange, "cannot come as JSON"),
        (Star, "by name"),
    ):
        with pytest.raises(AgentError, match=words):
            describe(cls())
    with pytest.raises(AgentError, match="one word"):
        agent("two words")


def test_a_class_that_inherits_is_not_listed_twice() -> None:
    class More(Packages):
        pass

    assert is_agent(Packages)
    assert not is_agent(More)
    assert describe(More()).name == "packages"
