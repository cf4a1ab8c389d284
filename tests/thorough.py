"""How much of a long enumeration is run: a fixed part, so that `make test` ends in time, or all (`make thorough`).

The part is the same in every run: what fails once fails again.
"""

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

THOROUGH = os.environ.get("THOROUGH") == "1"


def some(all_of_them: Iterable[T], at_most: int) -> list[T]:
    """As many as that, spread evenly, the first and the last among them; or all."""
    found = list(all_of_them)
    if THOROUGH or len(found) <= at_most:
        return found
    return [found[n * (len(found) - 1) // (at_most - 1)] for n in range(at_most)]


def is_taken(row: int, column: int, one_in: int) -> bool:
    """Whether this field of a square belongs to a run: one of so many in each row and each column, or all."""
    return THOROUGH or (row + column) % one_in == 0
