"""`lakelatch read`, `sql`, `upsert`, `delete` and `diff`: rows go out, in, and compared."""

from __future__ import annotations

import datetime
import decimal
import errno
import json
import math
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.entries.entries import Begin, End
from lakelatch.occ.scan import differences
from lakelatch.occ.scan.as_dataset import ScanDataset
from lakelatch.testing.contention import PATIENCE_S

from .test_process import on_terminal


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def odd(tmp_path: Path) -> str:
    """A table of every kind of value that a file could lose."""
    rows = pa.table(
        {
            "id": ["007", "NA", "null", '"', "ü𝄞\n{}%s", "nul"],
            "n": pa.array([1, None, -(2**63), 2**63 - 1, 0, 5], pa.int64()),
            "x": pa.array([math.nan, math.inf, -math.inf, -0.0, 1e-300, None]),
            "text": ["", None, "null", "NaN", "a,b\r\nc", "{}"],
            "day": [datetime.date(1582, 10, 4), None, datetime.date(9999, 12, 31), *[datetime.date(2026, 1, 2)] * 3],
            "at": pa.array([0, -1, None, 2**50, 1, 2], pa.timestamp("us", "UTC")),
            "money": pa.array([decimal.Decimal("1.10"), None, *[decimal.Decimal("-0.01")] * 4], pa.decimal128(10, 2)),
            "raw": [b"", None, b"\x00\xff", *[b"x"] * 3],
            "flag": [True, False, None, True, True, True],
        }
    )
    url = str(tmp_path / "odd")
    with lakelatch.create(url, record_key="id") as table, table.transaction() as txn:
        txn.upsert(rows)
    return url


def content(url: str) -> str:
    with lakelatch.open(url) as table:
        return repr(sorted(table.read().to_pylist(), key=lambda row: row["id"]))


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "arrow"])
def test_rows_that_were_written_to_a_file_come_back_as_they_were(run, odd, tmp_path, kind):
    before, columns = content(odd), []
    if kind == "csv":  # Arrow's CSV has no bytes that are no text
        columns = ["--columns", "id,n,x,text,day,at,money,flag"]
    file = str(tmp_path / f"rows.{kind}")
    assert run("read", odd, "-o", file, *columns).stdout == f"6 rows in {file}\n"
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    again = str(tmp_path / "again")
    with lakelatch.open(odd) as old:
        schema = old.schema()
    with lakelatch.create(again, record_key="id", schema=schema):
        pass
    told = run.json("upsert", again, file, *(["--missing", "null"] if columns else []))
    assert (told["given"], told["inserted"], told["updated"], told["attempts"]) == (6, 6, 0, 1)
    after = content(again)
    if columns:
        with lakelatch.open(odd) as old, lakelatch.open(again) as new:
            names = columns[1].split(",")
            before, after = (repr(each.read(columns=names).to_pylist()) for each in (old, new))
    assert after == before
    assert run.json("delete", again, file)["deleted"] == 6
    assert content(again) == "[]"
    told = run.json("insert", again, file, *(["--missing", "null"] if columns else []))
    assert (told["operation"], told["inserted"]) == ("insert", 6)


def test_a_table_in_the_terminal_fits_80_columns_and_names_what_it_leaves_out(tmp_path):
    url = str(tmp_path / "wide")
    with lakelatch.create(url, record_key="id") as table, table.transaction() as txn:
        txn.upsert(pa.table({"id": [str(n) for n in range(30)]} | {f"col_{n}": ["東京" * 20] * 30 for n in range(30)}))
    out = on_terminal(80, "read", url)
    from rich.cells import cell_len

    assert max(map(cell_len, out.splitlines())) <= 80
    assert "not shown: " in out
    assert "col_29" in out
    assert "the first 20 rows; --limit shows more" in out


