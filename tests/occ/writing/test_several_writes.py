"""Several writes in one transaction: each applies to what those before it have staged, in any order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import CommitError, ConflictError, ConstraintError, InputError, StorageError
from lakelatch.occ.check.check import check
from lakelatch.occ.liveness.markers import list_markers
from lakelatch.occ.log.publisher import metadata_of
from lakelatch.occ.table.table import Table
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.testing.faults import On, Refuse

from ...thorough import some
from ..world import BEGUN, SCHEMA, add, check_sound, content, independent_content, insert, overwrite, rows, writes

Model = dict[tuple[str, str], int]  # partition value and key -> v
Write = Callable[[Transaction, Model], None]


def keys(part: str, *ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "part": [part] * len(ids)})


def upsert(part: str, **values: int) -> Write:
    def write(txn: Transaction, model: Model) -> None:
        txn.upsert(rows(part, values))
        model.update({(part, key): v for key, v in values.items()})

    return write


def delete(part: str, *ids: str) -> Write:
    def write(txn: Transaction, model: Model) -> None:
        txn.delete(keys(part, *ids))
        for key in ids:
            model.pop((part, key), None)

    return write


def delete_everywhere(*ids: str) -> Write:
    def write(txn: Transaction, model: Model) -> None:
        txn.delete(pa.table({"id": list(ids)}))
        for each in [each for each in model if each[1] in ids]:
            del model[each]

    return write


def delete_where(op: str, value: int) -> Write:
    meets = {"=": int.__eq__, ">": int.__gt__, "<": int.__lt__}[op]

    def write(txn: Transaction, model: Model) -> None:
        txn.delete_where([("v", op, value)])
        for each in [each for each, v in model.items() if meets(v, value)]:
            del model[each]

    return write


def create(part: str, **values: int) -> Write:
    """A new file; its keys must be new, which nobody looks for."""

    def write(txn: Transaction, model: Model) -> None:
        txn.new_file(partition_of(txn, part)).write(rows(part, values))
        model.update({(part, key): v for key, v in values.items()})

    return write


def add_to_all(delta: int) -> Write:
    """Reads and replaces every file group that there is by now."""

    def write(txn: Transaction, model: Model) -> None:
        for group in txn.current.file_slices():
            old = txn.read_slice(group)
            txn.rewrite(group).write(
                old.set_column(2, "v", pa.array([v + delta for v in old["v"].to_pylist()], pa.int64()))
            )
        for each in model:
            model[each] += delta

    return write


def partition_of(txn: Transaction, part: str) -> str:
    return f"part={part}" if txn.session.config.partition_fields else ""


def end_sound(world, expected: dict[str, int]) -> None:
    with world.fresh() as table:
        check_sound(table)
        assert content(table) == expected
        assert not check(table.store, deep=True).findings
        assert independent_content(world.folder) == expected


def held(table: Table) -> Model:
    read = table.read().to_arrow().to_pydict()
    found = list(zip(read["part"], read["id"], read["v"], strict=True))
    model = {(part, key): v for part, key, v in found}
    assert len(model) == len(found), f"a key stands twice: {sorted(found)}"
    return model


# Keys of the table begin with a and b, each in a file of its own; those that a file of ours holds with n.
KINDS: dict[str, Write] = {
    "upsert": upsert("a", a0=5, n1=5),
    "upsert-elsewhere": upsert("b", b1=7, n3=7),
    "delete": delete("a", "a0"),
    "delete-two": delete("a", "a1", "n1"),
    "delete-everywhere": delete_everywhere("b1", "n2", "a1"),
    "delete-where": delete_where("=", 5),
    "delete-all-by-condition": delete_where(">", -1),
    "create": create("b", n2=5),
    "replace": add_to_all(5),
}
TABLES = {
    "simple": {},
    "bucket_count": {"bucket_count": 2},
    "one-bucket": {"bucket_count": 1},
    "unpartitioned": {"partition_by": None},
}


@pytest.fixture(params=TABLES)
def table(request, folder):
    options = {key: value for key, value in ({"partition_by": "part"} | TABLES[request.param]).items() if value}
    made = lakelatch.create(str(folder / "table"), record_key="id", schema=SCHEMA, **options)
    for part in ("a", "b"):
        with made.transaction("insert") as txn:
            txn.upsert(rows(part, {f"{part}0": 0, f"{part}1": 1}))
    yield made
    made.close()


BEGUN_MODEL: Model = {(part, f"{part}{n}"): n for part in "ab" for n in (0, 1)}


THREE = ("upsert", "delete-two", "delete-where", "create", "replace")


@pytest.mark.parametrize(
    "kinds", some([*product(KINDS, repeat=2), *permutations(THREE, 3)], 14), ids=lambda kinds: "+".join(kinds)
)
def test_writes_apply_one_after_the_other(table, kinds):
    if "create" in kinds and table.settings.bucket_count is not None:
        pytest.skip("such a file names no bucket")
    if kinds.count("create") > 1:
        pytest.skip("such a key would stand twice")
    model = dict(BEGUN_MODEL)
    with table.transaction() as txn:
        for kind in kinds:
            KINDS[kind](txn, model)
    assert held(table) == model
    check_sound(table)
    assert not check(table.store, deep=True).findings


def test_the_slices_of_the_snapshot_name_what_became_of_them(world):
    """Who reads and replaces them after another write builds on that write."""
    table = world.writer("a").table
    with table.transaction() as txn:
        slices = txn.snapshot.file_slices("part=a")
        txn.upsert(rows("a", {"a0": 5, "n": 5}))
        add(txn, "a")
        add(txn, "a")
        assert [row["v"] for row in txn.read_slice(slices[0]).to_pylist()] == [7, 2, 7]
    end_sound(world, BEGUN | {"a0": 7, "a1": 2, "n": 7})


def test_a_file_that_a_later_write_supersedes_is_gone_with_its_marker_and_in_no_instant(world):
    table = world.writer("a").table
    txn = table.transaction()
    txn.upsert(rows("a", {"a0": 5}))
    (first,) = txn.files
    txn.upsert(rows("a", {"a0": 6, "n": 6}))
    txn.delete(keys("b", "b0"))
    second, _other = txn.files
    late, before = (world.folder / first.path).read_bytes(), txn.snapshot.get((first.partition, first.file_id))
    landing: list[str] = []

    def publish(*args):
        landing.extend(marker.path for marker in list_markers(table.store, txn.instant))
        assert not (world.folder / first.path).exists()
        return log_publish(*args)

    log_publish = txn._landing.publish
    txn._landing.publish = publish
    txn.commit()
    assert sorted(landing) == sorted(stat.path for stat in txn.files)
    (commit,) = [each for each in writes(table) if each.instant == txn.instant]
    metadata = metadata_of(table.store, commit)
    assert first.path not in {stat.path for stat in metadata.stats}
    assert before is not None
    assert metadata.replaced == {"part=a": (before.file_id,)}
    assert commit.action == "replacecommit"
    assert (second.num_inserts, second.num_updates, second.num_deletes) == (1, 1, 0), "since the begin"
    expected = {"a0": 6, "a1": 0, "b1": 0, "n": 6}
    end_sound(world, expected)
    # A put that arrives when all is over: two files of one file group and T would make every reader refuse.
    (world.folder / first.path).write_bytes(late)
    assert world.content() == expected == independent_content(world.folder)


def test_writes_that_do_not_meet_leave_a_plain_commit(world):
    table = world.writer("a").table
    with table.transaction() as txn:
        txn.upsert(rows("a", {"a0": 5}))
        txn.delete(keys("b", "b0"))
    assert writes(table)[-1].action == "commit"
    assert all(stat.prev_commit != "null" for stat in txn.files)


@pytest.mark.parametrize("bucket_count", [None, 1])
def test_what_was_inserted_and_deleted_again_leaves_the_counts_as_they_were(make_world, bucket_count):
    world = make_world(bucket_count=bucket_count) if bucket_count else make_world()
    table = world.writer("a").table
    if bucket_count:
        with table.transaction() as txn:
            txn.upsert(rows("a", {"a0": 0, "a1": 0}))
    with table.transaction() as txn:
        txn.upsert(rows("a", {"n1": 1, "n2": 2, "a0": 9}))
        txn.delete(keys("a", "n1", "a1"))
        txn.upsert(rows("a", {"a1": 3}))
    (stat,) = txn.files
    assert (stat.num_writes, stat.num_inserts, stat.num_updates, stat.num_deletes) == (3, 1, 2, 0)


def test_a_file_that_is_closed_by_the_next_write_takes_no_more_rows(world):
    txn = world.writer("a").table.transaction()
    file = txn.new_file("part=a")
    file.write(rows("a", {"n": 1}))
    txn.delete(keys("a", "n"))
    with pytest.raises(InputError, match="is closed"):
        file.write(rows("a", {"m": 1}))


def test_files_that_are_open_side_by_side_stay_open(world):
    with world.writer("a").table.transaction("insert") as txn:
        files = [txn.new_file(f"part={part}") for part in "ab"]
        for number in range(2):
            for part, file in zip("ab", files, strict=True):
                file.write(rows(part, {f"n{part}{number}": number}))
    end_sound(world, BEGUN | {"na0": 0, "na1": 1, "nb0": 0, "nb1": 1})


def test_nothing_of_a_transaction_lands_of_which_a_write_has_failed_half_way(world):
    writer = world.writer("a")
    txn = writer.table.transaction()
    txn.upsert(rows("b", {"b0": 5}))
    writer.store.add(Refuse(On("create", ".parquet")))
    with pytest.raises(StorageError):
        txn.upsert(rows("a", {"a0": 5}))
    writer.store.reset()
    txn.upsert(rows("a", {"a0": 6}))
    with pytest.raises(CommitError, match="failed half-way"):
        txn.commit()
    end_sound(world, BEGUN)


def test_bad_rows_that_were_refused_before_any_file_do_not_end_the_transaction(world):
    with world.writer("a").table.transaction() as txn:
        txn.upsert(rows("a", {"a0": 5}))
        with pytest.raises(InputError):
            txn.upsert(pa.table({"id": ["a0"], "part": ["a"], "v": ["text"]}))
    end_sound(world, BEGUN | {"a0": 5})


def test_a_new_column_of_one_write_is_there_in_the_next(world):
    table = world.writer("a").table
    with table.transaction() as txn:
        txn.upsert(rows("a", {"a0": 5}).append_column("w", pa.array([1], pa.int64())), new_columns="add")
        txn.delete_where([("w", "=", 1)])
        txn.upsert(rows("a", {"a1": 6}), missing="null")
    assert table.read().to_arrow().column_names == ["id", "part", "v", "w"]
    end_sound(world, {key: v for key, v in BEGUN.items() if key != "a0"} | {"a1": 6})


# --- beside others -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bucket_count", [None, 1])
def test_what_several_writes_changed_is_merged_again_as_one(make_world, bucket_count):
    world = make_world(bucket_count=bucket_count, empty=True) if bucket_count else make_world()
    a, b = world.writer("a"), world.writer("b")
    if bucket_count:
        with a.table.transaction() as txn:
            for part in "ab":
                txn.upsert(rows(part, {f"{part}0": 0, f"{part}1": 0}))
    ours, winner = a.table.transaction(), b.table.transaction()
    ours.upsert(rows("a", {"a0": 5, "n1": 5, "n2": 5}))
    ours.delete(keys("a", "n1"))
    ours.upsert(rows("a", {"a0": 6}))
    winner.upsert(rows("a", {"a1": 9, "m": 9}))
    winner.delete(keys("b", "b0"))
    winner.commit()
    ours.commit()
    end_sound(world, {"a0": 6, "a1": 9, "b1": 0, "n2": 5, "m": 9})


@pytest.mark.parametrize("theirs", [{"a0": 7}, {"n2": 7}])
def test_a_row_that_an_earlier_write_changed_is_a_conflict_as_any(world, theirs):
    a, b = world.writer("a"), world.writer("b")
    ours, winner = a.table.transaction(), b.table.transaction()
    ours.upsert(rows("a", {"a0": 5, "n2": 5}))
    ours.upsert(rows("a", {"a1": 6}))
    winner.upsert(rows("a", theirs))
    winner.commit()
    with pytest.raises(ConflictError):
        ours.commit()
    end_sound(world, BEGUN | theirs)


def test_a_new_key_of_an_earlier_write_is_known_to_the_commit(world):
    """It is in a file that the second write has made again, in which it is no new key."""
    a, b = world.writer("a"), world.writer("b")
    ours, winner = a.table.transaction(), b.table.transaction("insert")
    ours.upsert(rows("a", {"n": 5}))
    ours.upsert(rows("a", {"a0": 6}))
    insert(winner, "a", "n")
    winner.commit()
    with pytest.raises(ConflictError, match="the same new key"):
        ours.commit()


def test_unique_values_of_all_writes_count_and_those_taken_back_do_not(make_world):
    world = make_world(unique_constraints=[["v"]], empty=True)
    a, b = world.writer("a"), world.writer("b")
    with a.table.transaction() as txn:
        txn.upsert(rows("a", {"a0": 1}))
        txn.upsert(rows("a", {"a1": 2, "a0": 3}))
        txn.upsert(rows("b", {"b0": 1}))
    end_sound(world, {"a0": 3, "a1": 2, "b0": 1})
    txn = a.table.transaction()
    txn.upsert(rows("a", {"n": 2}))
    txn.upsert(rows("a", {"m": 8}))
    with pytest.raises(ConstraintError):
        txn.commit()
    ours, winner = a.table.transaction(), b.table.transaction()
    ours.upsert(rows("a", {"n": 5}))
    ours.upsert(rows("a", {"m": 6}))
    winner.upsert(rows("b", {"b1": 5}))
    winner.commit()
    with pytest.raises(ConflictError, match="unique"):
        ours.commit()


def _deleted_and_written_again(txn: Transaction) -> None:
    txn.delete(keys("a", "a0"))
    txn.upsert(rows("a", {"a0": 1}))


def _replaced(txn: Transaction) -> None:
    (group,) = txn.snapshot.file_slices("part=a")
    held = txn.read_slice(group, meta=True)
    mine = dict.fromkeys(held.column_names) | {"id": "a0", "part": "a", "v": 1}
    kept = [mine if row["id"] == "a0" else row for row in held.to_pylist()]
    txn.rewrite(group).write(pa.Table.from_pylist(kept, schema=held.schema))
    txn.merge_on_conflict()


@pytest.mark.parametrize("write", [_deleted_and_written_again, _replaced])
@pytest.mark.parametrize(("theirs", "stands"), [({"a1": 9}, 1), ({"a0": 7}, 7)], ids=["another-row", "the-same-row"])
def test_an_ordering_field_settles_what_both_changed_and_nothing_else(make_world, write, theirs, stands):
    """The row that was there is newer, and ours has put its own in its place all the same."""
    world = make_world(ordering_field="v", empty=True)
    a, b = world.writer("a"), world.writer("b")
    with a.table.transaction() as txn:
        txn.upsert(rows("a", {"a0": 5, "a1": 5}))
    ours, winner = a.table.transaction(), b.table.transaction()
    write(ours)
    winner.upsert(rows("a", theirs))
    winner.commit()
    ours.commit()
    end_sound(world, {"a0": stands, "a1": theirs.get("a1", 5)})


def test_several_conditions_are_evaluated_again_together(world):
    """Each wrote a file of its own in the place of the same slice."""
    a, b = world.writer("a"), world.writer("b")
    ours = a.table.transaction("delete")
    ours.delete_where([("id", "=", "a0")])
    ours.delete_where([("v", ">", 5)], partition="part=a")
    with b.table.transaction() as winner:
        winner.upsert(rows("a", {"a1": 9, "n": 3}))
        winner.upsert(rows("b", {"b0": 9}))
    ours.commit()
    end_sound(world, {"b0": 9, "b1": 0, "n": 3})


@pytest.mark.parametrize("first", ["condition", "file"])
def test_a_condition_beside_another_write_is_not_evaluated_again_in_its_place(world, first):
    """The file that was replaced would be lost: a rebase by conditions makes its files from what others left."""
    a, b = world.writer("a"), world.writer("b")

    def condition(txn: Transaction) -> None:
        txn.delete_where([("v", ">", 100)], partition="part=b")

    ours = a.table.transaction()
    for write in (
        (condition, lambda txn: add(txn, "a", 5)) if first == "condition" else (lambda txn: add(txn, "a", 5), condition)
    ):
        write(ours)
    b.add("a", 1)
    with pytest.raises(ConflictError):
        ours.commit()


# --- what the operation says -------------------------------------------------------------------------------------


MERGES: dict[str, Callable[[Transaction], None]] = {
    "upsert": lambda txn: txn.upsert(rows("a", {"a0": 5})),
    "delete": lambda txn: txn.delete(keys("a", "a0")),
    "delete_where": lambda txn: txn.delete_where([("v", "=", 0)]),
    "delete_all": lambda txn: txn.delete_all(),
}


@pytest.mark.parametrize("operation", ["insert_overwrite", "insert_overwrite_table", "delete_partition"])
@pytest.mark.parametrize("merge", MERGES)
def test_a_transaction_that_replaces_rows_merges_none(world, operation, merge):
    table = world.writer("a").table
    with table.transaction(operation) as txn:
        with pytest.raises(InputError, match="nothing was written"):
            MERGES[merge](txn)
        assert not list_markers(table.store, txn.instant)
    end_sound(world, BEGUN)


def test_delete_partition_writes_no_rows(world):
    table = world.writer("a").table
    with table.transaction("delete_partition") as txn:
        with pytest.raises(InputError, match="writes no rows"):
            txn.new_file("part=a")
        with pytest.raises(InputError, match="writes no rows"):
            txn.rewrite(txn.snapshot.file_slices()[0])
        overwrite(txn, "a")
    end_sound(world, {"b0": 0, "b1": 0})


def test_what_a_transaction_has_written_can_be_dropped_by_it(world):
    """Also by the slices of its snapshot."""
    table = world.writer("a").table
    with table.transaction("insert_overwrite") as txn:
        add(txn, "a", 5)
        add(txn, "b", 5)
        insert(txn, "a", "n")
        overwrite(txn, "a", "m", v=3)
        with pytest.raises(InputError, match="was dropped"):
            txn.rewrite(txn.snapshot.file_slices("part=a")[0])
        txn.drop_file_groups(txn.current.file_slices("part=b"))
        txn.overwrites("part=b")
    end_sound(world, {"n": 1, "m": 3})


# --- no condition ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["", " ", [], (), None, "v =", [[]], [()]])
def test_a_deletion_without_a_condition_is_refused(world, where):
    table = world.writer("a").table
    with table.transaction() as txn:
        with pytest.raises(InputError):
            txn.delete_where(where)
        if isinstance(where, str):
            with pytest.raises(InputError):
                txn.depends_on(None, where=where)
        assert not list_markers(table.store, txn.instant)
    end_sound(world, BEGUN)


@pytest.mark.parametrize("where", [("f", "=", 0.0), ("f", "in", (0.0, 7.0)), ("f", "in", (-0.0,)), ("f", ">=", 0.0)])
def test_zero_is_zero_whatever_its_sign_and_the_operator(folder, where):
    schema = pa.schema([("id", pa.string()), ("f", pa.float64())])
    with lakelatch.create(str(folder / "table"), record_key="id", schema=schema) as table:
        with table.transaction() as txn:
            txn.upsert(pa.table({"id": ["minus", "plus", "less", "null"], "f": [-0.0, 0.0, -1.0, None]}, schema=schema))
        with table.transaction() as txn:
            txn.delete_where([where])
        assert table.read().to_arrow()["id"].to_pylist() == ["less", "null"]


@pytest.mark.parametrize("partition", [None, "part=a"])
def test_to_delete_all_is_a_word_of_its_own(world, partition):
    a, b = world.writer("a"), world.writer("b")
    txn = a.table.transaction("delete")
    txn.delete_all(partition=partition)
    b.insert("a", "n")  # also what others add meanwhile
    txn.commit()
    end_sound(world, {} if partition is None else {"b0": 0, "b1": 0})
