"""A condition of this library says in Spark what it says here."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lakelatch.conditions import condition_on, text
from lakelatch.errors import InputError
from lakelatch.spark.versions import spark_schema

from ..conditions import random_conditions as made
from ..conditions.test_random import bound_ones
from ..thorough import THOROUGH

SEED, CONDITIONS, ROWS, AT_ONCE = 11, 300 if THOROUGH else 100, 80, 50


def answers(frame: Any, conditions: list[str]) -> list[list[bool]]:
    """For each condition, which rows it is true for; in the order of the rows."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    found: list[list[bool]] = []
    for start in range(0, len(conditions), AT_ONCE):
        told = [
            F.coalesce(F.expr(each), F.lit(False)).alias(f"c{n}")
            for n, each in enumerate(conditions[start : start + AT_ONCE])
        ]
        table = frame.select("row", *told).toArrow().sort_by("row")
        found += [table.column(n).to_pylist() for n in range(1, table.num_columns)]
    return found


def with_numbers(spark: Any, rows: Any) -> Any:
    import pyarrow as pa

    numbered = rows.append_column("row", pa.array(range(rows.num_rows), pa.int32()))
    return spark.createDataFrame(numbered.to_pylist(), spark_schema(numbered.schema)).repartition(2).cache()


def test_random_conditions_mark_the_same_rows_here_and_in_spark(spark: Any) -> None:
    rng = random.Random(SEED)
    rows = made.rows(rng, ROWS)
    told: list[tuple[str, str, list[bool]]] = []
    for tree, condition in bound_ones(rng, CONDITIONS):
        try:
            told.append((text(tree), condition.sql, condition.mask(rows).to_pylist()))
        except InputError:  # an overflow in some row; Spark's query would end there
            continue
    assert len(told) > CONDITIONS / 2
    frame, plain = with_numbers(spark, rows), rows.to_pylist()
    wrong = [
        f"{one[number]}: {[plain[n] for n in range(ROWS) if answer[n] != one[2][n]][:1]}"
        for number in (0, 1)  # as given, and with all casts written down
        for one, answer in zip(told, answers(frame, [each[number] for each in told]), strict=True)
        if answer != one[2]
    ]
    assert not wrong, "\n".join(wrong[:50])


_FAILING = [
    "i + 2147483647 > 0",
    "b * 2 > 0",
    "- b > 0",
    "abs(b) > 0",
    "i / 0 = 1",
    "x / 0 > 1",
    "x % -0.0D > 1",
    "i div 0 = 1",
    "cast(b as int) = 1",
    "cast(x as int) = 1",
    "cast(p as tinyint) = 1",
    "cast(s as int) = 1",
    "cast(s as double) = 1",
    "cast(s as date) = date '2020-01-01'",
    "cast(w as decimal(5,2)) = 1",
    "b - 1 < 0 or b > 0",
]


def test_what_has_no_result_here_has_none_in_spark(spark: Any) -> None:
    from decimal import Decimal

    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    row = {"i": 1, "b": -(2**63), "x": 1e300, "p": Decimal(12345), "w": Decimal(12345), "s": "a"}
    rows = pa.Table.from_pylist([row], made.SCHEMA)
    frame = spark.createDataFrame(rows.to_pylist(), spark_schema(rows.schema)).cache()
    for each in _FAILING:
        with pytest.raises(InputError, match="no result"):
            condition_on(made.SCHEMA, each).mask(rows)
        with pytest.raises(PySparkException):
            frame.select(F.expr(each)).collect()


# fmt: off
_LITERALS = [
    r"'a\\'",
    r"'\u00e9\U0001F600'",
    r"'it\'s'",
    r"'\101\n\t\r\b\0\Z'",
    r"'\%\_\x'",
    "'a\nb'",
    r"r'a\n'",
    '"double"',
    "''",
    "1e3", "1.5", ".5", "5.", "1.50BD", "10L", "1S", "1Y", "1.5F", "-0.0D", "1e-7D", "2147483648", "9223372036854775808",
    "-9223372036854775808",
    "date '2020-01-01'", "timestamp '2020-01-01 10:00:00.5'", "timestamp '2020-01-01T10:00:00+02:00'",
    "timestamp '2020-01-01'", "timestamp_ntz '2020-01-01 00:00:01'",
    "X'1F'", "X'1f0'", "true", "cast('NaN' as double)", "cast('-12' as int)", "cast('1e2' as double)",
    "cast('2020-01-01' as date)",
]
# fmt: on


def test_literals_have_the_type_and_the_value_that_spark_gives_them(spark: Any) -> None:
    import pyarrow as pa
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    from lakelatch.conditions import parse
    from lakelatch.conditions.tree import Literal

    table = spark.range(1).select(*[F.expr(each).alias(f"c{n}") for n, each in enumerate(_LITERALS)]).toArrow()
    wrong = []
    for number, each in enumerate(_LITERALS):
        ours, column = parse(each), table.column(number)
        theirs = Literal(column[0].as_py(), column.type)
        if not (
            isinstance(ours, Literal)
            and ours == Literal(theirs.value, pa.string() if column.type == pa.large_string() else theirs.kind)
        ):
            wrong.append(f"{each}: {ours} is {theirs} in Spark")
    assert not wrong, "\n".join(wrong)