def test_read_takes_columns_a_condition_a_partition_a_time_and_a_limit(run, table):
    first = table.timeline().commits[0].requested
    for commit in table.timeline().commits:
        first = commit.requested if table.read(as_of=commit.requested).count() else first
        if table.read(as_of=first).count():
            break
    rows = lines(run("read", table.url, "--columns", "v,id", "--where", "id in ('k1','k3')", "--json").stdout)
    assert rows == [{"v": 1, "id": "k1"}, {"v": 1, "id": "k3"}]
    old = lines(run("read", table.url, "--as-of", first, "--partition", "origin=JFK", "-n", "1", "--json").stdout)
    assert [row["v"] for row in old] == [0]
    assert run("read", table.url, "--limit", "0", "--format", "csv").stdout == '"id","origin","v"\n'
    assert "no partition" in run("read", table.url, "--partition", "origin=XXX", code=2).stderr


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "the format of standard input is not told by its name"),
        (["--format", "xml"], "is none of parquet"),
        (["--format", "parquet"], "standard input is no parquet that can be read"),
        (["--format", "arrow"], "standard input is no arrow that can be read"),
        (["--format", "json"], "standard input: line 1 is no JSON"),
        (["--format", "csv"], "the rows lack"),
        (["--format", "csv", "--missing", "perhaps"], "neither"),
        (["--format", "csv", "--batch", "nightly"], "is no batch"),
        (["--format", "csv", "--batch", "nightly:-1"], "is no batch"),
        (["--format", "csv", "--batch", ":1"], "batch source"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_before_anything_is_written(run, table, given, words):
    slots = len(list(table.session.log.entries()))
    assert words in run("upsert", table.url, "-", *given, code=2, given="what,is,this\n1,2,3\n").stderr
    assert table.read().count() == 5
    assert all(not isinstance(e, Begin) or e.slot < slots + 2 for e in list(table.session.log.entries())[slots:])


def test_a_file_that_is_loaded_again_by_its_batch_is_written_once(run, table):
    load = ("upsert", table.url, "-", "--format", "csv", "--batch", "night: load:17")
    given = "id,origin,v\nnew,JFK,1\n"
    first, again = (json.loads(run(*load, "--json", given=given).stdout) for _ in range(2))
    assert (first["repeated"], again["repeated"], again["instant"]) == (False, True, first["instant"])
    assert "landed before" in run(*load, given=given).stdout
    assert table.last_batch("night: load") == 17


def test_json_lines_say_which_columns_they_have(run, table):
    def upsert(row: dict, *more: str, code: int = 2):
        return run("upsert", table.url, "-", "--format", "json", *more, code=code, given=json.dumps(row)).stderr

    row = {"id": "new", "origin": "JFK"}
    assert "the rows lack v" in upsert(row)
    assert "no column 'extra'" in upsert(row | {"extra": "v"}, "--missing", "null")
    assert "--new-columns yes is neither" in upsert(row | {"v": 1}, "--new-columns", "yes")
    upsert(row | {"v": 1, "extra": "v"}, "--new-columns", "add", code=0)
    assert "extra" in table.schema().names
    bad = '{"id": "a", "origin": "b", "v": 1}\n[1]\n'
    told = run("upsert", table.url, "-", "--format", "json", code=2, given=bad).stderr
    assert "standard input: line 2 is no JSON object" in told
    assert "jq -c" in told
    bad = '{"id": "a", "origin": "b", "v": 1}\n{"id": "a", "origin": "b", "v": "x"}\n'
    told = run("upsert", table.url, "-", "--format", "json", code=2, given=bad).stderr
    assert "standard input: column 'v' is int64 and cannot hold 'x' in row 1; nothing was written" in told
    bad = '{"id": "a", "origin": "b", "v": 1, "w": 1}\n{"id": "a", "origin": "b", "v": 1, "w": "x"}\n'
    told = run("upsert", table.url, "-", "--format", "json", "--new-columns", "add", code=2, given=bad).stderr
    assert "column 'w' holds text ('x') and an int (1)" in told


def test_times_that_python_has_none_for_are_printed_as_numbers(run, tmp_path):
    url, output = str(tmp_path / "far"), str(tmp_path / "rows.json")
    moments = pa.array([0, 2**60], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"id": ["a", "b"], "at": moments, "in": pa.StructArray.from_arrays([moments], ["at"])})
    with lakelatch.create(url, record_key="id") as table:
        before = table.insert(rows.slice(0, 1)).completion
        after = table.insert(rows.slice(1)).completion
        assert {row["id"]: row["at"] for row in table.read().to_pylist()}["b"] == 2**60
        assert table.change_feed(after=before).to_pylist()[0]["in"] == {"at": 2**60}
    wanted = {"id": "b", "at": 2**60, "in": {"at": 2**60}}
    assert wanted in lines(run("read", url, "--json").stdout)
    assert str(2**60) in run("read", url).stdout
    assert lines(run("diff", url, before, after, "--json").stdout)[0]["after"]["at"] == 2**60
    assert "+ b" in run("diff", url, before, after).stdout
    run("read", url, "--output", output)
    assert wanted in lines(Path(output).read_text())


