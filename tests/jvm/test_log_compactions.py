"""Log compactions: what the JVM reads in them, and those that it makes, beside what hudi-rs and we read."""

from __future__ import annotations

import pytest

import lakelatch
from lakelatch.hudi.files import read_blocks

from .compaction import rows_of
from .log_compactions import MADE_BY_HAND, MADE_BY_JVM, WRITES
from .readers import by_hudi_rs
from .test_jvm_compaction import plain

pytestmark = pytest.mark.jvm


@pytest.mark.parametrize("version", [version for version, _ in MADE_BY_HAND])
def test_every_reader_sees_the_same_rows(library, version):
    name = f"logs-by-hand-v{version}"
    path = library.logs_compacted[name].folder
    assert plain(library.jvm(name, "snapshot")) == plain(by_hudi_rs(path)) == rows_of(path)


@pytest.mark.parametrize("version", [version for version, _ in MADE_BY_JVM])
def test_what_the_jvm_has_merged_is_read_and_compacted(library, version):
    name = f"logs-by-jvm-v{version}"
    mor = library.logs_compacted[name]
    last = plain(library.jvm(name, "upsert", len(WRITES) - 1))
    ordered = bool(mor.config.ordered_by)
    assert last == {"a0": 10, "a1": 11, "a2": 12, "a3": 13, "a4": 1, "a5": 20 if ordered else 17}
    logs = [each for each in mor.folder.rglob("*.log.*") if each.suffix != ".crc"]
    merged = [block.merged for each in logs for block in read_blocks(each.read_bytes(), each.name)]
    assert len([each for each in merged if each]) == len(WRITES) // 2, "the JVM has merged log files twice"
    assert rows_of(mor.folder) == last == plain(by_hudi_rs(mor.folder))
    with lakelatch.adopt(str(mor.folder)) as table:
        table.upsert([{"id": "a4", "part": "a", "v": 40}])
        assert table.compact()
        assert not any(each.logs for each in table.snapshot().file_slices())
    assert rows_of(mor.folder) == last | {"a4": 40} == plain(by_hudi_rs(mor.folder))
