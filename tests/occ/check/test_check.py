"""Every kind of damage is made on a copy of a table and found by its name; sound tables are called sound."""

from __future__ import annotations

import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.errors import TableNotFoundError, UnsupportedTableError
from lakelatch.hudi.timeline.commit_metadata import CommitMetadata, WriteStat, decode_commit, encode_commit
from lakelatch.occ.check.check import check
from lakelatch.occ.check.findings import KINDS, Findings
from lakelatch.occ.entries.entries import End, Prepare, Setting
from lakelatch.occ.entries.key_ranges import encode_ranges, ranges_path
from lakelatch.storage import open_store
from lakelatch.streams import Stream

from ...hudi.conftest import _ZIPS, unzip

PARTITION = "origin=JFK"
LONG_AGO, FAR_AHEAD, AFTER_THAT = "20200101000000000", "20990101000000000", "20990101000000001"


def rows(partition: str, value: int) -> pa.Table:
    return pa.table({"id": [f"{partition}{n}" for n in range(5)], "origin": [partition] * 5, "v": [value] * 5})


def fill(root: Path) -> str:
    """Three commits after the founding one, two partitions, and a transaction that was aborted; returns the aborted one."""
    with lakelatch.create(str(root), record_key="id", partition_by="origin", writer="test") as table:
        with table.transaction("insert") as txn:
            for each in ("JFK", "LGA"):
                txn.new_file(f"origin={each}").write(rows(each, 0))
        dead = table.transaction("upsert")
        dead.abort("for the test")
        for value in (1, 2):
            with table.transaction("upsert") as txn:
                for group in txn.snapshot.file_slices(PARTITION):
                    txn.rewrite(group).write(rows("JFK", value))
    return dead.instant


class Copy:
    """A copy of the table to be damaged."""

    def __init__(self, root: Path, aborted: str) -> None:
        self.root, self.aborted = root, aborted
        self.timeline = root / ".hoodie/timeline"
        self.properties = root / ".hoodie/hoodie.properties"
        (self.log,) = (root / ".hoodie/.lakelatch/log").iterdir()

    def check(self, **options):
        return check(open_store(str(self.root)), **options)

    @property
    def commits(self) -> list[Path]:
        return sorted(self.timeline.glob("*_*.commit"))

    @property
    def bases(self) -> list[Path]:
        """Of one file group, oldest first."""
        return sorted((self.root / PARTITION).glob("*.parquet"), key=lambda path: path.name.rpartition("_")[2])

    @property
    def log_file(self) -> str:
        """The name of a log file of the newest commit."""
        return f"{PARTITION}/.{self.bases[-1].name.partition('_')[0]}_{self.commits[-1].name[:17]}.log.1_0-0-0"

    @property
    def slots(self) -> list[Path]:
        return sorted(self.log.iterdir())

    def edit_properties(self, old: str, new: str) -> None:
        text = self.properties.read_text()
        assert old in text, text
        self.properties.write_text(text.replace(old, new))

    def edit_commit(self, path: Path, **changes) -> None:
        content = decode_commit(path.read_bytes(), name=path.name, layout=2)
        path.write_bytes(encode_commit(replace(content, **changes), replace=False))

    def edit_slot(self, kind: str, number: int = -1, **changes) -> None:
        path = [each for each in self.slots if json.loads(each.read_text())["kind"] == kind][number]
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def rewrite(self, change, footer: dict[str, str] | None = None) -> None:
        path = self.bases[-1]
        before = pq.read_metadata(path).metadata
        kept = {key: value for key, value in before.items() if key.startswith(b"hoodie_")} | {
            key.encode(): value for key, value in (footer or {}).items()
        }
        table = change(pq.read_table(path, partitioning=None))
        pq.write_table(table.replace_schema_metadata(kept), path)

    def copy_base(self, *, file_id: str | None = None, token: str | None = None, instant: str | None = None) -> None:
        old_id, old_token, last = self.bases[-1].name.split("_")
        old_instant, ending = last.split(".")
        name = f"{file_id or old_id}_{token or old_token}_{instant or old_instant}.{ending}"
        shutil.copy(self.bases[-1], self.root / PARTITION / name)

    def put(self, path: str, body: bytes = b"") -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(body)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    root = tmp_path_factory.mktemp("template") / "table"
    return root, fill(root)


