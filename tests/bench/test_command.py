"""``lakelatch bench`` as people meet it: bad input, an interrupt, a store of their own, and the report of kept results."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakelatch.bench import Progress, read
from lakelatch.cli.app import app
from lakelatch.cli.bench.run import interruptible
from lakelatch.storage import open_store
from lakelatch.testing.contention import PATIENCE_S, until

from ..command_line import Runner
from ..servers import KEY, Bucket, s3s_fs, versitygw
from ..thorough import some


def bench(*arguments: str, code: int = 0) -> str:
    result = Runner().invoke(app, ["bench", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a small run of our own tables in two rounds."""
    out = tmp_path_factory.mktemp("kept") / "out"
    told = bench(
        "counter", "--writers", "2", "--operations", "6", "--rounds", "2", "--lock", "table", "--lock", "none://",
        "--isolation", "snapshot", "--setting", "rebase=false", "--out", str(out),
    )  # fmt: skip
    assert "report.md" in told
    return out


def test_a_run_is_kept_with_machine_versions_seeds_and_parameters(kept):
    results = read(kept)
    assert results.machine["versions"].keys() >= {"lakelatch", "pyarrow"}
    assert results.machine["plan"]["operations"] == 6
    assert [run["seed"] for run in results.runs[:2]] == ["0/counter/2/0"] * 2
    assert {run["settings"]["lock"] for run in results.runs} == {"table", "none://"}
    assert len(results.runs) == 4
    assert [cell.writers for cell in results.cells()] == [2] * 2
    # Systems take turns, and each round begins with another one.
    locks = [run["settings"]["lock"] for run in results.runs]
    assert locks == ["table", "none://", "none://", "table"]


def test_every_attempt_is_kept(kept):
    results = read(kept)
    for run in results.runs:
        operations, _ = results.history(run)
        counted = [each for each in operations if not each.warm]
        assert len(counted) == run["done"] == 12
        assert sum(len(each.tries) for each in counted) == pytest.approx(run["attempts_per_commit"] * 12, abs=0.01)
        assert all(each.began <= each.tries[0].began <= each.ended for each in counted)
        locked = run["settings"]["lock"] == "table"
        assert all(bool(each.holds) == locked for each in counted)


def test_a_report_of_kept_results_is_the_same_again(kept):
    before = (kept / "report.md").read_text()
    assert "report.md" in bench("report", str(kept))
    assert (kept / "report.md").read_text() == before
    assert "| 2 | lakelatch lock=table, isolation=snapshot, rebase=False |" in before


def test_two_runs_are_compared_cell_by_cell(kept, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(kept, other)
    lines = [json.loads(line) for line in (other / "results.jsonl").read_text().splitlines()]
    for line in lines:
        if line["what"] == "machine":
            line["cores"] = 999
        elif line["settings"]["lock"] == "none://":
            line["goodput"] *= 4
    (other / "results.jsonl").write_text("\n".join(map(json.dumps, lines)))
    told = json.loads(Runner().invoke(app, ["bench", "compare", str(kept), str(other), "--json"]).output)
    assert [round(each["ratio"], 2) for each in told["differences"]] == [1.0, 4.0]
    assert any("999" in doubt for doubt in told["doubts"])
    assert "4.00" in bench("compare", str(kept), str(other))


def test_list_names_scenarios_and_peers():
    told = json.loads(Runner().invoke(app, ["bench", "list", "--json"]).output)
    assert {"appends", "bank", "hundred"} <= {each["name"] for each in told["scenarios"]}
    assert {"delta-rs", "pyiceberg"} <= {each["name"] for each in told["peers"]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "there is no scenario 'nothing'; there are appends"),
        (["appends", "--peer", "nobody"], "there is no peer 'nobody'; there are"),
        (["appends", "--peer", "json:Nothing"], "json:Nothing is no adapter"),
        (["appends", "--lock", "nowhere"], "is no lock"),
        (["appends", "--strategy", "luck"], "luck"),
        (["appends", "--isolation", "total"], "total"),
        (["appends", "--setting", "colour=red"], "is no setting; write NAME=VALUE with one of"),
        (["appends", "--setting", "rebase=perhaps"], "neither true nor false"),
        (["appends", "--setting", "lease_s=long"], "is no number"),
        (["appends", "--writers", "1,x"], "is no list of numbers"),
        (["appends", "--writers", "0"], "--writers 0"),
        (["appends", "--writers", "100000"], "--writers 100000"),
        (["killed", "--writers", "1"], "needs at least 2 writers"),
        (["appends", "--seconds", "0"], "--seconds 0"),
        (["appends", "--seconds", "nan"], "--seconds nan"),
        (["appends", "--rounds", "0"], "--rounds 0"),
        (["appends", "--only-peers"], "nothing is left to measure"),
        (["appends", "--colour"], "No such option"),
        (["report", "/nowhere/at/all"], "there are no results in /nowhere/at/all"),
    ],
)
def test_bad_input_is_refused_in_a_sentence_and_nothing_is_made(tmp_path, arguments, words):
    out = [] if arguments[0] == "report" else ["--out", str(tmp_path / "out")]
    assert words in bench(*arguments, *out, code=2)
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(kept):
    assert "exists already" in bench("appends", "--out", str(kept), code=2)


def test_too_few_file_handles_are_told_before_anything_begins(tmp_path):
    line = f"ulimit -n 64 && exec {sys.executable} -m lakelatch.cli bench appends --writers 200 --out {tmp_path}/out"
    told = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=PATIENCE_S)
    assert told.returncode == 2
    assert "open files, and 64 are allowed here: ulimit -n" in told.stderr
    assert not (tmp_path / "out").exists()


