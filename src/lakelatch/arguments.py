"""What the doors of the library take: each function returns the argument, or raises a sentence that names it.

A wrong type is refused at the door, because further in it fails where nobody knows the argument's name, or, worse, is stored.
"""

from __future__ import annotations

import functools
import inspect
import math
import reprlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from .errors import InputError, LakeLatchError

_ARRAYS = ("numpy", "pandas", "polars", "pyarrow")


class _Brief(reprlib.Repr):
    """As `repr`, with a few of many values; arrays, whose own prints some hundred of them, by their size."""

    def repr1(self, x: Any, level: int) -> str:
        kind = type(x)
        root = kind.__module__.partition(".")[0]
        if root in _ARRAYS and hasattr(x, "__len__") and getattr(x, "ndim", True):
            what = "rows" if hasattr(x, "columns") or getattr(x, "ndim", 1) > 1 else "values"
            return f"a {root} {kind.__name__} of {len(x)} {what}"
        if isinstance(x, Iterator):
            return f"a {kind.__name__}, which can be gone through once"
        return super().repr1(x, level)


_BRIEF = _Brief()
_BRIEF.maxstring = _BRIEF.maxother = 200


def brief(value: Any) -> str:
    """A value for a message, at most a few of many."""
    return _BRIEF.repr(value)


def values_of(given: Any) -> list[Any] | None:
    """The values of a list, set, range, view or array with one dimension, as values of Python; None for anything else.

    A text and a mapping are no lists, and an iterator could be gone through once only.
    """
    root = type(given).__module__.partition(".")[0]
    if root in _ARRAYS:
        return _of_array(given, root)
    if isinstance(given, Collection) and not isinstance(given, str | bytes | bytearray | memoryview | Mapping):
        return list(given)
    return None


def _of_array(given: Any, root: str) -> list[Any] | None:
    import pyarrow as pa

    if isinstance(given, pa.Array | pa.ChunkedArray):
        return given.to_pylist()  # type: ignore[no-any-return]
    if root == "polars":
        return given.to_list() if hasattr(given, "to_list") else None
    if root == "pyarrow" or getattr(given, "ndim", 0) != 1:
        return None
    if root == "pandas" and not hasattr(given, "iloc"):  # an index, or an array of pandas' own
        given = sys.modules["pandas"].Series(given)
    try:
        return pa.array(given, from_pandas=root == "pandas").to_pylist()  # type: ignore[no-any-return]
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # objects, whose types differ
        return list(given)


def text(value: Any, name: str, *, empty: bool = False, error: type[LakeLatchError] = InputError) -> str:
    """A text, which may be ``empty`` or not, and which UTF-8 can hold: what is stored is."""
    if not isinstance(value, str) or not (value or empty):
        raise error(f"{name}={brief(value)} is no text; give a str" + ("" if empty else " that is not empty"))
    if not encodable(value):
        raise error(f"{name}={brief(value)} holds half of a surrogate pair, which UTF-8 cannot hold; leave it out")
    return value


def meant(name: Any, known: Iterable[str]) -> str:
    """A question that names what somebody who wrote an unknown name may have meant; empty where nothing is close."""
    names = list(known)
    if not isinstance(name, str):
        return ""
    same = [each for each in names if each.lower() == name.lower()]
    near = same or get_close_matches(name, names, 3, 0.6)
    exact = " Names are exact here" if same else ""
    return f"did you mean {' or '.join(map(repr, near))}?{exact}" if near else ""


_T = TypeVar("_T")


def suggesting(public: _T) -> _T:
    """A function, or all methods of a class: Python's error for an unknown argument names the one that was meant."""
    if inspect.isclass(public):
        for name, each in list(vars(public).items()):
            if inspect.isfunction(each) and not name.startswith("_"):
                setattr(public, name, suggesting(each))
        return public
    call: Any = public

    @functools.wraps(call)
    def suggested(*args: Any, **given: Any) -> Any:
        try:
            return call(*args, **given)
        except TypeError as e:
            known = inspect.signature(call).parameters
            unknown = next((name for name in given if name not in known), None)
            # An error of the call itself, not of what it does; newer versions of Python suggest some names themselves.
            outside = e.__traceback__ is not None and e.__traceback__.tb_next is None
            if not outside or unknown is None or not (hint := meant(unknown, known)) or "mean" in str(e):
                raise
            name = "" if repr(unknown) in str(e) else f"{unknown!r}: "
            raise TypeError(f"{e}; {name}{hint}") from None

    return suggested  # type: ignore[return-value]


def unknown_argument(name: str, known: Iterable[str], *, more: Iterable[str] = ()) -> str:
    """The words for an argument that a call does not have, of ``known`` ones and ``more`` that need not be listed."""
    listed = list(dict.fromkeys(known))
    hint = meant(name, [*listed, *more])
    return f"there is no argument {name!r}; {f'{hint} There' if hint else 'there'} are {', '.join(listed)}"


def one_of(value: Any, name: str, allowed: Iterable[str], *, then: str = "") -> str:
    """One of a few words; ``then`` ends the sentence that refuses others."""
    words = [f'"{each}"' for each in allowed]
    if not isinstance(value, str) or f'"{value}"' not in words:
        raise InputError(
            f"{name}={brief(value)} is {'neither' if len(words) == 2 else 'none of'} {' nor '.join(words)}{then}"
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
        raise InputError(f'{name}={brief(value)} names no columns; give one name, or a list of names, as ["id", "day"]')
    if len(set(given)) < len(given):
        raise InputError(f"{name}={brief(value)} names a column twice; name each once")
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
        raise error(f"{name}={brief(value)} is not {what}{' of ' if bounds else ''}{' and '.join(bounds)}; give one")
    return value


def flag(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name}={brief(value)} is neither True nor False; give one of them")
    return value


def many(value: Any, name: str) -> Iterable[Any]:
    """Anything that can be gone through but a text, which would be taken letter by letter."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{name}={brief(value)} is no list; give one, as {name}=[...]")
    found = values_of(value)
    return value if found is None else found


def function(value: Any, name: str) -> Callable[..., Any]:
    """Something to call."""
    if not callable(value):
        raise InputError(f"{name}={brief(value)} cannot be called; give a function")
    return value  # type: ignore[no-any-return]


def instance(value: Any, kind: type | tuple[type, ...], name: str, wanted: str) -> Any:
    """An object of a class; ``wanted`` says which, and where it comes from."""
    if not isinstance(value, kind):
        raise InputError(f"{name}={brief(value)} is of type {type(value).__name__}; give {wanted}")
    return value
