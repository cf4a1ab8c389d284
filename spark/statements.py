"""``MERGE INTO``, ``UPDATE``, ``DELETE`` and ``INSERT`` as SQL text, mapped to the verbs of a table.

PySpark's data sources have no such statements. sqlglot reads them; a clause that no verb has is refused by its name, and
never left out: each kind of statement lists the parts that it has, and any other part is an error.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, Unpack

from ..arguments import Missing, brief, meant, text
from ..conditions import Sql
from ..errors import InputError
from ..occ.table import Table
from ..occ.transaction import WriteOptions, WriteResult, refuse_unknown
from .table import SparkTable, open  # noqa: A004 - the name that users know

Named = Mapping[str, SparkTable | Table | str | os.PathLike[str]]
_CATALOG = "lakelatch"
_WORDS = re.compile(r"\b(merge|update|delete|insert)\b", re.IGNORECASE)
# The parts of each statement; sqlglot's names of others are words of SQL.
_PARTS = {
    "Merge": {"this", "using", "on", "whens"},
    "Update": {"this", "expressions", "where"},
    "Delete": {"this", "where"},
    "Insert": {"this", "expression", "source", "by_name"},
    "Table": {"this", "db", "alias"},
    "When": {"matched", "source", "condition", "then"},
}
_SAID = {
    "from_": "FROM",
    "with_": "WITH",
    "overwrite": "OVERWRITE",
    "where": "REPLACE WHERE",
    "exists": "IF NOT EXISTS",
}


def sql(spark: Any, query: str, tables: Named | None = None, **retries: Unpack[WriteOptions]) -> Any:
    """Run a statement: on a LakeLatch table ours, everything else by ``spark.sql``.

        lakelatch.spark.sql(spark, "MERGE INTO lakelatch.`s3://b/t` t USING news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *")

    A table is ``lakelatch.`URL` ``, or a name in ``tables``. Each statement is one transaction, which is run again when it
    loses, as the verb it stands for: ``MERGE`` by record key and partition (`SparkTable.merge`), ``UPDATE``, ``DELETE``, and
    ``INSERT``, whose columns are those of the query in their order, or ``BY NAME``.

    Args:
        tables: tables by name, as `SparkTable`, or what `open` takes.
        retries: of the write, as for `SparkTable.upsert`; ``note`` and ``batch`` too.

    Returns:
        A `WriteResult`; of any other statement what ``spark.sql`` returns.

    Raises:
        InputError: a clause that there is no verb for; the message names it. Nothing was written.
    """
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    text(query, "query")
    refuse_unknown(retries, WriteOptions)
    if tables is not None and not isinstance(tables, Mapping):
        raise InputError(f'tables={brief(tables)} names no tables; give them by name, as {{"flights": table}}')
    if not _WORDS.search(query):
        return spark.sql(query)
    try:
        found = [each for each in _parsed(query) if each is not None]
    except SqlglotError as e:
        if _CATALOG in query.lower() or any(name.lower() in query.lower() for name in tables or ()):
            said = str(e).partition("\n")[0].rstrip(". ")
            raise InputError(f"the statement is not understood ({said}); nothing was written") from e
        return spark.sql(query)
    statement = found[0] if found else None
    if not isinstance(statement, exp.Merge | exp.Update | exp.Delete | exp.Insert):
        return spark.sql(query)
    with _Statement(spark, statement, tables or {}) as made:
        if made.target is None:
            return spark.sql(query)
        if len(found) > 1:
            raise InputError("this is more than one statement; give one at a time. Nothing was written")
        return made.run(retries)


def _parsed(query: str) -> list[Any]:
    import sqlglot

    # In Spark a doubled quote is one in the text, as in 'it''s'; to sqlglot that is two texts, one behind the other.
    pieces, done = [], 0
    tokens = sqlglot.tokenize(query, read="spark")
    for one, other in pairwise(tokens):
        quotes = query[one.end : other.start + 1]
        if one.token_type.name == other.token_type.name == "STRING" and quotes in ("''", '""'):
            pieces += [query[done : one.end], f"\\{quotes[0]}"]
            done = other.start + 1
    return list(sqlglot.parse("".join([*pieces, query[done:]]), dialect="spark"))


class _Statement:
    """One statement and its target; the tables that it opens are closed behind it."""

    def __init__(self, spark: Any, statement: Any, tables: Named) -> None:
        self._spark, self._statement, self._stack = spark, statement, ExitStack()
        self._tables = {name.lower(): table for name, table in tables.items()}
        self._opened: dict[str, SparkTable] = {}
        self._node = self._table_node()
        self.target = self._resolved(self._node)

    def __enter__(self) -> _Statement:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _table_node(self) -> Any:
        from sqlglot import exp

        found = self._statement.this
        return found.this if isinstance(found, exp.Schema) else found

    def _resolved(self, node: Any) -> SparkTable | None:
        """Return the table that a name means; None for one of Spark's."""
        from sqlglot import exp

        if not isinstance(node, exp.Table):
            return None
        names = [part.name for part in node.parts]
        place: Any = names[1] if len(names) == 2 and names[0].lower() == _CATALOG else None
        place = self._tables.get(names[0].lower()) if place is None and len(names) == 1 else place
        if place is None or isinstance(place, SparkTable):
            return place
        if isinstance(place, Table):
            return SparkTable(self._spark, place)
        if not isinstance(place, str | os.PathLike):
            raise InputError(
                f"tables: {brief(place)} under {names[0]!r} is no table; give a SparkTable, a table, or its URL"
            )
        key = os.fspath(place)
        if key not in self._opened:
            self._opened[key] = made = open(self._spark, key)
            self._stack.callback(made.table.close)
        return self._opened[key]

    def run(self, retries: WriteOptions) -> WriteResult:
        kind = type(self._statement).__name__
        _refuse_parts(self._statement, kind.upper())
        _refuse_parts(self._node, kind.upper())
        assert self.target is not None
        if kind == "Merge":
            return self._merge(self.target, retries)
        if kind == "Update":
            return self._update(self.target, retries)
        if kind == "Delete":
            where = self._statement.args.get("where")
            if where is None:
                return self.target.delete_all(**retries)
            return self.target.delete_where(self._of_target(where.this), **retries)
        return self._insert(self.target, retries)

    # --- update and delete -----------------------------------------------------------------------------------

    def _columns(self) -> list[str]:
        assert self.target is not None
        schema = self.target.table.schema()
        return [] if schema is None else list(schema.names)

    def _of_target(self, node: Any) -> str:
        """Return an expression over the target's columns as text, without the names by which the statement calls it."""
        return _text(_renamed(node, self._names(self._node), None, self._columns(), ()))

    def _names(self, node: Any) -> frozenset[str]:
        """The names by which columns may call a table: its alias, or its own."""
        return frozenset({node.alias.lower()} if node.alias else {node.parts[-1].name.lower()})

    def _update(self, table: SparkTable, retries: WriteOptions) -> WriteResult:
        given = {}
        for each in self._statement.expressions:
            name = self._set_column(each.this)
            given[name] = Sql(self._of_target(_set_value(each.expression, f"SET {name}")))
        where = self._statement.args.get("where")
        return table.update_where("true" if where is None else self._of_target(where.this), given, **retries)

    def _set_column(self, node: Any) -> str:
        from sqlglot import exp

        parts = [part.name for part in node.parts] if isinstance(node, exp.Column) else []
        parts = parts[1:] if len(parts) > 1 and parts[0].lower() in self._names(self._node) else parts
        if len(parts) != 1:
            raise InputError(
                f"SET {node.sql('spark')} sets no whole column; set the column that has this field. Nothing was written"
            )
        return _exact(parts[0], self._columns())

    # --- insert ----------------------------------------------------------------------------------------------

    def _insert(self, table: SparkTable, retries: WriteOptions) -> WriteResult:
        from sqlglot import exp

        query = self._statement.args.get("expression") or self._statement.args.get("source")
        if query is None:
            raise InputError("INSERT without VALUES, a query or TABLE inserts nothing; nothing was written")
        rows, known = self._frame(query, "INSERT"), self._columns()
        listed = self._statement.this.expressions if isinstance(self._statement.this, exp.Schema) else []
        if self._statement.args.get("by_name"):
            if listed:
                raise InputError("INSERT BY NAME takes no list of columns; nothing was written")
            return table.insert(_cast(rows.toDF(*(_exact(each, known) for each in rows.columns)), table), **retries)
        names = [_exact(each.name, known) for each in listed] or known
        if not names:
            raise InputError(f"{table.table.url} has no columns yet: say INSERT ... BY NAME. Nothing was written")
        if len(names) != len(rows.columns):
            raise InputError(
                f"there are {len(rows.columns)} values for {len(names)} columns ({', '.join(names)}); nothing was written"
            )
        missing: Missing = "null" if listed else "refuse"
        return table.insert(_cast(rows.toDF(*names), table), missing=missing, **retries)

    def _frame(self, query: Any, what: str) -> Any:
        """Return the rows of a query, in which tables of ours may stand too."""
        from sqlglot import exp

        query = query.copy()
        query = exp.select("*").from_(query) if isinstance(query, exp.Table | exp.Values) else query
        with self._views(query, what):
            return self._spark.sql(query.sql("spark"))

    @contextmanager
    def _views(self, query: Any, what: str) -> Iterator[None]:
        """Let Spark see tables of ours under names of their own, until it has planned the query."""
        from sqlglot import exp

        made = []
        try:
            for node in list(query.find_all(exp.Table)):
                table = self._resolved(node)
                if table is None:
                    continue
                if self.target is not None and table.table.url == self.target.table.url:
                    raise InputError(
                        f"the source of this {what} reads {table.table.url}, which it changes; read it in the transaction that "
                        "writes: `SparkTable.run`. Nothing was written"
                    )
                _refuse_parts(node, what)
                name = f"lakelatch_{uuid.uuid4().hex}"
                table.read().createTempView(name)
                made.append(name)
                called = node.alias or node.parts[-1].name
                node.replace(exp.alias_(exp.to_table(name), called, table=True, quoted=True))
            yield
        finally:
            for name in made:
                self._spark.catalog.dropTempView(name)

    # --- merge -----------------------------------------------------------------------------------------------

    def _merge(self, table: SparkTable, retries: WriteOptions) -> WriteResult:
        from sqlglot import exp

        source = self._statement.args["using"]
        if isinstance(source, exp.Subquery):
            if not source.alias:
                raise InputError("USING (...) needs a name, as USING (SELECT ...) s; nothing was written")
            rows, names = self._frame(source.this, "MERGE"), frozenset({source.alias.lower()})
        else:
            names = self._names(source)
            rows = self._frame(source, "MERGE")
        target = self._names(self._node)
        if names & target:
            raise InputError(
                f"MERGE calls target and source {min(names)!r}; give one of them another name. Nothing was written"
            )
        self._refuse_on(target, names, rows.columns, table)

        def said(node: Any) -> str:
            return _text(_renamed(node, target, names, self._columns(), rows.columns))

        clauses = [self._clause(when, said) for when in self._statement.args["whens"].expressions]
        merge = table.merge(rows, **retries)
        for matched, clause in clauses:
            (merge.when_matched if matched else merge.when_not_matched)(**clause)
        return merge.run()

    def _refuse_on(self, target: frozenset[str], names: frozenset[str], columns: list[str], table: SparkTable) -> None:
        """Raise `InputError` unless ON compares record key and partition columns with the source's of the same name."""
        from sqlglot import exp

        met, on = set[str](), self._statement.args["on"]
        for part in on.flatten() if isinstance(on, exp.And) else (on,):
            each: Any = part.unnest()
            sides = {side.parts[0].name.lower(): side for side in (each.left, each.right)} if _compares(each) else {}
            mine = next((side for name, side in sides.items() if name in target), None)
            theirs = next((side for name, side in sides.items() if name in names), None)
            if mine is None or theirs is None or mine.name.lower() != theirs.name.lower():
                raise InputError(
                    f"ON {each.sql('spark')}: rows match by record key and partition, so ON compares these alone, as t.id = "
                    "s.id, with columns of the same names. Put other conditions after WHEN ... AND, and rename columns in USING "
                    "(SELECT ...). Nothing was written"
                )
            met.add(_exact(mine.name, self._columns() or columns))
        wanted = set(self._of_place())
        if met != wanted:
            what = "lacks" if wanted - met else "has beside record key and partition"
            raise InputError(
                f"ON {what} {', '.join(sorted(wanted ^ met))}: rows of {table.table.url} match by {', '.join(sorted(wanted))}. "
                "Nothing was written"
            )

    def _clause(self, when: Any, said: Any) -> tuple[bool, dict[str, Any]]:
        """Return whether a clause is of matched rows, and the arguments of the method of `Merge` that it stands for."""
        from sqlglot import exp

        _refuse_parts(when, "WHEN")
        if when.args.get("source"):
            raise InputError(
                "WHEN NOT MATCHED BY SOURCE has no verb: rows that the source lacks stay. Delete them with DELETE, or "
                "overwrite the partition. Nothing was written"
            )
        condition, then = when.args.get("condition"), when.args["then"]
        where = None if condition is None else said(condition)
        if when.args["matched"]:
            if isinstance(then, exp.Update):
                return True, {"where": where, "update": self._values(then.expressions, said)}
            if then.name.upper() == "DELETE":
                return True, {"where": where, "delete": True}
            raise InputError(f"WHEN MATCHED THEN {then.sql('spark')} has no verb; nothing was written")
        if not isinstance(then, exp.Insert):
            raise InputError(f"WHEN NOT MATCHED THEN {then.sql('spark')} has no verb; nothing was written")
        if isinstance(then.this, exp.Star):
            return False, {"where": where, "insert": "all"}
        names, values = then.this.expressions if then.this else [], then.expression.expressions
        if len(names) != len(values):
            raise InputError(f"there are {len(values)} values for {len(names)} columns; nothing was written")
        given = {
            _exact(name.name, self._columns()): said(_set_value(value, f"INSERT {name.name}"))
            for name, value in zip(names, values, strict=True)
        }
        for name in self._of_place():
            if given.pop(name, "").lower() != f"s.`{name}`".lower():
                raise InputError(
                    f"{name!r} comes from the source's column of that name, by which rows match; give s.{name} for it. Nothing "
                    "was written"
                )
        return False, {"where": where, "insert": {name: Sql(value) for name, value in given.items()}}

    def _of_place(self) -> tuple[str, ...]:
        """Return the columns that tell where a row is: record key and partition."""
        assert self.target is not None
        config = self.target.table.config
        return tuple(dict.fromkeys((*config.record_key_fields, *config.partition_fields)))

    def _values(self, sets: list[Any], said: Any) -> str | dict[str, Any]:
        from sqlglot import exp

        if len(sets) == 1 and isinstance(sets[0], exp.Star):
            return "all"
        names = [self._set_column(each.this) for each in sets]
        return {n: Sql(said(_set_value(each.expression, f"SET {n}"))) for n, each in zip(names, sets, strict=True)}