def test_sql_joins_tables_and_reads_of_them_only_what_the_query_needs(run, table, tmp_path):
    other = str(tmp_path / "names")
    with lakelatch.create(other, record_key="origin") as names, names.transaction() as txn:
        txn.upsert(pa.table({"origin": ["JFK", "LGA"], "name": ["Kennedy", "LaGuardia"]}))
    query = "select n.name, sum(f.v)::int as total from f join n using (origin) where f.id > 'k1' group by all"
    told = run("sql", query, "--table", f"f={table.url}", "--table", f"n={other}", "--json").stdout
    assert lines(told) == [{"name": "Kennedy", "total": 3}]
    assert "Kennedy      3" in run("sql", query, "--table", f"f={table.url}", "--table", f"n={other}").stdout
    for bad, words in [("select nope from f", "DuckDB refuses"), ("selec", "DuckDB refuses"), ("", "no statement")]:
        assert words in run("sql", bad, "--table", f"f={table.url}", code=2).stderr
    assert "NAME=URL" in run("sql", "select 1", "--table", "f", code=2).stderr


CHANGES = [
    "copy (select 1) to '{out}'", "copy f to '{out}' (format parquet)", "export database '{out}'", "attach '{out}'",
    "install httpfs", "load httpfs", "set threads = 1", "reset threads", "pragma threads = 1", "pragma enable_profiling",
    "create table other as select 1", "create view other as select 1", "drop view f", "delete from f", "update f set v = 1",
    "insert into f select 1", "with x as (select 1) insert into f select * from x", "begin", "checkpoint", "vacuum",
    "use memory", "prepare p as select 1", "call enable_logging()", "create secret (type s3)", "select 1; select 2",
    "select 1; copy (select 1) to '{out}'", "copy (select 1) to '{out}'; select 1", "create table x(i int); pivot f on id",
    "", " -- nothing", "; ;",
]  # fmt: skip
READS = [
    "select * from read_csv('{secret}')", "select * from read_text('{secret}')", "select * from read_blob('{secret}')",
    "select * from read_parquet('{secret}')", "select * from read_json('{secret}')", "select * from '{secret}'",
    "select * from glob('{folder}/*')", "select * from sniff_csv('{secret}')", "select * from duckdb_secrets()",
    "select * from 'http://127.0.0.1:1/x.csv'", "select * from query('from read_text(''{secret}'')')",
    "explain analyze copy (select 1) to '{out}'", "describe from read_csv('{secret}')", "select * from tables",
    "select (select content from read_text('{secret}')) from f", "import database '{folder}'",
]  # fmt: skip
QUERIES = [
    "from f", "table f", "values (1)", "describe f", "summarize f", "show tables", "pivot f on id using sum(v)", "select 1;",
    "with x as (from f) from x", "explain from f", "select count(*) from f union all select 2", "pragma table_info('f')",
]  # fmt: skip


def test_sql_runs_one_statement_that_reads_the_named_tables_and_nothing_else(run, table, tmp_path, monkeypatch):
    secret, out = tmp_path / "secret.csv", tmp_path / "out"
    secret.write_text("word\nhush\n")
    monkeypatch.chdir(tmp_path)

    def files():
        return {each: each.stat().st_mtime_ns for each in tmp_path.rglob("*") if each.is_file()}

    before = files()
    for statement in (*CHANGES, *READS):
        query = statement.format(secret=secret, out=out, folder=tmp_path)
        refused = run("sql", query, "--table", f"f={table.url}", code=2)
        assert ("nothing was run" if statement in CHANGES else "DuckDB refuses") in refused.stderr, statement
        assert "hush" not in refused.stdout + refused.stderr
    for query in QUERIES:
        assert run("sql", query, "--table", f"f={table.url}").stdout, query
    assert files() == before


def test_sql_refuses_what_is_no_text_and_columns_that_json_would_lose(run, table, tmp_path):
    assert "half of a surrogate pair" in run("sql", "select '\udcff'", code=2).stderr
    twice = "select 1 as a, 2 as a, 3 as b"
    for options in (["--json"], ["--format", "json"], ["-o", str(tmp_path / "rows.json")]):
        assert "two columns of the result are called 'a'" in run("sql", twice, *options, code=2).stderr
    assert not (tmp_path / "rows.json").exists()
    assert run("sql", twice, "--format", "csv").stdout.splitlines()[-1] == "1,2,3"


