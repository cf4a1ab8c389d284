"""How much of a long enumeration is run: a fixed part, so that `make test` ends in time, or all (`make thorough`).

The part is the same in every run: what fails once fails again.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

THOROUGH = os.environ.get("THOROUGH") == "1"
STEP = 1 if THOROUGH else 3  # of a loop over the calls of a service, which ends when it has no further one


def some(all_of_them: Iterable[T], at_most: int) -> list[T]:
    """As many as that, spread evenly, the first and the last among them; of one, that in the middle; or all."""
    found = list(all_of_them)
    if THOROUGH or len(found) <= at_most:
        return found
    if at_most == 1:
        return [found[len(found) // 2]]
    return [found[n * (len(found) - 1) // (at_most - 1)] for n in range(at_most)]


def is_taken(row: int, column: int, one_in: int) -> bool:
    """Whether this field of a square belongs to a run: one of so many in each row and each column, or all."""
    return THOROUGH or (row + column) % one_in == 0


def crossed(one: Iterable[T], other: Iterable[U]) -> list[tuple[T, U]]:
    """Pairs in which each value of the longer ``one`` stands once, those of ``other`` beside it in turn; or all pairs."""
    beside = list(other)
    return [
        (left, right)
        for row, left in enumerate(one)
        for column, right in enumerate(beside)
        if is_taken(row, column, len(beside))
    ]


def covering(rows: Sequence[tuple[T, ...]]) -> list[int]:
    """Return the places of some rows of a product, in which each value of each column stands at least once; or of all.

    Of rows that bring as many new values, the one is taken whose values stand in the fewest so far.
    """
    if THOROUGH:
        return list(range(len(rows)))
    told = [set(enumerate(row)) for row in rows]
    missing, uses, taken = set[tuple[int, T]]().union(*told), Counter[tuple[int, T]](), list[int]()
    while missing:
        best = max(range(len(rows)), key=lambda n: (len(told[n] & missing), -sum(uses[each] for each in told[n])))
        taken.append(best)
        missing -= told[best]
        uses.update(told[best])
    return sorted(taken)
