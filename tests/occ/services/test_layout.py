"""Clustering lays rows out by columns: what is sorted is read less, and is not sorted again."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest

import lakelatch
from lakelatch.hudi.timeline import decode_container
from lakelatch.occ.services.layout import Layout

from ..world import check_sound

SIZES = {"small_bytes": 4 << 10, "target_bytes": 8 << 10}


def scattered(number: int, count: int = 2000) -> pa.Table:
    made = random.Random(number)
    return pa.table(
        {
            "id": [f"{number}-{n}" for n in range(count)],
            "part": ["p"] * count,
            "x": pa.array([None if n % 97 == 0 else made.randrange(1000) for n in range(count)], pa.int32()),
            "name": [f"😀{made.randrange(1000):03}" for _ in range(count)],
            "share": [float("nan") if n % 89 == 0 else made.random() for n in range(count)],
        }
    )


@pytest.fixture
def table(tmp_path):
    with lakelatch.create(str(tmp_path / "t"), record_key="id", partition_by="part") as made:
        for number in range(6):
            made.insert(scattered(number))
        yield made


def rows_of(table):
    return sorted(table.read().to_pylist(), key=lambda row: row["id"])


def read_of(table, where):
    told = table.read(where=where).explain()
    return sum(each.read for each in told.files)


@pytest.mark.parametrize("layout", ["linear", "z-order"])
def test_rows_are_laid_out_over_several_files_and_nothing_else_changes(table, layout):
    before, commits = repr(rows_of(table)), {row["id"]: row for row in meta_of(table)}
    assert read_of(table, "x = 500") == read_of(table, "name = '😀500'") == 6
    assert table.cluster(sort_by=["x", "name"], layout=layout, **SIZES)
    files = table.snapshot().file_slices()
    assert len(files) > 8, "each new file has about the target's size"
    assert repr(rows_of(table)) == before
    assert {row["id"]: row for row in meta_of(table)} == commits, "an incremental reader sees none of them again"
    assert read_of(table, "x = 500") <= len(files) // (4 if layout == "linear" else 2)
    if layout == "z-order":
        assert read_of(table, "name = '😀500'") <= len(files) * 5 // 6
    check_sound(table)
    assert table.cluster(sort_by=["x", "name"], layout=layout, **SIZES) is None, "all is laid out so"
    table.upsert(table.read(where="x = 500").to_arrow())
    again = table.cluster(sort_by=["x", "name"], layout=layout, **SIZES)
    assert again, "what was written again since is not"
    assert again.files < len(files), "and the other files are left alone"
    assert repr(rows_of(table)) == before


def meta_of(table):
    return table.read(columns=["id", "_hoodie_commit_time", "_hoodie_commit_seqno"]).to_pylist()


def test_sorted_rows_are_in_order_with_nulls_and_nan_at_the_end(table):
    table.cluster(sort_by="share", target_bytes=1 << 20, small_bytes=1 << 20)
    (each,) = table.snapshot().file_slices()
    shares = np.array(table.read_slice(each)["share"])
    numbers = shares[~np.isnan(shares)]
    assert list(numbers) == sorted(numbers)
    assert np.isnan(shares[len(numbers) :]).all()


def test_columns_are_added_after_the_files_that_are_sorted_by_them(table):
    table.add_column("late", "string")
    table.insert(scattered(9, 10).append_column("late", pa.array([str(n) for n in range(9, -1, -1)])))
    table.cluster(sort_by=["late"], target_bytes=1 << 20, small_bytes=1 << 20)
    (each,) = table.snapshot().file_slices()
    late = table.read_slice(each)["late"].to_pylist()
    assert late[:11] == [*map(str, range(10)), None]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"sort_by": ["nope"]}, "no column 'nope'"),
        ({"sort_by": ["tags"]}, "no order"),
    ],
)
def test_what_cannot_be_sorted_is_refused_before_anything_is_planned(tmp_path, options, error):
    with lakelatch.create(str(tmp_path / "t"), record_key="id") as table:
        for number in range(2):
            table.insert(pa.table({"id": [str(number)], "tags": [["a"]]}))
        with pytest.raises(lakelatch.InputError, match=error):
            table.cluster(**options)
        assert table.plans() == []


def test_the_jvm_reads_by_what_it_is_to_sort(table):
    planned = table.plan_clustering(sort_by=["x", "name"], layout="z-order", **SIZES)
    (body,) = (
        table.store.get(each.path).body for each in table.store.list(".hoodie/timeline") if f"{planned}.cl" in each.path
    )
    plan = decode_container(body, "HoodieRequestedReplaceMetadata", name=planned)["clusteringPlan"]
    assert plan["strategy"]["strategyParams"] == {"hoodie.clustering.plan.strategy.sort.columns": "x,name"}
    assert max(each["numOutputFileGroups"] for each in plan["inputGroups"]) > 1


def test_a_plan_whose_layout_is_not_understood_is_refused():
    for said in (
        {"by": [], "curve": "linear"},
        {"by": ["x"], "curve": "spiral"},
        {"by": 5},
        {},
        "x",
        {"by": [5], "curve": "linear"},
    ):
        with pytest.raises(lakelatch.CorruptTableError, match="not understood"):
            Layout.planned({"layout": said})


@pytest.mark.parametrize("dimensions", [2, 3])
def test_the_curve_goes_through_each_octant_before_the_next(dimensions):
    """On a grid the place on the curve is the bits of the coordinates in turns, here worked out with texts of bits."""
    bits = 3
    grid = list(itertools.product(range(1 << bits), repeat=dimensions))
    random.Random(1).shuffle(grid)
    columns = {f"c{n}": pa.array([1000 * each[n] for each in grid]) for n in range(dimensions)}

    def place(point):
        texts = [f"{value:0{bits}b}" for value in point]
        return "".join(text[bit] for bit in range(bits) for text in texts)

    found = [grid[n] for n in Layout(tuple(columns), "z-order").order(pa.table(columns))]
    assert found == sorted(grid, key=place)
