"""Transactions over several tables: all land or none, no matter who dies, and readers of several see one cut."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import lakelatch
from lakelatch import (
    CommitStateUnknownError,
    ConflictError,
    InputError,
    LakeLatchError,
    RolledBackError,
    StorageError,
    TableNotFoundError,
    UnsupportedTableError,
)
from lakelatch.occ.entries.entries import Commit, End, Partner, Prepare, decode, encode
from lakelatch.occ.landing import several
from lakelatch.occ.landing.several import SeveralLanding
from lakelatch.occ.log import UndecidedError
from lakelatch.occ.session import settling
from lakelatch.occ.table.table import Table
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.faults import FaultStore, On, Pause

from ..world import check_clean, check_history, check_published

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


def make(folder: Path, name: str, **settings: Any) -> Table:
    table = lakelatch.create(str(folder / name), record_key="id", schema=SCHEMA, heartbeat_interval_s=0.05, **settings)
    table.upsert([{"id": number, "v": 100} for number in range(2)])
    return table


@pytest.fixture
def pair(folder: Path) -> Iterator[tuple[Table, Table]]:
    with make(folder, "a") as a, make(folder, "b") as b:
        yield a, b


def pay(txn: lakelatch.SeveralTransaction, a: Table, b: Table, amount: int = 10) -> None:
    txn[a].update_where("id = 0", {"v": lakelatch.sql(f"v - {amount}")})
    txn[b].update_where("id = 0", {"v": lakelatch.sql(f"v + {amount}")})


def values(table: Table) -> list[int]:
    return [row["v"] for row in sorted(table.read().to_pylist(), key=lambda row: row["id"])]


def kinds(table: Table, since: int = 0) -> list[str]:
    return [each.kind for each in table.session.log.entries() if each.slot >= since]


def check(*tables: Table) -> None:
    for table in tables:
        check_history(table)
        check_published(table)
        check_clean(table)


def tidy(*tables: Table) -> None:
    """The next writers of each table publish and sweep what the dead one has left; then it is as it must be."""
    for table in tables:
        table.session.publish_last()
        table.rollback_failed_writes()
    check(*tables)


class Died(BaseException):
    """The process of a coordinator has ended: nothing of it runs any more."""


def die(monkeypatch: pytest.MonkeyPatch, a: Table, b: Table, *, decided: bool) -> None:
    """A coordinator dies with `a` prepared, after `b` has committed or before."""

    def no_more(self: SeveralLanding, error: BaseException) -> None:
        for each in self._all:
            each.attempt.session.heart.stop(each.attempt.instant)
            each.attempt.release()
        raise error

    def ends(*_: Any, **__: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(SeveralLanding, "_give_up", no_more)
        if decided:
            patch.setattr(several, "put_outcome", ends)
        else:
            real = a.session.log.append

            def append(*args: Any, **words: Any) -> Any:
                if isinstance(found := real(*args, **words), Prepare):
                    patch.setattr(b.session.log, "append", ends)
                return found

            patch.setattr(a.session.log, "append", append)
        with pytest.raises(Died), lakelatch.transaction(a, b) as txn:
            pay(txn, a, b)
    assert len(a.session.log.catch_up().prepared) == 1


def settle_now(table: Table) -> None:
    """As a writer does who has watched the dead one for the time-out."""
    for prepared in list(table.session.log.catch_up().prepared.values()):
        assert settling.settle(table.session, prepared, dead=True)


def test_both_tables_have_it_and_the_home_decides(pair: tuple[Table, Table]) -> None:
    a, b = pair
    starts = a.session.log.next_slot, b.session.log.next_slot
    with lakelatch.transaction(b, a, note={"job": "payments"}) as txn:
        pay(txn, a, b)
    assert (values(a), values(b)) == ([90, 100], [110, 100])
    assert kinds(a, starts[0]) == ["begin", "prepare", "commit"]
    assert kinds(b, starts[1]) == ["begin", "commit"]
    assert set(txn.results) == {a.url, b.url}
    assert all(each.published for each in txn.results.values())
    assert [a.why(txn.results[a.url].instant).note, b.why(txn.results[b.url].instant).note] == [{"job": "payments"}] * 2
    check(a, b)


def test_an_error_in_the_block_leaves_nothing(pair: tuple[Table, Table]) -> None:
    a, b = pair

    def fail() -> None:
        with lakelatch.transaction(a, b) as txn:
            pay(txn, a, b)
            _ = 1 // 0

    with pytest.raises(ZeroDivisionError):
        fail()
    assert values(a) == values(b) == [100, 100]
    check(a, b)


@pytest.mark.parametrize("loser", [0, 1])
def test_a_conflict_in_one_table_ends_it_in_all(pair: tuple[Table, Table], loser: int) -> None:
    a, b = pair
    txn = lakelatch.transaction(a, b)
    pay(txn, a, b)
    with pair[loser].transaction("insert_overwrite_table") as other:
        other.overwrite_table([{"id": 0, "v": 7}])
    with pytest.raises(ConflictError) as caught:
        txn.commit()
    assert caught.value.table == pair[loser].url
    assert (values(a), values(b)) == (([7], [100, 100]) if loser == 0 else ([100, 100], [7]))
    assert not a.session.log.state.open
    assert not b.session.log.state.open
    check(a, b)


def test_what_others_change_meanwhile_is_merged_again(pair: tuple[Table, Table]) -> None:
    a, b = pair
    with lakelatch.transaction(a, b) as txn:
        pay(txn, a, b)
        b.update_where("id = 0", {"v": lakelatch.sql("v * 2")})
        a.update_where("id = 1", {"v": 1})
    assert (values(a), values(b)) == ([90, 1], [210, 100])
    check(a, b)


def test_a_table_in_which_nothing_was_written_is_left_out(pair: tuple[Table, Table]) -> None:
    a, b = pair
    with lakelatch.transaction(a, b) as txn:
        txn[b].upsert([{"id": 5, "v": 5}])
    assert set(txn.results) == {b.url}
    assert "prepare" not in kinds(a)
    with lakelatch.transaction(a, b) as txn:
        pass
    assert not txn.results
    check(a, b)


def test_what_was_only_read_is_validated_above_snapshot(pair: tuple[Table, Table]) -> None:
    a, b = pair
    txn = lakelatch.transaction(a, b, isolation="serializable")
    txn[b].upsert([{"id": 5, "v": txn[a].read(where="id = 0").to_pylist()[0]["v"]}])
    a.update_where("id = 0", {"v": 1})
    with pytest.raises(ConflictError):
        txn.commit()
    assert values(b) == [100, 100]
    check(a, b)


def test_run_tries_again_with_all_locks(pair: tuple[Table, Table]) -> None:
    a, b = pair
    calls, held = [], []

    def work(txn: lakelatch.SeveralTransaction) -> str:
        calls.append(txn)
        held.append((txn[a].has_lock, txn[b].has_lock))
        pay(txn, a, b)
        if len(calls) == 1:
            with a.transaction("insert_overwrite_table") as other:
                other.overwrite_table([{"id": 0, "v": 50}])
        return "done"

    result = lakelatch.run(work, a, b)
    assert (result.value, result.attempts, len(result.losses)) == ("done", 2, 1)
    assert held == [(False, False), (True, True)]
    assert set(result.commits) == {a.url, b.url}
    assert result.commit == result.commits[b.url]
    assert (values(a), values(b)) == ([40], [110, 100])
    check(a, b)


def test_a_dead_coordinator_that_has_not_decided_lands_nowhere(
    pair: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    die(monkeypatch, a, b, decided=False)
    settle_now(a)
    assert [each.kind for each in (*a.session.log.entries(), *b.session.log.entries()) if isinstance(each, End)] == [
        "rollback"
    ] * 2
    assert values(a) == values(b) == [100, 100]
    check(a, b)


def test_a_dead_coordinator_that_has_decided_lands_everywhere(
    pair: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    die(monkeypatch, a, b, decided=True)
    assert (values(a), values(b)) == ([100, 100], [110, 100])
    # Any writer of the table settles it, and lands behind it.
    with lakelatch.open(a.url) as other:
        other.update_where("id = 0", {"v": lakelatch.sql("v + 1")})
    assert (values(a), values(b)) == ([91, 100], [110, 100])
    tidy(a, b)


def test_a_reader_of_both_settles_what_it_meets(pair: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair
    die(monkeypatch, a, b, decided=True)
    cut = lakelatch.read_together(a, b)
    assert sum(row["v"] for table in (a, b) for row in cut.read(table).to_pylist()) == 400
    pay_more(a, b)
    again = [row["v"] for table in (a, b) for row in cut.read(table, where="id = 0", columns=["v"]).to_pylist()]
    assert again == [90, 110], "a cut stays what it is"


def pay_more(a: Table, b: Table) -> None:
    lakelatch.run(lambda txn: pay(txn, a, b), a, b)


def test_a_living_coordinator_is_waited_for_and_then_ended(
    pair: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that takes no lock meets it prepared: it waits as long as `yield_wait_s`, and ends it in the home first."""
    a, b = pair
    a.change_settings(yield_wait_s=0.05)
    real = SeveralLanding._land

    def slow(self: SeveralLanding, templates: Any, leases: Any) -> None:
        def others_come(append: Any) -> Any:
            def appended(*args: Any, **words: Any) -> Any:
                for lease in leases:
                    lease.release()
                patch.undo()
                with lakelatch.open(a.url) as other:
                    other.update_where("id = 1", {"v": 0})
                return append(*args, **words)

            return appended

        patch.setattr(b.session.log, "append", others_come(b.session.log.append))
        real(self, templates, leases)

    patch = pytest.MonkeyPatch()
    patch.setattr(SeveralLanding, "_land", slow)
    with patch.context(), pytest.raises(RolledBackError), lakelatch.transaction(a, b) as txn:
        pay(txn, a, b)
    assert (values(a), values(b)) == ([100, 0], [100, 100])
    check(a, b)


