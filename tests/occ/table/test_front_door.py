"""What is refused before anything is written, and places that are one place however they are spelled."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.locks import open_provider
from lakelatch.occ.check.check import check
from lakelatch.occ.entries import End
from lakelatch.occ.session.table_lock import OWN_LOCK_FOLDER
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.storage import open_store

ROWS = pa.table({"id": ["a", "b"], "place": ["JFK", "LGA"], "value": [1, 2]})


def made(folder: Path, **options: object) -> lakelatch.Table:
    return lakelatch.create(str(folder), record_key="id", partition_by="place", schema=ROWS.schema, **options)


def files(folder: Path) -> dict[Path, bytes]:
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    "spell",
    [
        lambda p: f"{p}/",
        lambda p: f"file://{p}",
        lambda p: f"file:{p}//",
        lambda p: f"{p}/../{p.name}",
        lambda p: os.path.relpath(p),
        lambda p: str(p.parent / "link"),
    ],
    ids=["slash", "url", "short-url", "dots", "relative", "link"],
)
def test_every_spelling_is_the_same_table_and_the_same_lock(tmp_path, spell):
    table = made(tmp_path / "table")
    (tmp_path / "link").symlink_to(tmp_path / "table")
    with lakelatch.open(spell(tmp_path / "table")) as other:
        assert other.url == table.url
        with table.session.lease("first"):
            holder = holder_of(other)
            assert holder is not None
            assert "first" in holder.reason


def holder_of(table: lakelatch.Table):
    with open_provider(f"{table.url}/{OWN_LOCK_FOLDER}") as provider:
        return provider.inspect("table")


def test_a_folder_with_other_files_is_not_made_a_table(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(lakelatch.InputError, match=r"not empty \(notes.txt\)"):
        made(tmp_path)
    assert files(tmp_path) == {Path("notes.txt"): b"mine"}


def test_a_folder_that_is_no_table_is_not_opened(tmp_path):
    with pytest.raises(lakelatch.TableNotFoundError, match="lakelatch create"):
        lakelatch.open(str(tmp_path))
    assert files(tmp_path) == {}


@pytest.mark.parametrize(
    ("given", "named", "near"),
    [
        ({"record_key": "my id"}, "record_key='my id'", "my_id"),
        ({"record_key": ["id", "größe"]}, r"record_key=\['id', 'größe'\]", "groe"),
        ({"record_key": "meta.id"}, "record_key='meta.id'.* 'meta_id'. A field inside", ""),
        ({"record_key": "_hoodie_record_key"}, "record_key=.*Hudi keeps", "hoodie_record_key"),
        ({"partition_by": "a-b"}, "partition_by='a-b'", "a_b"),
        ({"partition_by": ["a", "_metadata"]}, "partition_by=.*Spark keeps", "metadata"),
        ({"ordering_field": "1st"}, "ordering_field='1st'", "_1st"),
        ({"unique_constraints": "e mail"}, "unique_constraints: .*'e mail'", "e_mail"),
        ({"unique_constraints": ["a", ["b", "c.d"]]}, "unique_constraints: .*'c.d'", "c_d"),
        ({"statistics": ["a", "b c"]}, "statistics: .*'b c'", "b_c"),
        ({"merge": {"a b": "sum"}, "table_version": 9}, "merge: .*'a b'", "a_b"),
        ({"record_key": ["id", "ID"]}, "ignores case", ""),
        ({"partition_by": "ID"}, "'id' and 'ID' .*ignores case", ""),
        ({"partition_by": "day", "ordering_field": "Day"}, "'day' and 'Day' .*ignores case", ""),
    ],
)
def test_a_table_whose_columns_no_row_can_have_is_not_made(tmp_path, given, named, near):
    with pytest.raises((lakelatch.InputError, lakelatch.ConfigError), match=f"{named}.*{near}"):
        lakelatch.create(str(tmp_path / "t"), **{"record_key": "id"} | given)
    assert not (tmp_path / "t").exists()


def test_columns_that_no_row_can_have_are_refused_later_too(tmp_path):
    schema = pa.schema([("id", pa.string()), ("a", pa.int64()), ("at", pa.int64())])
    settings = {"type": "merge_on_read", "table_version": 9, "bucket_count": 1}
    with lakelatch.create(str(tmp_path / "t"), record_key="id", schema=schema, **settings) as table:
        with pytest.raises(lakelatch.ConfigError, match=r"unique_constraints: .*'e mail'.*'e_mail'"):
            table.change_settings(unique_constraints=["e mail"])
        with pytest.raises(lakelatch.InputError, match=r"stream 's' .*'a b'.*'a_b'"):
            table.stream("s", columns=["a", "a b"], ordering="at")


def test_a_table_is_not_made_twice(tmp_path):
    made(tmp_path / "t").close()
    before = files(tmp_path)
    with pytest.raises(lakelatch.InputError, match=r"a table at .* already"):
        made(tmp_path / "t")
    assert files(tmp_path) == before
    with made(tmp_path / "t", exist_ok=True) as table:
        assert table.read().count() == 0


def test_a_table_made_half_says_what_to_do(tmp_path):
    made(tmp_path / "t").close()
    (tmp_path / "t/.hoodie/hoodie.properties").unlink()
    with pytest.raises(lakelatch.CorruptTableError, match="created half"):
        lakelatch.open(str(tmp_path / "t"))


def test_a_table_without_our_log_is_read_only_until_it_is_adopted(tmp_path):
    with made(tmp_path / "t") as table, table.transaction("insert") as txn:
        txn.new_file("place=JFK").write(ROWS.slice(0, 1))
    shutil.rmtree(tmp_path / "t/.hoodie/.lakelatch")
    with lakelatch.open(str(tmp_path / "t")) as table:
        assert table.read().to_arrow()["id"].to_pylist() == ["a"]
        with pytest.raises(lakelatch.UnsupportedTableError, match="lakelatch adopt"):
            table.transaction()
    with lakelatch.adopt(str(tmp_path / "t")) as table, table.transaction("insert") as txn:
        txn.new_file("place=LGA").write(ROWS.slice(1, 1))
    assert lakelatch.open(str(tmp_path / "t")).read().count() == 2


def test_a_wrong_checksum_is_refused(tmp_path):
    made(tmp_path / "t").close()
    properties = tmp_path / "t/.hoodie/hoodie.properties"
    properties.write_text(properties.read_text().replace("hoodie.table.checksum=", "hoodie.table.checksum=1"))
    with pytest.raises(lakelatch.CorruptTableError, match="checksum"):
        lakelatch.open(str(tmp_path / "t"))


def test_a_metadata_table_that_appears_later_stops_writers(tmp_path):
    with made(tmp_path / "t") as table:
        with (tmp_path / "t/.hoodie/hoodie.properties").open("a") as file:
            file.write("hoodie.table.metadata.partitions=files\n")
        with pytest.raises(lakelatch.UnsupportedTableError, match=r"hoodie\.metadata\.enable=false"):
            table.transaction()


@pytest.mark.parametrize("name", ["nobody", "lease"])
def test_unknown_settings_are_refused_before_anything_is_written(tmp_path, name):
    with pytest.raises(lakelatch.ConfigError, match=name):
        made(tmp_path / "t", **{name: 1})
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("url", ["nobody://x", "file:///x?lease=never"])
def test_a_lock_that_cannot_work_is_refused_before_anything_is_written(tmp_path, url):
    with pytest.raises(lakelatch.ConfigError):
        made(tmp_path / "t", lock=url)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("place", ["a/../b", "..", "x\0y", ".hidden", "p" * 300])
def test_a_partition_never_leads_out_of_the_table(tmp_path, place):
    with made(tmp_path / "t", hive_style=False) as table:
        before = files(tmp_path)
        rows = pa.table({"id": ["a"], "place": [place], "value": [1]})
        with pytest.raises(lakelatch.LakeLatchError), table.transaction("insert") as txn:
            txn.new_file(place).write(rows)
        assert {p for p in files(tmp_path) if p.suffix == ".parquet"} == {p for p in before if p.suffix == ".parquet"}
        assert table.read().count() == 0
    assert {p.name for p in tmp_path.iterdir()} == {"t"}


@pytest.mark.parametrize("name", ["a#b", "a?b", "q?lease=3s", "a%23b", "a b", "\u00fc#?x", "x;y&z=1", "e\\f", "{y}"])
def test_a_folder_may_have_any_name(tmp_path, name):
    with made(tmp_path / name) as table, table.transaction("upsert") as txn:
        txn.upsert(ROWS)
    for spelled in (str(tmp_path / name), table.url, tmp_path / name):
        with lakelatch.open(spelled) as other:
            assert other.url == table.url
            with other.transaction("upsert") as txn:
                txn.upsert(ROWS)
            assert other.read().count() == 2
            assert holder_of(other) is None
    assert check(table.store, deep=True).sound()
    assert [each.name for each in tmp_path.iterdir()] == [name], "the lock too lies in the table's own folder"


@pytest.mark.parametrize("url", ["", " ", "\t", " t", "t ", "~", "~/t", "~root/t", Path("~/t")])
@pytest.mark.parametrize("call", [lakelatch.open, lambda url: lakelatch.create(url, record_key="id"), lakelatch.adopt])
def test_what_is_no_address_is_refused_and_nothing_is_made(tmp_path, monkeypatch, url, call):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(lakelatch.InputError, match=r"not the address|blank|whose home"):
        call(url)
    assert files(tmp_path) == {}


OTHERS = {
    "Delta": ["_delta_log/00000000000000000000.json"],
    "Iceberg": ["metadata/v1.metadata.json", "metadata/version-hint.text", "data/x.parquet"],
    "Paimon": ["schema/schema-0", "snapshot/snapshot-1", "bucket-0/x.parquet"],
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("call", ["open", "create", "adopt", "check"])
def test_a_table_of_another_format_is_called_by_its_name(tmp_path, name, call):
    for each in OTHERS[name]:
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text("{}")
    before = files(tmp_path)
    with pytest.raises(lakelatch.LakeLatchError, match=rf"is an? {name} table \(it has .*another folder"):
        {
            "open": lambda: lakelatch.open(str(tmp_path)),
            "create": lambda: made(tmp_path),
            "adopt": lambda: lakelatch.adopt(str(tmp_path)),
            "check": lambda: check(open_store(str(tmp_path))),
        }[call]()
    assert files(tmp_path) == before


# What each public method is called with; it is to be refused before the arguments are looked at.
CALLS = {
    "transaction": (),
    "run": (lambda txn: None,),
    "set_lock": ("none://",),
    "file_spec": None,  # pure
    "landed": None,  # what a transaction that is being committed asks
    "look_after_others": None,  # the heartbeat's; does nothing
    "time_of": None,  # pure
    "close": None,
    "explain_row": ("x",),
    "adopt_streams": ({"s": {"columns": "v", "ordering": "at"}},),
    "stream": ("x",),
    "lease": ("x",),
    "read_slice": (None,),
    "execute": ("20200101000000000",),
    "why": ("20200101000000000",),
    "last_batch": ("x",),
    "add_column": ("more", pa.int64()),
    "widen_column": ("value", pa.float64()),
    "drop_column": ("value",),
    "upsert": (ROWS,),
    "insert": (ROWS,),
    "overwrite": (ROWS,),
    "overwrite_table": (ROWS,),
    "merge": (ROWS,),
    "delete": (ROWS,),
    "delete_where": ("value = 1",),
    "update_where": ("value = 1", {"value": 2}),
    "cancel_plan": ("20200101000000000",),
    "delete_savepoint": ("20200101000000000",),
    "restore": ("20200101000000000",),
    "lost_rows": ("20200101000000000",),
    "rescue": ("20200101000000000",),
}
WITH_NAMES = {"change_settings": {"lease_s": 9.0}}


def public(kind: type) -> list[str]:
    return [n for n in dir(kind) if not n.startswith("_") and callable(getattr(kind, n))]


@pytest.mark.parametrize("method", [name for name in public(lakelatch.Table) if CALLS.get(name, ()) is not None])
def test_a_closed_handle_refuses_and_writes_nothing(tmp_path, method):
    table = made(tmp_path / "t")
    table.close()
    table.close()
    before = files(tmp_path)
    with pytest.raises(lakelatch.TableError, match=r"handle on file:.* was closed; open"):
        getattr(table, method)(*CALLS.get(method, ()), **WITH_NAMES.get(method, {}))
    with pytest.raises(lakelatch.TableError, match="was closed"), table:
        pass
    assert files(tmp_path) == before
    assert table.settings.lease_s == 30.0
    assert table.url in repr(table)


TXN_CALLS = {
    "upsert": (ROWS,),
    "insert": (ROWS,),
    "overwrite": (ROWS,),
    "overwrite_table": (ROWS,),
    "merge": (ROWS,),
    "update_where": ("value = 1", {"value": 2}),
    "delete": (ROWS,),
    "add_column": ("more", pa.int64()),
    "widen_column": ("value", pa.float64()),
    "drop_column": ("value",),
    "delete_where": ([("value", "=", 1)],),
    "new_file": ("place=JFK",),
    "rewrite": (None,),
    "read_slice": (None,),
    "file_spec": (ROWS.schema,),
    "add": ((),),
    "drop_file_groups": ((),),
    "overwrites": (None,),
    "depends_on": (None,),
    "mark_scanned": (None,),
    "mark_lookup": (None,),
    "claim_turn": ((),),
    "abort": None,  # of one that is over: does nothing
    "lost_already": None,  # what Spark's watcher asks beside the writer's work
    "size_of": None,
    "stream": ("x",),
    "touched": None,  # what `run` asks of one that has lost
    "announced": None,  # what is asked of it while it is begun again, by the room below
    "begin_anew": None,
    "require_open": (),
}


@pytest.mark.parametrize("ended", ["closed", "committed", "aborted"])
@pytest.mark.parametrize("method", [name for name in public(Transaction) if TXN_CALLS.get(name, ()) is not None])
def test_a_transaction_that_is_over_or_whose_table_is_closed_refuses(tmp_path, method, ended):
    with made(tmp_path / "t") as table:
        txn = table.transaction("upsert")
        txn.allow_empty()
        {"closed": table.close, "committed": txn.commit, "aborted": txn.abort}[ended]()
        before = files(tmp_path)
        with pytest.raises(lakelatch.LakeLatchError, match=r"was closed; open|is over"):
            getattr(txn, method)(*TXN_CALLS.get(method, ()))
        assert files(tmp_path) == before


def test_a_file_that_is_open_when_its_table_is_closed_is_never_there(tmp_path):
    with made(tmp_path / "t") as table:
        file = table.transaction("upsert").new_file("place=JFK")
        file.write(ROWS.slice(0, 1))
    for again in (lambda: file.write(ROWS.slice(0, 1)), file.close):
        with pytest.raises(lakelatch.TableError, match="was closed"):
            again()
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_transaction_may_still_be_aborted_when_its_table_is_closed(tmp_path):
    with made(tmp_path / "t") as table:
        txn = table.transaction("upsert")
    txn.abort()
    with lakelatch.open(table.url) as again:
        assert again.session.log.catch_up().open == {}


# --- words that nobody knows -------------------------------------------------------------------------------------

MISSPELLED = {
    "partitions_by": ("partition_by", lambda url: lakelatch.create(url, record_key="id", partitions_by="place")),
    "recordkey": ("record_key", lambda url: lakelatch.create(url, recordkey="id")),
    "lock_wait": ("lock_wait_s", lambda url: lakelatch.create(url, record_key="id", lock_wait=3)),
    "treads": ("threads", lambda url: lakelatch.open(url, treads=3)),
    "leases_s": ("lease_s", lambda url: lakelatch.adopt(url, leases_s=3)),
    "column": ("columns", lambda url: made_at(url).read(column=["id"])),
    "mising": ("missing", lambda url: made_at(url).upsert(ROWS, mising="null")),
    "attempt": ("attempts", lambda url: made_at(url).delete_all(attempt=3)),
    "lease": ("lease_s", lambda url: made_at(url).change_settings(lease=9.0)),
    "retain_commit": ("retain_commits", lambda url: made_at(url).clean(retain_commit=3)),
    "partitions": ("partition", lambda url: made_at(url).transaction().delete_where("true", partitions={})),
    "updates": ("update", lambda url: made_at(url).merge(ROWS).when_matched(updates="all")),
    "conection": ("connection", lambda url: made_at(url).read().to_duckdb(conection=None)),
}


def made_at(url: str) -> lakelatch.Table:
    return lakelatch.open(url)


@pytest.mark.parametrize("word", MISSPELLED)
def test_an_unknown_argument_is_refused_with_the_one_that_comes_closest(tmp_path, word):
    meant, call = MISSPELLED[word]
    url = str(tmp_path / "t")
    if meant not in ("partition_by", "record_key", "lock_wait_s"):
        made(tmp_path / "t").close()
    with pytest.raises((TypeError, lakelatch.InputError, lakelatch.ConfigError), match=f"{word}.*'{meant}'"):
        call(url)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("said", "call"),
    [
        (
            "this call has no argument 'new_columns', as others have; there are",
            lambda t: t.delete([], new_columns="add"),
        ),
        (
            "this call has no argument 'missing', as others have; there are",
            lambda t: t.delete_where("true", missing="null"),
        ),
        ("did you mean 'attempts'\\? Names are exact here\\. There are", lambda t: t.upsert(ROWS, Attempts=3)),
    ],
)
def test_an_argument_that_only_other_verbs_have_is_not_proposed(tmp_path, said, call):
    with made(tmp_path / "t") as table, pytest.raises(lakelatch.InputError, match=said):
        call(table)


def test_what_a_call_raises_by_itself_is_left_alone(tmp_path):
    with made(tmp_path / "t") as table:

        def work(txn):
            txn.upsert(ROWS)
            raise TypeError("got an unexpected keyword argument 'attempt'")

        with pytest.raises(TypeError, match="got an unexpected keyword argument 'attempt'") as found:
            table.run(work)
        assert "mean" not in str(found.value)
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'zzz'; there are columns, where, "):
            table.read(zzz=1)


def test_a_table_that_is_there_is_named_with_the_way_to_open_it(tmp_path):
    made(tmp_path / "t").close()
    with pytest.raises(lakelatch.InputError, match=r"there is a table at .* already; .*`exist_ok=True`"):
        lakelatch.create(str(tmp_path / "t"), record_key="id")


@pytest.mark.parametrize("reason", [5, None, b"x", ["x"], "\ud800"])
def test_a_reason_that_the_log_cannot_hold_ends_nothing(tmp_path, reason):
    """A number was written, and no writer could read the log from then on."""
    with made(tmp_path / "t") as table:
        txn = table.transaction()
        txn.upsert(ROWS)
        with pytest.raises(lakelatch.InputError, match="reason="):
            txn.abort(reason)
        txn.commit()
    with lakelatch.open(str(tmp_path / "t")) as again:
        assert again.upsert(ROWS).updated == 2


@pytest.mark.parametrize("reason", [5, None, b"x", "\ud800"])
def test_an_entry_that_nobody_could_decode_is_not_written(tmp_path, reason):
    with made(tmp_path / "t") as table:
        before = files(tmp_path)
        with pytest.raises(
            lakelatch.InputError, match=r"the commit log cannot hold this abort: .*; nothing was written"
        ):
            table.session.log.append(lambda state: End("abort", "20260101000000000", "me", reason))
        assert files(tmp_path) == before
        table.upsert(ROWS)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda t: t.read(where="nope = 1"), lakelatch.InputError),
        (lambda t: t.read(where="1 / (value - value) > 1").to_arrow(), lakelatch.InputError),
        (lambda t: t.upsert([{"id": "a", "place": "x", "value": "many"}]), lakelatch.InputError),
        (lambda t: t.change_settings(lease_s=-1), lakelatch.ConfigError),
        (lambda t: t.merge(ROWS).when_matched(update="some").run(), lakelatch.InputError),
        (lambda t: t.transaction().upsert(5), lakelatch.InputError),
        (lambda t: t.transaction(isolation="none"), lakelatch.ConfigError),
        (lambda t: t.restore("yesterday"), lakelatch.InputError),
    ],
)
def test_errors_name_the_table_once(tmp_path, call, error):
    with made(tmp_path / "t") as table:
        table.upsert(ROWS)
        with pytest.raises(error) as found:
            call(table)
    assert str(found.value).count(table.url) == 1
    assert found.value.table == table.url


def test_an_error_of_another_table_keeps_its_name(tmp_path):
    with made(tmp_path / "one") as one, made(tmp_path / "two") as two:
        with pytest.raises(lakelatch.InputError) as found:
            one.run(lambda txn: two.upsert(5))
        assert str(found.value).startswith(f"{two.url}: ")
        assert one.url not in str(found.value)


async def later(txn):
    txn.upsert(ROWS)


def each(txn):
    yield txn.upsert(ROWS)


@pytest.mark.parametrize(
    "work", [later, each, lambda txn: later(txn), lambda: None, lambda txn, more: None], ids=range(5)
)
def test_work_that_would_not_run_is_refused_instead_of_committing_nothing(tmp_path, work):
    with made(tmp_path / "t") as table:
        with pytest.raises(lakelatch.InputError, match="work"):
            table.run(work)
        assert table.read().count() == 0
        assert not table.session.log.state.open
