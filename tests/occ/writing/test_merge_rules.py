"""Tables that merge columns: every writer, reader and compaction gives what a dictionary gives, in the order of the commits."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import lakelatch
from lakelatch.errors import ConfigError, ConflictError, InputError
from lakelatch.mergers import Groups, Laws
from tests.mergers.model import MODEL, place

from ...thorough import some

SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("seen", pa.int64()), ("clicks", pa.int64()), ("low", pa.float64()), ("times", pa.int32()),
        ("tags", pa.list_(pa.string())), ("note", pa.string()), ("name", pa.string()),
    ]
)  # fmt: skip
COMMUTE = {"seen": "max", "clicks": "sum", "low": "min", "times": "count", "tags": "collect_set(3)"}
IN_ORDER = {"clicks": "sum", "low": "min", "tags": "collect_list(3)", "note": "last_non_null", "times": "count"}
BY_TIME = {"clicks": "sum", "low": "max", "times": "count", "tags": "collect_set(3)", "note": "last_non_null"}
Row = dict[str, Any]


def some_row(chance: random.Random, key: str) -> Row:
    return {
        "id": key,
        "seen": chance.randint(0, 5),
        "clicks": chance.choice([None, 1, -2, 10]),
        "low": chance.choice([None, 0.5, -3.0]),
        "times": chance.choice([None, 1]),
        "tags": chance.choice([None, [], ["a"], ["b", "😀"], ["{%s}"]]),
        "note": chance.choice([None, "n1", "n2"]),
        "name": chance.choice([None, "x", "y"]),
    }


class Table:
    """A table beside its model: a dictionary of rows."""

    def __init__(self, url: Path, rule: dict[str, str], ordering: str | None, **more: Any) -> None:
        self.rule, self.ordering, self.url = rule, ordering, url
        self.real = lakelatch.create(
            str(url), record_key="id", ordering_field=ordering, schema=SCHEMA, merge=rule, **more
        )
        self.rows: dict[str, Row] = {}

    def one(self, rows: Sequence[Row]) -> Row:
        """Of merged rows and contributions of one key, in order of arrival."""
        if self.ordering is not None:
            rows = sorted(rows, key=lambda row: place(row[self.ordering]))
        merged = dict(rows[-1])
        for column, spec in self.rule.items():
            values = [row[column] for row in rows]
            merged[column] = sum(filter(None, values)) if spec == "count" else _model(spec)(values)
        return merged

    def apply(self, rows: Iterable[Row]) -> None:
        for row in rows:
            lifted = row | {name: int(row[name] is not None) for name, spec in self.rule.items() if spec == "count"}
            before = [self.rows[row["id"]]] if row["id"] in self.rows else []
            self.rows[row["id"]] = self.one([*before, lifted])

    def check(self) -> None:
        wanted = sorted(self.rows.values(), key=lambda row: row["id"])
        found = self.real.read(columns=SCHEMA.names).to_arrow()
        assert sorted(found.to_pylist(), key=lambda row: row["id"]) == wanted
        batches = HudiTableBuilder.from_base_uri(str(self.url)).build().read()
        foreign = pa.Table.from_batches(batches).select(SCHEMA.names).to_pylist() if batches else []
        assert sorted(foreign, key=lambda row: row["id"]) == wanted


def _model(spec: str) -> Any:
    name, _, count = spec.partition("(")
    if not count:
        return MODEL[name]
    return MODEL[f"{name}(3)"]


@pytest.mark.parametrize("seed", some(range(18), 3))
def test_every_reader_sees_what_the_commits_contributed_in_their_order(tmp_path: Path, seed: int) -> None:
    """One to three transactions at a time, of one or two changes, on both types of table; compactions at any point."""
    chance = random.Random(seed)
    rule, ordering = [(COMMUTE, None), (IN_ORDER, None), (BY_TIME, "seen")][seed % 3]
    kind = ("copy_on_write", "merge_on_read")[seed // 3 % 2]
    more = {"bucket_count": 2} if seed % 4 > 1 else {}
    version = 9 if kind == "merge_on_read" else 8 + seed % 2
    t = Table(tmp_path / "t", rule, ordering, type=kind, table_version=version, **more)
    landed = 0
    with t.real:
        for _ in range(6):
            begun = []
            for _ in range(chance.randint(1, 3)):
                txn, changes = t.real.transaction(), []
                for _ in range(chance.choice([1, 1, 2])):
                    if chance.random() < 0.2:
                        changes.append(("delete", chance.sample("abcd", 2)))
                        txn.delete([{"id": key} for key in changes[-1][1]])
                        continue
                    rows = [some_row(chance, chance.choice("abcd")) for _ in range(chance.randint(1, 4))]
                    try:
                        txn.upsert(pa.Table.from_pylist(rows, SCHEMA))
                    except InputError as e:
                        assert "written again in one" in str(e)  # noqa: PT017
                        txn.abort()
                        break
                    changes.append(("upsert", rows))
                else:
                    begun.append((txn, changes, set(t.rows)))
            chance.shuffle(begun)
            for txn, changes, known in begun:
                if kind == "merge_on_read" and chance.random() < 0.3:
                    t.real.compact()
                    t.check()
                try:
                    done = txn.commit()
                except ConflictError:
                    assert len(begun) > 1
                    continue
                if done is None:
                    continue
                landed += 1
                before = dict(t.rows)
                for what, given in changes:
                    if what == "upsert":
                        t.apply(given)
                        continue
                    for key in given:
                        # A key that somebody has written since it began may be deleted before that.
                        if key in known or key not in before:
                            t.rows.pop(key, None)
                        else:
                            t.rows[key] = before[key]
                t.check()
        if kind == "merge_on_read":
            t.real.compact()
            t.check()
    assert landed > 4


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_of_sums_at_the_same_time_every_one_counts(tmp_path: Path, kind: Any) -> None:
    with lakelatch.create(
        str(tmp_path / "t"),
        record_key="id",
        merge={"n": "sum"},
        type=kind,
        table_version=9,
        schema=pa.schema([("id", "str"), ("n", "i8")]),
    ) as t:
        t.upsert([{"id": "a", "n": 1}, {"id": "b", "n": None}])
        mine, theirs = t.transaction(), t.transaction()
        mine.upsert([{"id": "a", "n": 10}, {"id": "b", "n": 5}])
        theirs.upsert([{"id": "a", "n": 100}, {"id": "b", "n": 50}])
        theirs.commit()
        if kind == "copy_on_write":
            mine.commit()
        else:
            with pytest.raises(ConflictError, match="both changed the same row"):
                mine.commit()
            t.upsert([{"id": "a", "n": 10}, {"id": "b", "n": 5}])
        assert sorted(t.read().to_pylist(), key=str) == [{"id": "a", "n": 111}, {"id": "b", "n": 55}]


def test_a_transaction_that_merges_again_after_its_own_second_write_loses_and_is_run_again(tmp_path: Path) -> None:
    """What is in its file then was merged with the row before, and nobody knows the contribution any more."""
    with lakelatch.create(
        str(tmp_path / "t"), record_key="id", merge={"n": "sum"}, schema=pa.schema([("id", "str"), ("n", "i8")])
    ) as t:
        t.upsert([{"id": "a", "n": 1}])
        first = True

        def twice(txn: lakelatch.Transaction) -> None:
            nonlocal first
            txn.upsert([{"id": "a", "n": 10}])
            txn.upsert([{"id": "a", "n": 20}])
            if first:
                first = False
                t.upsert([{"id": "a", "n": 100}])

        t.run(twice)
        assert t.read().to_pylist() == [{"id": "a", "n": 131}]


def test_partial_updates_keep_what_they_do_not_say(tmp_path: Path) -> None:
    with lakelatch.create(str(tmp_path / "t"), record_key="id", merge="partial_update") as t:
        t.upsert([{"id": "a", "x": 1, "y": "old"}])
        t.upsert([{"id": "a", "y": "new"}], missing="null")
        t.upsert([{"id": "a", "x": None, "z": True}], missing="null", new_columns="add")
        assert t.read().to_pylist() == [{"id": "a", "x": 1, "y": "new", "z": True}]


def test_a_marker_keeps_what_was_there_and_null_does_not(tmp_path: Path) -> None:
    with lakelatch.create(str(tmp_path / "t"), record_key="id", merge={"x": "last_unless('__same__')"}) as t:
        t.upsert([{"id": "a", "x": "big"}, {"id": "b", "x": "big"}])
        t.upsert([{"id": "a", "x": "__same__"}, {"id": "b", "x": None}])
        assert {row["id"]: row["x"] for row in t.read().to_pylist()} == {"a": "big", "b": None}


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_of_equal_ordering_values_the_first_stands_where_the_table_says_so(tmp_path: Path, kind: Any) -> None:
    with lakelatch.create(
        str(tmp_path / "t"), record_key="id", ordering_field="ts", ties="first", type=kind, table_version=9
    ) as t:
        t.upsert([{"id": "a", "ts": 5, "x": "one"}, {"id": "a", "ts": 5, "x": "two"}])
        t.upsert([{"id": "a", "ts": 5, "x": "three"}])
        assert t.read().to_pylist() == [{"id": "a", "ts": 5, "x": "one"}]
        t.upsert([{"id": "a", "ts": 6, "x": "four"}])
        assert t.read().to_pylist() == [{"id": "a", "ts": 6, "x": "four"}]


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_a_delete_with_an_ordering_value_spares_what_is_newer(tmp_path: Path, kind: Any) -> None:
    with lakelatch.create(str(tmp_path / "t"), record_key="id", ordering_field="ts", type=kind) as t:

        def left() -> dict[str, int]:
            found = {row["id"]: row["ts"] for row in t.read().to_pylist()}
            batches = HudiTableBuilder.from_base_uri(str(tmp_path / "t")).build().read()
            assert found == {row["id"]: row["ts"] for batch in batches for row in batch.to_pylist()}
            return found

        t.upsert([{"id": key, "ts": 5} for key in "abcd"])
        t.upsert([{"id": "b", "ts": 7}])
        t.delete([{"id": "a", "ts": 4}, {"id": "b", "ts": 5}, {"id": "c", "ts": 5}, {"id": "zz", "ts": 1}])
        assert left() == {"a": 5, "b": 7, "d": 5}
        t.delete([{"id": "b", "ts": 6}, {"id": "b", "ts": 8}, {"id": "a", "ts": 1}])
        assert left() == {"a": 5, "d": 5}
        t.delete([{"id": "a"}])
        assert left() == {"d": 5}
        late, newer = t.transaction(), t.transaction()
        late.delete([{"id": "d", "ts": 6}])
        newer.upsert([{"id": "d", "ts": 9}])
        newer.commit()
        with pytest.raises(ConflictError):
            late.commit()
        t.delete([{"id": "d", "ts": 6}])
        assert left() == {"d": 9}
        if kind == "merge_on_read":
            t.compact()
            assert left() == {"d": 9}


def test_a_late_row_counts_in_sums_and_overwrites_nothing_newer(tmp_path: Path) -> None:
    with lakelatch.create(str(tmp_path / "t"), record_key="id", ordering_field="ts", merge={"n": "sum"}) as t:
        t.upsert([{"id": "a", "ts": 5, "n": 1, "x": "new"}])
        t.upsert([{"id": "a", "ts": 4, "n": 10, "x": "late"}])
        assert t.read().to_pylist() == [{"id": "a", "ts": 5, "n": 11, "x": "new"}]


def test_a_sum_that_does_not_fit_is_refused_and_nothing_lands(tmp_path: Path) -> None:
    with lakelatch.create(
        str(tmp_path / "t"), record_key="id", merge={"n": "sum"}, schema=pa.schema([("id", "str"), ("n", "i4")])
    ) as t:
        t.upsert([{"id": "a", "n": 2**31 - 1}])
        with pytest.raises(InputError, match="column 'n': a sum does not fit into int32"):
            t.upsert([{"id": "a", "n": 1}])
        assert t.read().to_pylist() == [{"id": "a", "n": 2**31 - 1}]


@pytest.mark.parametrize(
    ("merge", "why"),
    [
        ({"n": "nope"}, "column 'n': there is no merger 'nope'"), ({"zz": "sum"}, "'zz', which the table lacks"),
        ({"id": "last"}, "key, partition or ordering"), ({"x": "sum"}, "column 'x' can't have the merger sum"),
        ({"ts": "max"}, "key, partition or ordering"), ({"n": "first"}, "takes rows in order"),
        ({"x": "not_there_at_all:M"}, "can't be imported here"), ("sometimes", "merge is 'sometimes'"), ({"n": 3}, "merge is"),
        ({"n": ""}, "merge is"), (7, "merge is"), ([("n",)], "merge is"), ({"": "sum"}, "merge is"),
    ],
)  # fmt: skip
def test_a_rule_that_can_not_be_followed_makes_no_table(tmp_path: Path, merge: Any, why: str) -> None:
    schema = pa.schema([("id", "str"), ("ts", "i8"), ("n", "i8"), ("x", "str")])
    with pytest.raises(ConfigError, match=why):
        lakelatch.create(str(tmp_path / "t"), record_key="id", ordering_field="ts", schema=schema, merge=merge)
    assert not (tmp_path / "t/.hoodie").exists()


def test_a_table_of_version_8_that_nothing_would_keep_jvm_writers_from_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="make it with table_version=9"):
        lakelatch.create(str(tmp_path / "t"), record_key="id", type="merge_on_read", merge={"n": "sum"})
    assert not (tmp_path / "t/.hoodie").exists()


def test_ties_without_an_ordering_field_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no ordering field"):
        lakelatch.create(str(tmp_path / "t"), record_key="id", ties="first")
    with pytest.raises(ConfigError, match="'last' or 'first'"):
        lakelatch.create(str(tmp_path / "t"), record_key="id", ordering_field="ts", ties="middle")


class Longest:
    """Of two texts the longer one."""

    def laws(self, kind: pa.DataType) -> Laws:
        return Laws(commutative=False, associative=True, idempotent=True)

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        texts = values.to_pylist()
        return pa.array(
            [max(texts[a:b], key=len) for a, b in zip(groups.offsets, groups.offsets[1:], strict=False)], values.type
        )


def test_a_writer_without_the_tables_merger_is_refused_before_it_writes_and_readers_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, module = str(tmp_path / "t"), tmp_path / "of_somebody_else.py"
    module.write_text(f"from {__name__} import Longest\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with lakelatch.create(url, record_key="id", merge={"x": "of_somebody_else:Longest"}) as t:
        t.upsert([{"id": "a", "x": "long"}])
        t.upsert([{"id": "a", "x": "s"}])
        assert t.read().to_pylist() == [{"id": "a", "x": "long"}]
        slots = t.session.log.next_slot
    import subprocess
    import sys

    code = f"""
