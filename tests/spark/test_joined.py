"""Joins and the first N rows of a key of DataFrames, against the functions of Arrow tables of that name."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import lakelatch.spark
from lakelatch import mergers
from lakelatch.errors import InputError


def test_joins_leave_out_what_the_other_side_has_not_sent(spark: Any) -> None:
    rows = spark.createDataFrame(
        [("both", 1, 1), ("orders", 2, None), ("clicks", None, 3)], "k string, `o.at` long, c long"
    )
    for how in ("left", "right", "inner", "outer"):
        found = lakelatch.spark.join(rows, how, left="o.at", right="c").toArrow()  # type: ignore[arg-type]
        assert found == mergers.join(rows.toArrow(), how, left="o.at", right="c"), how  # type: ignore[arg-type]
    for bad, words in ((("cross", "o.at"), "no join 'cross'"), (("left", "o"), "no column 'o'; they have k, o.at, c")):
        with pytest.raises(InputError, match=words):
            lakelatch.spark.join(rows, bad[0], left=bad[1], right="c")  # type: ignore[arg-type]


def test_the_first_n_rows_of_each_key_are_those_of_an_arrow_table(spark: Any) -> None:
    luck = random.Random(3)
    values = [None, float("nan"), *(luck.uniform(-9, 9) for _ in range(98))]  # each once: of equal ones any is kept
    keys = [(luck.choice([None, "a", "😀"]), luck.choice([None, 1, 2])) for _ in values]
    rows = pa.table({"k": [k for k, _ in keys], "Place_0": [n for _, n in keys], "by": values})
    frame = spark.createDataFrame([*zip(*rows.to_pydict().values(), strict=True)], "k string, Place_0 long, by double")
    for count in (1, 3, 2**31 - 1):
        found = lakelatch.spark.top_n_per_key(frame, count, key=["k", "Place_0"], by="by").toArrow()
        wanted = mergers.top_n_per_key(rows, count, key=["k", "Place_0"], by="by")
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))
    for bad, words in ((True, "keeps True rows"), (0, "keeps 0 rows")):
        with pytest.raises(InputError, match=words):
            lakelatch.spark.top_n_per_key(frame, bad, key=["k"], by="by")
    with pytest.raises(InputError, match="is no DataFrame"):
        lakelatch.spark.top_n_per_key(rows, 1, key=["k"], by="by")  # type: ignore[arg-type]