@pytest.fixture
def table(template: tuple[Path, str], tmp_path: Path) -> Copy:
    root, aborted = template
    shutil.copytree(root, tmp_path / "table")
    return Copy(tmp_path / "table", aborted)


def cut(path: Path, share: float = 0.5) -> None:
    body = path.read_bytes()
    path.write_bytes(body[: int(len(body) * share)])


def set_column(table: pa.Table, name: str, value: str) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array([value] * table.num_rows))


def prepare(table: Copy, *, ended: bool = False) -> None:
    """A commit over several tables, of which a copy of this one is the home that has committed."""
    home = table.root.with_name("home")
    shutil.copytree(table.root, home)
    decided = json.loads([each for each in table.slots if b'"kind":"commit"' in each.read_bytes()][-1].read_text())
    with lakelatch.open(str(table.root)) as handle, handle.transaction("upsert") as txn:
        entry = txn._landing.entry()
        mine = replace(
            entry, completion=entry.instant, several=(("file:///a", txn.instant), (f"file://{home}", decided["T"]))
        )
        handle.session.log.append(lambda _: Prepare(mine))
        if ended:
            handle.session.log.append(lambda _: End("rollback", txn.instant, "nobody", "for the test"), settles=True)
            handle.session.cleaner.sweep(txn.instant)
        txn._attempt.over("left")


def insert_again(table: Copy) -> None:
    with lakelatch.open(str(table.root)) as handle, handle.transaction("insert") as txn:
        txn.new_file(PARTITION).write(rows("JFK", 9))


def give_a_constraint(table: Copy) -> None:
    with lakelatch.open(str(table.root)) as handle:
        # No handle does that to rows that break it; a restore of before could.
        handle.session.log.append(lambda state: Setting(replace(state.settings, unique_constraints=(("v",),)), "test"))


def give_a_check(table: Copy) -> None:
    with lakelatch.open(str(table.root)) as handle:
        handle.session.log.append(lambda state: Setting(replace(state.settings, check=("v < 0",)), "test"))


def give_buckets(table: Copy) -> None:
    with lakelatch.open(str(table.root)) as handle:
        # No handle does that to a table with rows; a writer of before could.
        handle.session.log.append(lambda state: Setting(replace(state.settings, bucket_count=4), "test"))
        with handle.transaction("insert") as txn:
            txn.new_file(PARTITION, file_id="00000009-0000-0000-0000-000000000000-0").write(rows("JFK", 9))


def change_buckets(table: Copy) -> None:
    with lakelatch.open(str(table.root)) as handle:
        handle.restore(handle.timeline().commits[0].requested)
        handle.change_settings(bucket_count=4)
        with handle.transaction("upsert") as txn:
            txn.upsert(rows("JFK", 9))
        handle.session.log.append(lambda state: Setting(replace(state.settings, bucket_count=64), "test"))


def rename_completion(table: Copy, completion: str) -> None:
    path = table.commits[-1]
    path.rename(path.with_name(f"{path.name[:17]}_{completion}.commit"))


def put_commit(table: Copy, content: CommitMetadata) -> None:
    table.put(f".hoodie/timeline/{FAR_AHEAD}_{AFTER_THAT}.commit", encode_commit(content, replace=False))


def put_back_an_undone_commit(table: Copy) -> None:
    path, before = table.commits[-1], table.commits[-2].name[:17]
    body = path.read_bytes()
    with lakelatch.open(str(table.root)) as handle:
        handle.restore(before)
    path.write_bytes(body)


