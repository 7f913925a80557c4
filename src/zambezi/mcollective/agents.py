"""Agents: classes whose actions the machines of a fleet can be asked to run.

The parameters of an action have types. The arguments of a caller are converted to these types before the action runs,
and its result goes back as JSON.

>>> @agent("greeter")
... class Greeter:
...     \"""Says hello.\"""
...
...     @action
...     def hello(self, name: str, times: int = 1) -> list[str]:
...         \"""Return a greeting, several times.\"""
...         return [f"hello {name}"] * times
>>> greeter = describe(Greeter())
>>> greeter.name, greeter.actions["hello"].signature
('greeter', 'name: str, times: int = 1')
>>> greeter.actions["hello"].prepare({"name": "bob", "times": "2"})()
['hello bob', 'hello bob']

Arguments from a command line are texts: so a number can be given as `"2"`, a bool as `"true"`, and a list as `"1,2"`.
The types are str, int, float, bool, list, dict, Literal, None, and types that are built of them.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from zambezi.mcollective.errors import AgentError

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_AGENT: Final = "__zambezi_agent__"
_ACTION: Final = "__zambezi_action__"
_TRUTHS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def agent(name: str) -> Callable[[C], C]:
    """Return a decorator that makes a class an agent. The name becomes a part of the agent's topic."""
    if not name or not name.isprintable() or " " in name:
        raise AgentError(f"an agent's name must be one word, not {name!r}")

    def mark(cls: C) -> C:
        setattr(cls, _AGENT, name)
        return cls

    return mark


def action(function: F) -> F:
    """Make a method an action. It can be a coroutine; otherwise it runs in a thread, and can block."""
    setattr(function, _ACTION, True)
    return function


def is_agent(cls: type) -> bool:
    """Return whether `agent` decorates a class itself; a base class does not count."""
    return _AGENT in vars(cls)


@dataclass(frozen=True, slots=True)
class Action:
    """An action, as callers see it."""

    name: str
    summary: str
    call: Callable[..., Any]
    parameters: Mapping[str, inspect.Parameter]
    hints: Mapping[str, Any]

    @property
    def signature(self) -> str:
        """The parameters with their types and defaults, as in Python."""
        return ", ".join(
            f"{name}: {_named(self.hints[name])}"
            + ("" if parameter.default is parameter.empty else f" = {parameter.default!r}")
            for name, parameter in self.parameters.items()
        )

    def prepare(self, arguments: Mapping[str, object]) -> Callable[[], Any]:
        """Return the call with its arguments converted; raise `AgentError` if they do not fit the parameters."""
        for name in arguments:
            if name not in self.parameters:
                raise AgentError(f"{self.name} has no argument {name!r}; it takes ({self.signature})")
        given = {}
        for name, parameter in self.parameters.items():
            if name in arguments:
                try:
                    given[name] = convert(arguments[name], self.hints[name])
                except ValueError as error:
                    raise AgentError(f"{self.name}: {name} must be {_named(self.hints[name])}, but {error}") from None
            elif parameter.default is parameter.empty:
                raise AgentError(f"{self.name} needs the argument {name!r}; it takes ({self.signature})")
        return functools.partial(self.call, **given)


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent, as callers see it."""

    name: str
    summary: str
    actions: Mapping[str, Action]


def describe(instance: object) -> Agent:
    """Return an agent as callers see it; raise `AgentError` if its class is not a valid agent."""
    name = getattr(instance, _AGENT, None)
    if not isinstance(name, str):
        raise AgentError(f"{type(instance).__name__} is no agent: write @agent('name') above its class")
    actions = {}
    for attribute in dir(type(instance)):
        function = inspect.getattr_static(type(instance), attribute)
        if getattr(function, _ACTION, False):
            actions[attribute] = _describe(name, attribute, getattr(instance, attribute))
    if not actions:
        raise AgentError(f"the agent {name} has no actions: write @action above its methods")
    return Agent(name, _summary(type(instance)), actions)


def _describe(agent_name: str, name: str, method: Callable[..., Any]) -> Action:
    hints = get_type_hints(method)
    parameters = dict(inspect.signature(method).parameters)
    for parameter in parameters.values():
        where = f"{agent_name}.{name}: the parameter {parameter.name}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise AgentError(f"{where} cannot be positional-only or variable: callers give arguments by name")
        if parameter.name not in hints:
            raise AgentError(f"{where} has no type")
        _check_hint(hints[parameter.name], where)
    return Action(name, _summary(method), method, parameters, hints)


def _summary(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


# Types


def _check_hint(hint: Any, where: str) -> None:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType, list, dict):
        for part in get_args(hint):
            _check_hint(part, where)
    elif origin is not Literal and hint not in (str, int, float, bool, list, dict, object, Any, type(None)):
        raise AgentError(f"{where} has the type {_named(hint)}, which cannot come as JSON")


def _named(hint: Any) -> str:
    if hint is type(None):
        return "None"
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


def convert(value: object, hint: Any) -> Any:
    """Return a value from JSON, or from a text, in a type; raise `ValueError` with the value if it does not fit."""
    origin = get_origin(hint)
    if hint in (Any, object):
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(value, get_args(hint))
    if origin is Literal:
        for choice in get_args(hint):
            if value == choice or value == str(choice):
                return choice
        raise ValueError(f"{value!r} is none of these")
    if origin is list and isinstance(value, list | str):
        parts = value.split(",") if isinstance(value, str) else value
        return [convert(each, get_args(hint)[0]) for each in parts]
    if origin is dict and isinstance(value, dict):
        return {convert(key, get_args(hint)[0]): convert(each, get_args(hint)[1]) for key, each in value.items()}
    return _convert_plain(value, origin or hint)


def _convert_union(value: object, hints: tuple[Any, ...]) -> Any:
    if value is None and type(None) in hints:
        return None
    for hint in hints:
        if type(value) is hint:  # a value that has one of the types is not read as a text
            return value
    for hint in hints:
        if hint is not type(None):
            try:
                return convert(value, hint)
            except ValueError:
                continue
    raise ValueError(f"{value!r} is not")


def _convert_plain(value: object, wanted: Any) -> Any:
    if type(value) is wanted:
        return value
    if wanted is float and type(value) is int:
        return float(value)
    if isinstance(value, str):
        if wanted is bool and value.lower() in _TRUTHS:
            return _TRUTHS[value.lower()]
        if wanted in (int, float):
            try:
                return wanted(value)
            except ValueError:
                raise ValueError(f"{value!r} is not") from None
        if wanted is list:
            return value.split(",")
    raise ValueError(f"{value!r} is not")
