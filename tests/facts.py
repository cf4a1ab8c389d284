"""Holds every error of this process to the facts that its class declares: each name, and the type of its value."""

from __future__ import annotations

import typing
from collections.abc import Collection, Mapping
from functools import cache
from types import UnionType
from typing import Any

from lakelatch import errors


@cache
def declared(cls: type[errors.LakeLatchError]) -> dict[str, Any]:
    """The facts of a class and of its bases, with their types."""
    ours = next(each for each in cls.__mro__ if each.__module__ == errors.__name__)
    return {
        name: kind
        for name, kind in typing.get_type_hints(ours).items()
        if typing.get_origin(kind) is not typing.ClassVar
    }


def fits(value: object, kind: Any) -> bool:
    """Whether a value is of a type, with the types of what it holds."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if origin in (UnionType, typing.Union):
        return any(fits(value, each) for each in inner)
    if not isinstance(value, (int, float) if kind is float else origin or kind):
        return False
    if isinstance(value, str):
        return origin is None
    if isinstance(value, Mapping):
        return all(fits(key, inner[0]) and fits(each, inner[1]) for key, each in value.items())
    if origin is tuple and inner[-1] is not ...:
        return len(value) == len(inner) and all(map(fits, value, inner))  # type: ignore[arg-type]
    return all(fits(each, inner[0]) for each in value) if inner and isinstance(value, Collection) else True


def hold_types() -> None:
    """Let an error with another fact, or a fact of another type, fail the test that makes it."""
    init = errors.LakeLatchError.__init__

    def held(self: errors.LakeLatchError, message: str, **details: Any) -> None:
        known = declared(type(self))
        for name, value in details.items():
            told = f"{type(self).__name__}.{name} = {value!r:.200}"
            assert name in known, f"{told} is declared nowhere; see src/lakelatch/errors.py"
            assert fits(value, known[name]), f"{told} is declared as {known[name]}"
        init(self, message, **details)

    errors.LakeLatchError.__init__ = held  # type: ignore[method-assign]