def clean_twice(table: Copy) -> None:
    with lakelatch.open(str(table.root)) as handle:
        handle.clean(retain_commits=1)
    (path,) = table.timeline.glob("*_*.clean")
    shutil.copy(path, path.with_name(f"{path.name[:17]}_{FAR_AHEAD}.clean"))


def archive(table: Copy) -> list[Path]:
    """Archive all but the newest commit; the paths of the others, which can be put back."""
    bodies = {path: path.read_bytes() for path in table.commits[:-1]}
    with lakelatch.open(str(table.root)) as handle:
        assert handle.archive(keep_min=1, keep_max=1).instants == len(bodies)
    table.archived = bodies
    return sorted(bodies)


def archive_and(table: Copy, number: int) -> None:
    path = archive(table)[number]
    path.write_bytes(table.archived[path])


def forget_what_was_archived(table: Copy) -> None:
    archive(table)
    (table.timeline / "history/manifest_1").write_text('{"files": []}')


def hide_a_column(table: Copy) -> None:
    """As versions before this one left it: the column came with a smaller T than that of the commit before."""
    with lakelatch.open(str(table.root)) as handle:
        early = handle.transaction("insert")
        with handle.transaction("insert") as late:
            late.allow_empty()
        early.new_file("origin=LGA").write(rows("LGA", 9).append_column("more", pa.array([1] * 5)))
        early.commit()
        echo = handle.session.log.state.last.echo
    (table.timeline / echo).unlink()
    table.edit_slot("commit", echo="")


def write_over_a_slice(table: Copy) -> None:
    """A commit between the last two of a file group, which the last one did not see."""
    before, after = (path.name[:17] for path in table.commits[-2:])
    instant = f"{int(after) - 1}"
    assert instant > before
    table.copy_base(instant=instant)
    old = next(path for path in table.bases if instant in path.name)
    stat = WriteStat(old.name.split("_")[0], f"{PARTITION}/{old.name}", PARTITION, before, num_writes=5)
    body = encode_commit(CommitMetadata("UPSERT", stats=(stat,)), replace=False)
    table.put(f".hoodie/timeline/{instant}_{AFTER_THAT}.commit", body)


def keep_another_range(table: Copy) -> None:
    last = table.bases[-1]
    table.put(ranges_path(PARTITION), encode_ranges(PARTITION, {last.name: (last.stat().st_size, b"A", b"B")}))


def merge_events_by_another(table: Copy) -> None:
    """A commit of another engine in a table with streams."""
    with lakelatch.open(str(table.root)) as handle:
        stream = Stream("s", ("v",), "at")
        handle.session.log.append(
            lambda state: Setting(replace(state.settings, bucket_count=4, streams=(stream,)), "test")
        )
    table.copy_base(instant=FAR_AHEAD)
    name = next(path.name for path in table.bases if FAR_AHEAD in path.name)
    stat = WriteStat(name.split("_")[0], f"{PARTITION}/{name}", PARTITION, table.commits[-1].name[:17], num_writes=5)
    put_commit(table, CommitMetadata("COMPACT", stats=(stat,)))


EMPTY_COMMIT = encode_commit(CommitMetadata("UPSERT"), replace=False)
OUTSIDE = WriteStat("f", f"../f_0-0-0_{FAR_AHEAD}.parquet", "..")
SIDE = {"path": ".hoodie/.lakelatch/sides/x.json", "sha256": "0"}

