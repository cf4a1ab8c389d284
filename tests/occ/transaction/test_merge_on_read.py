"""Merge-on-read tables in plain Python: what is appended, who meets whom, and what every reader sees after each commit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.cli.history.timeline import newest
from lakelatch.errors import ConfigError, ConflictError, InputError, StorageError
from lakelatch.hudi.files import list_data_files
from lakelatch.occ.check.check import check
from lakelatch.occ.landing import Landing
from lakelatch.testing import FakeEnvironment

from ...thorough import some
from ..world import independent_content

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])
KEYS = [f"{part}{n}" for part in "xy" for n in range(8)]
Change = tuple[str, Any]


def table(folder: Path, **options: Any) -> lakelatch.Table:
    given = {
        "record_key": "id",
        "partition_by": "part",
        "schema": SCHEMA,
        "type": "merge_on_read",
        "env": FakeEnvironment(seed=1),
    }
    return lakelatch.create(str(folder), **(given | options))


def rows(values: dict[str, int]) -> pa.Table:
    return pa.table([list(values), [key[0] for key in values], list(values.values())], schema=SCHEMA)


def keys(*wanted: str) -> pa.Table:
    return rows(dict.fromkeys(wanted, 0)).drop_columns(["v"])


def content(of: lakelatch.Table) -> dict[str, int]:
    read = of.read().to_arrow()
    found = dict(zip(read["id"].to_pylist(), read["v"].to_pylist(), strict=True))
    assert len(found) == read.num_rows, "a key twice"
    return found


def files(of: lakelatch.Table) -> tuple[int, int]:
    listing = list_data_files(of.store)
    return len(listing.bases), len(listing.logs)


def sound(of: lakelatch.Table) -> None:
    assert not [each for each in check(of.store).findings if each.severity != "note"]


# --- what is written ---------------------------------------------------------------------------------------------


def test_changes_of_known_rows_are_appended_and_new_rows_make_base_files(tmp_path):
    with table(tmp_path / "t") as t:
        t.run(lambda txn: txn.upsert(rows({"x0": 1, "x1": 1, "y0": 1})))
        assert files(t) == (2, 0)
        t.run(lambda txn: txn.upsert(rows({"x0": 2})))
        t.run(lambda txn: txn.delete(keys("x1")))
        assert files(t) == (2, 2)
        assert [each.action for each in t.timeline().commits[-3:]] == ["deltacommit"] * 3
        stat = t.timeline().metadata(t.timeline().commits[-1]).stats[0]
        assert (stat.num_deletes, stat.log_files) == (1, (stat.path.rpartition("/")[2],))
        t.run(lambda txn: txn.upsert(rows({"x0": 3, "x2": 3})))  # the simple index does not look into log files
        assert files(t) == (3, 3)
        assert content(t) == independent_content(tmp_path / "t") == {"x0": 3, "x2": 3, "y0": 1}
        sound(t)


def test_with_buckets_new_rows_are_appended_too(tmp_path):
    with table(tmp_path / "t", bucket_count=1) as t:
        t.run(lambda txn: txn.upsert(rows({"x0": 1})))
        t.run(lambda txn: txn.upsert(rows({"x0": 2, "x1": 2})))
        assert files(t) == (1, 1)
        assert content(t) == independent_content(tmp_path / "t") == {"x0": 2, "x1": 2}


def test_several_writes_of_one_transaction_are_log_files_in_their_order(tmp_path):
    with table(tmp_path / "t") as t:
        t.run(lambda txn: txn.upsert(rows({"x0": 1, "x1": 1, "x2": 1})))
        with t.transaction() as txn:
            txn.upsert(rows({"x0": 5}))
            txn.upsert(rows({"x0": 4, "x1": 4}))
            txn.delete_where([("v", "=", 4), ("id", "=", "x1")])
            txn.upsert(rows({"x1": 6}))
        assert files(t) == (1, 4)
        assert content(t) == independent_content(tmp_path / "t") == {"x0": 4, "x1": 6, "x2": 1}
        sound(t)


def test_a_row_that_comes_back_older_than_the_one_that_was_deleted(tmp_path):
    """Appended it would lose against the base file's, which Hudi's readers merge last; so its group gets a base file."""
    with table(tmp_path / "t", ordering_field="v") as t:
        t.run(lambda txn: txn.upsert(rows({"x0": 9, "x1": 9})))
        t.run(lambda txn: txn.delete(keys("x0")))
        t.run(lambda txn: txn.upsert(rows({"x0": 1})))
        assert files(t) == (2, 1)
        assert content(t) == independent_content(tmp_path / "t") == {"x0": 1, "x1": 9}
        with t.transaction() as txn:
            txn.delete(keys("x1"))
            with pytest.raises(InputError, match="deleted and written again in one transaction"):
                txn.upsert(rows({"x1": 1}))
            txn.abort()
        assert content(t) == {"x0": 1, "x1": 9}
        sound(t)


@pytest.mark.parametrize("options", [{}, {"ordering_field": "v"}], ids=str)
@pytest.mark.parametrize("write", ["upsert", "merge"])
def test_a_row_that_was_inserted_again_after_a_delete_stays_one(tmp_path, options, write):
    """Its key is in the base file of the group where it was deleted, and again in the one where it was inserted."""
    with table(tmp_path / "t", small_file_bytes=0, **options) as t:
        for turn in (1, 2):
            t.insert(rows({"x0": turn, f"x{turn}": turn}))
            t.delete(keys("x0"))
        t.upsert(rows({"x0": 3}))  # of two groups that have its key, one takes it
        assert content(t) == independent_content(tmp_path / "t") == {"x0": 3, "x1": 1, "x2": 2}
        t.delete(keys("x0"))
        t.insert(rows({"x0": 4}))
        changed = rows({"x0": 5})
        assert check(t.store, deep=True).sound(), "one of the rows with its key is deleted"
        if write == "upsert":
            assert t.upsert(changed).updated == 1
        else:
            merge = t.merge(changed).when_matched(update="all").when_not_matched(insert="all")
            assert merge.run().updated == 1
        assert content(t) == independent_content(tmp_path / "t") == {"x0": 5, "x1": 1, "x2": 2}
        sound(t)


def _back_by_merge(txn: Any) -> None:
    txn.merge(rows({"x0": 2, "x1": 2})).when_matched(update="all").when_not_matched(insert="all").run()


def _back_by_file(txn: Any) -> None:
    """The whole group is written, as an engine does that fills its files itself."""
    (group,) = txn.snapshot.file_slices("part=x")
    txn.rewrite(group).write(rows({"x0": 2, "x1": 2}))


BACK: dict[str, Any] = {
    "upsert": lambda txn: txn.upsert(rows({"x0": 2, "x1": 2})),
    "merge": _back_by_merge,
    "a whole file": _back_by_file,
    "upsert twice": lambda txn: (txn.upsert(rows({"x0": 2})), txn.upsert(rows({"x0": 2, "x1": 2}))),
    "upsert, then another row": lambda txn: (txn.upsert(rows({"x0": 2})), txn.upsert(rows({"x1": 2}))),
    "upsert, then by condition": lambda txn: (
        txn.upsert(rows({"x0": 1, "x1": 1})),
        txn.update_where("true", {"v": 2}, partition={"part": "x"}),
    ),
    "merge, then upsert": lambda txn: (_back_by_merge(txn), txn.upsert(rows({"x1": 2}))),
    "upsert, then a whole file": lambda txn: (txn.upsert(rows({"x0": 2})), _back_by_file(txn)),
}


@pytest.mark.parametrize("options", [{}, {"ordering_field": "v"}], ids=str)
@pytest.mark.parametrize("write", BACK)
@pytest.mark.parametrize("first", ["the row that comes back", "the inserted row"])
def test_a_row_that_comes_back_has_a_new_key(tmp_path, first, write, options):
    """Who inserts it at the same time meets it, whatever files its transaction has written and in how many writes."""
    made = table(tmp_path / "t", **options)
    with made as t, lakelatch.open(str(tmp_path / "t"), env=t.env, writer="other") as other:
        t.insert(rows({"x0": 1, "x1": 1}))
        t.delete(keys("x0"))
        back, inserts = t.transaction(), other.transaction("insert")
        BACK[write](back)
        assert sum(each.num_inserts for each in back.workspace.files if not each.log_files) <= 1
        inserts.insert(rows({"x0": 3}))
        if first == "the inserted row":
            inserts.commit()
            with pytest.raises(ConflictError):
                back.commit()
        else:
            back.commit()
            with pytest.raises(lakelatch.DuplicateKeyError):
                inserts.commit()
        assert content(t) == ({"x0": 3, "x1": 1} if first == "the inserted row" else {"x0": 2, "x1": 2})
        known = t.transaction()
        known.upsert(rows({"x1": 4}))
        assert not known.workspace.changes.values()
        known.abort()


# --- what a compaction of Hudi's reads: no log block above the newest commit or deltacommit, and it counts no replacecommit


def _two_calls(transaction: lakelatch.Transaction, key: str = "x0") -> None:
    """A change of a known row, in a log file, and of a new one, whose second version replaces the group of its first."""
    transaction.upsert(rows({key: 8, "x9": 1}))
    transaction.upsert(rows({"x9": 2}))


def test_a_commit_that_replaces_is_covered_if_it_has_log_files(tmp_path):
    with table(tmp_path / "t") as t:
        t.upsert(rows({"x0": 1}))
        with t.transaction() as txn:
            _two_calls(txn)
        cover, mine = t.timeline().commits[-2:]
        assert (cover.action, mine.action, mine.requested) == ("deltacommit", "replacecommit", txn.instant)
        assert cover.requested > mine.requested
        assert cover.completed < mine.completed
        told = t.timeline().metadata(cover)
        assert (told.stats, told.extra["lakelatch.covers"]) == ((), txn.instant)
        (row,) = (each for each in newest(t, 9) if each.requested == cover.requested)
        assert row.reason.startswith(f"stands above {txn.instant}")
        assert content(t) == independent_content(tmp_path / "t") == {"x0": 8, "x9": 2}
        sound(t)


def test_a_commit_that_replaces_is_not_covered_below_another_or_without_log_files(tmp_path):
    with table(tmp_path / "t") as t:
        t.upsert(rows({"x0": 1, "x1": 1}))
        older, newer = t.transaction(), t.transaction()
        _two_calls(older)
        newer.upsert(rows({"y0": 1}))
        newer.commit()
        older.commit()
        with t.transaction() as txn:
            txn.upsert(rows({"y8": 1}))
            txn.upsert(rows({"y8": 2}))
        found = [(each.action, each.requested) for each in t.timeline().commits[-3:]]
        assert found == [
            ("deltacommit", newer.instant),
            ("replacecommit", older.instant),
            ("replacecommit", txn.instant),
        ]


def test_log_files_that_others_have_appended_beside_stay_a_deltacommit(tmp_path):
    with table(tmp_path / "t") as t:
        t.upsert(rows({"x0": 1, "x1": 1}))
        theirs, mine = t.transaction(), t.transaction()
        theirs.upsert(rows({"x1": 2}))
        mine.upsert(rows({"x0": 2}))
        theirs.commit()
        mine.commit()
        assert {each.action for each in t.timeline().commits} == {"deltacommit"}
        assert content(t) == independent_content(tmp_path / "t") == {"x0": 2, "x1": 2}


def test_every_table_of_a_transaction_is_covered(tmp_path):
    env = FakeEnvironment(seed=1)
    with table(tmp_path / "s", env=env) as s, table(tmp_path / "t", env=env) as t:
        for each in (s, t):
            each.upsert(rows({"x0": 1}))
        with lakelatch.transaction(s, t) as several:
            for each in (s, t):
                _two_calls(several[each])
        for each in (s, t):
            cover, mine = each.timeline().commits[-2:]
            assert (cover.action, mine.action) == ("deltacommit", "replacecommit")
            assert cover.requested > mine.requested
            assert content(each) == {"x0": 8, "x9": 2}
            sound(each)


def test_a_cover_that_gets_no_answer_ends_what_it_was_for(tmp_path):
    with table(tmp_path / "t") as t:
        t.upsert(rows({"x0": 1}))
        txn = t.transaction()
        _two_calls(txn)
        unknown = lakelatch.CommitStateUnknownError("no answer")
        real = Landing.commit

        def commit(self: Landing) -> Any:
            if self._attempt.instant != txn.instant:
                raise unknown
            return real(self)

        with (
            mock.patch.object(Landing, "commit", commit),
            pytest.raises(StorageError, match="Nothing of ours landed") as told,
        ):
            txn.commit()
        assert told.value.instant == txn.instant
        assert content(t) == {"x0": 1}


def test_what_was_aborted_or_rolled_back_leaves_no_log_file(tmp_path):
    with table(tmp_path / "t") as t, lakelatch.open(str(tmp_path / "t"), env=t.env, writer="cleaner") as other:
        t.run(lambda txn: txn.upsert(rows({"x0": 1})))
        txn = t.transaction()
        txn.upsert(rows({"x0": 2}))
        assert files(t) == (1, 1)
        txn.abort()
        dead = t.transaction()
        dead.upsert(rows({"x0": 3}))
        begin = other.session.log.catch_up().open[dead.instant]
        assert other.session.cleaner.roll_back(begin, reason="a test asked for it")
        assert files(t) == (1, 0)
        assert content(t) == {"x0": 1}
        sound(t)


def test_an_unknown_type_of_table_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no table type 'mor'; known: copy_on_write, merge_on_read"):
        table(tmp_path / "other", type="mor")
    assert not (tmp_path / "other").exists()


def test_unique_constraints_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="kept on copy-on-write tables only"):
        table(tmp_path / "other", unique_constraints=["v"])
    assert not (tmp_path / "other").exists()
    with table(tmp_path / "t") as t, pytest.raises(ConfigError, match="kept on copy-on-write tables only"):
        t.change_settings(unique_constraints=["v"])


# --- who meets whom ----------------------------------------------------------------------------------------------


def two(t: lakelatch.Table, mine: Change, theirs: Change, *, larger: bool) -> dict[str, int] | str:
    """What is there after theirs and then ours has landed, with the ``larger`` or the smaller T; or "lost"."""
    first, second = t.transaction(), t.transaction()
    ours, other = (second, first) if larger else (first, second)
    do(ours, mine)
    do(other, theirs)
    assert other.commit()
    try:
        ours.commit()
    except ConflictError as e:
        return "lost" if e.retryable and not e.landed else "lost for good"
    return content(t)


BEGUN = {"x0": 5, "x1": 5}


@pytest.mark.parametrize(
    ("ordering", "mine", "theirs", "smaller", "larger"),
    [
        (None, ("upsert", {"x0": 6}), ("upsert", {"x1": 7}), {"x0": 6, "x1": 7}, {"x0": 6, "x1": 7}),
        (None, ("upsert", {"x0": 6}), ("upsert", {"x0": 7}), "lost", "lost"),
        (None, ("delete", ["x0"]), ("delete", ["x0"]), {"x1": 5}, {"x1": 5}),
        (None, ("delete", ["x0"]), ("upsert", {"x0": 7}), "lost", "lost"),
        (None, ("upsert", {"x0": 6}), ("delete", ["x0"]), "lost", "lost"),
        ("v", ("upsert", {"x0": 6}), ("upsert", {"x0": 7}), {"x0": 7, "x1": 5}, {"x0": 7, "x1": 5}),
        ("v", ("upsert", {"x0": 7}), ("upsert", {"x0": 6}), {"x0": 7, "x1": 5}, {"x0": 7, "x1": 5}),
        # A tie goes to the larger T for readers, and has to go to who lands later.
        ("v", ("upsert", {"x0": 7}), ("upsert", {"x0": 7}), "lost", {"x0": 7, "x1": 5}),
        ("v", ("upsert", {"x0": 9}), ("delete", ["x0"]), "lost", "lost"),
        ("v", ("delete", ["x0"]), ("upsert", {"x0": 9}), "lost", "lost"),
        # An older row changes nothing, but hides a delete of a smaller T from readers, who merge log files first.
        ("v", ("delete", ["x0"]), ("upsert", {"x0": 3}), "lost", {"x1": 5}),
        ("v", ("where", 6), ("upsert", {"x0": 9}), "lost", "lost"),
        (None, ("where", 6), ("upsert", {"x1": 5}), "lost", "lost"),
        # A condition that no row meets stages nothing: it has looked before theirs landed.
        (None, ("where", 5), ("upsert", {"x1": 4}), {"x0": 5, "x1": 4}, {"x0": 5, "x1": 4}),
        # What was read counts, whatever the ordering field says.
        ("v", ("set", 6), ("upsert", {"x0": 9}), "lost", "lost"),
        ("v", ("set", 6), ("set", 6), "lost", "lost"),
        ("v", ("set", 6), ("delete", ["x0"]), "lost", "lost"),
        ("v", ("set", 6), ("upsert", {"x2": 3}), "lost", {"x0": 50, "x1": 50, "x2": 30}),
        (None, ("set", 6), ("upsert", {"x2": 9}), {"x0": 50, "x1": 50, "x2": 9}, {"x0": 50, "x1": 50, "x2": 9}),
        ("v", ("merge", ["x0", "x2"]), ("upsert", {"x0": 9}), "lost", "lost"),
        ("v", ("merge", ["x0", "x2"]), ("upsert", {"x2": 9}), "lost", "lost"),
        ("v", ("merge", ["x0", "x2"]), ("upsert", {"x1": 9}), *[{"x0": 6, "x1": 9, "x2": 1}] * 2),
        (None, ("merge", ["x0"]), ("merge", ["x0"]), "lost", "lost"),
        (None, ("merge", ["x0"]), ("merge", ["x1"]), {"x0": 6, "x1": 6}, {"x0": 6, "x1": 6}),
        # A delete has no ordering value, so it takes a row that landed before it.
        ("v", ("upsert", {"x0": 9}), ("set", 6), {"x0": 50, "x1": 50}, {"x0": 50, "x1": 50}),
    ],
)
def test_two_at_once_on_one_file_group(tmp_path, ordering, mine, theirs, smaller, larger):
    for larger_t in (False, True):
        with table(tmp_path / f"{larger_t}", ordering_field=ordering) as t:
            t.run(lambda txn: txn.upsert(rows(BEGUN)))
            assert two(t, mine, theirs, larger=larger_t) == (larger if larger_t else smaller)
            assert content(t) == independent_content(tmp_path / f"{larger_t}")
            sound(t)


def test_an_append_and_a_compaction_that_was_planned_before_both_land(tmp_path):
    with table(tmp_path / "t") as t:
        t.run(lambda txn: txn.upsert(rows(BEGUN)))
        t.run(lambda txn: txn.upsert(rows({"x0": 6})))
        txn = t.transaction()
        txn.upsert(rows({"x1": 7}))
        assert t.compact()
        assert txn.commit()
        assert content(t) == independent_content(tmp_path / "t") == {"x0": 6, "x1": 7}
        assert t.compact()
        assert content(t) == independent_content(tmp_path / "t") == {"x0": 6, "x1": 7}
        t.clean(retain_commits=1)
        sound(t)


def test_an_append_onto_a_file_group_that_was_replaced_is_lost(tmp_path):
    with table(tmp_path / "t") as t:
        t.run(lambda txn: txn.upsert(rows(BEGUN)))
        txn = t.transaction()
        txn.upsert(rows({"x1": 7}))
        with t.transaction("insert_overwrite") as other:
            other.drop_file_groups(other.snapshot.file_slices("part=x"))
            other.overwrites("part=x")
        with pytest.raises(ConflictError):
            txn.commit()
        assert content(t) == {}
        sound(t)


# --- against a model -------------------------------------------------------------------------------------------------


def do(txn: lakelatch.Transaction, change: Change) -> None:
    kind, what = change
    if kind == "upsert":
        txn.upsert(rows(what))
    elif kind == "delete":
        txn.delete(keys(*what))
    elif kind == "set":
        txn.update_where([("v", "<", what)], {"v": lakelatch.sql("v * 10")})
    elif kind == "older":
        txn.update_where([("v", "<", what)], {"v": lakelatch.sql("v - 3")})
    elif kind == "merge":
        merge = txn.merge(rows(dict.fromkeys(what, 1))).when_matched("t.v > 6", delete=True)
        merge.when_matched(update={"v": lakelatch.sql("t.v + s.v")}).when_not_matched(insert="all").run()
    else:
        txn.delete_where([("v", "<", what)])


def some_change(rng: random.Random) -> Change:
    kind = rng.choice(["upsert", "upsert", "upsert", "delete", "where", "set", "older", "merge"])
    if kind == "upsert":
        return kind, {rng.choice(KEYS): rng.randint(0, 9) for _ in range(rng.randint(1, 3))}
    return (kind, rng.sample(KEYS, 2)) if kind in ("delete", "merge") else (kind, rng.randint(0, 3))


def applied(model: dict[str, int], known: set[str], changes: list[Change], ordering: str | None) -> None:
    """``known``: what was there when it began; a key that somebody wrote later may be deleted before that."""
    for kind, what in changes:
        if kind == "upsert":
            known |= what.keys()
            model.update({k: v for k, v in what.items() if not (ordering and k in model and v < model[k])})
        elif kind == "delete":
            for key in known.intersection(what):
                model.pop(key, None)
        elif kind in ("set", "older"):
            model.update({k: v * 10 if kind == "set" else v - 3 for k, v in model.items() if v < what})
        elif kind == "merge":
            for key in what:
                was = model.get(key)
                if was is not None and was > 6:
                    del model[key]
                else:
                    model[key] = 1 if was is None else was + 1
        else:
            for key in [k for k, v in model.items() if v < what]:
                del model[key]


@pytest.mark.parametrize("seed", some(range(24), 4))
def test_every_reader_sees_the_serial_order_of_commits(tmp_path, seed):
    """One to three transactions open at a time, of one or two changes, on every kind of table, with compactions between."""
    rng = random.Random(seed)
    ordering = (None, "v")[seed % 2]
    buckets = {"bucket_count": 2} if seed % 4 > 1 else {}
    model: dict[str, int] = {}
    with table(tmp_path / "t", ordering_field=ordering, table_version=8 + seed % 3 % 2, **buckets) as t:
        for _ in range(7):
            begun = []
            for _ in range(rng.randint(1, 3)):
                txn, changes = t.transaction(), [some_change(rng) for _ in range(rng.choice([1, 1, 2]))]
                known = set(model)
                try:
                    for each in changes:
                        do(txn, each)
                except InputError as e:
                    assert "in one transaction, and the table is merge-on-read" in str(e)  # noqa: PT017
                    txn.abort()
                else:
                    begun.append((txn, known, changes))
            rng.shuffle(begun)
            for txn, known, changes in begun:
                if compacts := rng.random() < 0.2:
                    t.compact()
                try:
                    if txn.commit():
                        applied(model, known, changes, ordering)
                except ConflictError:
                    assert len(begun) > 1 or compacts
                assert content(t) == independent_content(tmp_path / "t") == model
        t.clean(retain_commits=1)
        assert content(t) == model
        sound(t)


def test_what_was_read_is_appended_and_an_older_value_wants_a_base_file(tmp_path: Path) -> None:
    with table(tmp_path / "t", ordering_field="v") as t:
        t.insert(rows({"x0": 0, "x1": 1, "y0": 2}))
        done = t.update_where("v > 0", set={"v": lakelatch.sql("v + 1")})
        assert (done.updated, files(t)) == (2, (2, 2))
        done = t.merge(rows({"x0": 1, "x1": 1, "x9": 5})).when_matched("t.v > 1", delete=True).when_matched(
            update="all"
        ).when_not_matched(insert="all").run()  # fmt: skip
        assert (done.inserted, done.updated, done.deleted, files(t)) == (1, 1, 1, (3, 3))
        t.update_where("id = 'x0'", set={"v": -5})
        assert files(t) == (4, 3)
        assert content(t) == independent_content(tmp_path / "t") == {"x0": -5, "y0": 3, "x9": 5}
        with pytest.raises(InputError, match="given an older v after a change in one transaction"):
            t.run(lambda txn: (txn.update_where("true", {"v": 9}), txn.update_where("true", {"v": 8})))
        assert content(t) == {"x0": -5, "y0": 3, "x9": 5}
        t.compact()
        assert content(t) == independent_content(tmp_path / "t") == {"x0": -5, "y0": 3, "x9": 5}
        sound(t)


def test_a_base_file_that_an_older_value_wanted_is_made_again_where_others_have_appended(tmp_path: Path) -> None:
    """Evaluated again, none of the values is older; a log file would be left behind with the base file that was made."""
    with table(tmp_path / "t", ordering_field="v") as t:
        t.insert(rows({"x0": 8, "x1": 1, "x2": 5}))
        txn = t.transaction()
        txn.update_where("v <> 5", {"v": lakelatch.sql("10 - v")})
        t.delete(keys("x0"))
        assert txn.commit()
        assert content(t) == independent_content(tmp_path / "t") == {"x1": 9, "x2": 5}
        sound(t)


def test_the_other_verbs_see_log_files(tmp_path: Path) -> None:
    with table(tmp_path / "t") as t:
        t.insert(rows({"x0": 0, "x1": 1, "y0": 2}))
        t.upsert(rows({"x0": 5}))
        assert content(t) == {"x0": 5, "x1": 1, "y0": 2}
        t.overwrite(rows({"x7": 7}))
        assert content(t) == {"x7": 7, "y0": 2}
        t.delete_where("v = 7")
        t.insert(rows({"x3": 3}))
        assert content(t) == {"x3": 3, "y0": 2}
        t.overwrite_table([])
        assert content(t) == {}
        sound(t)


# --- rows in Avro, where a text orders them ---------------------------------------------------------------------------

FAR = {
    "day": pa.array([4_000_000, -800_000], pa.int32()).cast(pa.date32()),
    "at": pa.array([2**61, -(2**61)], pa.int64()).cast(pa.timestamp("us", "UTC")),
}
FAR["days"] = pa.ListArray.from_arrays([0, 1, 2], FAR["day"])
FAR["named"] = pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "l"]), FAR["at"])


def test_times_that_python_has_none_for_come_back_out_of_log_files(tmp_path: Path) -> None:
    """Of the years before 1 and after 9999: what a base file takes a log file takes too."""
    schema = pa.schema([("id", pa.string()), ("text", pa.string()), *((n, column.type) for n, column in FAR.items())])
    given = pa.table({"id": ["a", "b"], "text": ["1", "1"], **FAR}, schema=schema)
    with table(tmp_path / "t", schema=schema, partition_by=(), ordering_field="text") as made:
        made.upsert(given.slice(0, 1))
        for number in (1, 2):
            newer = pa.array([str(number)] * 2)
            made.upsert(given.set_column(1, "text", newer))
            read = made.read().to_arrow().sort_by("id").combine_chunks()
            assert read.set_column(1, "text", newer).equals(given.set_column(1, "text", newer).cast(read.schema)), (
                number
            )
        assert files(made)[1]
        assert made.compact()
        read = made.read().to_arrow().sort_by("id").combine_chunks()
        assert read.drop_columns(["text"]).equals(given.drop_columns(["text"]).cast(read.drop_columns(["text"]).schema))
        sound(made)


def test_such_times_order_rows_of_writers_side_by_side(tmp_path: Path) -> None:
    """The rows of both are compared before the second one lands."""
    moment = pa.timestamp("us", "UTC")
    schema = pa.schema([("id", pa.string()), ("at", moment), ("v", pa.int64())])

    def newer(by: int, v: int) -> pa.Table:
        return pa.table([["a", "b"], pa.array([2**60 + by, -(2**60) + by], moment), [v, v]], schema=schema)

    with table(tmp_path / "t", schema=schema, partition_by=(), ordering_field="at") as made:
        made.upsert(newer(0, 0))
        for by in (2, 1):  # the late one is the newer one, and then the older one
            late = made.transaction()
            late.upsert(newer(3 * by, 10 * by))
            made.upsert(newer(4, 5))
            late.commit()
            assert content(made) == {"a": 20, "b": 20}, by
        late = made.transaction()
        late.upsert(newer(9, 1))
        made.upsert(newer(9, 2))
        with pytest.raises(ConflictError, match="same rows"):
            late.commit()


def test_rows_that_avro_does_not_hold_leave_nothing(tmp_path: Path) -> None:
    twice = pa.MapArray.from_arrays([0, 2], pa.array(["k", "k"]), pa.array([1, 2]))
    schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("v", twice.type)])
    with table(tmp_path / "t", schema=schema, partition_by=(), ordering_field="text") as made:
        made.upsert(pa.table({"id": ["a"], "text": ["1"], "v": pa.nulls(1, twice.type)}, schema=schema))
        there, commits = list_data_files(made.store), len(made.commits())
        with pytest.raises(InputError, match="key twice"):
            made.upsert(pa.table({"id": ["a"], "text": ["2"], "v": twice}, schema=schema))
        assert (list_data_files(made.store), len(made.commits())) == (there, commits)
        assert made.read().to_pylist() == [{"id": "a", "text": "1", "v": None}]
        sound(made)