def test_nothing_goes_behind_a_prepared_commit_but_begins_and_ends(
    pair: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    die(monkeypatch, a, b, decided=False)
    (prepared,) = a.session.log.state.prepared.values()
    with pytest.raises(UndecidedError) as caught:
        a.change_settings(yield_wait_s=7.0)
    assert caught.value.retryable
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(UndecidedError):
        a.session.log.append(lambda _: End("rollback", prepared.instant, "nobody", "it must not"))
    with a.transaction("upsert") as other:
        other.abort()
    settle_now(a)
    a.change_settings(yield_wait_s=7.0)


def test_an_epoch_carries_what_is_prepared(pair: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair
    die(monkeypatch, a, b, decided=True)
    a.session.log.close_epoch()
    with lakelatch.open(a.url) as other:
        assert len(other.session.log.catch_up().prepared) == 1
        settle_now(other)
    assert values(a) == [90, 100]
    tidy(a, b)


def test_a_home_keeps_its_outcome_until_the_others_have_it(
    pair: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    die(monkeypatch, a, b, decided=True)
    decided = next(each for each in b.session.log.entries() if isinstance(each, Commit) and each.several)
    for _ in range(b.settings.log_epochs + 1):
        b.session.log.close_epoch()
        b.session.log.catch_up()
    with monkeypatch.context() as patch:
        patch.setattr(settling, "put_outcome", lambda *_, **__: (_ for _ in ()).throw(lakelatch.StorageError("away")))
        b.session.pruner.prune()
    kept = any(each.slot == decided.slot for each in b.session.log.entries() if isinstance(each, Commit))
    assert kept or not a.session.log.catch_up().prepared  # settled before, where this process was slow
    b.session.pruner.prune()
    assert not a.session.log.catch_up().prepared, "the home has settled it before it forgot"
    assert values(a) == [90, 100]


def test_a_restore_of_the_home_does_not_take_back_what_landed_elsewhere(
    pair: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    before = b.timeline().commits[-1].requested
    die(monkeypatch, a, b, decided=True)
    b.restore(before)
    settle_now(a)
    assert (values(a), values(b)) == ([90, 100], [100, 100])


def test_a_home_that_is_gone_is_not_guessed(
    pair: tuple[Table, Table], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    die(monkeypatch, a, b, decided=False)
    (instant,) = a.session.log.state.prepared
    b.close()
    (folder / "b").rename(folder / "away")
    with lakelatch.open(a.url) as other:
        with pytest.raises(TableNotFoundError, match="rollback"):
            other.update_where("id = 0", {"v": 1})
        begin = other.session.log.state.open[instant]
        assert other.session.cleaner.roll_back(begin, reason="forced by hand", without_home=True)
        other.update_where("id = 0", {"v": 1})
    (folder / "away").rename(folder / "b")


def test_no_answer_about_the_decision_is_no_failure(pair: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair
    real = b.session.log.append

    def no_answer(*args: Any, **words: Any) -> Any:
        real(*args, **words)
        monkeypatch.undo()
        raise CommitStateUnknownError("no answer for a minute")

    txn = lakelatch.transaction(a, b)
    pay(txn, a, b)
    monkeypatch.setattr(b.session.log, "append", no_answer)
    with pytest.raises(CommitStateUnknownError):
        txn.commit()
    assert len(a.session.log.catch_up().prepared) == 1
    settle_now(a)
    assert (values(a), values(b)) == ([90, 100], [110, 100])


def test_an_outcome_that_could_not_be_written_everywhere_is_told(
    pair: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair

    def refused(*_: Any, **__: Any) -> None:
        raise lakelatch.StorageError("the disk is full")

    txn = lakelatch.transaction(a, b)
    pay(txn, a, b)
    with monkeypatch.context() as patch:
        patch.setattr(several, "put_outcome", refused)
        with pytest.raises(CommitStateUnknownError, match="has landed, and one of its tables") as caught:
            txn.commit()
    assert caught.value.table == b.url
    settle_now(a)
    assert (values(a), values(b)) == ([90, 100], [110, 100])


def no_memory() -> None:
    raise MemoryError


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("forever", [False, True])
def test_memory_that_runs_out_at_the_decision_is_no_failure(folder: Path, late: bool, forever: bool) -> None:
    make(folder, "a").close(), make(folder, "b").close()
    store = FaultStore(LocalStore(folder / "b"))
    with lakelatch.open(str(folder / "a")) as a, Table(store) as b:
        txn = lakelatch.transaction(a, b)
        pay(txn, a, b)
        at = On("put_if_absent", f"/{txn[b].begin_slot + 1:020}")
        store.add(Pause(at, no_memory, after=late, forever=forever))
        with pytest.raises(LakeLatchError) as told:
            txn.commit()
        assert told.value.landed is (None if late or forever else False)
        store.reset()
        settle_now(a)
        assert [values(a)[0], values(b)[0]] == ([90, 110] if late else [100, 100])


def test_memory_that_runs_out_in_the_block_is_told_as_an_error_that_landed_nothing(pair: tuple[Table, Table]) -> None:
    a, b = pair

    def work(txn: lakelatch.SeveralTransaction) -> None:
        pay(txn, a, b)
        raise MemoryError

    with pytest.raises(StorageError, match="no more memory") as told:
        lakelatch.run(work, a, b)
    assert told.value.landed is False
    assert [values(a)[0], values(b)[0]] == [100, 100]


def test_snapshots_of_several_tables_are_one_cut(pair: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair
    from lakelatch.occ.transaction import several as beginning

    real, begun = beginning.begin, []

    def begin(session: Any, *args: Any, **words: Any) -> Any:
        begun.append(session.url)
        if len(begun) == 2:  # between the begins in `a` and in `b`
            with monkeypatch.context() as patch:
                patch.setattr(beginning, "begin", real)
                pay_more(a, b)
        return real(session, *args, **words)

    monkeypatch.setattr(beginning, "begin", begin)
    with lakelatch.transaction(a, b) as txn:
        found = [txn[each].read(where="id = 0").to_pylist()[0]["v"] for each in (a, b)]
        assert found == [90, 110]
        assert begun == [a.url, b.url] * 2


def test_a_part_does_not_end_alone(pair: tuple[Table, Table]) -> None:
    a, b = pair
    with lakelatch.transaction(a, b) as txn:
        for end in (txn[a].commit, txn[a].abort, txn[a].__enter__):
            with pytest.raises(InputError, match="part of"):
                end()
        pay(txn, a, b)
    assert (values(a), values(b)) == ([90, 100], [110, 100])


def test_what_cannot_take_part_is_refused_before_anything_is_written(pair: tuple[Table, Table], folder: Path) -> None:
    a, b = pair
    slots = a.session.log.next_slot
    with pytest.raises(InputError, match="2 to 16"):
        lakelatch.transaction(a)
    with pytest.raises(InputError, match="2 to 16"), lakelatch.open(a.url) as twin:
        lakelatch.read_together(a, twin)
    with pytest.raises(InputError, match="tables="):
        lakelatch.transaction(a, "b")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="2 to 16"):
        lakelatch.run(lambda _: None)
    with lakelatch.transaction(a, b) as txn, pytest.raises(InputError, match="no table of this"):
        txn[str(folder)]
    lock = f"file://{folder}/c/.hoodie?jvm=lock&jvm_expire=5m"
    with (
        make(folder, "c", lock=lock, neighbours="hudi") as shared,
        pytest.raises(UnsupportedTableError, match="other engines"),
    ):
        lakelatch.transaction(a, shared)
    assert "prepare" not in kinds(a, slots)


def test_entries_of_a_table_that_takes_no_part_are_as_before(pair: tuple[Table, Table]) -> None:
    a, _ = pair
    for each in a.session.log.entries():
        assert not isinstance(each, Prepare)
        assert not {"several", "prepared"} & each.fields().keys()


@pytest.mark.parametrize("several", [[], None, [["file:///t/a", "20260101000000000"]]])
def test_a_prepare_entry_that_names_no_home_is_refused(pair: tuple[Table, Table], several: object) -> None:
    commit = next(each for each in pair[0].session.log.entries() if isinstance(each, Commit))
    raw = json.loads(
        encode(Prepare(replace(commit, several=(Partner("file:///t/a", commit.instant),) * 2), 3), 1, 3, "x")
    )
    raw["commit"]["several"] = several
    if several is None:
        del raw["commit"]["several"]
    with pytest.raises(lakelatch.errors.CorruptTableError, match="names no tables beside its own"):
        decode(json.dumps(raw).encode(), "slot")


def test_a_table_that_cannot_begin_is_named(pair: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair
    monkeypatch.setattr(b.session.log, "append", mock.Mock(side_effect=lakelatch.StorageError("no space")))
    with pytest.raises(lakelatch.StorageError, match="no space") as told:
        lakelatch.transaction(a, b)
    assert told.value.table == b.url
    assert a.session.log.catch_up().open == {}


def test_work_that_nothing_awaits_is_refused(pair: tuple[Table, Table]) -> None:
    async def work(_: object) -> None: ...

    for each in (work, lambda txn: work(txn)):
        with pytest.raises(lakelatch.errors.InputError, match=r"nothing awaits|would not run"):
            lakelatch.run(each, *pair)  # type: ignore[type-var]
    assert values(pair[0]) == values(pair[1]) == [100, 100]
