"""Strategies and isolation levels on a real table: chosen in its settings, raised by a transaction."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.table import Table
from lakelatch.testing.faults import FaultStore, On, Pause

DOCTORS = pa.table({"id": ["a", "b"], "ward": ["x", "x"], "on_call": [True, True]})


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    if not os.access("/dev/shm", os.W_OK):
        yield str(tmp_path / "table")
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="lakelatch-") as folder:
        yield f"{folder}/table"


def make(url: str, **settings) -> lakelatch.Table:
    """Each doctor has a file group."""
    table = lakelatch.create(url, record_key="id", partition_by="ward", schema=DOCTORS.schema, **settings)
    with table.transaction("insert") as txn:
        for n in range(DOCTORS.num_rows):
            txn.new_file("ward=x").write(DOCTORS.slice(n, 1))
    return table


def doctor(txn: lakelatch.Transaction, name: str):
    return next(s for s in txn.snapshot.file_slices() if txn.session.read_slice(s)["id"][0].as_py() == name)


def sign_off(txn: lakelatch.Transaction, name: str) -> None:
    """Anyone who sees another one on call may go."""
    on_call = 0
    for each in txn.snapshot.file_slices("ward=x"):
        on_call += txn.read_slice(each)["on_call"].to_pylist().count(True)
    txn.mark_scanned("ward=x")
    assert on_call > 1
    gone = DOCTORS.filter(pa.compute.equal(DOCTORS["id"], name)).set_column(2, "on_call", pa.array([False]))
    txn.rewrite(doctor(txn, name)).write(gone)


def on_call(table: lakelatch.Table) -> int:
    return table.read().to_arrow()["on_call"].to_pylist().count(True)


def test_write_skew_happens_under_snapshot(url):
    with make(url) as table:
        one, other = table.transaction(), table.transaction()
        sign_off(one, "a")
        sign_off(other, "b")
        one.commit()
        other.commit()
        assert on_call(table) == 0


@pytest.mark.parametrize("level", ["write-serializable", "serializable"])
@pytest.mark.parametrize("of_the_table", [True, False])
def test_write_skew_aborts_under_a_stronger_level_of_the_table_or_the_transaction(url, level, of_the_table):
    with make(url, **({"isolation": level} if of_the_table else {})) as table:
        raised = {} if of_the_table else {"isolation": level}
        one, other = table.transaction(**raised), table.transaction(**raised)
        sign_off(one, "a")
        sign_off(other, "b")
        one.commit()
        with pytest.raises(lakelatch.ConflictError, match=f"counts under isolation {level}") as told:
            other.commit()
        assert told.value.winner == one.instant
        assert on_call(table) == 1


def insert(table: lakelatch.Table, name: str, ward: str = "x") -> None:
    with table.transaction("insert") as txn:
        txn.new_file(f"ward={ward}").write(pa.table({"id": [name], "ward": [ward], "on_call": [True]}))


@pytest.mark.parametrize(
    ("level", "lands"), [("snapshot", True), ("write-serializable", True), ("serializable", False)]
)
def test_a_phantom_of_a_blind_insert(url, level, lands):
    with make(url, isolation=level) as table:
        txn = table.transaction()
        sign_off(txn, "a")
        insert(table, "c")
        if lands:
            txn.commit()
        else:
            with pytest.raises(lakelatch.ConflictError):
                txn.commit()


def test_an_insert_that_has_read_is_a_phantom_under_write_serializable_too(url):
    with make(url, isolation="write-serializable") as table:
        txn = table.transaction()
        sign_off(txn, "a")
        with table.transaction("insert") as reading:
            reading.mark_scanned("ward=y")
            reading.new_file("ward=x").write(pa.table({"id": ["c"], "ward": ["x"], "on_call": [True]}))
        with pytest.raises(lakelatch.ConflictError):
            txn.commit()


def test_what_lands_elsewhere_is_no_conflict_for_whoever_said_what_it_read(url):
    with make(url, isolation="serializable") as table:
        txn, silent = table.transaction(), table.transaction()
        sign_off(txn, "a")
        silent.rewrite(doctor(silent, "b")).write(DOCTORS.slice(1))
        insert(table, "c", ward="y")
        txn.commit()
        with pytest.raises(lakelatch.ConflictError):
            silent.commit()  # it may have read ward y


def test_a_transaction_cannot_weaken_the_table_s_level(url):
    with make(url, isolation="serializable") as table:
        with pytest.raises(lakelatch.ConfigError, match="weaker than the table's 'serializable'"):
            table.transaction(isolation="snapshot")
        with pytest.raises(lakelatch.ConfigError, match="no isolation level 'dirty'"):
            table.transaction(isolation="dirty")
        assert not table.session.log.state.open, "refused before anything is written"


def test_a_level_that_was_raised_meanwhile_counts(url):
    with make(url) as table:
        one, other = table.transaction(), table.transaction()
        sign_off(one, "a")
        sign_off(other, "b")
        one.commit()
        table.change_settings(isolation="serializable")
        with pytest.raises(lakelatch.ConflictError):
            other.commit()


def test_a_level_of_ones_own_does_not_outweigh_one_that_was_raised_meanwhile(url):
    """A blind insert into what was read is a loss under serializable alone."""
    with make(url) as table:
        own = table.transaction(isolation="write-serializable")
        sign_off(own, "a")
        with table.transaction("insert") as blind:
            blind.new_file("ward=x").write(DOCTORS.slice(0, 1).set_column(0, "id", pa.array(["c"])))
        table.change_settings(isolation="serializable")
        with pytest.raises(lakelatch.ConflictError, match="isolation serializable"):
            own.commit()


def test_keys_that_became_unique_meanwhile_end_who_has_not_noted_its_own(url):
    """Both insert one new key, which only the later one has to tell."""
    with make(url, unique_keys=False) as table:
        late, first = table.transaction("insert"), table.transaction("insert")
        for txn in (late, first):
            txn.new_file("ward=y").write(pa.table({"id": ["c"], "ward": ["y"], "on_call": [True]}))
        first.commit()
        table.change_settings(unique_keys=True)
        with pytest.raises(lakelatch.ConflictError, match="more is unique"):
            late.commit()
        assert table.read().to_arrow()["id"].to_pylist().count("c") == 1


def test_two_first_files_of_one_bucket_conflict_and_of_two_do_not(url):
    with make(url, bucket_count=8, strategy="bucket") as table:
        first, same, other = (table.transaction("insert") for _ in range(3))
        for txn, file_id, name in ((first, "00000001-a", "c"), (same, "00000001-b", "d"), (other, "00000002-c", "e")):
            tail = "000-0000-0000-0000-000000000000-0"
            rows = pa.table({"id": [name], "ward": ["y"], "on_call": [True]})
            txn.new_file("ward=y", file_id=file_id + tail).write(rows)
        first.commit()
        other.commit()
        with pytest.raises(lakelatch.ConflictError, match="both changed the same bucket"):
            same.commit()


def test_the_lower_priority_yields_to_a_running_writer(url):
    with (
        make(url, strategy="priority", yield_wait_s=0.1) as low,
        lakelatch.open(url, priority=5, writer="urgent") as high,
    ):
        begun, urgent = low.transaction(), high.transaction()
        urgent.rewrite(doctor(urgent, "a")).write(DOCTORS.slice(0, 1))
        urgent.workspace.close_files()  # its marker stands from here on
        begun.rewrite(doctor(begun, "a")).write(DOCTORS.slice(0, 1))
        with pytest.raises(lakelatch.ConflictError, match=r"urgent, which is still running.*priority 0 yields to 5"):
            begun.commit()
        elsewhere = low.transaction()
        elsewhere.rewrite(doctor(elsewhere, "b")).write(DOCTORS.slice(1))
        elsewhere.commit()
        urgent.commit()


def test_the_higher_priority_lands_and_the_lower_loses(url):
    with make(url, strategy="priority") as low, lakelatch.open(url, priority=5) as high:
        begun, urgent = low.transaction(), high.transaction()
        for txn in (begun, urgent):
            txn.rewrite(doctor(txn, "a")).write(DOCTORS.slice(0, 1))
        urgent.commit()
        with pytest.raises(lakelatch.ConflictError):
            begun.commit()


def test_a_priority_without_effect_is_refused(url):
    make(url).close()
    with pytest.raises(lakelatch.ConfigError, match="priority 3 has no effect under the table's strategy 'simple'"):
        lakelatch.open(url, priority=3)
    with pytest.raises(lakelatch.ConfigError, match="no bucket index"):
        lakelatch.open(url).change_settings(strategy="bucket")


def test_a_candidate_is_read_once_however_many_slots_are_tried(url):
    with make(url, lock="none://") as table, lakelatch.open(url) as other:
        table.session.inline_bytes = other.session.inline_bytes = 0  # what each did lies beside the log
        store = FaultStore(table.store)
        ours = Table(store)
        txn = ours.transaction()
        txn.rewrite(doctor(txn, "a")).write(DOCTORS.slice(0, 1))
        insert(table, "c", ward="y")
        for number in range(3):  # takes the slot that ours wants
            slot = txn.begin_slot + 3 + 2 * number
            store.add(
                Pause(On("put_if_absent", f"/{slot:020d}"), call=lambda n=number: insert(other, f"d{n}", ward="y"))
            )
        store.calls.clear()
        txn.commit()
        ours.close()
    assert not store.armed
    read = [call.path for call in store.calls if call.op in ("get", "open") and "/sides/" in call.path]
    assert len(read) == len(set(read)) == 4