def _compares(node: Any) -> bool:
    from sqlglot import exp

    return isinstance(node, exp.EQ) and all(
        isinstance(side, exp.Column) and len(side.parts) == 2 for side in (node.left, node.right)
    )


def _refuse_parts(node: Any, what: str) -> None:
    """Raise `InputError` for a part of a statement that it is not written for."""
    known = _PARTS[type(node).__name__]
    for name, value in node.args.items():
        if value and name not in known:
            word = _SAID.get(name, name.rstrip("_").replace("_", " ").upper())
            raise InputError(f"{word} in this {what} has no verb; nothing was written")


def _set_value(node: Any, where: str) -> Any:
    from sqlglot import exp

    if isinstance(node, exp.Column) and len(node.parts) == 1 and node.name.upper() == "DEFAULT":
        raise InputError(
            f"{where} = DEFAULT: columns have no default values here; say NULL or a value. Nothing was written"
        )
    return node


def _exact(name: str, known: list[str]) -> str:
    """Return a column's name as the table spells it; Spark's names are case-insensitive."""
    if name in known or not known:
        return name
    same = [each for each in known if each.lower() == name.lower()]
    if len(same) == 1:
        return same[0]
    hint = meant(name, known) or f"there are {', '.join(known)}."
    raise InputError(f"there is no column {name!r}; {hint} Nothing was written")


