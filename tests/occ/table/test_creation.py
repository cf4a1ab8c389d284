"""A table is made in one step for everybody who looks, no matter who dies, stalls or races at it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import ConfigError, CorruptTableError, InputError, LakeLatchError, TableNotFoundError
from lakelatch.occ.check.check import check
from lakelatch.occ.log.epochs import epochs
from lakelatch.storage import PROBES
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.contention import PATIENCE_S
from lakelatch.testing.faults import At, FaultStore, From, Late, LoseReply, Pause, Refuse

from ...thorough import some

module = sys.modules["lakelatch.occ.table.create"]
WANTED: dict[str, Any] = {"record_key": "id", "bucket_count": 4}
OTHER: dict[str, Any] = {"record_key": "id", "bucket_count": 8, "type": "merge_on_read"}


class Site:
    """Where tables are made; each creator has a store of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.number, self._next = folder, 0, threading.local()
        monkeypatch.setattr(module, "store_of", lambda url, _storage: self._store(url))

    def _store(self, url: str) -> Any:
        store = getattr(self._next, "store", None) or FaultStore(LocalStore(url))
        self._next.store = None
        return store

    def fresh(self) -> str:
        """A place for another table."""
        self.number += 1
        return str(self.folder / f"t{self.number}")

    def make(self, url: str, *faults: Any, store: FaultStore | None = None, **wanted: Any) -> lakelatch.Table:
        self._next.store = store or FaultStore(LocalStore(url), *faults)
        return lakelatch.create(url, **wanted)


@pytest.fixture
def site(tmp_path, monkeypatch):
    return Site(tmp_path, monkeypatch)


@pytest.fixture
def calls(site):
    """How many calls of the store it takes."""
    store = FaultStore(LocalStore(url := site.fresh()))
    site.make(url, store=store, **WANTED).close()
    return len(store.calls)


def sound(url: str, **wanted: Any) -> None:
    """It is the table that was asked for, has one log, and is written and read."""
    with lakelatch.create(url, exist_ok=True, **wanted) as table:
        assert table.writable
        table.insert([{"id": "x"}])
        assert "x" in table.read().to_arrow()["id"].to_pylist()
        assert len(epochs(table.store)) == 1
        table.rollback_failed_writes()
        assert check(table.store).findings == ()


def ended(call: Callable[[], lakelatch.Table]) -> LakeLatchError | None:
    """How a creator ended: with the table, or this error."""
    try:
        call().close()
    except LakeLatchError as e:
        return e
    return None


NEXT = {
    "creates": lambda url: lakelatch.create(url, exist_ok=True, **WANTED),
    "opens": lakelatch.open,
    "adopts": lakelatch.adopt,
    "creates another": lambda url: lakelatch.create(url, exist_ok=True, **OTHER),
}


@pytest.mark.parametrize("after", NEXT)
def test_whoever_comes_next_finishes_what_a_dead_creator_has_begun(site, calls, after):
    for number in range(1, calls + 1):
        url = site.fresh()
        error = ended(lambda url=url, n=number: site.make(url, Refuse(From(n), forever=True), **WANTED))
        begun = Path(url, ".hoodie/.lakelatch/creation").exists()
        next_ = ended(lambda url=url: NEXT[after](url))
        if after == "creates":
            assert next_ is None, (number, error)
        elif after == "opens":
            assert next_ is None or isinstance(next_, TableNotFoundError), number
        elif after == "adopts":
            assert isinstance(next_, TableNotFoundError | ConfigError), number
        else:
            assert (next_ is None) != begun, number
            if next_ is not None:
                assert isinstance(next_, ConfigError)
                assert "bucket_count is 4, and 8 was asked for" in str(next_)
                assert "type is 'copy_on_write', and 'merge_on_read' was asked for" in str(next_)
        sound(url, **(OTHER if after == "creates another" and next_ is None else WANTED))


def test_on_a_far_store_too(site, monkeypatch):
    """There the store is tried first, which may leave files, and the floor is laid beside other requests."""

    def left_by_a_trial(store: FaultStore) -> None:
        store.put_if_absent(f"{PROBES}1/row", b"")

    monkeypatch.setattr(module, "refuse_unsafe", left_by_a_trial)
    wanted = WANTED | {"lock": "none://"}

    def far(url: str, *faults: Any) -> FaultStore:
        store = FaultStore(LocalStore(url), *faults)
        store.url = f"far://{url}"
        return store

    store = far(url := site.fresh())
    site.make(url, store=store, **wanted).close()
    for number in some(range(1, len(store.calls) + 1), 8):
        url = site.fresh()
        stalled = far(url, Refuse(From(number), forever=True))
        ended(lambda url=url, store=stalled: site.make(url, store=store, **wanted))
        assert ended(lambda url=url: site.make(url, store=far(url), exist_ok=True, **wanted)) is None, number
        sound(url, **wanted)


@pytest.mark.parametrize("fault", [LoseReply, Late])
def test_a_put_whose_answer_is_lost_is_put_again(site, calls, fault):
    for number in range(1, calls + 1):
        store = FaultStore(LocalStore(url := site.fresh()), fault(At(number)))
        ended(lambda url=url, store=store: site.make(url, store=store, **WANTED))
        store.land()
        sound(url, **WANTED)


