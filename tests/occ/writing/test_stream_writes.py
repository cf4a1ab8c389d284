"""Writing the events of streams: what is refused, who waits for whom, and a store that fails at each call."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.environment import Process
from lakelatch.errors import InputError, LakeLatchError
from lakelatch.hudi.files import list_data_files
from lakelatch.occ.check.check import check
from lakelatch.occ.table import Table
from lakelatch.storage.local import LocalStore
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.faults import PUTS, At, FaultStore, Late, LoseReply, On, Pause, Refuse

from ...thorough import some

SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string())]
    + [(name, pa.int64()) for name in ("a", "a_at", "b")]
    + [("b_at", pa.float64())]
)


def make(url, **given):
    settings = {"type": "merge_on_read", "table_version": 9, "bucket_count": 1, "env": FakeEnvironment(seed=1)} | given
    table = lakelatch.create(str(url), record_key="id", partition_by="part", schema=SCHEMA, **settings)
    table.stream("a", columns=["a"], ordering="a_at", on_delete="row")
    table.stream("b", columns=["b"], ordering="b_at")
    return table


@pytest.fixture
def table(folder):
    with make(folder / "t") as made:
        yield made


def row(key="x", **values):
    return {"id": key, "part": "p"} | values


def content(table):
    return {each["id"]: (each["a"], each["b"]) for each in table.read().to_pylist()}


@pytest.mark.parametrize(
    ("stream", "rows", "words"),
    [
        ("a", [row(a=1)], "the rows lack a_at of stream 'a'"),
        ("a", [row(a_at=1)], "the rows lack a of stream 'a'"),
        ("a", [row(a=1, a_at=1, b=1)], "have b, which stream 'b' writes; leave it out"),
        ("a", [row(a=1, a_at=1, new=1)], "have new, which it does not write"),
        ("a", [row(a=1, a_at=None), row("y", a=1, a_at=1)], "1 rows of stream 'a' of .* have no a_at .id 'x'"),
        ("b", [row(b=1, b_at=float("nan"))], "have no b_at"),
        ("a", [row(a=1.5, a_at=1)], "'a'"),
        ("a", [row(a="1", a_at=1)], "'a'"),
        ("a", [row(None, a=1, a_at=1)], "no record key"),
        ("a", [{"id": "x", "a": 1, "a_at": 1}], "lack part"),
        ("a", 5, "rows can't be int"),
    ],
)
def test_events_that_are_not_whole_are_refused_before_anything_is_written(table, stream, rows, words):
    with pytest.raises(InputError, match=words):
        table.stream(stream).upsert(rows)
    assert not list_data_files(table.store).logs
    assert content(table) == {}


def test_what_may_not_count_twice_is_written_with_the_number_of_its_batch(tmp_path):
    url = str(tmp_path / "t")
    with make(url) as table:
        table.add_column("n", "int64")
        table.add_column("n_at", "int64")
        table.stream("n", columns="n", ordering="n_at", merge={"n": "sum"}, default={"n": 0}, foreign_readers=False)
        events = [row(n=2, n_at=5), row(n=3, n_at=4), row("y", n=4, n_at=1)]
        for write in (
            lambda: table.stream("n").upsert(events),
            lambda: table.stream("n").delete([row(n_at=1)]),
            lambda: table.run(lambda txn: txn.stream("n").upsert(events), operation="upsert"),
        ):
            with pytest.raises(InputError, match=r"merges n by sum.* as batch=.*; nothing was written"):
                write()
        assert not list_data_files(table.store).logs
        for again in (False, True):
            assert table.stream("n").upsert(events, batch=("web", 1)).repeated == again
        table.run(lambda txn: txn.stream("n").upsert(events), operation="upsert", batch=("web", 2))
        table.stream("a").upsert([row("z", a=1, a_at=1)])  # of other streams nothing is asked
        assert {each["id"]: each["n"] for each in table.read().to_pylist()} == {"x": 10, "y": 8, "z": 0}
    assert not check(LocalStore(url)).findings


def test_what_lands_while_a_compaction_looks_around_is_in_its_plan_once(tmp_path):
    """Simulator: a plan that saw it, and was told of it then, had its log file twice, and a sum counted twice."""
    url = str(tmp_path / "t")
    given = {"columns": "a", "ordering": "a_at", "merge": {"a": "sum"}, "foreign_readers": False}
    settings = {"type": "merge_on_read", "table_version": 9, "bucket_count": 1, "env": FakeEnvironment(seed=1)}
    with lakelatch.create(url, record_key="id", partition_by="part", schema=SCHEMA, **settings) as other:
        other.stream("a", **given).upsert([row(a=1, a_at=1)], batch=("web", 1))
        store = FaultStore(LocalStore(url))
        with Table(store, env=FakeEnvironment(seed=2)) as table:
            landed = []

            def beside():
                landed.append(other.stream("a").upsert([row(a=10, a_at=1)], batch=("web", 2)))

            store.add(Pause(On("list", "timeline"), call=beside))
            table.compact()
            assert landed
            assert [each["a"] for each in table.read().to_pylist()] == [11]


def test_a_delete_is_an_event_with_an_ordering_value(table):
    with pytest.raises(InputError, match="lack a_at of stream 'a'"):
        table.stream("a").delete([row()])
    with pytest.raises(InputError, match="have no a_at"):
        table.stream("a").delete([row(a_at=None)])


def test_no_events_are_no_commit(table):
    for rows in ([], SCHEMA.empty_table().select(["id", "part", "a", "a_at"])):
        assert table.stream("a").upsert(rows).instant is None
    assert table.stream("a").delete([]).instant is None


def test_events_land_while_somebody_holds_the_lock(table):
    with lakelatch.open(table.url, env=table.env, writer="holder") as other, other.lock.lease("for long"):
        table.stream("a").upsert([row(a=1, a_at=1)])
        table.stream("b").upsert([row(b=1, b_at=1)])
    assert content(table) == {"x": (1, 1)}
    table.compact()  # which takes it
    assert content(table) == {"x": (1, 1)}


def test_two_who_begin_a_bucket_at_once_write_one_file_group(table):
    with lakelatch.open(table.url, env=table.env, writer="other") as other:
        one, two, three = (each.transaction() for each in (table, other, other))
        one.stream("a").upsert([row(a=1, a_at=1)])
        two.stream("b").upsert([row(b=1, b_at=1)])
        three.stream("a").upsert([row(a=2, a_at=1)])
        for txn in (three, two, one):  # the later T first
            assert txn.commit() is not None
        assert len(table.snapshot()) == 1
        assert content(other) == {"x": (1, 1)}, (
            "of equal ordering values that which landed later stands, whatever its T"
        )
        table.compact()
        assert content(other) == {"x": (1, 1)}


def test_events_of_several_streams_land_together_or_not_at_all(table):
    with table.transaction() as txn:
        txn.stream("a").upsert([row(a=1, a_at=1)])
        txn.stream("b").upsert([row(b=1, b_at=1)])
        assert content(table) == {}
    assert content(table) == {"x": (1, 1)}
    txn = table.transaction()
    txn.stream("a").upsert([row(a=2, a_at=2)])
    txn.abort()
    assert content(table) == {"x": (1, 1)}
    assert len(list_data_files(table.store).logs) == 2


def test_writers_in_threads_never_lose(folder):
    """Four processes' worth of handles on two streams, real threads and the real clock; no attempt is lost."""
    table, failures = make(folder / "t", env=lakelatch.environment.SYSTEM), []

    def work(name: str, number: int) -> None:
        try:
            with lakelatch.open(table.url, writer=f"{name}{number}") as mine:
                for n in range(8):
                    values = {"a": n, "a_at": n} if name == "a" else {"b": n, "b_at": n}
                    done = mine.stream(name).upsert([row(f"k{number}", **values), row("all", **values)])
                    if done.losses:
                        failures.append(done.losses)
        except LakeLatchError as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(name, number)) for name in "ab" for number in (0, 1)]
    for each in threads:
        each.start()
    for _ in range(3):
        table.compact()
    for each in threads:
        each.join()
    assert not failures
    assert content(table) == {"k0": (7, 7), "k1": (7, 7), "all": (7, 7)}
    assert not [each for each in check(table.store).findings if each.severity != "note"]
    table.close()