# kind -> how to make it, and what else is found then because it is true as well
DAMAGES = {
    "properties-damaged": (lambda t: t.properties.write_bytes(b""), set()),
    "properties-contradictory": (
        lambda t: t.edit_properties("keygenerator.type=SIMPLE", "keygenerator.type=NON_PARTITION"),
        set(),
    ),
    "instant-empty": (lambda t: t.commits[-1].write_bytes(b""), set()),
    "instant-torn": (lambda t: cut(t.commits[-1]), set()),
    "instant-outside": (
        lambda t: put_commit(t, CommitMetadata("UPSERT", stats=(OUTSIDE,))),
        {"stranger-commit", "instant-ahead"},
    ),
    "instant-unknown": (lambda t: t.put(f".hoodie/timeline/{FAR_AHEAD}_{AFTER_THAT}.reindex"), set()),
    "instant-misnamed": (
        lambda t: t.commits[-1].rename(t.timeline / f"{t.commits[-1].name[:17]}.commit"),
        {"commit-to-publish"},
    ),
    "instant-times": (lambda t: rename_completion(t, LONG_AGO), {"publication-differs"}),
    "instant-ahead": (
        lambda t: (
            t.commits[-1].rename(t.commits[-1].with_name(f"{t.commits[-1].name[:17]}_{FAR_AHEAD}.commit")),
            t.edit_slot("commit", C=FAR_AHEAD),
        ),
        set(),
    ),
    "instant-twice": (
        lambda t: shutil.copy(t.commits[-1], t.timeline / f"{t.commits[-1].name[:17]}_{FAR_AHEAD}.commit"),
        {"publication-differs", "instant-ahead"},
    ),
    "clean-twice": (clean_twice, set()),
    "instant-undone": (put_back_an_undone_commit, {"file-missing"}),
    "history-torn": (lambda t: (archive(t), (t.timeline / "history/manifest_1").unlink()), set()),
    "history-lacks": (forget_what_was_archived, set()),
    "archived-late": (lambda t: archive_and(t, 0), set()),
    "archived-twice": (lambda t: archive_and(t, -1), set()),
    "schema-unreadable": (lambda t: t.edit_commit(t.commits[-1], schema='{"type":"record"}'), set()),
    "columns-hidden": (hide_a_column, set()),
    "pending-of-ended": (lambda t: t.put(f".hoodie/timeline/{t.aborted}.commit.requested"), set()),
    "pending-unknown": (lambda t: t.put(f".hoodie/timeline/{FAR_AHEAD}.clean.requested"), set()),
    "slice-skipped": (write_over_a_slice, {"stranger-commit", "instant-ahead"}),
    "file-missing": (lambda t: t.bases[-1].unlink(), set()),
    "file-size": (lambda t: t.bases[-1].write_bytes(t.bases[-1].read_bytes() + b"PAR1"), {"file-torn"}),
    "file-torn": (lambda t: t.bases[-1].write_bytes(t.bases[-1].read_bytes()[:-4] + b"torn"), set()),
    "row-count": (lambda t: t.rewrite(lambda rows: rows.slice(0, 3)), {"file-size", "key-range"}),
    "meta-columns": (lambda t: t.rewrite(lambda rows: rows.drop_columns(["_hoodie_record_key"])), {"file-size"}),
    "key-range": (lambda t: t.rewrite(lambda rows: rows, {"hoodie_min_record_key": "A"}), {"file-size"}),
    "key-range-kept": (keep_another_range, set()),
    "commit-time": (lambda t: t.rewrite(lambda rows: set_column(rows, "_hoodie_commit_time", FAR_AHEAD)), {"file-size"}),
    "two-base-files": (lambda t: t.copy_base(token="7-7-7"), set()),
    "file-not-in-commit": (lambda t: t.copy_base(file_id="ffffffff-0000-0000-0000-000000000000-0"), set()),
    "file-never-committed": (
        lambda t: t.copy_base(file_id="ffffffff-0000-0000-0000-000000000000-0", instant=LONG_AGO),
        set(),
    ),
    "file-came-back": (
        lambda t: t.copy_base(file_id="ffffffff-0000-0000-0000-000000000000-0", instant=archive(t)[-1].name[:17]),
        {"commit-time"},
    ),
    "duplicate-keys": (insert_again, set()),
    "duplicate-values": (give_a_constraint, set()),
    "check-broken": (give_a_check, set()),
    "bucket-twice": (give_buckets, {"duplicate-keys"}),
    "bucket-wrong": (change_buckets, set()),
    "old-file-missing": (lambda t: t.bases[0].unlink(), set()),
    "orphan-file": (lambda t: t.copy_base(instant=t.aborted), set()),
    "no-file": (lambda t: os.mkfifo(t.slots[-1].with_name(f"{len(t.slots) + 1:020d}")), set()),
    "stray-file": (lambda t: t.put(f"{PARTITION}/part-0000.parquet"), set()),
    "folder-in-partition": (lambda t: (t.root / PARTITION / "_temporary").mkdir(), set()),
    "partition-unmarked": (lambda t: (t.root / PARTITION / ".hoodie_partition_metadata").unlink(), set()),
    "other-files": (lambda t: t.put("README.txt"), set()),
    "log-entry-torn": (lambda t: cut(t.slots[4]), set()),
    "log-gap": (lambda t: t.slots[4].unlink(), set()),
    "log-torn": (lambda t: t.put(t.log_file, b"#HUDI#"), {"orphan-file"}),
    "log-order": (lambda t: t.edit_slot("commit", C=LONG_AGO), {"publication-differs"}),
    "log-newer": (lambda t: t.edit_slot("commit", v=99), set()),
    "side-object": (lambda t: (t.edit_slot("commit", metadata=None, side=SIDE), t.commits[-1].unlink()), {"commit-to-publish"}),
    "side-lost": (lambda t: t.edit_slot("commit", metadata=None, side=SIDE), set()),
    "commit-unpublished": (lambda t: t.commits[1].unlink(), set()),
    "commit-to-publish": (lambda t: t.commits[-1].unlink(), set()),
    "publication-differs": (lambda t: t.edit_commit(t.commits[-1], stats=()), {"file-not-in-commit"}),
    "stranger-commit": (
        lambda t: t.put(f".hoodie/timeline/{FAR_AHEAD}_{FAR_AHEAD[:-1]}1.commit", EMPTY_COMMIT),
        {"instant-ahead"},
    ),
    "several-differs": (lambda t: prepare(t, ended=True), set()),
    "prepared": (prepare, set()),
    "stranger-in-streams": (merge_events_by_another, {"instant-ahead", "bucket-twice"}),
    "markers-of-ended": (lambda t: t.put(f".hoodie/.temp/{t.aborted}/{PARTITION}/a_b_c.parquet.marker.CREATE"), set()),
    "heartbeat-of-ended": (lambda t: t.put(f".hoodie/.heartbeat/{t.commits[-1].name[:17]}"), set()),
    "side-of-ended": (lambda t: t.put(f".hoodie/.lakelatch/sides/{t.aborted}-0123.json"), set()),
}  # fmt: skip


