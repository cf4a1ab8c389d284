"""Checks of arguments to public functions: each returns the argument, or raises an error that names it.

A wrong type is refused at once, because further in it fails where the argument's name is unknown or, worse, is stored.
"""

from __future__ import annotations

import functools
import inspect
import math
import reprlib
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from .errors import InputError, LakeLatchError

_ARRAYS = ("numpy", "pandas", "polars", "pyarrow")


class _Brief(reprlib.Repr):
    """A `repr` that shows a few of many values, and arrays by their size."""

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
    """Return a value for a message, shortened."""
    return _BRIEF.repr(value)


def values_of(given: Any) -> list[Any] | None:
    """Return the values of a list, set, range, view or one-dimensional array as Python values; None for anything else.

    Texts and mappings are no lists, and an iterator could be consumed only once.
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
    """Return a text that UTF-8 can hold, as everything stored must be; it is not "" unless ``empty``."""
    if not isinstance(value, str) or not (value or empty):
        raise error(f"{name}={brief(value)} is no text; give a str" + ("" if empty else " that is not empty"))
    if not encodable(value):
        raise error(f"{name}={brief(value)} holds half of a surrogate pair, which UTF-8 cannot hold; leave it out")
    return value


def meant(name: Any, known: Iterable[str]) -> str:
    """Return a question with the known names that are close to an unknown one; "" if none is, or if it is no text."""
    names = list(known)
    if not isinstance(name, str):
        return ""
    same = [each for each in names if each.lower() == name.lower()]
    near = same or get_close_matches(name, names, 3, 0.6)
    exact = " Names are exact here" if same else ""
    return f"did you mean {' or '.join(map(repr, near))}?{exact}" if near else ""


_T = TypeVar("_T")


def suggesting(public: _T) -> _T:
    """Wrap a function, or all methods of a class, so that errors say more.

    The error for an unknown argument suggests a known one; an error of ours from a method names the table, and others
    have a note that does.
    """
    if inspect.isclass(public):
        for name, each in list(vars(public).items()):
            if inspect.isfunction(each) and not name.startswith("_"):
                setattr(public, name, suggesting(each))
        return public
    call: Any = public
    layers, inner = 0, call  # of other decorators, each with a frame of its own
    while (inner := getattr(inner, "__wrapped__", None)) is not None:
        layers += 1

    @functools.wraps(call)
    def suggested(*args: Any, **given: Any) -> Any:
        try:
            return call(*args, **given)
        except Exception as e:
            url = _table_of(args[0]) if args else ""
            if isinstance(e, LakeLatchError) and url:
                e.about(url)
            elif url and not any(url in note for note in getattr(e, "__notes__", ())):
                e.add_note(f"{url}: {call.__name__} ended with it")  # one of the caller's rows or functions
            if not isinstance(e, TypeError):
                raise
            known = inspect.signature(call).parameters
            unknown = next((name for name in given if name not in known), None)
            # Only an error of the call itself, not one raised inside it; newer versions of Python suggest some names
            # themselves.
            outside = len(list(traceback.walk_tb(e.__traceback__))) == 1 + layers
            if not outside or unknown is None or "mean" in str(e):
                raise
            hint = meant(unknown, known) or f"there are {', '.join(name for name in known if name != 'self')}"
            name = "" if repr(unknown) in str(e) else f"{unknown!r}: "
            raise TypeError(f"{e}; {name}{hint}") from None

    return suggested  # type: ignore[return-value]


def _table_of(public: Any) -> str:
    """Return the URL of the table that an object works on; "" if it tells none."""
    for each in (public, getattr(public, "_session", None), getattr(public, "table", None)):
        url = getattr(each, "url", None) or getattr(each, "_url", None)
        if isinstance(url, str):
            return url
    return ""


def unknown_argument(name: str, known: Iterable[str], *, more: Iterable[str] = ()) -> str:
    """Return the message for an unknown argument: a suggestion from ``known`` and ``more``, or the list of ``known``."""
    listed = list(dict.fromkeys(known))
    others = list(more)
    if name in others:  # an argument of calls beside this one
        return f"this call has no argument {name!r}, as others have; there are {', '.join(listed)}"
    hint = meant(name, [*listed, *others])
    stop = "" if not hint or hint.endswith("?") else "."
    return f"there is no argument {name!r}; {f'{hint}{stop} There' if hint else 'there'} are {', '.join(listed)}"


def one_of(value: Any, name: str, allowed: Iterable[str], *, then: str = "") -> str:
    """Return one of the allowed words; ``then`` ends the error for any other."""
    words = [f'"{each}"' for each in allowed]
    if not isinstance(value, str) or f'"{value}"' not in words:
        raise InputError(
            f"{name}={brief(value)} is {'neither' if len(words) == 2 else 'none of'} {' nor '.join(words)}{then}"
        )
    return value


def encodable(value: str) -> bool:
    """Return whether UTF-8 can hold the text: after a bad decoding a `str` may hold half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def names(value: Any, name: str) -> tuple[str, ...]:
    """Return distinct names, given as one name or a list."""
    given = (value,) if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) and each for each in given):
        raise InputError(f'{name}={brief(value)} names no columns; give one name, or a list of names, as ["id", "day"]')
    if len(set(given)) < len(given):
        raise InputError(f"{name}={brief(value)} names a column twice; name each once")
    return tuple(given)


