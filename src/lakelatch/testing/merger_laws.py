"""Checks of a merger's declared laws: `hudi.merge.laws`, then random records after the small sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from ..errors import InputError
from ..hudi.merge.laws import ALL, DELETED, ORDER, Apply, Broken, Case, Tried, cases_of, first_difference, subject_of
from ..mergers import Laws, Merger
from ..mergers import find as merger_of

__all__ = ["DELETED", "ORDER", "Apply", "Broken", "broken_laws", "check_apply", "check_merger"]

_LONG = 6  # records of a random set


def check_merger(
    merger: str | Merger,
    kind: pa.DataType,
    *,
    values: Sequence[Any] | None = None,
    event_time: bool = False,
    examples: int = 50,
) -> None:
    """Raise `AssertionError` with a table of records if the merger breaks a law that it declares for this type.

    Args:
        merger: its name as a table stores it, or the merger itself.
        kind: the type of the column.
        values: the values that rows bring; None: values of the type that often cause trouble.
        event_time: True to check as on a table with an ordering field, where rows come late.
        examples: how many random sets of up to six records are tried for each law, after the small ones.
    """
    found = broken_laws(merger, kind, values=values, event_time=event_time, examples=examples)
    if found:
        raise AssertionError("\n\n".join(map(str, found)))


def check_apply(
    apply: Apply,
    schema: pa.Schema,
    values: Mapping[str, Sequence[Any]],
    *,
    laws: Laws,
    event_time: bool = False,
    examples: int = 50,
    name: str = "apply",
) -> None:
    """Check a function over whole rows like `check_merger`; it gets the columns of ``schema``, `KEY`, and `ORDER` by event
    time.

    Args:
        apply: takes the stored rows and records, which have a column `DELETED` too.
        values: for each column of ``schema`` the values that rows bring.
        laws: the laws that it claims to keep.
    """
    tried = _Searched(apply, schema, values, laws, event_time=event_time, examples=examples, name=name)
    if found := list(tried.broken(ALL)):
        raise AssertionError("\n\n".join(map(str, found)))


def broken_laws(
    merger: str | Merger,
    kind: pa.DataType,
    *,
    values: Sequence[Any] | None = None,
    event_time: bool = False,
    examples: int = 50,
    declared: Laws | None = None,
) -> list[Broken]:
    """Return every declared law that the merger breaks, with the smallest records that show it.

    Args:
        declared: the laws to check instead of its own.

    Raises:
        InputError: the merger does not take columns of this type.
    """
    real = merger_of(merger) if isinstance(merger, str) else merger
    laws = declared or real.laws(kind)
    name = f"{merger if isinstance(merger, str) else type(merger).__name__} of {kind}"
    subject = subject_of(real, kind, values, event_time=event_time)
    return list(_Searched(*subject, laws, event_time=event_time, examples=examples, name=name).broken(ALL))


class _Searched(Tried):
    """Random longer sets after the small ones, ``examples`` for each law."""

    def __init__(self, *subject: Any, examples: int, **said: Any) -> None:
        super().__init__(*subject, **said)
        self._examples = examples

    def searched(self, law: str) -> Broken | None:
        """Return a counterexample among random sets of up to six records, shrunk by hypothesis; None if none is found."""
        if not self._examples:
            return None
        most, two = self.most(law, _LONG), pa.array(["a", "b"])

        @st.composite
        def cases(draw: st.DrawFn) -> tuple[tuple[tuple[int, tuple[Any, ...]], ...], Case]:
            count = draw(st.integers(1, most))
            stamps = self.stamps(
                count, deletes=law in ("one_at_a_time", "compaction", "deletes") and draw(st.booleans())
            )
            # By event time the laws of order and replay hold for distinct ordering values only.
            orders = draw(st.permutations(stamps[0])) if self._event_time and law in ("order", "replay") else None
            records = []
            for number in range(count):
                row = tuple(draw(st.integers(0, len(some) - 1)) for some in self._values.values())
                stamp = [draw(st.sampled_from(each)) for each in stamps]
                if orders is not None:
                    stamp[0] = orders[number]
                records.append((draw(st.integers(0, 1)) if law == "keys" else 0, (row, *stamp)))
            possible = list(cases_of(law, count))
            return tuple(records), possible[draw(st.integers(0, len(possible) - 1))]

        def made(records: Iterable[tuple[int, tuple[Any, ...]]]) -> list[pa.Table]:
            return [self.records(two.slice(key, 1), [chosen]) for key, chosen in records]

        def differ(drawn: Any) -> bool:
            try:
                (_, one), (_, other) = self.ways(law, made(drawn[0]), drawn[1])
            except InputError:
                # A value that does not fit is refused, in whatever way it came about.
                return False
            return first_difference(one, other) is not None

        quiet = settings(
            max_examples=self._examples, database=None, derandomize=True, deadline=None,
            phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        try:
            records, case = find(cases(), differ, settings=quiet)
        except NoSuchExample:
            return None
        tables = made(records)
        return self.told(law, tables, self.ways(law, tables, case), None)
