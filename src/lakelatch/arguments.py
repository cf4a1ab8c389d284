"""What the doors of the library take: each function returns the argument, or raises a sentence that names it.

A wrong type is refused at the door, because further in it fails where nobody knows the argument's name, or, worse, is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

from .errors import InputError, LakeLatchError


def text(value: Any, name: str, *, empty: bool = False, error: type[LakeLatchError] = InputError) -> str:
    """A text, which may be ``empty`` or not, and which UTF-8 can hold: what is stored is."""
    if not isinstance(value, str) or not (value or empty):
        raise error(f"{name}={value!r} is no text; give a str" + ("" if empty else " that is not empty"))
    if not encodable(value):
        raise error(f"{name}={value!r} holds half of a surrogate pair, which UTF-8 cannot hold; leave it out")
    return value


def meant(name: str, known: Iterable[str]) -> str:
    """A question that names what somebody who wrote an unknown name may have meant; empty where nothing is close."""
    names = list(known)
    same = [each for each in names if each.lower() == name.lower()]
    near = same or get_close_matches(name, names, 3, 0.6)
    exact = " Names are exact here" if same else ""
    return f"did you mean {' or '.join(map(repr, near))}?{exact}" if near else ""


def one_of(value: Any, name: str, allowed: Iterable[str], *, then: str = "") -> str:
    """One of a few words; ``then`` ends the sentence that refuses others."""
    words = [f'"{each}"' for each in allowed]
    if not isinstance(value, str) or f'"{value}"' not in words:
        raise InputError(
            f"{name}={value!r} is {'neither' if len(words) == 2 else 'none of'} {' nor '.join(words)}{then}"
        )
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
    if not fits or not math.isfinite(value) or not least <= value <= most:
        bounds = [f"at least {least:g}"] * math.isfinite(least) + [f"at most {most:g}"] * math.isfinite(most)
        what = "a whole number" if whole else "a number"
        raise error(f"{name}={value!r} is not {what}{' of ' if bounds else ''}{' and '.join(bounds)}; give one")
    return value


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
