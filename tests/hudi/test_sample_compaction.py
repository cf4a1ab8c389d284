"""Log files that JVM Hudi wrote are compacted here: each merge-on-read sample as it was before its own compaction."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import lakelatch
from lakelatch.hudi.files.file_names import parse_base_name, parse_log_name
from lakelatch.hudi.timeline.instant import parse
from lakelatch.occ.check.check import check

from .test_sample_tables import in_order


def go_back(root: Path, last: str) -> None:
    """The table as it was when T ``last`` was its newest commit, but for what Hudi had cleaned since."""
    for path in sorted(root.rglob("*")):
        instant = parse(path.name, layout=2) if path.parent.name == "timeline" else None
        file = parse_base_name(path.name) or parse_log_name(path.name)
        if (found := instant.requested if instant else file.instant if file else "") and found > last:
            path.unlink()


def independent(root: Path, names: list[str]) -> list[str]:
    read = HudiTableBuilder.from_base_uri(str(root)).build().read()
    return in_order(pa.Table.from_batches(read).select(names))


def test_log_files_of_the_jvm_are_compacted(table, tmp_path):
    config = table.config
    if not config.merge_on_read:
        return
    if config.layout == 1 or config.metadata_partitions or table.lance:
        with pytest.raises(lakelatch.UnsupportedTableError):
            config.refuse_writing()
        return
    root = tmp_path / table.root.name
    shutil.copytree(table.root, root)
    timeline = lakelatch.open(str(root)).timeline()
    (own,) = (each for each in timeline.commits if each.action == "commit")
    go_back(
        root,
        max(
            each.requested
            for each in timeline.commits
            if each.requested < own.requested and each.action == "deltacommit"
        ),
    )
    with lakelatch.adopt(str(root)) as opened:
        before = opened.read().to_arrow()
        done = opened.compact()
        assert done
        assert done.files >= 2
        assert not any(each.logs for each in opened.snapshot().file_slices())
        assert in_order(opened.read().to_arrow()) == in_order(before) == independent(root, before.column_names)
        assert {each.severity for each in check(opened.store).findings} <= {"note", "leftover"}