def test_duckdb_hands_projection_and_filters_down_to_the_scan_and_gets_the_same_rows(odd):
    import duckdb

    asked = []

    class Watched(ScanDataset):
        def scanner(self, columns=None, filter=None):  # noqa: A002
            found = super().scanner(columns, filter)
            asked.append((found._scan.schema.names, found._scan._wanted.condition is not None))
            return found

    with lakelatch.open(odd) as table, duckdb.connect() as here:
        everything = table.read().to_arrow()
        here.register("t", Watched(table.read()))
        here.register("arrow", everything)
        here.execute(
            "create table told as select * from arrow"
        )  # DuckDB 1.5 compares NaN in Arrow's tables as Arrow does
        assert here.execute("select id from t where n = 1").fetchall() == [("007",)]
        ((columns, filtered),) = asked
        assert filtered
        assert columns in (["id"], ["id", "n"]), "DuckDB 1 asks for the filter's column, too"
        conditions = [
            "n > 0", "n is null", "n in (1, 5)", "x > 1", "x < 0", "x = 0", "x = 'nan'::double", "text = ''",
            "text is not null and n < 9", "day < '1900-01-01'", "\"at\" > '1970-01-01 00:00:00Z'", "money < 0", "flag",
            "not flag", "raw = ''::blob", "id like 'N%'", "n > 0 or text is null", "n <> 1",
        ]  # fmt: skip
        for condition in conditions:
            ours, theirs = (
                sorted(here.execute(f"select id from {each} where {condition}").fetchall()) for each in ("t", "told")
            )
            assert ours == theirs, condition


def model_of(url: str, as_of: str) -> dict[tuple[str, str], str]:
    with lakelatch.open(url) as table:
        rows = table.read(columns=["_hoodie_partition_path", "_hoodie_record_key", "v", "x"], as_of=as_of).to_pylist()
    return {(row["_hoodie_partition_path"], row["_hoodie_record_key"]): repr((row["v"], row["x"])) for row in rows}


@pytest.mark.parametrize("seed", range(6))
def test_diff_says_what_two_reads_would(run, tmp_path, seed):
    pick, url, instants = random.Random(seed), str(tmp_path / "t"), []
    buckets = {"bucket_count": 2} if seed % 2 else {}
    with lakelatch.create(url, record_key="id", partition_by="p", **buckets) as table:
        for step in range(7):
            with table.transaction() as txn:
                number = pick.randrange(1, 12)
                chosen = pick.sample(range(20), number)
                places = [pick.choice("ab") for _ in chosen]
                if step and pick.random() < 0.3:
                    txn.delete(pa.table({"id": [str(n) for n in chosen], "p": places}))
                else:
                    values = [pick.choice([None, 0, 1, 2]) for _ in chosen]
                    floats = pa.array([pick.choice([None, math.nan, 1.0]) for _ in chosen], pa.float64())
                    txn.upsert(
                        pa.table(
                            {
                                "id": [str(n) for n in chosen],
                                "p": places,
                                "v": pa.array(values, pa.int64()),
                                "x": floats,
                            }
                        )
                    )
            if txn.result:
                instants.append(txn.instant)
            if step == 3 and not buckets and (plan := table.cluster()):
                instants.append(plan.instant)
        for a, b in [(0, -1), (1, -2), (0, 1), (2, 2)]:
            before, after = sorted([instants[a], instants[b]])
            was, now = model_of(url, before), model_of(url, after)
            expected = {key: "added" for key in now if key not in was} | {
                key: "removed" for key in was if key not in now
            }
            expected |= {key: "changed" for key in was if key in now and was[key] != now[key]}
            *rows, summary = lines(run("diff", url, before, after, "--json").stdout)
            assert {(row["partition"], row["key"]): row["kind"] for row in rows} == expected
            assert len(rows) == len(expected)
            kinds = list(expected.values())
            told = {kind: kinds.count(kind) for kind in ("added", "changed", "removed")}
            assert summary["summary"] == {"before": before, "after": after, **told}


def test_diff_tells_rows_and_columns_and_compares_no_file_that_both_states_have(run, table):
    second = table.timeline().commits[-1].requested
    with table.transaction() as txn:
        txn.upsert(pa.table({"id": ["k1", "new"], "origin": ["JFK", "LGA"], "v": [7, 8]}))
    out = run("diff", table.url, second, txn.instant).stdout
    assert out.splitlines()[:2] == ["~ origin=JFK/k1: v 1 -> 7", "+ origin=LGA/new"]
    assert out.splitlines()[2].startswith("1 added, 1 changed, 0 removed")
    assert "1 more" in run("diff", table.url, second, txn.instant, "--limit", "1").stdout
    assert "name the earlier" in run("diff", table.url, txn.instant, second, code=2).stderr
    assert [each.partition for each in differences(table.session, second, txn.instant)] == ["origin=JFK", "origin=LGA"]


