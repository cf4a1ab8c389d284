"""Refusals of conditions: the mistake, and its position in the text."""

from __future__ import annotations

import pyarrow as pa

from ..arguments import meant
from ..errors import InputError

_SHOWN = 60  # characters to each side of the position


def refused(what: str, text: str | None = None, at: int | None = None) -> InputError:
    """Return the error; it marks the position if the condition was given as text."""
    if text is None:
        return InputError(what)
    if at is None:
        return InputError(f"{what}, in {text!r}", condition=text)
    at = min(at, len(text))
    line = text.count("\n", 0, at) + 1
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    shown_from = max(start, at - _SHOWN)
    shown = text[shown_from : end if end >= 0 else len(text)][: 2 * _SHOWN].expandtabs(1)
    column = at - start + 1
    return InputError(
        f"{what}, at line {line}, column {column}:\n  {shown}\n  {' ' * (at - shown_from)}^",
        condition=text,
        line=line,
        column=column,
    )


def no_column(path: tuple[str, ...], known: list[str], text: str | None, at: int | None) -> InputError:
    """Return the error for an unknown column, with the likeliest names that exist."""
    name, inside = path[-1], ".".join(path[:-1])
    where = f"column {inside!r} has no field {name!r}" if inside else f"there is no column {name!r}"
    every = f"there are {', '.join(known[:20])}{' and more' if len(known) > 20 else ''}" if known else "it has none"
    hint = meant(name, known) or every
    return refused(f"{where} ({hint})", text, at)


def type_list(*kinds: pa.DataType) -> str:
    """Return types as Spark names them."""
    from .tree import type_name

    return " and ".join(map(type_name, kinds))
