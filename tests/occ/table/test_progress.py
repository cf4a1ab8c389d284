"""How far long calls have come is told; and who ends one by raising, or with Ctrl-C, leaves the table as it was."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch import Progress
from lakelatch.errors import InputError
from lakelatch.hudi.files import list_data_files
from lakelatch.occ.check.check import check

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])
PARTS = [f"p{n}" for n in range(4)]


def rows(first: int, count: int, v: int) -> pa.Table:
    found = [{"id": f"{part}-{n}", "part": part, "v": v} for part in PARTS for n in range(first, first + count)]
    return pa.Table.from_pylist(found, SCHEMA)


def make(folder: Path) -> lakelatch.Table:
    """Merge-on-read, with log files, small files and superseded ones in four partitions."""
    options: dict[str, Any] = {"record_key": "id", "partition_by": "part", "schema": SCHEMA, "type": "merge_on_read"}
    table = lakelatch.create(str(folder), **options)
    for n in range(3):
        table.insert(rows(10 * n, 10, 0))
    table.upsert(rows(0, 5, 1))
    return table


def logged(folder: Path) -> lakelatch.Table:
    """With two log files on a file slice."""
    table = make(folder)
    table.upsert(rows(0, 5, 2))
    return table


def copy_on_write(folder: Path) -> lakelatch.Table:
    table = lakelatch.create(str(folder), record_key="id", partition_by="part", schema=SCHEMA)
    for n in range(3):
        table.insert(rows(10 * n, 10, 0))
    return table


Call = Callable[[lakelatch.Table, Any], Any]
CALLS: dict[str, tuple[Callable[[Path], lakelatch.Table], Call, str]] = {
    "insert": (make, lambda t, told: t.insert(rows(90, 10, 2), progress=told), "rows"),
    "upsert": (make, lambda t, told: t.upsert(rows(5, 30, 2), progress=told), "rows"),
    "upsert onto base files": (copy_on_write, lambda t, told: t.upsert(rows(5, 30, 2), progress=told), "rows"),
    "overwrite": (make, lambda t, told: t.overwrite(rows(0, 3, 3), progress=told), "rows"),
    "delete": (make, lambda t, told: t.delete(rows(0, 3, 3), progress=told), "rows"),
    "update_where": (make, lambda t, told: t.update_where("v = 0", {"v": 5}, progress=told), "rows"),
    "merge": (
        make,
        lambda t, told: (
            t.merge(rows(0, 40, 3), progress=told).when_matched(update="all").when_not_matched(insert="all").run()
        ),
        "rows",
    ),
    "compact": (make, lambda t, told: t.compact(progress=told), "file groups"),
    "compact_logs": (logged, lambda t, told: t.compact_logs(min_logs=2, progress=told), "file groups"),
    "cluster": (copy_on_write, lambda t, told: t.cluster(progress=told), "file groups"),
    "read": (make, lambda t, told: t.read(progress=told).to_arrow(), "rows"),
}


def files(table: lakelatch.Table) -> set[str]:
    listing = list_data_files(table.store)
    return {each.path for each in (*listing.bases, *listing.logs)}


def content(table: lakelatch.Table) -> list[str]:
    return sorted(map(repr, table.read().to_pylist()))


@pytest.mark.parametrize("name", CALLS)
def test_a_call_tells_how_far_it_has_come(tmp_path: Path, name: str) -> None:
    build, call, unit = CALLS[name]
    told: list[Progress] = []
    with build(tmp_path / "t") as table:
        call(table, told.append)
    assert told
    assert {each.unit for each in told} == {unit}
    assert [each.done for each in told] == sorted({each.done for each in told})
    if told[-1].total is not None:
        assert told[-1].done == told[-1].total
    assert len({each.what for each in told}) == 1


@pytest.mark.parametrize("name", CALLS)
def test_true_draws_a_bar_that_goes_with_the_call(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build, call, unit = CALLS[name]
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    with build(tmp_path / "t") as table:
        call(table, True)
    out, drawn = capsys.readouterr()
    assert not out
    assert unit in drawn
    assert drawn.endswith("\x1b[2K"), "the line is taken away"


@pytest.mark.parametrize("name", CALLS)
def test_true_prints_one_line_where_there_is_no_terminal(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build, call, unit = CALLS[name]
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with build(tmp_path / "t") as table:
        told: list[Progress] = []
        call(table, False)
        assert not capsys.readouterr().err
    with build(tmp_path / "again") as table:
        call(table, told.append)
    with build(tmp_path / "once more") as table:
        call(table, True)
    out, line = capsys.readouterr()
    assert not out
    assert line.count("\n") == 1
    assert line.startswith(f"{told[-1].what}: {told[-1].done:,}")
    assert f" {unit} in " in line


def test_an_error_takes_the_bar_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with make(tmp_path / "t") as table, pytest.raises(InputError):
        table.upsert(rows(0, 1, 1).drop_columns(["v"]), progress=True)
    assert capsys.readouterr().err.endswith(("\x1b[2K", ""))
    with make(tmp_path / "u") as table:
        table.upsert(rows(0, 1, 1), progress=True)


def test_clean_and_archive_tell_it_too_and_are_finished_by_the_next_when_they_are_ended(tmp_path: Path) -> None:
    told: list[Progress] = []

    def stop(now: Progress) -> None:
        told.append(now)
        raise KeyboardInterrupt

    with copy_on_write(tmp_path / "t") as table:
        for n in range(6):
            table.upsert(rows(0, 5, n))
        before = content(table)
        with pytest.raises(KeyboardInterrupt):
            table.clean(retain_commits=1, progress=stop)
        assert [(each.what, each.done, each.unit) for each in told] == [("clean", 1, "files")]
        assert told[0].total is not None
        assert content(table) == before
        table.clean(retain_commits=1)
        assert not table.plans()
        with pytest.raises(KeyboardInterrupt):
            table.archive(keep_min=1, keep_max=1, progress=stop)
        assert (told[-1].what, told[-1].unit) == ("archive", "instants")
        table.archive(keep_min=1, keep_max=1)
        assert not table.plans()
        assert content(table) == before
        assert not [each for each in check(table.store).findings if each.severity != "note"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.parametrize("name", CALLS)
def test_what_progress_raises_ends_the_call_and_leaves_no_file(
    tmp_path: Path, name: str, error: type[BaseException]
) -> None:
    build, call, _ = CALLS[name]

    def stop(_now: Progress) -> None:
        raise error

    with build(tmp_path / "t") as table:
        before, there = content(table), files(table)
        with pytest.raises(error):
            call(table, stop)
        assert files(table) == there
        assert content(table) == before
        assert not table.plans()
        assert not table.session.log.catch_up().open
        call(table, None)  # and the next one does it
        assert not [each for each in check(table.store).findings if each.severity != "note"]


@pytest.mark.parametrize("name", CALLS)
def test_progress_that_cannot_be_called_is_refused(tmp_path: Path, name: str) -> None:
    build, call, _ = CALLS[name]
    with build(tmp_path / "t") as table:
        there = files(table)
        with pytest.raises(InputError, match="progress='bar' cannot be called"):
            call(table, "bar")
        assert files(table) == there


INTERRUPTED = """
import os, signal, sys
import lakelatch, typer
from lakelatch.cli.outcome import plainly

@plainly
def compact(url):
    with lakelatch.open(url) as table:
        table.compact(progress=lambda now: os.kill(os.getpid(), signal.SIGINT) if now.done == 1 else None)

try:
    compact(sys.argv[1])
except typer.Exit as e:
    sys.exit(e.exit_code)
"""


def test_ctrl_c_at_the_command_line_leaves_no_file_and_says_so(tmp_path: Path) -> None:
    with make(tmp_path / "t") as table:
        before, there = content(table), files(table)
        # A shell's background job ignores SIGINT, and so would its children.
        listen = functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler)
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTED, table.url],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=dict(os.environ),
            preexec_fn=listen,
        )
        assert done.returncode == 130, done.stderr
        assert "interrupted" in done.stderr
        assert "Traceback" not in done.stderr
        assert files(table) == there
        assert content(table) == before
        assert not table.plans()
