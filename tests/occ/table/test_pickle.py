"""Handles that travel to other processes: a pickle is what opens the table again there."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from operator import attrgetter, methodcaller
from typing import Any

import pytest
from pyspark import cloudpickle

import lakelatch
from lakelatch.errors import InputError, LockLostError, TableError

ROWS = [{"id": 1, "n": 0}, {"id": 2, "n": 0}]


@pytest.fixture
def table(tmp_path: Any) -> Iterator[lakelatch.Table]:
    lakelatch.create(str(tmp_path / "t"), record_key="id").close()
    with lakelatch.open(str(tmp_path / "t"), writer="me", threads=3) as found:
        found.insert(ROWS)
        yield found


def there_and_back(what: Any) -> Any:
    return pickle.loads(pickle.dumps(what))


def test_handles_work_in_processes_that_were_spawned(table):
    rows = methodcaller("to_pylist")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:

        def there(what: Any, call: Any) -> Any:
            return pool.submit(call, what).result()

        before = table.read(where="n = 0", columns=["id"])
        assert there(table, attrgetter("writer", "session.threads")) == ("me", 3)
        for key in (1, 2):
            assert there(table, methodcaller("upsert", [{"id": key, "n": key}])).updated == 1
        with table.pinned() as pinned:
            table.upsert([{"id": 3, "n": 3}])
            assert there(there(pinned, methodcaller("read", where="n > 0")), rows) == [
                {"id": 1, "n": 1},
                {"id": 2, "n": 2},
            ]
            assert there(before, rows) == [{"id": 1}, {"id": 2}]
            assert there(table.read(), methodcaller("count")) == 3
            assert there(table.changes(), rows) == table.changes().to_pylist()
        with pytest.raises(LockLostError, match="in another process, is over"):
            there(pinned.read(), rows)


def test_handles_travel_by_cloudpickle_and_together(table):
    ask = cloudpickle.loads(cloudpickle.dumps(lambda: table.read(where=[("id", "in", range(2))]).to_pylist()))
    assert ask() == [ROWS[0]]
    other, scan = there_and_back((table, table.read()))
    assert scan._session is other.session is not table.session
    assert scan.explain() == table.read().explain()
    other.close()
    with pytest.raises(TableError, match="was closed"):
        scan.count()
    assert there_and_back(table.change_feed()).to_arrow() == table.change_feed().to_arrow()


def test_a_pinned_view_elsewhere_ends_with_the_lease(table):
    with table.pinned() as pinned:
        other = there_and_back(pinned)
        other.check()
        (lease,) = table.store.list(".hoodie/.lakelatch/readers")
        table.store.delete(lease.path)  # a cleaner has taken its process for dead
        with pytest.raises(LockLostError, match="gave no sign of life"):
            other.read().count()


def test_a_table_without_our_log_travels_too(table, tmp_path):
    shutil.rmtree(tmp_path / "t/.hoodie/.lakelatch")
    with lakelatch.open(table.url) as foreign:
        assert there_and_back(foreign).read().to_pylist() == there_and_back(foreign.read()).to_pylist() == ROWS


def test_what_belongs_to_one_process_refuses_in_a_sentence(table):
    with table.transaction() as txn:
        for what in (txn, txn.read(), txn.workspace, txn.merge(ROWS), table.merge(ROWS), {"some": [txn]}):
            with pytest.raises(InputError, match="cannot travel: it belongs to the process that began it"):
                pickle.dumps(what)
        with pytest.raises(InputError, match="cannot travel"):
            cloudpickle.dumps(lambda: txn)
        txn.upsert(ROWS)
    table.close()
    with pytest.raises(TableError, match="was closed"):
        pickle.dumps(table)


def test_a_pickle_holds_the_options_that_were_given_and_nothing_of_the_environment(monkeypatch, table):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    assert b"hush-hush" not in pickle.dumps(table)
    table.session.markers = lakelatch.MarkerServer("http://127.0.0.1:1", token="hush-hush")
    assert b"hush-hush" not in pickle.dumps((table, table.read()))
    table.session.markers = None
