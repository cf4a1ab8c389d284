"""Conditions on rows: one language, with the meaning that it has in Spark.

    condition = condition_on(schema, "amount < 10 and city is not null")   # or terms, or an expression of pyarrow
    rows.filter(condition.mask(rows))                   # true for these rows; null counts as false
    condition.columns, condition.terms, condition.sql   # the columns it reads, what it implies, its text for Spark
    condition.about(["city"])                           # the part that these columns decide, or None
    value_on(schema, Sql("amount * 2")).of(rows)        # a value for each row, in the same language

`parse` and `text` turn SQL into a tree and back: ``parse(text(tree)) == tree``. sqlglot, which reads SQL, is imported when
the first text is parsed.
"""

from .condition import Condition, Given, Sql, Value, condition_on, value_on
from .implied import Terms, columns_of
from .sql import computes, parse
from .tree import text

__all__ = [
    "Condition",
    "Given",
    "Sql",
    "Terms",
    "Value",
    "columns_of",
    "computes",
    "condition_on",
    "parse",
    "text",
    "value_on",
]
