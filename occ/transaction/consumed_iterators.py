"""Detect state that a function keeps between calls, as far as it is visible from outside: exhausted iterators.

A list that grew, a counter or a file that was read may be intended. An exhausted iterator that the function was made
with is a mistake: its second call gets other rows than its first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, GeneratorType, MethodType
from typing import Any

_DEPTH = 3  # levels of functions wrapped in functions


def used_up(function: Callable[..., Any]) -> list[str]:
    """The names of the exhausted iterators that a function holds."""
    return sorted({name for name, value in _held(function, _DEPTH) if isinstance(value, Iterator) and _is_empty(value)})


def _held(function: Any, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in _directly(function):
        yield name, value
        if depth and isinstance(value, FunctionType | MethodType | partial):
            yield from _held(value, depth - 1)


def _directly(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield bound arguments, closure and defaults, and the attributes of the object that it is a method of."""
    if isinstance(function, partial):
        yield "its function", function.func
        yield from ((f"argument {number}", value) for number, value in enumerate(function.args, 1))
        yield from function.keywords.items()
    elif isinstance(function, MethodType):
        yield "its function", function.__func__
        yield from getattr(function.__self__, "__dict__", {}).items()
    elif isinstance(function, FunctionType):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # not yet assigned
                continue
        given = function.__defaults__ or ()
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        yield from zip(names[len(names) - len(given) :], given, strict=True)
        yield from (function.__kwdefaults__ or {}).items()


def _is_empty(iterator: Iterator[Any]) -> bool:
    # Taking an item to find out would change the function that is checked. A finished generator has no frame.
    if isinstance(iterator, GeneratorType):
        return iterator.gi_frame is None
    return operator.length_hint(iterator, 1) == 0  # 1: the iterator does not say
