"""What a mutant of the protocol is: one rule broken, by replacing the method that keeps it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from .shape import Shape

Patches = list[AbstractContextManager[Any]]
Change = Callable[[Shape], Shape]


@dataclass(frozen=True)
class Mutant:
    """``patches`` break the rule that ``why`` tells; ``suits`` makes the schedules in which it is needed at all."""

    name: str
    why: str
    patches: Callable[[], Patches]
    suits: Change


MUTANTS: dict[str, Mutant] = {}


def mutant(suits: Change = lambda shape: shape) -> Callable[[Callable[[], Patches]], Callable[[], Patches]]:
    def keep(make: Callable[[], Patches]) -> Callable[[], Patches]:
        MUTANTS[make.__name__] = Mutant(make.__name__, " ".join((inspect.getdoc(make) or "").split()), make, suits)
        return make

    return keep


def method(owner: Any, name: str, make: Callable[[Any], Any]) -> AbstractContextManager[Any]:
    """Replaces a method by what ``make`` makes of it, which takes the same arguments: otherwise it would fail, not mislead."""
    real = getattr(owner, name)
    made, given = make(real), inspect.signature(real).parameters.values()
    named = [each.name for each in given if each.kind is each.KEYWORD_ONLY]
    several = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    inspect.signature(made).bind(*(None for each in given if each.kind in several), **dict.fromkeys(named))
    return mock.patch.object(owner, name, made)