import lakelatch
with lakelatch.open({url!r}) as t:
    assert t.read().to_pylist() == [{{"id": "a", "x": "long"}}]
    try:
        t.upsert([{{"id": "a", "x": "longer"}}])
    except lakelatch.ConfigError as e:
        print(e)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "column 'x': merger 'of_somebody_else:Longest' can't be imported here" in done.stdout
    with lakelatch.open(url) as t:
        assert t.session.log.next_slot == slots


def test_a_rule_that_changes_makes_writers_that_began_before_lose(tmp_path: Path) -> None:
    with lakelatch.create(str(tmp_path / "t"), record_key="id", schema=pa.schema([("id", "str"), ("n", "i8")])) as t:
        t.upsert([{"id": "a", "n": 1}])
        txn = t.transaction()
        txn.upsert([{"id": "a", "n": 5}])
        with pytest.raises(ConfigError, match="'zz', which the table lacks"):
            t.change_settings(merge={"zz": "sum"})
        t.change_settings(merge={"n": "sum"})
        with pytest.raises(ConflictError, match="merged otherwise"):
            txn.commit()
        t.upsert([{"id": "a", "n": 5}])
        assert t.read().to_pylist() == [{"id": "a", "n": 6}]


def test_a_batch_counts_all_its_rows_of_one_key_and_an_insert_contributes_as_an_upsert_does(tmp_path: Path) -> None:
    with lakelatch.create(str(tmp_path / "t"), record_key="id", merge={"n": "count", "s": "sum"}) as t:
        t.insert([{"id": "a", "n": 7, "s": 1}, {"id": "a", "n": 7, "s": 2}])
        t.upsert([{"id": "a", "n": None, "s": 3}, {"id": "a", "n": 1, "s": None}])
        assert t.read().to_pylist() == [{"id": "a", "n": 3, "s": 6}]


