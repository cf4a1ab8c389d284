"""Tables that several columns order: the first in which two versions of a row differ says which of them is newer."""

from __future__ import annotations

import datetime as dt
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import lakelatch
from lakelatch.errors import ConfigError, ConflictError, InputError, UnsupportedTableError
from lakelatch.occ.check.check import check

from ..world import independent_content

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.date32()), ("number", pa.string()), ("one", pa.int64()), ("v", pa.int64())]
)
KINDS: dict[str, dict[str, Any]] = {
    "copy-on-write": {"type": "copy_on_write"},
    "copy-on-write, buckets": {"type": "copy_on_write", "bucket_count": 2},
    "merge-on-read": {"type": "merge_on_read"},
    "merge-on-read, buckets": {"type": "merge_on_read", "bucket_count": 2},
}
FIELDS = ["day", "number"]


def table(folder: Path, ordering: str | list[str] | None = None, **options: Any) -> lakelatch.Table:
    given = {"ordering_field": FIELDS if ordering is None else ordering, "table_version": 9, "schema": SCHEMA}
    return lakelatch.create(str(folder), record_key="id", **(given | options))


def row(key: str, day: int, number: int, v: int = 0) -> dict[str, Any]:
    """``one`` orders rows as the two fields do."""
    return {"id": key, "day": dt.date(2026, 1, day), "number": f"n{number}", "one": 10 * day + number, "v": v}


def rows(*some: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(some), SCHEMA)


def content(t: lakelatch.Table) -> dict[str, int]:
    found = t.read(columns=["id", "v"]).to_pylist()
    assert len({each["id"] for each in found}) == len(found)
    return {each["id"]: each["v"] for each in found}


# --- what orders -------------------------------------------------------------------------------------------------

# A row of these two values, a delete up to them, or a delete of whatever is there.
CHANGES: list[tuple[str, int, int]] = [
    *(("row", *each) for each in product((1, 2), (1, 2))),
    *(("until", *each) for each in ((1, 2), (2, 1))),
    ("gone", 0, 0),
]
SEQUENCES = {"-".join(f"{kind}{a}{b}" for kind, a, b in each): each for each in product(CHANGES, repeat=3)}


def stage(t: lakelatch.Table, step: int, *, several: bool) -> None:
    """The changes of one step, of all keys, each kind in a commit of its own."""
    now = {key: each[step] for key, each in SEQUENCES.items()}
    batch = [row(key, a, b, v=step + 1) for key, (kind, a, b) in now.items() if kind == "row"]
    until = [row(key, a, b) for key, (kind, a, b) in now.items() if kind == "until"]
    t.upsert(rows(*batch))
    names = ["id", *(FIELDS if several else ["one"])]
    t.delete(rows(*until).select(names))
    t.delete([{"id": key} for key, (kind, _, _) in now.items() if kind == "gone"])


def expected(steps: int) -> dict[str, int]:
    """The same, one change after the other."""
    found = {}
    for key, changes in SEQUENCES.items():
        there: tuple[int, int, int] | None = None
        for step, (kind, a, b) in enumerate(changes[:steps]):
            older = there is not None and (a, b) < there[:2]
            if kind == "gone" or (kind == "until" and not older):
                there = None
            elif kind == "row" and not older:
                there = (a, b, step + 1)
        if there is not None:
            found[key] = there[2]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_sequence_of_three_changes_is_that_of_one_field_with_the_same_order(tmp_path: Path, kind: str) -> None:
    with table(tmp_path / "two", **KINDS[kind]) as two, table(tmp_path / "one", "one", **KINDS[kind]) as one:
        for step in range(3):
            stage(two, step, several=True)
            stage(one, step, several=False)
            assert content(two) == content(one) == expected(step + 1)
        for t in (two, one):
            t.compact_logs(min_logs=2)
        assert content(two) == content(one) == expected(3) == independent_content(tmp_path / "one")
        for t in (two, one):
            t.compact()
        assert content(two) == content(one) == expected(3) == independent_content(tmp_path / "one")
        assert not [each for each in check(two.store).findings if each.severity != "note"]


@pytest.mark.parametrize("ties", ["last", "first"])
@pytest.mark.parametrize("kind", KINDS)
def test_of_one_batch_the_newest_row_of_a_key_stands(tmp_path: Path, kind: str, ties: str) -> None:
    orders = list(product(product((1, 2), (1, 2)), repeat=3))
    batch = rows(
        *(row(f"k{number}", *each[place], v=place) for place in range(3) for number, each in enumerate(orders))
    )
    wanted = {}
    for number, each in enumerate(orders):
        places = range(3) if ties == "last" else range(2, -1, -1)
        wanted[f"k{number}"] = max(places, key=lambda place: (each[place], place if ties == "last" else -place))
    with table(tmp_path / "t", ties=ties, **KINDS[kind]) as t:
        t.upsert(batch)
        assert content(t) == wanted
        t.upsert(batch)  # once more, onto what it has written
        assert content(t) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_two_writers_of_one_row_are_settled_by_the_first_field_that_differs(tmp_path: Path, kind: str) -> None:
    """In either order of landing; where no field differs, on a merge-on-read table, the later one is run again."""
    cases = list(product(product((1, 2), (1, 2)), repeat=2))
    with table(tmp_path / "t", **KINDS[kind]) as t, lakelatch.open(t.url) as other:
        t.upsert(rows(*(row(f"k{number}", 1, 1) for number in range(len(cases)))))
        for number, (mine, theirs) in enumerate(cases):
            ours = t.transaction()
            ours.upsert(rows(row(f"k{number}", *mine, v=1)))
            other.upsert(rows(row(f"k{number}", *theirs, v=2)))
            try:
                ours.commit()
            except ConflictError:
                assert mine == theirs
                assert KINDS[kind]["type"] == "merge_on_read"
                t.upsert(rows(row(f"k{number}", *mine, v=1)))
        assert content(t) == {f"k{n}": 1 if mine >= theirs else 2 for n, (mine, theirs) in enumerate(cases)}
        t.compact()
        assert content(t) == {f"k{n}": 1 if mine >= theirs else 2 for n, (mine, theirs) in enumerate(cases)}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_are_merged_follow_the_same_order(tmp_path: Path, kind: str) -> None:
    with table(tmp_path / "t", merge={"v": "sum"}, **KINDS[kind]) as t:
        for day, number, v in ((1, 2, 1), (2, 1, 10), (1, 3, 100), (2, 0, 1000)):
            t.upsert(rows(row("a", day, number, v)))
        assert t.read(columns=["one", "v"]).to_pylist() == [{"one": 21, "v": 1111}]


