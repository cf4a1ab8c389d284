"""Markers in lists: JVM Hudi reads ours with its own code, and we read its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch.occ.liveness import HEARTBEATS, MARKERS, instants_with_markers, list_markers
from lakelatch.server import Embedded
from lakelatch.storage.local.store import LocalStore

from .cases import WRITE_OPTIONS, WRITES, for_jvm_writer
from .readers import ask_jvm
from .story import Story

pytestmark = pytest.mark.jvm

LISTS = {"hoodie.write.markers.type": "TIMELINE_SERVER_BASED"}
EARLY = LISTS | {
    "hoodie.write.concurrency.early.conflict.detection.enable": "true",
    "hoodie.write.concurrency.async.conflict.detector.initial_delay_ms": "0",
    "hoodie.write.concurrency.async.conflict.detector.period_ms": "100",
}


# Its files and markers stand, and then a check of its own fails: it ends without a commit, and cleans nothing up.
ENDS_AFTER_ITS_FILES = {
    "hoodie.precommit.validators": "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator",
    "hoodie.precommit.validators.single.value.sql.queries": "select count(*) from <TABLE_NAME>#-1",
}

DIES = """
import os, signal, sys
import lakelatch
from lakelatch.server import Embedded
from lakelatch.storage.local.store import LocalStore
table = lakelatch.open(sys.argv[1], markers=Embedded())
txn = table.transaction()
txn.upsert([{**row, "seen": 7} for row in table.read().to_arrow().to_pylist()])
print(txn.instant, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_jvm_hudi_reads_our_lists_of_markers(tmp_path: Path) -> None:
    story = for_jvm_writer(tmp_path / "t", "simple")
    path, own = story.path, {"hoodie.table.name": story.table.config.name}
    with lakelatch.open(str(path), markers=Embedded()) as table:
        before = table.read().to_arrow().to_pylist()
        older = table.transaction()
        older.upsert([{**row, "seen": 7} for row in before])
        ours = list_markers(table.store, older.instant)
        assert ours
        assert all(each.list for each in ours)
        theirs = [{k: v for k, v in row.items() if k in ("id", "place")} for row in before]
        read, written = ask_jvm(
            [
                {"kind": "markers", "path": f"{path}/{MARKERS}/{older.instant}"},
                {
                    "kind": "upsert",
                    "path": str(path),
                    "rows": [{**dict.fromkeys(before[0]), **row, "seen": 9} for row in theirs],
                    "options": WRITE_OPTIONS | WRITES["simple"] | EARLY | own,
                },
            ],
            tmp_path,
        )
        assert read == {"type": "TIMELINE_SERVER_BASED", "names": sorted(each.name for each in ours)}
        # Its early detection runs beside its writing, and a write as short as this one is often over before it looks: then
        # the validation at our commit is what stands between the two.
        if "error" in written:
            assert "HoodieEarlyConflictDetectionException" in written["error"]
            older.commit()
        else:
            with pytest.raises(lakelatch.LakeLatchError) as told:
                older.commit()
            assert told.value.landed is False


@pytest.mark.thorough
def test_we_read_the_lists_of_markers_of_a_jvm_writer_and_it_cleans_by_ours(tmp_path: Path) -> None:
    """Each meets what the other left when it died: files, their markers in lists, a heartbeat."""
    its, ours = (for_jvm_writer(tmp_path / name, "simple") for name in ("its", "ours"))
    with lakelatch.open(str(ours.path)) as table:
        before = table.read().to_arrow().to_pylist()
    its.table.close()
    ours.table.close()  # an open handle would end the dead transaction itself
    died = subprocess.run([sys.executable, "-c", DIES, str(ours.path)], capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    dead, store = died.stdout.strip(), LocalStore(ours.path)
    left = list_markers(store, dead)
    assert left
    assert all(each.list and (ours.path / each.path).exists() for each in left)
    beat = ours.path / HEARTBEATS / dead
    os.utime(beat, (beat.stat().st_mtime - 3600,) * 2)

    def upsert(story: Story, **more: str) -> dict[str, Any]:
        changed = [{**row, "seen": 9} for row in before]
        options = WRITE_OPTIONS | WRITES["simple"] | LISTS | {"hoodie.table.name": story.table.config.name} | more
        return {"kind": "upsert", "path": str(story.path), "rows": changed, "options": options}

    failed, written = ask_jvm([upsert(its, **ENDS_AFTER_ITS_FILES), upsert(ours)], tmp_path)
    assert "error" not in written
    assert len(list(ours.path.glob(".hoodie/timeline/*_*.rollback"))) == 1  # the JVM's; ours stand in the log
    assert not [each for each in left if (ours.path / each.path).exists()]
    assert not list_markers(store, dead)

    assert "HoodieValidationException" in failed["error"]
    with lakelatch.open(str(its.path)) as table:
        table.change_settings(early_conflict_detection="direct", rebase=False)
        (instant,) = instants_with_markers(table.store)
        files = {str(each.relative_to(its.path)) for each in its.path.glob(f"place=*/*_{instant}.parquet")}
        assert files
        assert {each.path for each in list_markers(table.store, instant) if each.list} == files
        with pytest.raises(lakelatch.ConflictError, match="another engine") as lost, table.transaction() as late:
            late.upsert([{**row, "seen": 8} for row in before])
        assert lost.value.winner == instant