def test_several_rows_of_one_key_are_compared_one_by_one(tmp_path):
    url = str(tmp_path / "t")
    with lakelatch.create(url, record_key="id") as table:
        with table.transaction("insert") as first:
            first.new_file().write(pa.table({"id": ["a", "a", "b"], "v": [1, 2, 3]}))
        with table.transaction() as second:
            (group,) = second.snapshot.file_slices()
            second.rewrite(group).write(pa.table({"id": ["a", "a", "a", "b"], "v": [1, 5, 6, 3]}))
        found = {each.kind: each for each in differences(table.session, first.instant, second.instant)}
    assert sorted(found) == ["added", "changed"]
    assert found["changed"].before.column("v").to_pylist() == [2]
    assert found["changed"].after.column("v").to_pylist() == [5]
    assert found["added"].after.column("v").to_pylist() == [6]


@pytest.mark.parametrize("from_stdin", [False, True])
def test_a_value_of_a_csv_file_that_does_not_fit_is_told_with_its_column(run, table, tmp_path, from_stdin):
    file = tmp_path / "rows.csv"
    file.write_text('id,"or,igin",v\n' + "".join(f"k{n},JFK,{n}\n" for n in range(200_000)) + "k,JFK,nine\n")
    given = {"given": file.read_text()} if from_stdin else {}
    found = run("upsert", table.url, *(("-", "--format", "csv") if from_stdin else (str(file),)), code=2, **given)
    assert "column 'v' is int64: invalid value 'nine'; nothing was written" in found.stderr


def test_ctrl_c_while_rows_are_written_aborts_the_transaction_and_leaves_no_file(table, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("id,origin,v\nk1,JFK,9\n")
    with table.lock.lease("a test"):  # so that it has written its file and waits to commit
        child = subprocess.Popen(
            [sys.executable, "-m", "lakelatch.cli", "upsert", table.url, str(file), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
        )  # fmt: skip
        folder = Path(table.url.removeprefix("file://"))
        known = set(folder.rglob("*.parquet"))
        while set(folder.rglob("*.parquet")) == known:
            assert child.poll() is None, child.communicate()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 130, err
    assert "interrupted" in err
    assert json.loads(out)["error"]["type"] == "Interrupted"
    assert isinstance(list(table.session.log.catch_up() and table.session.log.entries())[-1], End)
    assert set(folder.rglob("*.parquet")) == known
    assert table.read(where="v = 9").count() == 0


def test_a_file_that_cannot_be_written_leaves_nothing_behind(run, table, tmp_path):
    assert "cannot be written" in run("read", table.url, "-o", str(tmp_path / "no/such.csv"), code=2).stderr
    assert "binary" in run("read", table.url, "--format", "parquet", code=2).stderr
    assert "--json prints lines" in run("read", table.url, "--json", "-o", "x.csv", code=2).stderr
    assert not Path("x.csv").exists()


def test_rows_take_the_place_of_a_file_only(run, table, tmp_path):
    """The finished file is renamed to its place: a device or a pipe there would be gone."""
    os.mkfifo(tmp_path / "rows.csv")
    (tmp_path / "rows.json").mkdir()
    for name, kind in (("rows.csv", "a named pipe"), ("rows.json", "a folder")):
        assert f"it is {kind}" in run("read", table.url, "-o", str(tmp_path / name), code=2).stderr
    (tmp_path / "null.csv").symlink_to("/dev/null")
    assert "it is a device" in run("read", table.url, "-o", str(tmp_path / "null.csv"), code=2).stderr
    assert (tmp_path / "null.csv").is_symlink()


@pytest.mark.parametrize("limit", ["1" + "0" * 18, "9" * 18, "9223372036854775808", "1" + "0" * 25])
@pytest.mark.parametrize("more", [[], ["--json"], ["--format", "csv"]])
def test_a_limit_may_be_any_number(run, table, limit, more):
    assert "k4" in run("read", table.url, "--limit", limit, *more).stdout


def test_what_the_system_lacks_is_no_fault_of_ours(run, table, monkeypatch):
    def refused(*_args, **_options):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(lakelatch, "open", refused)
    assert "raise its limit (ulimit -n)" in run("read", table.url, code=2).stderr


def test_a_query_of_a_table_that_was_not_named_says_how_to(run, table):
    assert "tables are named with --table NAME=URL" in run("sql", "select * from flights", code=2).stderr


def test_create_says_whether_the_table_was_there(run, tmp_path):
    words = ("create", str(tmp_path / "t"), "--record-key", "id", "--exist-ok")
    assert run(*words).stdout.startswith("created ")
    assert run(*words).stdout.startswith("already there: ")