# fmt: off
_PRECEDENCE = [
    "not i = 1", "not i = 1 and b = 5", "not i = 1 or b = 5", "i = 1 or b = 5 and s = 'a'", "not i is null", "i + 1 * 2 = 3",
    "- i + 1 = 0", "i - 1 - 1 = 0", "not i between 0 and 1 or b = 5", "i between 0 and 1 and b = 5", "not i in (1, 2)",
    "i not in (1, null)", "s not like 'a%' or i = 1", "!ok or i = 1", "i = 1 is null",
    "i < 2 = true", "not not ok", "i % 3 * 2 = 2",
    "i == 1", "i <> 1", "b is distinct from i", "i is not distinct from b", "ok is not true", "ok is false", "(i = 1) is true",

    "s ilike 'A%' and not r like '%b'", "i <=> null", "not i <=> null", "2 * i div 3 = 2",
    "ok = i > 1", "`i` = n.m",
]
# fmt: on


def test_operators_bind_as_they_do_in_spark(spark: Any) -> None:
    rows = made.rows(random.Random(3), 60)
    rows = rows.set_column(0, "i", made.small(random.Random(4), 60)).set_column(
        2, "b", made.small(random.Random(5), 60).cast("int64")
    )
    frame, taken, ours = with_numbers(spark, rows), [], []
    for each in _PRECEDENCE:
        try:
            ours.append(condition_on(made.SCHEMA, each).mask(rows).to_pylist())
            taken.append(each)
        except InputError:  # refused, which is no wrong answer
            continue
    assert len(taken) > 25
    wrong = [each for each, a, b in zip(taken, ours, answers(frame, taken), strict=True) if a != b]
    assert not wrong


@pytest.mark.parametrize("number", range(5))
def test_spark_takes_every_form_of_a_condition(make: Any, spark: Any, number: int) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int32())])
    condition = [
        "city = 'oslo' and n < 2",
        F.expr("city = 'oslo'") & (F.col("n") < 2),
        [("city", "=", "oslo"), ("n", "<", 2)],
        (pc.field("city") == "oslo") & (pc.field("n") < 2),
        condition_on(schema, "city = 'oslo' and n < 2"),
    ][number]
    table = make()
    table.upsert(
        spark.createDataFrame([("a", "oslo", 1), ("b", "oslo", 2), ("c", "rome", 1)], "id string, city string, n int")
    )
    found = table.read(["id"], filter=condition)
    assert [row["id"] for row in found.collect()] == ["a"]
    assert {path.split("city=")[1].split("/")[0] for path in found.inputFiles()} == {"oslo"}
    assert table.run(lambda txn: txn.read(["id"], filter=condition).count()).value == 1
    assert table.delete_where(condition).deleted == 1
    assert sorted(row["id"] for row in table.read().collect()) == ["b", "c"]


def test_spark_refuses_what_is_no_condition(make: Any, spark: Any) -> None:
    table = make()
    table.upsert(spark.createDataFrame([("a", "oslo", 1)], "id string, city string, n int"))
    conditions: list[Any] = [5, [("nam", "=", 1)], "", []]
    for condition in conditions:
        with pytest.raises(InputError):
            table.delete_where(condition)
    assert table.read().count() == 1


def test_what_spark_refuses_is_told_with_the_table_and_without_a_plan(make: Any, spark: Any) -> None:
    table = make()
    table.upsert(spark.createDataFrame([("a", "oslo", 1)], "id string, city string, n int"))
    calls = {
        r"condition 'm > 1': .*`m` cannot be resolved": lambda: table.read(filter="m > 1"),
        r"condition 'n >': .*Syntax error": lambda: table.read(filter="n >"),
        r"condition 'm = 1': .*`m` cannot be resolved": lambda: table.delete_where("m = 1"),
        r"columns \['idd'\]: .*`idd` cannot be resolved": lambda: table.read(columns=["idd"]),
    }
    for said, call in calls.items():
        with pytest.raises(InputError, match=f"Spark refuses the {said}") as found:
            call()
        assert table.table.url in str(found.value)
        assert "\n" not in str(found.value).partition("\nsee docs")[0]
        assert "Relation" not in str(found.value)
    assert table.read().count() == 1


def test_an_error_of_the_callers_frame_keeps_its_class_and_names_the_table(make: Any, spark: Any) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    table = make()
    table.upsert(spark.createDataFrame([("a", "oslo", 1)], "id string, city string, n int"))
    broken = spark.createDataFrame([("b", "oslo", 1)], "id string, city string, n int").withColumn(
        "n", F.expr("cast(raise_error('boom') as int)")
    )
    with pytest.raises(PySparkException, match="boom") as found:
        table.upsert(broken)
    assert f"{table.table.url}: upsert ended with it" in found.value.__notes__
    assert table.read().count() == 1


def test_every_character_has_the_same_other_case_in_spark(spark: Any) -> None:
    """But for characters that Python's Unicode does not know yet."""
    import unicodedata

    import pyarrow as pa

    known = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs", "Co")]
    words = pa.table({"s": [*known, "ΟΔΟΣ", "ΑΣ Σ", "İSTANBUL", "straße"]})
    frame = spark.createDataFrame(words.to_pandas())
    for name in ("lower", "upper"):
        theirs = {row["s"]: row["t"] for row in frame.selectExpr("s", f"{name}(s) as t").toArrow().to_pylist()}
        ours = dict(zip(words["s"].to_pylist(), _other_case(name, words), strict=True))
        wrong = {c: theirs[c] for c in theirs if ours[c] != theirs[c]}
        assert all(unicodedata.category(each) == "Cn" for each in wrong.values()), wrong


def _other_case(name: str, words: Any) -> list[str]:
    from lakelatch.conditions.evaluate import _CALLS

    return list(_CALLS[name](words["s"]).to_pylist())
