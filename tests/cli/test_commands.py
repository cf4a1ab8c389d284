"""What each command prints, as text and as JSON."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.cli.history.timeline import newest
from lakelatch.hudi.table.avro_schema import to_avro
from lakelatch.hudi.timeline.archived import Archived
from lakelatch.hudi.timeline.commit_metadata import CommitMetadata, encode_commit
from lakelatch.hudi.timeline.instant import Instant, from_epoch_ms

from ..hudi.conftest import unzip
from .conftest import rows

COLUMNS = pa.schema([("id", pa.string()), ("origin", pa.string()), ("v", pa.int64())])


# --- create, adopt --------------------------------------------------------------------------------------------------------


def test_create_makes_a_table_with_settings_and_columns_of_a_parquet_file(run, tmp_path: Path):
    pq.write_table(COLUMNS.empty_table(), tmp_path / "columns.parquet")
    url = str(tmp_path / "t")
    made = run.json(
        "create", url, "--record-key", "id", "--partition-by", "origin", "--ordering-field", "v",
        "--schema", str(tmp_path / "columns.parquet"), "--bucket-count", "8", "--heartbeat-timeout-s", "40",
    )  # fmt: skip
    assert made["properties"]["record_key"] == ["id"]
    assert made["properties"]["ordering_field"] == "v"
    assert (made["settings"]["bucket_count"], made["settings"]["heartbeat_timeout_s"]) == (8, 40.0)
    with lakelatch.open(url) as table:
        assert table.schema() == COLUMNS
        assert table.config.hive_style


def test_create_takes_partitions_by_time(run, tmp_path: Path):
    url = str(tmp_path / "t")
    made = run.json("create", url, "--record-key", "id", "--partition-by", "days(at)")
    assert made["properties"]["partition_by"] == ["days(at)"]
    assert "days(at) (hive style)" in run("describe", url).stdout
    (tmp_path / "rows.csv").write_text("id,at\n1,2024-02-29T23:59:59Z\n2,1969-12-31T23:59:59Z\n")
    run("upsert", url, str(tmp_path / "rows.csv"))
    assert run.json("read", url, "--where", "at < '1970-01-01'")["id"] == 2
    assert "at_day=2024-02-29" in run("files", url).stdout


def test_create_takes_several_ordering_fields(run, tmp_path: Path):
    url = str(tmp_path / "t")
    made = run.json("create", url, "--record-key", "id", "--ordering-field", "v,origin", "--table-version", "9")
    assert made["properties"]["ordering_field"] == ["v", "origin"]
    assert "v, origin" in run("describe", url).stdout
    with lakelatch.open(url) as table:
        assert table.config.newer_by == ("v", "origin")


def test_create_takes_columns_from_an_avro_schema(run, tmp_path: Path):
    (tmp_path / "columns.json").write_text(to_avro(COLUMNS, "t"))
    url = str(tmp_path / "t")
    out = run(
        "create", url, "--record-key", "id,origin", "--schema", str(tmp_path / "columns.json"), "--no-hive-style"
    ).stdout  # fmt: skip
    assert out == f"created file://{url}: lock table, strategy simple, simple index\n"
    with lakelatch.open(url) as table:
        assert table.schema() == COLUMNS
        assert table.config.record_key_fields == ("id", "origin")
        assert not table.config.hive_style


def test_adopt_makes_a_table_of_another_writer_writable(run, tmp_path: Path):
    root = str(unzip("sample_table/cow/v9_txns_simple_nometa", tmp_path).root)
    assert "read-only: no commit log" in run("describe", root).stdout
    made = run.json("adopt", root, "none://", "--lease-s", "5")
    assert (made["settings"]["lock"], made["settings"]["lease_s"]) == ("none://", 5.0)
    assert run.json("describe", root)["writable"]
    assert run.json("check", root)["findings"] == []
    assert "nothing to adopt" in run("adopt", root, "none://", code=2).stderr


# --- describe --------------------------------------------------------------------------------------------------------


def test_describe_says_what_the_table_is(run, table):
    facts = run.json("describe", table.url)
    assert facts["url"] == table.url
    assert facts["properties"]["partition_by"] == ["origin"]
    assert facts["settings"]["lock"] == "table"
    assert facts["lock"] is None
    assert facts["writers"] == []
    assert facts["not_null"] == []
    size = facts["size"]
    assert (size["partitions"], size["file_groups"], size["data_files"]) == (1, 1, 2)
    assert 0 < size["current_bytes"] < size["bytes"]
    founding, written = 1, 2
    assert facts["timeline"] == {"completed": founding + written, "pending": 0, "commits": founding + written}
    last = facts["last_commit"]
    assert (last["operation"], last["writer"], last["empty"]) == ("UPSERT", "A", False)
    text = run("describe", table.url).stdout
    assert "lock         in the table's own folder; free\n" in text
    assert "writers      none\n" in text
    table.add_column("spare", "int")
    table.drop_column("spare")
    assert run.json("describe", table.url)["dropped"] == ["spare"]
    assert "dropped      spare\n" in run("describe", table.url).stdout


def test_describe_names_open_transactions_and_who_holds_the_lock(run, table):
    txn = table.transaction("insert", lock_first=True)
    facts = run.json("describe", table.url)
    (writer,) = facts["writers"]
    assert (writer["instant"], writer["writer"], writer["state"]) == (txn.instant, "A", "alive")
    assert writer["pid"] == facts["lock"]["pid"]
    assert 0 <= writer["age_s"] < 60
    text = run("describe", table.url).stdout
    assert f"{txn.instant} INSERT by A on " in text
    assert "alive, open for" in text
    assert "held by A: insert, from its beginning" in text
    txn.abort()


def test_describe_says_why_a_table_is_read_only(run, tmp_path: Path):
    root = str(unzip("sample_table/cow/v6_nonpartitioned", tmp_path).root)
    text = run("describe", root).stdout
    assert "version 6" in text
    assert "read-only: Table" in text
    assert "not partitioned" in text
    assert run.json("describe", root)["settings"] is None


# --- timeline ----------------------------------------------------------------------------------------------------


def test_timeline_tells_of_losers_as_well(run, table):
    instants = run.json("timeline", table.url)["instants"]
    assert [each["outcome"] for each in instants] == ["committed", "aborted", "committed", "created"]
    newest, loser, first, founding = instants
    assert (founding["operation"], founding["written"], founding["writer"]) == ("INSERT", 0, "A")
    assert (first["operation"], first["inserted"], first["writer"], first["state"]) == ("INSERT", 5, "A", "completed")
    assert (newest["updated"], newest["written"]) == (5, 5)
    assert newest["completed"] > newest["requested"]
    assert newest["duration_s"] > 0
    assert (loser["completed"], loser["state"], loser["written"]) == (None, None, None)
    assert f"lost against UPSERT {newest['requested']}" in loser["reason"]
    assert len(run.json("timeline", table.url, "--limit", "2")["instants"]) == 2
    lines = run("timeline", table.url).stdout.splitlines()
    assert lines[0].split() == [
        *("requested", "completed", "action", "state", "operation", "outcome", "took", "rows", "writer", "why")
    ]
    assert "+5" in lines[3]
    assert "~5" in lines[1]


def test_timeline_shows_what_is_open_rolled_back_or_not_published(run, table):
    txn = table.transaction("delete")
    (newest, *_) = run.json("timeline", table.url)["instants"]
    assert (newest["requested"], newest["outcome"], newest["operation"]) == (txn.instant, "open", "DELETE")
    table.session.cleaner.roll_back(table.session.log.state.open[txn.instant], reason="for the test")
    (newest, *_) = run.json("timeline", table.url)["instants"]
    assert newest["outcome"] == "rolled back"
    assert newest["reason"].startswith("for the test (by ")
    Path(table.store.root, table.timeline().path(table.timeline().commits[-1])).unlink()
    outcomes = [each["outcome"] for each in run.json("timeline", table.url)["instants"]]
    assert outcomes == ["rolled back", "unpublished", "aborted", "committed", "created"]


@pytest.mark.parametrize("name", ["sample_table/cow/v6_nonpartitioned", "sample_table/mor/avro/v9_txns_simple_nometa"])
def test_timeline_files_and_describe_work_on_tables_of_other_writers(run, name: str, tmp_path: Path):
    root = str(unzip(name, tmp_path).root)
    instants = run.json("timeline", root)["instants"]
    assert {each["outcome"] for each in instants} == {"committed"}
    assert all(each["operation"] and each["written"] is not None for each in instants)
    assert run.json("files", root)["files"]
    for command in ("timeline", "files", "describe"):
        assert run(command, root).stdout


def _lines(act: Callable[[], object]) -> int:
    """How many lines of Python run, each turn of a loop among them."""
    number = 0

    def count(_frame: object, event: str, _argument: object) -> Callable[..., object]:
        nonlocal number
        number += event == "line"
        return count

    sys.settrace(count)
    try:
        act()
    finally:
        sys.settrace(None)
    return number


@pytest.mark.parametrize(("ended", "few", "many"), [(False, 100, 800), (True, 50, 250)], ids=["archived", "aborted"])
def test_the_work_of_timeline_grows_no_faster_than_the_history(tmp_path: Path, few: int, many: int, *, ended: bool):
    """Each instant is looked up once, whatever else there is."""

    def work(number: int) -> int:
        with lakelatch.create(str(tmp_path / str(number)), record_key="id", lock="none://") as table:
            if ended:
                for _ in range(number):
                    table.transaction("insert").abort()
            else:
                times = [(from_epoch_ms(n), from_epoch_ms(n + 1)) for n in range(1_000_000, 1_000_000 + number)]
                body = encode_commit(CommitMetadata(operation="INSERT"), replace=False)
                table.session.history.add([Archived(Instant(t, "commit", "completed", c), body) for t, c in times])
            newest(table, 5)  # reads what it keeps
            assert len(newest(table, 10_000)) == number + 1
            return _lines(lambda: newest(table, 5))

    assert work(many) / work(few) < 1.25 * many / few


def test_a_new_table_says_that_it_was_created(run, tmp_path: Path):
    url = str(tmp_path / "t")
    run("create", url, "--record-key", "id")
    (founding,) = run.json("timeline", url)["instants"]
    assert founding["outcome"] == "created"
    assert "created" in run("timeline", url).stdout.splitlines()[1]
    assert run("files", url).stdout == "no files\n"
    assert run.json("describe", url)["last_commit"]["empty"]
    assert "last commit  none yet; created by " in run("describe", url).stdout
    assert ": sound\n" in run("check", url).stdout


def test_a_table_without_history_says_so(run, tmp_path: Path):
    url = tmp_path / "t"
    run("create", str(url), "--record-key", "id")
    for path in (url / ".hoodie/timeline").glob("2*"):
        path.unlink()
    shutil.rmtree(url / ".hoodie/.lakelatch")  # made by an engine that lays no floor
    assert run("timeline", str(url)).stdout == "nothing has happened to this table yet\n"
    assert run("files", str(url)).stdout == "no files\n"
    assert "last commit  none yet\n" in run("describe", str(url)).stdout


def test_describe_says_once_how_partitions_are_spelled(run, table):
    assert run("describe", table.url).stdout.count("(hive style)") == 1


# --- files -------------------------------------------------------------------------------------------------------


def test_files_lists_slices_now_and_in_the_past(run, table):
    (now,) = run.json("files", table.url)["files"]
    assert now["rows"] == 5
    assert Path(table.store.root, now["path"]).stat().st_size == now["size"]
    *_, first, founding = [each["requested"] for each in run.json("timeline", table.url)["instants"]]
    (then,) = run.json("files", table.url, "--as-of", first, "--partition", "origin=JFK", "--no-rows")["files"]
    assert (then["file_id"], then["instant"], then["rows"]) == (now["file_id"], first, None)
    assert run.json("files", table.url, "--as-of", founding)["files"] == []
    assert "no commit yet" in run("files", table.url, "--as-of", "2020-01-01", code=2).stderr
    assert run("files", table.url).stdout.endswith(f"1 file group, {now['size'] / 1000:.1f} kB, 5 rows\n")


# --- check -------------------------------------------------------------------------------------------------------


def test_check_calls_a_sound_table_sound(run, table):
    out = run("check", table.url, "--deep").stdout
    assert out.splitlines()[0] == f"{table.url}: sound"
    assert "3 commits, 1 partition, 1 file group, 2 data files" in out, "the founding one and two"
    report = run.json("check", table.url)
    assert (report["sound"], report["damage"], report["findings"]) == (True, 0, [])


def test_check_names_damage_and_the_next_step_and_exits_with_1(run, table):
    (path,) = [each.path for each in table.snapshot().file_slices()]
    Path(table.store.root, path).unlink()
    out = run("check", table.url, code=1).stdout
    assert out.splitlines()[0] == f"{table.url}: DAMAGED (1 problem)"
    assert "DAMAGE file-missing\n" in out
    assert path in out
    assert "Next: restore it from a copy.\n" in out
    report = run.json("check", table.url, code=1)
    assert (report["sound"], report["findings"][0]["kind"], report["findings"][0]["path"]) == (
        False,
        "file-missing",
        path,
    )


def test_leftovers_are_damage_only_when_strict(run, table):
    folder = Path(table.store.root, ".hoodie/.heartbeat")
    folder.mkdir(exist_ok=True)
    (folder / table.timeline().commits[0].requested).touch()
    assert "sound (1 leftover)" in run("check", table.url).stdout
    assert "not clean (1 leftover)" in run("check", table.url, "--strict", code=1).stdout
    assert run.json("check", table.url)["sound"]
    assert not run.json("check", table.url, "--strict", code=1)["sound"]


def test_many_findings_of_a_kind_are_summed_up(run, table):
    for number in range(30):
        Path(table.store.root, f"origin=JFK/part-{number:04}.parquet").touch()
    out = run("check", table.url, code=1).stdout
    assert out.count("DAMAGE stray-file") == 10
    assert "and 20 more of stray-file; --json lists all" in out
    assert len(run.json("check", table.url, code=1)["findings"]) == 30


# --- rollback ----------------------------------------------------------------------------------------------------


def test_rollback_without_dead_writers_says_so(run, table):
    assert run("rollback", table.url).stdout == "no dead transaction\n"
    assert run.json("rollback", table.url) == {"rolled_back": [], "still_open": []}


def test_rollback_leaves_the_living_alone(run, table):
    txn = table.transaction("insert")
    assert run.json("rollback", table.url) == {"rolled_back": [], "still_open": [txn.instant]}
    assert f"still open, their writers are alive: {txn.instant}" in run("rollback", table.url).stdout
    refused = run("rollback", table.url, txn.instant, code=2).stderr
    assert "its writer A is alive" in refused
    assert "--force" in refused
    txn.abort()


def test_rollback_ends_a_silent_writer(run, table):
    txn = table.transaction("insert")
    with txn.new_file("origin=JFK") as file:
        file.write(rows(9))
    table.session.heart.stop(txn.instant)
    assert run.json("rollback", table.url, txn.instant) == {"rolled_back": [txn.instant], "still_open": []}
    with pytest.raises(lakelatch.RolledBackError):
        txn.commit()
    assert run.json("check", table.url, "--strict")["sound"]


def test_rollback_by_force_asks_first(run, table):
    txn = table.transaction("insert")
    said = run("rollback", table.url, txn.instant, "--force", code=2, given="n\n")
    assert "all its work is lost" in said.stderr
    assert "nothing was done" in said.stderr
    txn.check()
    assert run("rollback", table.url, txn.instant, "--force", given="y\n").stdout.endswith(
        f"rolled back 1 transaction: {txn.instant}\n"
    )
    with pytest.raises(lakelatch.RolledBackError):
        txn.check()
    other = table.transaction("insert")
    assert run.json("rollback", table.url, other.instant, "--force", "--yes")["rolled_back"] == [other.instant]


def test_rollback_refuses_what_is_not_open(run, table):
    newest, loser, *_ = run.json("timeline", table.url)["instants"]
    assert "it has committed" in run("rollback", table.url, newest["requested"], code=2).stderr
    assert "its own writer has aborted it" in run("rollback", table.url, loser["requested"], code=2).stderr
    assert "does not know it" in run("rollback", table.url, "20200101000000000", code=2).stderr


# --- locks -------------------------------------------------------------------------------------------------------


def test_locks_shows_the_holder_and_breaks_a_lease(run, table):
    assert run("locks", "show", table.url).stdout == "free\n"
    lease = table.session.lease("for the test")
    shown = run.json("locks", "show", table.url)
    assert (shown["lock"], shown["key"], shown["holder"]["token"]) == ("table", "table", lease.token)
    assert "held by A: for the test" in run("locks", "show", table.url).stdout
    wrong = run("locks", "break", table.url, "--token", str(lease.token + 1), "--reason", "test", code=2).stderr
    asked = run("locks", "break", table.url, code=2).stderr
    assert "held by A: for the test" in asked
    assert "say --yes" in asked
    assert f"no lease with token {lease.token + 1}" in wrong
    assert f"(token {lease.token})" in wrong
    done = run("locks", "break", table.url, "--token", str(lease.token), "--reason", "test").stdout
    assert "it was held by A: for the test" in done
    with pytest.raises(lakelatch.LockLostError):
        lease.ensure_held(fresh=True)
    lease.release()
    assert run.json("locks", "show", table.url)["holder"] is None


def test_locks_says_so_where_there_is_no_lock(run, tmp_path: Path):
    url = str(tmp_path / "t")
    run("create", url, "--record-key", "id", "--lock", "none://")
    assert "no lock" in run("locks", "show", url).stdout
    assert "nothing to break" in run("locks", "break", url, "--token", "1", "--reason", "x", code=2).stderr


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["describe", "{tmp}/nothing"], "is not a Hudi table"),
        (["check", "{tmp}/nothing"], "is not a Hudi table"),
        (["describe", "ftp://host/t"], "not a store that can be opened"),
        (["describe", "{tmp}/half"], "created half"),
        (["create", "{tmp}/t"], "--record-key"),
        (["create", "{table}", "--record-key", "id"], "there is a table"),
        (["create", "{tmp}/half", "--record-key", "id"], "not empty"),
        (["create", "{tmp}/t", "--record-key", "id", "--lock", "telepathy://x"], "no lock provider"),
        (["create", "{tmp}/t", "--record-key", "id", "--strategy", "luck"], "no conflict strategy"),
        (["create", "{tmp}/t", "--record-key", "id", "--schema", "{tmp}/none.parquet"], "cannot be read: No such file"),
        (["create", "{tmp}/t", "--record-key", "id", "--schema", "{tmp}/half/.hoodie/x"], "neither a Parquet file"),
        (["adopt", "{table}", "none://", "--option", "hoodie.write.lock.provider=x"], "not both"),
        (["files", "{table}", "--as-of", "yesterday"], "no time"),
        (["files", "{table}", "--partition", "origin=XXX"], "origin=JFK"),
        (["rollback", "{table}", "--force"], "INSTANT"),
        (["rollback", "{foreign}"], "lakelatch adopt"),
        (["rollback", "{foreign}", "20200101000000000"], "lakelatch adopt"),
        (["locks", "show", "{foreign}"], "lakelatch adopt"),
        (["demo", "--writers", "1"], "between 5 and 32"),
    ],
)  # fmt: skip
def test_errors_are_sentences(run, table, tmp_path: Path, arguments: list[str], words: str):
    (tmp_path / "half/.hoodie").mkdir(parents=True)
    (tmp_path / "half/.hoodie/x").write_text("not a schema")
    foreign = tmp_path / "foreign"
    shutil.copytree(table.store.root, foreign)
    shutil.rmtree(foreign / ".hoodie/.lakelatch")
    places = {"tmp": tmp_path, "table": table.url, "foreign": foreign}
    result = run(*(each.format(**places) for each in arguments), code=2)
    assert words in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    if arguments[0] != "demo":
        assert result.stderr.startswith("lakelatch: ")
        assert [line[:4] for line in result.stderr.strip().splitlines()] == ["lake", "see "]


def test_debug_shows_the_traceback(run, tmp_path: Path):
    assert "Traceback" in run("--debug", "describe", str(tmp_path), code=2).stderr
    assert "Traceback" not in run("describe", str(tmp_path), code=2).stderr


def test_every_command_has_help_and_unknown_ones_are_usage_errors(run):
    out = run("--help").stdout
    for command in ("create", "adopt", "describe", "timeline", "files", "check", "rollback", "demo", "locks"):
        assert f"\n  {command} " in out
        assert "Usage:" in run(command, "--help").stdout if command != "demo" else True
    assert run("frobnicate", code=2).stderr
    assert run("--version").stdout == f"lakelatch {lakelatch.__version__}\n"


def test_doctor_prints_and_judges_the_options_of_hudis_writers(run, tmp_path):
    url = str(tmp_path / "flights")
    lock = f"file://{url}/.hoodie?jvm=lock&jvm_expire=5m"
    run("create", url, "--record-key", "id", "--lock", lock, "--neighbours", "hudi")
    for style in ("properties", "spark", "flink"):
        job = tmp_path / f"job.{style}"
        job.write_text(run("doctor", url, "--jvm-options", style).stdout)
        assert "FileSystemBasedLockProvider" in job.read_text()
        assert "jvm-" not in run("doctor", url, "--jvm", str(job)).stdout
    job.write_text(job.read_text().replace("LAZY", "EAGER"))
    told = run("doctor", url, "--jvm", str(job), code=1).stdout
    assert "UNSAFE jvm-eager" in told
    assert "hoodie.clean.failed.writes.policy=LAZY" in told
    assert "no style" in run("doctor", url, "--jvm-options", "yaml", code=2).stderr
    assert "cannot be read" in run("doctor", url, "--jvm", str(tmp_path / "none"), code=2).stderr