def test_a_lock_server_that_is_not_there_is_told_and_has_no_rate(tmp_path):
    told = bench(
        "appends",
        "--lock",
        "redis://127.0.0.1:1",
        "--rounds",
        "1",
        "--operations",
        "1",
        "--out",
        str(tmp_path / "o"),
        code=1,
    )
    assert "no rate" in told
    assert "127.0.0.1:1" in told


@pytest.mark.parametrize("keep", [False, True])
def test_a_store_of_ones_own_is_left_as_it_was_unless_it_is_to_be_kept(tmp_path, keep):
    store = tmp_path / "store 100% é"
    store.mkdir()
    (store / "other").write_text("mine")
    bench(
        "appends", "--table", str(store), "--writers", "1", "--operations", "1", "--rounds", "1", "--out", str(tmp_path / "o"),
        *["--keep"] * keep,
    )  # fmt: skip
    left = sorted(path.name for path in store.iterdir())
    assert left[-1] == "other"
    assert len(left) == 1 + keep
    if keep:
        assert list((store / left[0]).glob("0001/.hoodie/hoodie.properties"))


def test_a_folder_may_be_named_by_a_url(tmp_path):
    store = tmp_path / "store 100% é"
    store.mkdir()
    url = store.as_uri()
    assert "%20" in url
    bench(
        "appends", "--table", url, "--writers", "1", "--operations", "1", "--rounds", "1", "--out", str(tmp_path / "o")
    )
    assert list(store.iterdir()) == []


def _reachable(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a folder of the bucket, with the keys in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    return f"{bucket.url}/mine?endpoint={bucket.options['endpoint']}&region=us-east-1&allow_http=true"


@pytest.mark.thorough
@pytest.mark.server
def test_a_bucket_is_left_as_it_was(tmp_path, monkeypatch):
    with versitygw(tmp_path / "s3") as bucket:
        url = _reachable(bucket, monkeypatch)
        store = open_store(url)
        store.put("other", b"mine")
        out = tmp_path / "o"
        bench(
            "appends", "--table", url, "--lock", "none://", "--writers", "2", "--operations", "2", "--rounds", "1",
            "--out", str(out),
        )  # fmt: skip
        assert store.names("", recursive=True) == ["other"]
        assert bucket.options["endpoint"] not in (out / "results.jsonl").read_text()
        assert read(out).runs[0]["done"] == 4


@pytest.mark.thorough
@pytest.mark.server
def test_a_store_whose_conditional_writes_race_gets_no_rate(tmp_path, monkeypatch):
    with s3s_fs(tmp_path / "s3") as bucket:
        url = _reachable(bucket, monkeypatch)
        told = bench(
            "appends", "--table", url, "--writers", "2", "--operations", "2", "--rounds", "1", "--out", str(tmp_path / "o"),
            code=1,
        )  # fmt: skip
        assert "must not hold a table" in told
        assert not [run for run in read(tmp_path / "o").runs if run.get("goodput")]
        assert open_store(url).names("", recursive=True) == []


@contextmanager
def running(store: Path, out: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """The lab in a process of its own, once two writers have done some operations; and their process numbers."""
    store.mkdir()
    lab = subprocess.Popen(
        [sys.executable, "-m", "lakelatch.cli", "bench", "appends", "--writers", "2", "--seconds", "600", "--rounds", "1",
         "--table", str(store), "--out", str(out)],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        until(
            lambda: sum(path.read_text().count("done") for path in (out / "runs/0001").glob("writer-*.jsonl")) >= 20,
            "no writer has done anything",
        )
        assert lab.poll() is None
        mine = [int(each) for each in Path(f"/proc/{lab.pid}/task/{lab.pid}/children").read_text().split()]
        assert len(mine) == 2
        yield lab, mine
    finally:
        lab.kill()
        lab.wait()


def gone(processes: list[int]) -> bool:
    return not any(os.path.exists(f"/proc/{pid}") for pid in processes)


@pytest.mark.process
@pytest.mark.parametrize("number", some([signal.SIGINT, signal.SIGTERM], 1))
def test_an_interrupt_ends_all_processes_and_leaves_a_partial_result(tmp_path, number):
    store, out = tmp_path / "store", tmp_path / "out"
    with running(store, out) as (lab, mine):
        lab.send_signal(number)
        told = lab.communicate(timeout=PATIENCE_S)[1]
    assert lab.returncode == 130
    assert f"what was found so far is in {out}" in told
    assert gone(mine)
    assert list(store.iterdir()) == []
    (run,) = read(out).runs
    assert run["partial"]
    assert run["done"] >= 18
    assert "Ended before its end" in (out / "report.md").read_text()


def test_an_interrupt_that_python_drops_is_raised_when_the_lab_tells_next(monkeypatch):
    dropped, told, before = [], [], signal.getsignal(signal.SIGINT)  # ignored, where the tests run in the background
    monkeypatch.setattr(sys, "unraisablehook", lambda each: dropped.append(each.exc_type))

    class Finalized:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    with interruptible(told.append) as tell:
        tell(Progress())
        Finalized()
        with pytest.raises(KeyboardInterrupt):
            tell(Progress())
    assert dropped == [KeyboardInterrupt]
    assert len(told) == 1
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.process
def test_writers_leave_when_the_lab_itself_is_killed(tmp_path):
    with running(tmp_path / "store", tmp_path / "out") as (lab, mine):
        lab.kill()
        lab.wait()
        until(lambda: gone(mine), "a writer goes on without the lab")