def test_explicit_values_are_set_and_not_merged(tmp_path: Path) -> None:
    with lakelatch.create(str(tmp_path / "t"), record_key="id", merge={"n": "sum"}) as t:
        t.upsert([{"id": "a", "n": 7}])
        t.update_where("n = 7", set={"n": 1})
        assert t.read().to_pylist() == [{"id": "a", "n": 1}]
        t.merge([{"id": "a", "n": 5}]).when_matched(update={"n": lakelatch.sql("t.n + s.n")}).run()
        assert t.read().to_pylist() == [{"id": "a", "n": 6}]
        t.overwrite_table([{"id": "a", "n": 2}])
        assert t.read().to_pylist() == [{"id": "a", "n": 2}]


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_maps_are_merged_by_key(tmp_path: Path, kind: Any) -> None:
    item = pa.struct([("ts", pa.int64()), ("page", pa.string())])
    schema = pa.schema(
        [("id", pa.string()), ("m", pa.map_(pa.string(), pa.int64())), ("last", pa.map_(pa.string(), item))]
    )
    merge, version = {"m": "merge_map(3)", "last": "merge_map(by='ts')"}, 8 if kind == "copy_on_write" else 9
    with lakelatch.create(
        str(tmp_path / "t"), record_key="id", schema=schema, merge=merge, type=kind, table_version=version
    ) as table:
        for m, last in (
            ([("b", 1), ("a", None)], [("x", {"ts": 5, "page": "/new"})]),
            ([("b", 2), ("d", 4), ("c", 3)], [("x", {"ts": 4, "page": "/late"}), ("y", None)]),
            (None, None),
        ):
            table.upsert(pa.Table.from_pylist([{"id": "k", "m": m, "last": last}], schema))
        for _ in range(2):
            (row,) = table.read().to_pylist()
            assert row["m"] == [("a", None), ("b", 2), ("c", 3)]
            assert row["last"] == [("x", {"ts": 5, "page": "/new"}), ("y", None)]
            if kind == "merge_on_read":
                table.compact()
    with pytest.raises(ConfigError, match="takes rows in order"):
        lakelatch.create(str(tmp_path / "u"), record_key="id", ordering_field="at", merge={"m": "merge_map"},
                         schema=schema.append(pa.field("at", pa.int64())))  # fmt: skip