# --- a store that fails ------------------------------------------------------------------------------------------


def work(table):
    """Two log files, one of them the first of its partition."""
    with table.transaction() as txn:
        txn.stream("a").upsert([row(a=5, a_at=5), row("z", a=1, a_at=1) | {"part": "new"}])
        txn.stream("b").delete([row(b_at=9)])
    return txn.result


def compaction(table):
    return table.compact()


def overwrite(table):
    """A file group that takes the place of another, and one of a new partition."""
    with table.transaction("insert_overwrite") as txn:
        txn.stream("b").overwrite([row(b=7, b_at=0), row("z", b=3, b_at=0) | {"part": "new"}])
    return txn.result


BEFORE, AFTER, OVERWRITTEN = {"x": (1, 1)}, {"x": (5, None), "z": (1, None)}, {"x": (1, 7), "z": (None, 3)}


@pytest.mark.parametrize(("act", "after"), [(work, AFTER), (compaction, BEFORE), (overwrite, OVERWRITTEN)])
def test_a_store_that_fails_at_any_call_loses_no_event_and_tells_the_truth(folder, act, after):
    def world(name):
        url = folder / name
        made = make(url)
        made.stream("a").upsert([row(a=1, a_at=1), row("gone", a=1, a_at=5)])
        made.stream("a").delete([row("gone", a_at=6)])
        made.stream("b").upsert([row(b=1, b_at=1)])
        made.close()
        env = made.env.peer(process=Process("host-b", "boot", 7, "7"))
        return Table(FaultStore(LocalStore(url)), env=env, writer="A")

    dry = world("dry")
    dry.store.reset()
    act(dry)
    calls = dry.store.calls
    dry.close()
    faults = [LoseReply(At(each.number)) for each in calls if each.writes]
    faults += [Late(At(each.number)) for each in calls if each.op in PUTS] + [Refuse(At(each.number)) for each in calls]
    for number, fault in enumerate(some(faults, 8)):
        table = world(str(number))
        table.store.reset()
        table.store.add(fault)
        try:
            act(table)
            landed = True
        except LakeLatchError as e:
            landed = e.landed
        table.store.reset()
        expected = [BEFORE, after] if landed is None else [after if landed else BEFORE]
        fresh = Table(LocalStore(folder / str(number)), env=table.env.peer(process=Process("host-c", "boot", 1, "1")))
        fresh.rollback_failed_writes(wait=True)
        table.store.land()
        assert content(fresh) in expected, f"{fault}: told {landed}"
        fresh.stream("a").upsert([row("gone", a=1, a_at=5)])
        fresh.stream("b").upsert([row(b=9, b_at=9)])
        fresh.compact()
        assert content(fresh) == {key: (a, 9 if key == "x" else b) for key, (a, b) in content(fresh).items()}
        assert "gone" not in content(fresh), "a late event of a row that was deleted"
        assert not [each for each in check(fresh.store).findings if each.severity == "damage"], str(fault)
        table.close()
        fresh.close()