def kinds(report) -> set[str]:
    return {each.kind for each in report.findings}


def test_there_is_a_damage_for_every_kind():
    assert set(DAMAGES) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damage_is_found_and_named(table: Copy, kind: str):
    make, also = DAMAGES[kind]
    make(table)
    before = snapshot_of(table.root)
    report = table.check(deep=kind in ("duplicate-keys", "duplicate-values", "check-broken", "bucket-twice"))
    assert kinds(report) == {kind} | also, report.findings
    severity = KINDS[kind][0]
    assert report.sound() == all(KINDS[each][0] != "damage" for each in {kind, *also})
    if severity == "leftover":
        assert not report.sound(strict=True)
    for finding in report.findings:
        assert finding.message
        assert finding.next_step
        assert not finding.message.endswith(".")
        assert (table.root / finding.path).exists() or "missing" in kind or "publish" in kind or kind in EXPECTED_ABSENT
    assert snapshot_of(table.root) == before  # nothing was changed


EXPECTED_ABSENT = {
    "partition-unmarked",
    "side-object",
    "side-lost",
    "instant-misnamed",
    "instant-times",
    "instant-twice",
    "history-torn",
    "instant-undone",  # the instant is there, its files are not
    "log-order",
}


def snapshot_of(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_table_of_ours_is_sound(table: Copy):
    report = table.check(deep=True)
    assert report.findings == ()
    assert report.unchecked == ("the rows of 2 files that only time travel sees; their footers were",)
    assert report.sound(strict=True)
    assert {name: report.facts[name] for name in ("commits", "partitions", "file_slices", "data_files", "rows")} == {
        "commits": 1 + 3,  # the founding one, and those of `fill`
        "partitions": 2,
        "file_slices": 2,
        "data_files": 4,
        "rows": 10,
    }


@pytest.mark.parametrize("text", ["hoodie.table.checksum=1", "hoodie.table.version=x"])
def test_properties_that_are_wrong_are_named(table: Copy, text: str):
    key = text.partition("=")[0]
    lines = [text if line.startswith(key) else line for line in table.properties.read_text().splitlines()]
    table.properties.write_text("\n".join(lines) + "\n")
    report = table.check()
    assert kinds(report) == {"properties-damaged"}
    assert key.rpartition(".")[2] in report.findings[0].message


def test_missing_properties_are_damage_and_a_missing_folder_is_no_table(table: Copy):
    table.properties.unlink()
    assert kinds(table.check()) == {"properties-damaged"}
    shutil.rmtree(table.root / ".hoodie")
    with pytest.raises(TableNotFoundError, match="not a Hudi table"):
        table.check()


def test_a_version_that_cannot_be_looked_into_is_refused(table: Copy):
    table.edit_properties("hoodie.table.version=8", "hoodie.table.version=5")
    with pytest.raises(UnsupportedTableError, match="version 5"):
        table.check()


@pytest.mark.parametrize("folder", ["x/y", f"{PARTITION}/.hidden", f"{PARTITION}/a/b"])
def test_folders_that_hide_rows_are_found_also_when_they_are_empty(table: Copy, folder: str):
    (table.root / folder).mkdir(parents=True)
    assert kinds(table.check()) == {"folder-in-partition"}


@pytest.mark.parametrize("folder", ["x", ".staging/a/b"])
def test_folders_that_do_no_harm_are_left_alone(table: Copy, folder: str):
    (table.root / folder).mkdir(parents=True)
    assert table.check().findings == ()


def test_a_transaction_that_is_open_is_no_finding(table: Copy):
    with lakelatch.open(str(table.root)) as handle:
        txn = handle.transaction("insert")
        with txn.new_file(PARTITION) as file:
            file.write(rows("JFK", 3))
        report = table.check()
        assert report.findings == ()
        assert report.facts["open_transactions"] == [txn.instant]
        assert report.facts["rows"] == 10
        txn.abort()


def test_a_dead_writers_remains_are_leftovers_until_it_is_rolled_back(table: Copy):
    with lakelatch.open(str(table.root)) as handle:
        txn = handle.transaction("insert")
        with txn.new_file(PARTITION) as file:
            file.write(rows("JFK", 3))
        begin = handle.session.log.state.open[txn.instant]
        left = snapshot_of(table.root)
        assert handle.session.cleaner.roll_back(begin, reason="for the test")
        for path, body in left.items():  # a cleaner that died after its entry in the log
            if not path.exists() and "/locks/" not in str(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(body)
    report = table.check()
    assert kinds(report) == {"orphan-file", "pending-of-ended", "markers-of-ended", "heartbeat-of-ended"}
    assert report.sound()
    assert all("rollback" in each.next_step for each in report.findings)
    with lakelatch.open(str(table.root)) as handle:
        handle.rollback_failed_writes()
    assert table.check().findings == ()


def test_a_table_that_is_written_to_meanwhile_is_sound(table: Copy):
    done = threading.Event()

    def write() -> None:
        try:
            with lakelatch.open(str(table.root)) as handle:
                for number in range(15):
                    with handle.transaction("insert") as txn:
                        txn.new_file(PARTITION).write(
                            rows(f"x{number}-", number).set_column(1, "origin", pa.array(["JFK"] * 5))
                        )
                    handle.transaction("insert").abort()
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    reports = []
    while not done.is_set():
        reports.append(table.check())
    writer.join()
    assert not [each for report in reports for each in report.findings if each.severity == "damage"]
    assert table.check(deep=True).findings == ()


def test_a_rebuilt_log_leaves_the_table_sound(table: Copy):
    cut(table.slots[-1])
    assert kinds(table.check()) == {"log-entry-torn"}
    lakelatch.adopt(str(table.root)).close()
    assert table.check().sound(strict=True)


def test_epochs_are_followed(table: Copy):
    with lakelatch.open(str(table.root)) as handle:
        handle.session.log.close_epoch()
        with handle.transaction("insert") as txn:
            txn.new_file("origin=LGA").write(rows("LGA", 1).set_column(0, "id", pa.array(list("abcde"))))
    assert len(list(table.log.parent.iterdir())) == 2
    assert table.check(deep=True).findings == ()


def test_a_pool_of_threads_finds_the_same(table: Copy):
    table.rewrite(lambda each: each.slice(0, 2))
    seen = []
    with ThreadPoolExecutor(4) as pool:
        report = table.check(run_all=pool.map, progress=lambda what, done, total: seen.append((what, done, total)))
    assert report == table.check()
    assert seen[-1] == ("data files", 4, 4)


def test_findings_are_counted_once_and_sorted_by_how_bad_they_are():
    out = Findings()
    for kind in ("other-files", "orphan-file", "file-missing", "file-missing"):
        out.add(kind, "path", "message", "next")
    report = out.report("file:///t")
    assert [each.severity for each in report.findings] == ["damage", "leftover", "note"]
    assert json.loads(json.dumps(report.to_json()))["leftovers"] == 1


# JVM Hudi 1.1 with a timestamp key generator wrote one key twice; readers show both rows.
TWICE = {f"sample_table/cow/v9_timebasedkeygen_{each}" for each in ("epochmillis", "nonhivestyle", "unixtimestamp")}


@pytest.mark.parametrize("name", sorted(_ZIPS))
def test_tables_of_other_writers_are_sound(name: str, tmp_path: Path):
    table = unzip(name, tmp_path)
    report = check(table.store)
    assert kinds(report) <= {"other-files"}
    assert report.sound(strict=True)
    deep = kinds(check(table.store, deep=True))
    assert ("duplicate-keys" in deep) == (name in TWICE)


FOREIGN = [
    "sample_table/cow/v6_nonpartitioned",
    "sample_table/cow/v9_txns_simple_nometa",
    "sample_table/mor/avro/v9_txns_simple_nometa",
]


@pytest.mark.parametrize("name", FOREIGN)
def test_damage_to_tables_of_other_writers_is_found(name: str, tmp_path: Path):
    table = unzip(name, tmp_path)
    timeline = table.root / table.config.timeline_folder
    newest = max(table.root.rglob("*.parquet"), key=lambda path: path.name.rpartition("_")[2])
    newest.rename(newest.with_name("away.parquet"))
    assert kinds(check(table.store)) == {"file-missing", "stray-file"}
    newest.with_name("away.parquet").rename(newest)
    commit = max(path for path in timeline.iterdir() if path.suffix in (".commit", ".deltacommit"))
    body = commit.read_bytes()
    commit.write_bytes(body[:-20])
    assert "instant-torn" in kinds(check(table.store))
    commit.write_bytes(b"")
    assert "instant-empty" in kinds(check(table.store))
