"""Mergers combine the values of a column when a key has several rows: pure functions over Arrow arrays.

    find("sum")                         the merger of a name, as a table stores it
    merger.laws(type)                   its laws for a column type; raises for a type that it can't merge
    merger.lift(values, type)           the contributions of new rows, in the type of the column
    merger.merge(values, groups)        one value for each group
    combine(rows, key=..., ...)         one row for each key

These names and their meaning are stable. Only the merged value is stored: to go on, `combine` takes the stored row first and
then the contributions of the new ones, in order of arrival.

`ordering` sorts the rows of one call. A stored row has the greatest ordering value that went into it. So with late rows only
whole newest rows and mergers that are `Laws.commutative` give the result of all rows at once. Tables merge `one_by_one`:
there `last_non_null` and `last_unless` give the same result wherever rows are cut into calls.
"""

from .choice import ages, ages_of, in_time, ranks, refuse_unordered
from .interface import Groups, Laws, Merger
from .named import BUILT_IN, find
from .rows import Ties, combine, filled, join, refuse_count, top_n_per_key
from .rule import EVERY, Rule, contributions
from .totals import Count, Sum

__all__ = [
    "BUILT_IN",
    "EVERY",
    "Count",
    "Groups",
    "Laws",
    "Merger",
    "Rule",
    "Sum",
    "Ties",
    "ages",
    "ages_of",
    "combine",
    "contributions",
    "filled",
    "find",
    "in_time",
    "join",
    "ranks",
    "refuse_count",
    "refuse_unordered",
    "top_n_per_key",
]