def test_a_restore_takes_events_back_and_what_was_too_late_then_is_not_now(table):
    table.stream("a").upsert([row(a=1, a_at=1)])
    table.stream("b").upsert([row(b=1, b_at=5)])
    saved = table.savepoint()
    table.compact()
    table.stream("a").upsert([row(a=9, a_at=9), row("y", a=9, a_at=9)])
    table.stream("a").delete([row("y", a_at=10)])
    table.compact()
    table.stream("b").upsert([row(b=9, b_at=9)])
    table.clean(retain_commits=1)
    assert len(table.restore(saved.instant).undone) == 5
    assert content(table) == {"x": (1, 1)}
    table.stream("a").upsert([row(a=2, a_at=2), row("y", a=2, a_at=2)])
    table.stream("b").upsert([row(b=4, b_at=4)])
    for _ in range(2):
        assert content(table) == {"x": (2, 1), "y": (2, None)}
        table.compact()


def test_events_that_are_open_during_a_restore_are_not_lost_in_silence(table):
    table.stream("a").upsert([row(a=1, a_at=1)])
    target = table.timeline().commits[-1].requested
    table.stream("a").upsert([row(a=2, a_at=2)])
    txn = table.transaction()
    txn.stream("b").upsert([row(b=1, b_at=5)])
    table.restore(target)
    with pytest.raises(lakelatch.ConflictError, match="a restore stands alone"):
        txn.commit()
    assert content(table) == {"x": (1, None)}
