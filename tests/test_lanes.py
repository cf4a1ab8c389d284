"""The lanes of `make test` leave no test out, and each test finds the tools that it needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lakelatch.testing.contention import PATIENCE_S

from .unheard import unheard

ROOT = Path(__file__).parents[1]


def folders(lane: str) -> list[str]:
    """Where the Makefile says that a lane looks."""
    (found,) = re.findall(rf"^{lane} := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return found.split()


def test_each_test_of_spark_or_the_jvm_lies_where_its_lane_looks() -> None:
    outside = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        marks = set(re.findall(r"\bmark\.(spark|jvm)\b", path.read_text()))
        lane = "WITH_SPARK" if "spark" in marks else "WITH_JVM" if "jvm" in marks else ""
        if lane and not any((ROOT / folder) in path.parents for folder in folders(lane)):
            outside.append(f"{path.relative_to(ROOT)}: {lane} in the Makefile does not name its folder")
    assert not outside, "\n".join(outside)
    assert all((ROOT / path).exists() for lane in ("WITH_SPARK", "WITH_JVM", "WITH_CLUSTER") for path in folders(lane))


def test_whatever_asks_the_jvm_reader_says_so() -> None:
    """The lane of the others may begin before it is installed."""
    asks = re.compile(
        r"^from (?:\.+jvm)?\.+readers import .*\b(?:ask_jvm|require_jvm|write_by_spark|Reader)\b", re.MULTILINE
    )
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if asks.search(path.read_text())]
    tests += (ROOT / "tests/jvm").glob("test_*.py")
    assert tests
    unmarked = [str(path.relative_to(ROOT)) for path in tests if not re.search(r"\bmark\.jvm\b", path.read_text())]
    assert not unmarked


def test_no_test_that_begins_while_the_tools_are_installed_needs_one() -> None:
    later = [
        ROOT / path for lane in ("LOCKS", "SERVERS", "PROGRAMS", "WITH_SPARK", "WITH_JVM") for path in folders(lane)
    ]
    wants = re.compile(r"^from \.+servers|\bshutil\.which\(", re.MULTILINE)
    early = [path for path in (ROOT / "tests").rglob("test_*.py") if not {path, *path.parents} & set(later)]
    assert len(early) > 100
    assert not [str(path) for path in early if wants.search(path.read_text())], "the Makefile names their folder"


def at_once(command: str, **more: str) -> subprocess.Popen[str]:
    """The stages' runner with one of them, and its temporary folder that of this machine or ``more``."""
    ours = {name: value for name, value in os.environ.items() if name != "TMPDIR"} | more
    stages = [sys.executable, str(ROOT / "scripts/at_once.py"), f"one: {command}"]
    return subprocess.Popen(stages, env=ours, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("ends", ["by itself", "by a signal"])
def test_what_stages_write_lies_in_memory_and_goes_with_them(ends: str) -> None:
    """Or on the disk where there is no room; it would keep the memory of anyone who runs them often."""
    with at_once("sh -c 'echo $TMPDIR; touch ${TMPDIR:-/nowhere}/file; read line'") as run:
        assert run.stdin is not None
        assert run.stdout is not None
        folder = Path(run.stdout.readline().strip() or "/nowhere")
        if ends == "by a signal":
            run.terminate()
        else:
            run.stdin.write("go on\n")
            run.stdin.close()
        assert run.wait(PATIENCE_S) == (0 if ends == "by itself" else 143)
    assert str(folder) == "/nowhere" or folder.parent == Path("/dev/shm")
    assert not folder.exists()


def test_a_signal_in_the_moment_before_the_runner_waits_ends_it() -> None:
    """It was heard when the stages had ended."""
    ours = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    stage = "one: sh -c 'echo $TMPDIR; read line'"
    with unheard(str(ROOT / "scripts/at_once.py"), stage, env=ours, stdin=subprocess.PIPE) as (run, terminate):
        assert run.stdout is not None
        folder = run.stdout.readline().strip()
        terminate()
        assert run.wait(PATIENCE_S) == 143
    assert not folder or not Path(folder).exists()


def test_a_temporary_folder_that_is_named_is_taken(tmp_path: Path) -> None:
    with at_once("sh -c 'touch $TMPDIR/file'", TMPDIR=str(tmp_path)) as run:
        assert run.wait(PATIENCE_S) == 0
    assert (tmp_path / "file").exists()
