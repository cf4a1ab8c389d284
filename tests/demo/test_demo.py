"""The demonstration does what it says, and its verdict can be wrong: it is not always 'ok'."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakelatch
from lakelatch.demo import story, verdict
from lakelatch.demo.story import Story, Task
from lakelatch.demo.verdict import replay
from lakelatch.demo.writer import _marked
from lakelatch.testing.contention import PATIENCE_S

from ..jvm.readers import ask_jvm, by_hudi_rs, by_us, in_order

ROWS = 2000


@pytest.fixture(scope="module")
def told() -> Story:
    """The whole story on few rows; its Spark writers are left out, so that the rest runs in this process."""
    whole = story.tell(writers=6, rows=ROWS, seed=3)
    return replace(whole, tasks=tuple(t for t in whole.tasks if not t.spark and not t.doomed))


@pytest.fixture
def played(told: Story, tmp_path: Path) -> Iterator[tuple[Path, lakelatch.Table]]:
    """A table on which the writers without Spark have each had their turn."""
    path = tmp_path / "flights"
    made = lakelatch.create(str(path), record_key="id", partition_by="month", ordering_field="updated")
    with made, made.transaction("bulk_insert") as txn:
        for month in sorted(told.first["month"].unique().to_pylist()):
            txn.new_file(f"month={month}").write(told.first.filter(pc.equal(told.first["month"], month)))
    for task in told.tasks:
        with lakelatch.open(str(path), writer=task.name) as table:
            wanted, note = story.mark(task)

            def work(txn: lakelatch.Transaction, task: Task = task, wanted: str = wanted, note: str = note) -> None:
                for month in task.months:
                    for group in txn.snapshot.file_slices(f"month={month}"):
                        rows = txn.read_slice(group, meta=True)
                        chosen = (
                            pc.is_null(rows["dep_time"]) if wanted == "cancelled" else pc.equal(rows["origin"], wanted)
                        )
                        txn.rewrite(group).write(_marked(rows, chosen, note))

            table.run(work)
    with lakelatch.open(str(path)) as table:
        yield path, table


def judge(table: lakelatch.Table, told: Story, path: Path) -> dict[str, bool]:
    findings = verdict.judge(table, told, list(table.session.log.entries()), path)
    return {f.what: f.right for f in findings}


def test_a_table_that_is_right_passes_every_check(played: tuple[Path, lakelatch.Table], told: Story) -> None:
    path, table = played
    assert set(judge(table, told, path).values()) == {True}


def test_a_row_that_is_missing_is_found(played: tuple[Path, lakelatch.Table], told: Story) -> None:
    path, table = played
    more = told.first.slice(0, 1).set_column(0, "id", pa.array(["never-written"]))
    found = judge(table, replace(told, first=pa.concat_tables([told.first, more])), path)
    assert not found["rows equal a serial replay in commit order"]
    assert not found["the same rows from hudi (hudi-rs)"]
    assert found["no orphan file, marker, heartbeat or pending instant"]


def test_an_orphan_is_found(played: tuple[Path, lakelatch.Table], told: Story) -> None:
    path, table = played
    data = next(path.rglob("month=*/*.parquet"))
    stem, _, instant = data.stem.rpartition("_")
    data.with_name(f"{stem}_{int(instant) + 1}.parquet").write_bytes(data.read_bytes())
    assert not judge(table, told, path)["no orphan file, marker, heartbeat or pending instant"]


def test_a_writer_that_did_not_land_is_found(played: tuple[Path, lakelatch.Table], told: Story) -> None:
    path, table = played
    absent = Task("absent", "mark", told.tasks[0].months)
    assert not judge(table, replace(told, tasks=(*told.tasks, absent)), path)[
        "every writer but the killed one has landed"
    ]


def test_the_same_numbers_tell_the_same_story() -> None:
    assert story.tell(writers=7, rows=ROWS, seed=5) == story.tell(writers=7, rows=ROWS, seed=5)
    assert story.tell(writers=7, rows=ROWS, seed=5).tasks != story.tell(writers=7, rows=ROWS, seed=6).tasks


def test_every_flight_has_its_own_key_and_the_story_shares_months_where_it_must() -> None:
    whole = story.tell(writers=5, rows=0, seed=0)
    assert whole.first.num_rows == len(whole.first["id"].unique()) > 330_000
    months = {t.name: set(t.months) for t in whole.tasks}
    assert months["arrivals"] & months["corrections"]
    assert not months["arrivals"] & months["cancelled"]
    assert whole.first["arr_time"].null_count == whole.first.num_rows


def test_replay_keeps_the_newer_row_whatever_the_order() -> None:
    whole = story.tell(writers=5, rows=ROWS, seed=1)
    one, other = (replay(whole, order) for order in (("arrivals", "corrections"), ("corrections", "arrivals")))
    assert one.equals(other)


@pytest.mark.jvm
@pytest.mark.process
def test_the_demonstration_runs_and_its_table_is_the_same_for_every_reader(tmp_path: Path) -> None:
    """PySpark and plain writers at once, one killed, others retried; the JVM reads what they leave."""
    kept = tmp_path / "demo"
    command = [
        sys.executable,
        "-m",
        "lakelatch.demo.commands",
        "flights",
        "--rows",
        "5000",
        "--writers",
        "6",
        "--keep",
        str(kept),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert done.stdout.count("ok   ") == 5
    assert "lost against arrivals" in done.stdout
    assert "rolled back by" in done.stdout
    assert "\x1b" not in done.stdout, "colours on a pipe"
    wanted, path = in_order(by_us(kept / "flights")), {"path": str(kept / "flights")}
    assert len(wanted) > 3000
    assert in_order(by_hudi_rs(kept / "flights")) == wanted
    incremental = path | {"kind": "incremental", "begin": "000", "end": None}
    for answer in ask_jvm([path | {"kind": "snapshot"}, incremental], tmp_path):
        assert in_order(answer["rows"]) == wanted, answer


@pytest.mark.parametrize(
    ("options", "reason"),
    [(["--writers", "3"], "between 5 and 32"), (["--rows", "10"], "at least 1000"), (["--keep", "."], "is not empty")],
)
def test_options_that_cannot_work_are_refused(options: list[str], reason: str) -> None:
    command = [sys.executable, "-m", "lakelatch.demo.commands", "flights", *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=Path(__file__).parent
    )
    assert done.returncode == 2
    assert reason in done.stderr
