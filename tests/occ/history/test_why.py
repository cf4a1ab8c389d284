"""`Table.why`: for every reason to lose a real loss, and what is told of it afterwards by somebody who was not there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.history import Account

Loser = lakelatch.Transaction
URL = "table"


def rows(*ids: str, day: str = "a", v: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "day": [day] * len(ids), "v": [v] * len(ids)})


def make(folder: Path, *, ordering_field: str | None = None, **settings) -> lakelatch.Table:
    """Partition *a* with the file group {a0, a1, a2, a3}, partition *b* with {b0}."""
    table = lakelatch.create(
        str(folder / URL),
        record_key="id",
        partition_by="day",
        ordering_field=ordering_field,
        writer="founder",
        **settings,
    )
    with table.transaction("insert") as txn:
        txn.upsert(rows("a0", "a1", "a2", "a3", v=0))
        txn.upsert(rows("b0", day="b", v=0))
    return table


def beaten(table: lakelatch.Table, loser: Loser, kind: type[Exception] = lakelatch.ConflictError) -> Account:
    """The loser commits, and a handle of somebody else is asked why."""
    with pytest.raises(kind) as told:
        loser.commit()
    with lakelatch.open(table.url) as other:
        account = other.why(loser.instant)
    assert account.outcome == "lost"
    assert account.rule == told.value.rule
    if told.value.winner:
        assert account.winner is not None
        assert (account.winner.instant, account.winner.operation) == (told.value.winner, told.value.winner_op)
    return account


def ways(account: Account) -> dict[str, str]:
    return {way.change: way.lands for way in account.ways}


def whole(txn: Loser, partition: str = "day=a", v: int = 2) -> None:
    """Every row of a partition, by hand."""
    for group in txn.snapshot.file_slices(partition):
        old = txn.read_slice(group)
        txn.rewrite(group).write(old.set_column(2, "v", pa.array([v] * old.num_rows)))


# --- what landed was in the way --------------------------------------------------------------------------------------


def test_the_same_file_group_with_what_it_cost_and_how_many_rows_both_changed(folder):
    with make(folder) as table:
        loser = table.transaction()
        with table.transaction() as winner:
            whole(winner)
        whole(loser)
        account = beaten(table, loser)
        assert (account.files, account.rows, account.operation, account.writer) == (1, 4, "UPSERT", "founder")
        assert account.bytes > 0
        assert account.took_s >= 0
        (met,) = account.overlap
        assert (met.ours.updates, met.theirs.updates, met.rows_min, met.rows_max) == (4, 4, 4, 4)
        assert account.wrote == (met.group,)
        assert ways(account) == {"ordering_field": "both", "priority": "ours", "reservation": "ours", "order": "both"}


def test_different_rows_of_one_file_group_could_have_been_merged_again(folder):
    with make(folder, rebase=False) as table:
        loser = table.transaction()
        with table.transaction() as winner:
            winner.upsert(rows("a0"))
        loser.upsert(rows("a1"))
        account = beaten(table, loser)
        (met,) = account.overlap
        assert (met.rows_min, met.rows_max) == (0, 1)
        assert account.ways[0].change == "merging"
        assert account.ways[0].value == "rebase=true"
    # And so it is.
    with lakelatch.open(table.url) as table:
        table.change_settings(rebase=True)
        again = table.transaction()
        with table.transaction() as winner:
            winner.upsert(rows("a0", v=7))
        again.upsert(rows("a1", v=8))
        assert again.commit() is not None
        account = table.why(again.instant)
        assert account.outcome == "landed"
        assert [each.instant for each in account.merged_over] == [winner.instant]


@pytest.mark.parametrize("ordering_field", [None, "v"])
def test_the_same_row_would_both_have_landed_with_an_ordering_field(folder, ordering_field):
    with make(folder, ordering_field=ordering_field) as table:
        txn = table.transaction()
        with table.transaction() as winner:
            winner.upsert(rows("a0", v=5))
        txn.upsert(rows("a0", "a1", v=6))
        if ordering_field:
            assert txn.commit() is not None
            return
        account = beaten(table, txn)
        assert account.rule == "both changed the same row"
        assert (account.overlap[0].rows_min, account.overlap[0].rows_max) == (1, 1)
        assert account.rounds == 1
        assert ways(account)["ordering_field"] == "both"


def test_the_same_bucket(folder):
    with lakelatch.create(str(folder / URL), record_key="id", partition_by="day", bucket_count=1) as table:
        loser = table.transaction()
        for txn, name in ((table.transaction(), "x"), (loser, "y")):
            txn.new_file("day=a", file_id=f"00000000-{name}").write(rows(name))
            if txn is not loser:
                txn.commit()
        account = beaten(table, loser)
        assert account.rule == "both changed the same bucket"
        assert ways(account)["order"] == "both"


def test_an_overwrite_met_new_rows_in_its_partition(folder):
    with make(folder) as table:
        loser = table.transaction("insert_overwrite")
        with table.transaction("insert") as winner:
            winner.new_file("day=a").write(rows("a9"))
        loser.overwrites("day=a")
        loser.drop_file_groups(loser.snapshot.file_slices("day=a"))
        loser.new_file("day=a").write(rows("a0"))
        account = beaten(table, loser)
        assert "all of partition day=a" in account.wrote
        assert "merging" not in ways(account)
        assert ways(account)["order"] == "both"


def test_two_overwrites_of_one_empty_partition(folder):
    with make(folder) as table:
        loser, winner = table.transaction("insert_overwrite"), table.transaction("insert_overwrite")
        for txn in (winner, loser):
            txn.overwrites("day=new")
            txn.new_file("day=new").write(rows("n", day="new"))
        winner.commit()
        account = beaten(table, loser)
        assert account.rule == "it wrote into a partition that ours overwrites"
        assert ways(account)["order"] == "both"


def test_what_it_had_read_was_overwritten(folder):
    with make(folder) as table:
        loser = table.transaction()
        with table.transaction("insert_overwrite") as winner:
            winner.overwrites("day=a")
            winner.drop_file_groups(winner.snapshot.file_slices("day=a"))
            winner.new_file("day=a").write(rows("a9"))
        loser.new_file("day=a").write(rows("a7"))
        account = beaten(table, loser)
        assert account.rule == "it overwrote a partition that ours had read"
        assert ways(account)["order"] == "both"


def test_the_same_new_key_would_have_been_an_upsert(folder):
    with make(folder) as table:
        loser = table.transaction("insert")
        with table.transaction("insert") as winner:
            winner.new_file("day=a").write(rows("new"))
        loser.new_file("day=a").write(rows("new"))
        account = beaten(table, loser, lakelatch.DuplicateKeyError)
        assert account.read == ("nothing",)
        assert account.ways[-1].change == "operation"
        assert account.ways[-1].value == "upsert"


def test_a_value_of_a_unique_constraint(folder):
    with lakelatch.create(str(folder / URL), record_key="id", partition_by="day", unique_constraints=["v"]) as table:
        loser = table.transaction()
        with table.transaction() as winner:
            winner.upsert(rows("x", v=7))
        loser.upsert(rows("y", day="b", v=7))
        account = beaten(table, loser)
        assert "unique" in account.rule
        assert account.ways[-1].change == "order"


def test_where_its_condition_was_evaluated(folder):
    with make(folder) as table:
        loser = table.transaction()
        loser.depends_on("day=b")
        with table.transaction() as winner:
            whole(winner, "day=b")
        whole(loser, "day=a")
        account = beaten(table, loser)
        assert account.read[0] == "partition day=b, where its condition was evaluated"
        assert [each.group for each in account.overlap] == [str(g.group) for g in winner.snapshot.file_slices("day=b")]
        assert "merging" in ways(account)


@pytest.mark.parametrize("of_the_table", [False, True])
def test_what_it_had_read_under_a_stronger_isolation(folder, of_the_table):
    level = "serializable"
    with make(folder, **({"isolation": level} if of_the_table else {})) as table:
        loser = table.transaction(isolation=None if of_the_table else level)
        loser.mark_scanned("day=b", where=[("v", "<", 5)])
        with table.transaction("insert") as winner:
            winner.new_file("day=b").write(rows("b9", day="b"))
        whole(loser)
        account = beaten(table, loser)
        assert account.isolation == level
        assert "partition day=b, where v < 5" in account.read
        way = next(each for each in account.ways if each.change == "isolation")
        assert way.value == "write-serializable"  # the winner was a blind insert
        assert ("on the table" in way.how) == of_the_table
    # Under that level both land.
    with lakelatch.open(table.url) as table:
        if of_the_table:
            table.change_settings(isolation=way.value)
        txn = table.transaction(isolation=way.value)
        txn.mark_scanned("day=b", where=[("v", "<", 5)])
        with table.transaction("insert") as winner:
            winner.new_file("day=b").write(rows("b10", day="b"))
        whole(txn)
        assert txn.commit() is not None


def test_a_clustering_landed_first_and_would_have_waited_under_another_strategy(folder):
    with make(folder) as table:
        with table.transaction("insert") as txn:
            txn.new_file("day=a").write(rows("a8"))
        loser = table.transaction()
        whole(loser)
        with lakelatch.open(table.url, writer="services") as other:
            assert other.cluster(partitions=["day=a"]) is not None
        account = beaten(table, loser)
        assert account.winner.operation == "CLUSTER"
        assert ways(account)["strategy"] == "ours"
        (way,) = (each for each in account.ways if each.change == "strategy")
        assert way.value == "prefer-writer"


def test_a_restore_stands_alone(folder):
    with make(folder) as table:
        first = table.timeline().commits[-1].requested
        with table.transaction() as txn:
            whole(txn)
        loser = table.transaction()
        loser.new_file("day=c").write(rows("c", day="c"))
        table.restore(first)
        account = beaten(table, loser)
        assert account.winner.operation == "RESTORE"
        assert ways(account) == {"order": "both"}


def test_what_another_stream_landed_after_the_winner_was_in_nobodys_way(folder):
    schema = pa.schema([("id", pa.string()), *((name, pa.int64()) for name in ("a", "a_at", "b", "b_at"))])
    how = {"type": "merge_on_read", "table_version": 9, "bucket_count": 1}
    with lakelatch.create(str(folder / URL), record_key="id", schema=schema, **how) as table:
        table.stream("a", columns=["a"], ordering="a_at")
        other = table.stream("b", columns=["b"], ordering="b_at")
        other.upsert([{"id": "1", "b": 1, "b_at": 1}])
        first = table.timeline().commits[-1].requested
        other.upsert([{"id": "1", "b": 2, "b_at": 2}])
        loser = table.transaction()
        loser.stream("a").upsert([{"id": "1", "a": 1, "a_at": 1}])
        table.restore(first)
        other.upsert([{"id": "1", "b": 3, "b_at": 3}])
        account = beaten(table, loser)
        (way,) = account.ways
        assert (way.change, way.value) == ("order", f"after {account.winner.instant}")


def test_new_settings_have_no_winner(folder):
    with make(folder) as table:
        loser = table.transaction()
        loser.new_file("day=a").write(rows("a7", v=9))
        table.change_settings(unique_constraints=["id"])
        account = beaten(table, loser)
        assert account.winner is None
        assert not account.ways
        assert "settings" in account.notes[0]


# --- what was pending was in the way -----------------------------------------------------------------------------------


def test_it_waited_in_vain_for_a_reservation(folder):
    with make(folder, yield_wait_s=0.05) as table:
        holder = table.transaction(reserve=["day=a"])
        loser = table.transaction()
        whole(loser)
        account = beaten(table, loser)
        holder.abort()
        assert account.winner.completion == ""
        assert "has reserved partition day=a" in account.rule
        assert ways(account)["yield_wait_s"] == "both"


def test_it_gave_way_early(folder):
    with make(folder, early_conflict_detection="direct", rebase=False) as table:
        winner = table.transaction()
        winner.claim_turn(winner.snapshot.file_slices("day=a"))
        winner.upsert(rows("a0"))
        loser = table.transaction()
        with pytest.raises(lakelatch.ConflictError), loser:
            loser.upsert(rows("a1"))
        winner.commit()
        account = table.why(loser.instant)
        assert account.outcome == "lost"
        assert account.winner.instant == winner.instant
        assert ways(account)["early_conflict_detection"] == "ours"


# --- other ends ------------------------------------------------------------------------------------------------------


def test_one_that_landed_after_losing_tells_its_lost_attempts(folder):
    with make(folder) as table, lakelatch.open(table.url, writer="rival") as rival:
        tries = []

        def work(txn: Loser) -> None:
            tries.append(txn.instant)
            whole(txn)
            if len(tries) == 1:
                with rival.transaction() as other:
                    whole(other, v=3)

        result = table.run(work)
        account = table.why(result.commit.instant)
        assert account.outcome == "landed"
        (first,) = account.attempts
        assert (first.instant, first.outcome, first.winner.writer) == (tries[0], "lost", "rival")
        assert first.attempts == ()


def test_one_that_was_rolled_back_tells_by_whom_and_why(world):
    writer = world.writer("dead")
    txn = writer.begin_add("a")
    writer.die()
    table = world.writer("heir").table
    table.rollback_failed_writes()
    account = table.why(txn.instant)
    assert account.outcome == "rolled back"
    assert account.ended_by
    assert account.rule
    assert "heartbeat_timeout_s" in account.notes[0]


def test_an_abort_has_its_reason_and_no_winner(folder):
    with make(folder) as table:
        with pytest.raises(ZeroDivisionError), table.transaction() as txn:
            raise ZeroDivisionError
        account = table.why(txn.instant)
        assert (account.outcome, account.winner, account.ways) == ("aborted", None, ())
        assert account.rule == "ZeroDivisionError in the block"


def test_one_that_is_open_is_open(folder):
    with make(folder) as table:
        txn = table.transaction()
        assert table.why(txn.instant).outcome == "open"
        txn.abort()


def test_a_plan_that_was_outdated_and_cancelled(folder):
    with make(folder, strategy="prefer-writer") as table:
        with table.transaction("insert") as txn:
            txn.new_file("day=a").write(rows("a8"))
        plan = table.plan_clustering()
        with table.transaction("insert_overwrite") as winner:
            winner.overwrites("day=a")
            winner.drop_file_groups(winner.snapshot.file_slices("day=a"))
            winner.new_file("day=a").write(rows("z"))
        assert table.why(plan).outcome == "planned"
        with pytest.raises(lakelatch.ConflictError):
            table.execute(plan)
        account = table.why(plan)
        assert account.outcome == "lost"
        assert account.winner.instant == winner.instant
        assert "schedule a new plan" in account.ways[-1].how


# --- bounds ------------------------------------------------------------------------------------------------------------


def test_unknown_times_are_refused_with_what_to_do(folder):
    with make(folder) as table:
        with pytest.raises(lakelatch.InputError, match="lakelatch timeline"):
            table.why("20200101000000000")
        for nonsense in ("", "yesterday", "{0}%s", "🦊"):
            with pytest.raises(lakelatch.InputError):
                table.why(nonsense)


def test_after_epochs_were_removed_it_says_what_is_not_known(folder):
    with make(folder, log_epochs=1) as table:
        pass
    from lakelatch.occ.table.table import Table
    from lakelatch.storage import open_store

    with Table(open_store(str(folder / URL)), epoch_slots=6) as table:
        loser = table.transaction()
        with table.transaction() as winner:
            whole(winner)
        whole(loser)
        with pytest.raises(lakelatch.ConflictError):
            loser.commit()
        for n in range(12):
            with table.transaction() as txn:
                txn.upsert(rows("b0", day="b", v=n))
        table.rollback_failed_writes()
        with pytest.raises(lakelatch.InputError, match="has been removed") as told:
            table.why(loser.instant)
        assert told.value.pruned_to >= loser.instant
        with pytest.raises(lakelatch.InputError, match="it landed at"):
            table.why(winner.instant)


def test_the_loss_of_a_wide_transaction_is_bounded_and_keeps_what_it_lost_on(folder):
    from lakelatch.occ.entries.losses import GROUPS_MAX

    with make(folder) as table:
        loser = table.transaction()
        (mine,) = loser.snapshot.file_slices("day=b")
        for n in range(GROUPS_MAX + 10):
            loser.new_file("day=a").write(rows(f"n{n}"))
        with table.transaction() as winner:
            whole(winner, "day=b")
        whole(loser, "day=b")
        account = beaten(table, loser)
        assert len(account.wrote) == GROUPS_MAX
        assert str(mine.group) in account.wrote
        assert account.files == GROUPS_MAX + 11
        assert any("more than an entry" in note for note in account.notes)
