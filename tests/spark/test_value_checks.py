"""The setting ``check`` in Spark: the tasks that write files keep it, as the driver does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakelatch import sql
from lakelatch.errors import ConstraintError
from lakelatch.spark import JobSizes


@pytest.mark.parametrize("type_", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("small_rows", [0, 20_000], ids=["tasks", "driver"])
def test_no_write_breaks_a_check(spark: Any, make: Callable[..., Any], small_rows: int, type_: str) -> None:
    sizes = JobSizes(small_rows=small_rows)
    table = make(sizes=sizes, check="n >= 0", type=type_, bucket_count=2)

    def rows(*given: tuple[str, int | None]) -> Any:
        return spark.createDataFrame([(key, "Oslo", n) for key, n in given], "id string, city string, n bigint")

    table.upsert(rows(("a", 1), ("b", None)))
    before = table.table.commits()
    for write in (
        lambda: table.upsert(rows(("a", -1), ("c", 2))),
        lambda: table.insert(rows(("d", -1))),
        lambda: table.bulk_insert(rows(("d", -1))),
        lambda: table.overwrite_table(rows(("d", -1))),
        lambda: table.update_where("id = 'a'", {"n": sql("n - 2")}),
        lambda: table.merge(rows(("a", -1))).when_matched(update="all").run(),
    ):
        with pytest.raises(ConstraintError, match=r"the check 'n >= 0': n=-1 in row") as told:
            write()
        assert (told.value.constraint, told.value.values) == ("n >= 0", [(-1,)])
    assert table.table.commits() == before
    table.upsert(rows(("a", 0)))
