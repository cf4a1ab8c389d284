"""What other engines' log compactions have merged is read where they stand, as hudi-rs reads it, and compacted."""

from __future__ import annotations

import pytest

import lakelatch
from lakelatch.hudi.files.log_blocks import read_blocks

from ..occ.mor import Mor, at, data_block, delete_block, rows
from ..occ.world import content, independent_content
from .log_compactions import CASES, log_compactions


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("ordering", ["v", None])
def test_every_shape_of_log_compactions_is_read_as_by_others_before_and_after_a_compaction(tmp_path, ordering, version):
    mor = log_compactions(tmp_path / "t", version=version, ordering=ordering)
    wanted = independent_content(mor.folder)
    assert {key.split()[0] for key in wanted} == set(CASES)
    with lakelatch.open(str(mor.folder)) as table:
        assert content(table) == wanted
    with lakelatch.adopt(str(mor.folder)) as table:
        assert table.compact()
        assert not any(each.logs for each in table.snapshot().file_slices())
        assert content(table) == wanted == independent_content(mor.folder)


def test_a_block_says_which_commits_it_has_merged():
    body = (
        data_block("3", rows("a", {"k": 1}), merged=["1", "2"])
        + delete_block("3", ["l"], merged=["1"])
        + data_block("4", [])
    )
    assert [each.merged for each in read_blocks(body, "log")] == [("1", "2"), ("1",), None]


@pytest.mark.parametrize("ordering", ["v", None])
def test_a_table_with_a_log_compaction_is_written_on(tmp_path, ordering):
    mor = Mor(tmp_path / "t", ordering=ordering)
    mor.base(at(1), at(2), "a", rows("a", {"a0": 1, "a1": 1}))
    mor.update(at(10), at(11), "a", {"a0": 10, "a2": 10}, ["a1"])
    mor.update(at(12), at(13), "a", {"a2": 12})
    merged = [at(10), at(12)]
    body = data_block(at(20), rows("a", {"a0": 10, "a2": 12}), merged=merged) + delete_block(
        at(20), ["a1"], merged=merged
    )
    mor.log(at(20), at(21), "a", body)
    with lakelatch.adopt(str(mor.folder)) as table:
        table.upsert([{"id": "a0", "part": "a", "v": 30}, {"id": "a1", "part": "a", "v": 0}])
        table.delete([{"id": "a2", "part": "a"}])
        table.update_where("id = 'a0'", {"v": 31})
        wanted = {"a0": 31, "a1": 0}
        assert content(table) == wanted == independent_content(mor.folder)
        assert table.compact()
        assert content(table) == wanted == independent_content(mor.folder)
