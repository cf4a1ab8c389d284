"""Markers in lists: JVM Hudi reads ours with its own code."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakelatch
from lakelatch.occ.liveness import MARKERS, list_markers
from lakelatch.server import Embedded

from .cases import WRITE_OPTIONS, WRITES, for_jvm_writer
from .readers import ask_jvm

pytestmark = pytest.mark.jvm

EARLY = {
    "hoodie.write.markers.type": "TIMELINE_SERVER_BASED",
    "hoodie.write.concurrency.early.conflict.detection.enable": "true",
    "hoodie.write.concurrency.async.conflict.detector.initial_delay_ms": "0",
    "hoodie.write.concurrency.async.conflict.detector.period_ms": "100",
}


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