_LONG = 10**40


def kind_of(value: Any) -> str:
    """Return the name of a value's type with its article."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def number(
    value: Any,
    name: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    whole: bool = False,
    endless: bool = False,
    error: type[LakeLatchError] = InputError,
) -> Any:
    """Return a number between two bounds; never NaN or a bool, and infinite only if it may be ``endless``."""
    if endless and isinstance(value, float) and value == math.inf:
        return value
    fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    # NaN is in no bounds; and a whole number may be beyond every float.
    if not fits or not least <= value <= most or abs(value) > sys.float_info.max:
        bounds = [f"at least {least:g}"] * math.isfinite(least) + [f"at most {most:g}"] * math.isfinite(most)
        what = ("a whole number" if whole else "a number") + " of Python" * (type(value).__module__ == "numpy")
        shown = (
            brief(value)
            if not fits or isinstance(value, float) or abs(value) < _LONG
            else "(a number too long to be shown)"
        )
        raise error(f"{name}={shown} is not {what}{' of ' if bounds else ''}{' and '.join(bounds)}; give one")
    return value


def flag(value: Any, name: str) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name}={brief(value)} is neither True nor False; give one of them")
    return value


def many(value: Any, name: str) -> Iterable[Any]:
    """Return anything iterable but a text, which would be taken letter by letter."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputError(f"{name}={brief(value)} is no list; give one, as {name}=[...]")
    found = values_of(value)
    return value if found is None else found


def function(value: Any, name: str) -> Callable[..., Any]:
    """Return something callable."""
    if not callable(value):
        raise InputError(f"{name}={brief(value)} cannot be called; give a function")
    return value  # type: ignore[no-any-return]


def work_of(value: Any, name: str) -> Callable[..., Any]:
    """Return a function that can be called with a transaction, and then does its work."""
    called = function(value, name)
    if inspect.isgeneratorfunction(called) or inspect.iscoroutinefunction(called):
        raise InputError(
            f"{name}={brief(value)} would not run when it is called; give a plain function, in asyncio with `asyncio.to_thread`"
        )
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # some built-in functions have none
        return called
    try:
        signature.bind(None)
    except TypeError as e:
        raise InputError(
            f"{name}={brief(value)} cannot be called with a transaction ({e}); give a function of one"
        ) from None
    return called


def instance(value: Any, kind: type | tuple[type, ...], name: str, wanted: str) -> Any:
    """Return an object of a class; ``wanted`` says in the error what to give instead."""
    if not isinstance(value, kind):
        raise InputError(f"{name}={brief(value)} is of type {type(value).__name__}; give {wanted}")
    return value
