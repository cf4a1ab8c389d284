"""Mergers by the name under which a table stores them: ``sum``, ``top_n(3, by='ts')``, ``module:Class(7)``."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from ..errors import ConfigError, InputError, LakeLatchError
from .choice import Both, Extreme, First, FirstNonNull, Last, LastNonNull, LastUnless
from .interface import Groups, Laws, Merger
from .lists import CollectList, CollectSet, ListAgg, MergeMap, NestedUpdate, TopN
from .sketches import Theta
from .totals import Count, Product, Sum

BUILT_IN: dict[str, Callable[..., Merger]] = {
    "last": Last,
    "last_non_null": LastNonNull,
    "last_unless": LastUnless,
    "first": First,
    "first_non_null": FirstNonNull,
    "sum": Sum,
    "count": Count,
    "product": Product,
    "min": lambda: Extreme(greatest=False),
    "max": lambda: Extreme(greatest=True),
    "bool_and": lambda: Both(any=False),
    "bool_or": lambda: Both(any=True),
    "collect_list": CollectList,
    "listagg": ListAgg,
    "collect_set": CollectSet,
    "top_n": TopN,
    "merge_map": MergeMap,
    "nested_update": NestedUpdate,
    "theta": Theta,
}


@cache
def find(spec: str) -> Merger:
    """Return the merger of this name, one of `BUILT_IN` or ``module:Class``, with optional arguments in brackets.

    Raises:
        ConfigError: the merger is unknown, takes other arguments, or its module can't be imported here.
    """
    module, separator, call = spec.partition(":") if _is_path(spec) else ("", "", spec)
    name, args, named = _parsed(call, spec)
    if separator:
        make = _imported(module, name, spec)
    elif name in BUILT_IN:
        make = BUILT_IN[name]
    else:
        raise ConfigError(
            f"there is no merger {spec!r}; known: {', '.join(BUILT_IN)}, and your own as module:Class", merger=spec
        )
    try:
        made = make(*args, **named)
    except LakeLatchError as e:
        raise ConfigError(f"merger {spec!r}: {e}", merger=spec) from e
    except TypeError as e:
        raise ConfigError(f"merger {spec!r} takes other arguments: {e}", merger=spec) from e
    # Only mergers from outside are checked: the built-in ones have tests.
    return _Guarded(made, spec) if separator else made


def _is_path(spec: str) -> bool:
    """Return whether a colon comes before the arguments, which may contain colons too."""
    return ":" in spec.partition("(")[0]


def _parsed(call: str, spec: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Return name and arguments; arguments are constants, so nothing is executed."""
    try:
        # A deeply nested text makes Python's parser raise MemoryError or RecursionError; it is refused like any other bad
        # text.
        tree = ast.parse(call.strip(), mode="eval").body
        if isinstance(tree, ast.Name):
            return tree.id, [], {}
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            args = [ast.literal_eval(each) for each in tree.args]
            named = {str(each.arg): ast.literal_eval(each.value) for each in tree.keywords if each.arg}
            if len(named) == len(tree.keywords):
                return tree.func.id, args, named
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        pass
    raise ConfigError(
        f"{spec!r} names no merger; write it as sum, top_n(3, by='seen') or module:Class, with plain values as arguments",
        merger=spec,
    )


def _imported(module: str, name: str, spec: str) -> Callable[..., Any]:
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise ConfigError(
            f"merger {spec!r} can't be imported here: {e}. Install the package that has it, or put its module on PYTHONPATH",
            merger=spec,
        ) from e
    if missing := [each for each in ("laws", "merge") if not callable(getattr(found, each, None))]:
        raise ConfigError(
            f"merger {spec!r} has no method {' and '.join(missing)} (lakelatch.mergers.Merger)", merger=spec
        )
    made: Callable[..., Any] = found
    return made


@dataclass(frozen=True)
class _Guarded:
    """A merger from outside the library: its results are checked, and ``lift`` is optional."""

    inner: Any
    spec: str

    @property
    def samples(self) -> Callable[[pa.DataType], list[Any]] | None:
        """Its own, if it has some."""
        return getattr(self.inner, "samples", None)

    def laws(self, kind: pa.DataType) -> Laws:
        """Return its own laws."""
        found = self.inner.laws(kind)
        if not isinstance(found, Laws):
            raise ConfigError(
                f"merger {self.spec!r}: laws() gave {found!r}, and must give mergers.Laws", merger=self.spec
            )
        return found

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return its own contributions, or the values as they are if it has no ``lift``."""
        if callable(getattr(self.inner, "lift", None)):
            return self._looked_at(self.inner.lift(values, kind), len(values), kind)
        return values if values.type == kind else values.cast(kind)

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return its own result, after a check of type and length."""
        return self._looked_at(self.inner.merge(values, groups), len(groups), values.type)

    def _looked_at(self, found: Any, length: int, kind: pa.DataType) -> pa.Array:
        found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        if not isinstance(found, pa.Array) or len(found) != length or found.type != kind:
            what = f"{len(found)} values of {found.type}" if isinstance(found, pa.Array) else type(found).__name__
            raise InputError(f"merger {self.spec!r} gave {what}, and must give {length} of {kind}", merger=self.spec)
        return found