@pytest.mark.parametrize("other", ["the same", "another one"])
@pytest.mark.parametrize("exist_ok", [True, False])
def test_two_creators_in_any_order(site, calls, other, exist_ok):
    """A makes so many calls, B so many, then A the rest, and B the rest."""
    theirs = WANTED if other == "the same" else OTHER
    steps = [(first, second) for first in some(range(1, calls + 1), 7) for second in some(range(1, calls + 4), 3)]
    for first, second in steps:
        url, errors = site.fresh(), dict[str, LakeLatchError | None]()
        reached, go_on = threading.Event(), threading.Event()

        def run_b(url=url, second=second, errors=errors, reached=reached, go_on=go_on) -> None:
            stop = Pause(At(second), call=lambda: (reached.set(), go_on.wait(PATIENCE_S)))
            errors["B"] = ended(lambda: site.make(url, stop, exist_ok=exist_ok, **theirs))
            reached.set()

        b = threading.Thread(target=run_b)
        begin_b = Pause(At(first), call=lambda b=b, reached=reached: (b.start(), reached.wait(PATIENCE_S)))
        errors["A"] = ended(lambda url=url, p=begin_b: site.make(url, p, exist_ok=exist_ok, **WANTED))
        go_on.set()
        b.join()
        lost = [error for error in errors.values() if error is not None]
        where = (first, second, errors)
        if exist_ok and other == "the same":
            assert not lost, where
        else:
            (error,) = lost
            assert isinstance(error, ConfigError if exist_ok else InputError), where
            if other == "another one":
                assert "bucket_count is" in str(error), where
        sound(url, **(theirs if errors["A"] is not None else WANTED))


def test_many_at_once_have_one_table(tmp_path):
    url, errors, gate = str(tmp_path / "t"), [], threading.Barrier(6)

    def work(number: int) -> None:
        gate.wait()
        try:
            with lakelatch.create(url, record_key="id", exist_ok=True) as table:
                table.insert([{"id": str(number)}])
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    assert lakelatch.open(url).read().count() == 6


def test_a_creator_that_stalls_puts_nothing_into_a_table_that_has_lived_since(site, calls):
    wanted = WANTED | {"lock": "none://"}  # others need not wait for a lock that it holds
    for number in some(range(1, calls + 1), 8):
        url = site.fresh()

        def others(url=url) -> None:
            with lakelatch.create(url, exist_ok=True, **wanted) as table:
                table.insert([{"id": "a"}])
                table.change_settings(isolation="serializable")
                table.session.log.close_epoch()
                table.insert([{"id": "b"}])

        stop = Pause(At(number), call=others)
        ended(lambda url=url, stop=stop: site.make(url, stop, exist_ok=True, **wanted))
        with lakelatch.open(url) as table:
            assert table.settings.isolation == "serializable"
            assert sorted(table.read().to_arrow()["id"].to_pylist()) == ["a", "b"]
            assert check(table.store).findings == ()


def test_another_engine_that_makes_the_table_first_keeps_it(site, calls, tmp_path):
    """What it writes of the table is not ours to give a log."""
    lakelatch.create(str(tmp_path / "model"), record_key="id", database="jvm").close()
    theirs = (tmp_path / "model/.hoodie/hoodie.properties").read_bytes()
    for number in range(1, calls + 1):
        url, there = site.fresh(), []

        def engine(url=url, there=there) -> None:
            properties = Path(url, ".hoodie/hoodie.properties")
            there.append(properties.exists())
            if not there[0]:
                properties.parent.mkdir(parents=True, exist_ok=True)
                properties.write_bytes(theirs)

        stop = Pause(At(number), call=engine)
        error = ended(lambda url=url, stop=stop: site.make(url, stop, **WANTED))
        if not there[0]:
            assert isinstance(error, InputError), number
            assert "already" in str(error), number
            assert not Path(url, ".hoodie/.lakelatch/log").exists(), number
            with lakelatch.adopt(url) as table:
                table.insert([{"id": "x"}])


def test_a_table_that_has_lost_its_properties_is_not_made_again(tmp_path):
    url = str(tmp_path / "t")
    lakelatch.create(url, **WANTED).insert([{"id": "x"}])
    properties = tmp_path / "t/.hoodie/hoodie.properties"
    body = properties.read_bytes()
    properties.unlink()
    for call in (lambda: lakelatch.create(url, exist_ok=True, **WANTED), lambda: lakelatch.open(url)):
        with pytest.raises(CorruptTableError, match="created half, or damaged"):
            call()
    properties.write_bytes(body)
    sound(url, **WANTED)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"v": 2}', b'{"v": 1, "properties": 1, "epoch": 1, "opening": ""}']
)
def test_a_damaged_claim_is_told(tmp_path, body):
    (tmp_path / "t/.hoodie/.lakelatch").mkdir(parents=True)
    (tmp_path / "t/.hoodie/.lakelatch/creation").write_bytes(body)
    with pytest.raises(CorruptTableError, match="is damaged"):
        lakelatch.create(str(tmp_path / "t"), **WANTED)