# --- the doors ---------------------------------------------------------------------------------------------------


def test_a_list_of_one_is_that_one(tmp_path: Path) -> None:
    with table(tmp_path / "list", ["one"], table_version=8) as a, table(tmp_path / "text", "one", table_version=8) as b:
        assert a.config.to_json() | {"name": ""} == b.config.to_json() | {"name": ""}
        assert a.config.to_json()["ordering_field"] == "one"


@pytest.mark.parametrize(
    ("ordering", "version", "said"),
    [
        ([], 9, r"ordering_field=\[\] names no column; leave it out"),
        ("", 9, "ordering_field='' is no text"),
        (["day", "day"], 9, "names a column twice"),
        (["day", ""], 9, "names no columns"),
        ("day,number", 9, "holds a comma"),
        (["day", "nope"], 9, "the schema lacks nope"),
        (["day", "number"], 8, "make the table with table_version=9"),
    ],
)
def test_what_names_no_ordering_fields_is_refused(tmp_path: Path, ordering: Any, version: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        table(tmp_path / "t", ordering, table_version=version)
    assert not (tmp_path / "t" / ".hoodie").exists()


def test_the_same_fields_in_another_order_are_another_table(tmp_path: Path) -> None:
    table(tmp_path / "t").close()
    table(tmp_path / "t", exist_ok=True).close()
    with pytest.raises(ConfigError, match=r"ordering_field is \('day', 'number'\), and \('number', 'day'\)"):
        table(tmp_path / "t", ["number", "day"], exist_ok=True)


@pytest.mark.parametrize("kind", KINDS)
def test_no_ordering_field_is_null_or_missing(tmp_path: Path, kind: str) -> None:
    with table(tmp_path / "t", **KINDS[kind]) as t:
        t.upsert(rows(row("a", 1, 1)))
        for name in FIELDS:
            with pytest.raises(InputError, match=f"'{name}' is null in 1 rows .*nothing was written"):
                t.upsert(rows(row("a", 2, 2, v=1) | {name: None}))
            with pytest.raises(InputError, match=f"the rows lack {name}"):
                t.upsert(rows(row("a", 2, 2, v=1)).drop_columns([name]))
            with pytest.raises(InputError, match=rf"lack {name}: .*by all of them, or by none; nothing was deleted"):
                t.delete(rows(row("a", 2, 2)).drop_columns([name, "one", "v"]))
        assert content(t) == {"a": 0}


def test_a_copy_on_write_table_with_a_null_among_several_is_not_adopted(tmp_path: Path) -> None:
    def made(name: str, day: dt.date | None) -> Path:
        folder = tmp_path / name
        given = {"record_key": "id", "schema": SCHEMA, "table_version": 9}
        with lakelatch.create(str(folder), **given) as t:
            t.upsert(rows(row("a", 1, 1) | {"day": day}))
        properties = folder / ".hoodie/hoodie.properties"
        text = properties.read_text().replace("COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING")
        properties.write_text(f"hoodie.table.ordering.fields=number,day\n{text}")
        shutil.rmtree(folder / ".hoodie/.lakelatch")
        return folder

    with pytest.raises(UnsupportedTableError, match="by several fields, of which one is 'day', which is null in rows"):
        lakelatch.adopt(str(made("null", None)))
    with lakelatch.adopt(str(made("filled", dt.date(2026, 1, 1)))) as t:
        t.upsert(rows(row("a", 2, 0, v=5)))
        assert content(t) == {"a": 0}, "number comes first"


@pytest.mark.parametrize("kind", KINDS)
def test_hudi_rs_refuses_such_a_table_by_itself(tmp_path: Path, kind: str) -> None:
    """Rather than to order its rows by one of the fields."""
    with table(tmp_path / "t", **KINDS[kind]) as t:
        t.upsert(rows(row("a", 1, 1)))
    with pytest.raises(Exception, match="Multiple ordering fields 'day,number' are not yet supported"):
        HudiTableBuilder.from_base_uri(str(tmp_path / "t")).build().read()


def test_a_table_with_an_ordering_field_has_no_streams(tmp_path: Path) -> None:
    with (
        table(tmp_path / "ordered", type="merge_on_read", bucket_count=1) as t,
        pytest.raises(ConfigError, match="have no ordering_field"),
    ):
        t.stream("s", columns=["v"], ordering="one")