def _renamed(node: Any, target: frozenset[str], source: frozenset[str] | None, columns: list[str], others: Any) -> Any:
    """Call the columns as conditions do: of the target alone by their names; in a merge ``t.x`` and ``s.x``."""
    from sqlglot import exp

    lower, theirs = {each.lower() for each in columns}, {each.lower() for each in others}

    def called(each: Any) -> Any:
        if not isinstance(each, exp.Column) or isinstance(each.this, exp.Star):
            return each
        parts = [part.copy() for part in each.parts]
        first = parts[0].name.lower()
        if len(parts) > 1 and first in target:
            side, parts = "t", parts[1:]
        elif len(parts) > 1 and source is not None and first in source:
            side, parts = "s", parts[1:]
        elif source is None or (first in lower and first not in theirs):
            side = "t"
        elif first in theirs and first not in lower:
            side = "s"
        else:
            what = "is in both tables" if first in lower else "is in neither table"
            raise InputError(f"{each.sql('spark')} {what}; say whose it is, as t.{each.name}. Nothing was written")
        names = columns if side == "t" else list(others)
        parts[0] = exp.to_identifier(_exact(parts[0].name, names), quoted=True)
        parts = parts if source is None else [exp.to_identifier(side), *parts]
        return exp.Dot.build(parts) if len(parts) > 1 else exp.Column(this=parts[0])

    if node.find(exp.Subquery, exp.Select):
        raise InputError(f"{node.sql('spark')}: a condition or value has no subquery here; nothing was written")
    if node.find(exp.Placeholder, exp.Parameter):
        raise InputError(f"{node.sql('spark')}: parameters are not filled in; write the value. Nothing was written")
    return node.transform(called)


def _text(node: Any) -> str:
    return str(node.sql("spark"))


def _cast(rows: Any, table: SparkTable) -> Any:
    """Give literals the types of the table's columns: SQL's 1.5 is a decimal, and its NULL has no type."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
    from pyspark.sql.types import DecimalType, DoubleType, FloatType, NullType

    from .reading import spark_schema

    schema = table.table.schema()
    if schema is None:
        return rows
    wanted = {each.name: each.dataType for each in spark_schema(schema)}

    def fitting(field: Any) -> Any:
        column, kind = F.col(f"`{field.name.replace('`', '``')}`"), wanted.get(field.name)
        inexact = isinstance(field.dataType, DecimalType) and isinstance(kind, DoubleType | FloatType)
        # Of one type but for what may be null: Spark 4.0 hands over no null beside a struct whose fields may not be null.
        alike = kind is not None and field.dataType.simpleString() == kind.simpleString() and field.dataType != kind
        if kind is not None and (inexact or alike or isinstance(field.dataType, NullType)):
            return column.cast(kind).alias(field.name)
        return column

    return rows.select(*(fitting(each) for each in rows.schema))