# --- another one than was asked for -------------------------------------------------------------------------------------

COLUMNS = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int32()), ("n", pa.int64())])
THERE: dict[str, Any] = {
    "record_key": "id",
    "partition_by": "p",
    "ordering_field": "v",
    "schema": COLUMNS,
    "bucket_count": 4,
}
MORE = pa.schema([*COLUMNS, ("q", pa.int64())])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"type": "merge_on_read"}, "type is 'copy_on_write', and 'merge_on_read' was asked for"),
        ({"hive_style": False}, "hive_style is True, and False was asked for"),
        ({"table_version": 9}, "table_version is 8, and 9 was asked for"),
        ({"name": "x"}, "name is 't', and 'x' was asked for"),
        ({"database": "d"}, "database is 'default', and 'd' was asked for"),
        ({"record_key": "p"}, r"record_key is \('id',\), and \('p',\) was asked for"),
        ({"partition_by": "v"}, r"partition_by is \('p',\), and \('v',\) was asked for"),
        ({"ordering_field": "id"}, r"ordering_field is \('v',\), and \('id',\) was asked for"),
        ({"schema": MORE}, "column q is 'not there', and 'int64' was asked for"),
        ({"schema": COLUMNS.set(2, pa.field("v", pa.string()))}, "column v is 'int32', and 'string' was asked for"),
        ({"schema": COLUMNS.remove(2), "ordering_field": ...}, "column v is 'int32', and 'left out'"),
        ({"schema": COLUMNS.set(3, pa.field("n", pa.int32()))}, "column n is 'int64', and 'int32' was asked for"),
        ({"partition_by": ()}, r"partition_by is \('p',\), and \(\) was asked for"),
        ({"ordering_field": None}, r"ordering_field is \('v',\), and \(\) was asked for"),
        ({"bucket_count": None}, "bucket_count is 4, and None was asked for"),
        ({"lock": "none://"}, "lock is 'table', and 'none://' was asked for"),
        ({"merge": "partial_update"}, "merge is"),
        ({"ties": "first"}, "ties is 'last', and 'first' was asked for"),
        ({"unique_constraints": ["v"]}, "unique_constraints is"),
        ({"lease_s": 5.0}, "lease_s is 30.0, and 5.0 was asked for"),
    ],
)
def test_a_table_that_is_there_is_compared_in_all_that_was_asked_for(tmp_path, asked, said):
    url = str(tmp_path / "t")
    lakelatch.create(url, **THERE).close()
    asked = {name: value for name, value in (THERE | asked).items() if value is not ...}
    with pytest.raises(ConfigError, match=said) as told:
        lakelatch.create(url, exist_ok=True, **asked)
    assert len(told.value.differences) == 1
    with pytest.raises(InputError, match=f"already, and it is another one: {said}"):
        lakelatch.create(url, **asked)
    lakelatch.create(url, exist_ok=True, **THERE).close()


def test_every_difference_is_named(tmp_path):
    url = str(tmp_path / "t")
    lakelatch.create(url, **THERE).close()
    with pytest.raises(ConfigError) as told:
        lakelatch.create(url, exist_ok=True, record_key="p", hive_style=False, isolation="serializable", schema=MORE)
    assert set(told.value.differences) == {"record_key", "hive_style", "isolation", "column q"}
    assert all(name in str(told.value) for name in told.value.differences)


def test_what_is_left_out_is_as_it_is(tmp_path):
    url = str(tmp_path / "t")
    made = THERE | {"type": "merge_on_read", "table_version": 9, "hive_style": False, "database": "d", "name": "n"}
    lakelatch.create(url, **made).close()
    with lakelatch.create(url, record_key="id", exist_ok=True) as table:
        assert table.config.merge_on_read


def test_columns_that_came_later_are_no_difference(tmp_path):
    url, inside = str(tmp_path / "t"), pa.struct([("a", pa.int32())])
    made = {
        "record_key": "id",
        "schema": pa.schema([("id", pa.string()), pa.field("v", pa.int32(), nullable=False), ("s", inside)]),
    }
    with lakelatch.create(url, **made) as table:
        table.add_column("w", "string")
        table.add_column("s.b", "string")
        table.widen_column("v", "int64")
    lakelatch.create(url, exist_ok=True, **made).close()
    with pytest.raises(ConfigError, match="column v is 'int64 not null', and 'int32' was asked for"):
        lakelatch.create(
            url, exist_ok=True, **made | {"schema": pa.schema([("id", pa.string()), ("v", pa.int32()), ("s", inside)])}
        )


def test_settings_of_a_table_without_a_log_are_not_those_that_were_asked_for(tmp_path):
    import shutil

    url = str(tmp_path / "t")
    lakelatch.create(url, record_key="id").insert([{"id": "a"}])
    shutil.rmtree(tmp_path / "t/.hoodie/.lakelatch")
    with lakelatch.create(url, record_key="id", exist_ok=True) as table:
        assert not table.writable
    with pytest.raises(ConfigError, match="bucket_count is 'no commit log"):
        lakelatch.create(url, record_key="id", bucket_count=4, exist_ok=True)
