"""What the doors of the library take: each function returns the argument, or raises a sentence that names it.

A wrong type is refused at the door, because further in it fails where nobody knows the argument's name, or, worse, is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from .errors import InputError, LakeLatchError


def text(value: Any, name: str, *, empty: bool = False, error: type[LakeLatchError] = InputError) -> str:
    """A text, which may be ``empty`` or not, and which UTF-8 can hold: what is stored is."""
    if not isinstance(value, str) or not (value or empty):
        raise error(f"{name}={value!r} is no text; give a str" + ("" if empty else " that is not empty"))
    if not encodable(value):
        raise error(f"{name}={value!r} holds half of a surrogate pair, which UTF-8 cannot hold; leave it out")
    return value


def encodable(value: str) -> bool:
    """Whether UTF-8 can hold the text: a `str` of Python may hold half of a surrogate pair, from a bad decoding."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def names(value: Any, name: str) -> tuple[str, ...]:
    """One name, or a list of names that differ."""
    given = (value,) if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) and each for each in given):
        raise InputError(f'{name}={value!r} names no columns; give one name, or a list of names, as ["id", "day"]')
    if len(set(given)) < len(given):
        raise InputError(f"{name}={value!r} names a column twice; name each once")
    return tuple(given)


_LONG = 10**40


def number(
    value: Any,
    name: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    whole: bool = False,
    error: type[LakeLatchError] = InputError,
) -> Any:
    """A number between two bounds; never NaN, infinite, or a bool."""
    fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not fits or not _is_finite(value) or not least <= value <= most:
        bounds = [f"at least {least:g}"] * math.isfinite(least) + [f"at most {most:g}"] * math.isfinite(most)
        what = "a whole number" if whole else "a number"
        shown = repr(value) if not fits or value != value or abs(value) < _LONG else "(a number too long to be shown)"
        raise error(f"{name}={shown} is not {what}{' of ' if bounds else ''}{' and '.join(bounds)}; give one")
    return value


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def flag(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name}={value!r} is neither True nor False; give one of them")
    return value


def many(value: Any, name: str) -> Iterable[Any]:
    """Anything that can be gone through but a text, which would be taken letter by letter."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{name}={value!r} is no list; give one, as {name}=[...]")
    return value


def function(value: Any, name: str) -> Callable[..., Any]:
    """Something to call."""
    if not callable(value):
        raise InputError(f"{name}={value!r} cannot be called; give a function")
    return value  # type: ignore[no-any-return]


def instance(value: Any, kind: type | tuple[type, ...], name: str, wanted: str) -> Any:
    """An object of a class; ``wanted`` says which, and where it comes from."""
    if not isinstance(value, kind):
        raise InputError(f"{name}={value!r} is of type {type(value).__name__}; give {wanted}")
    return value
