"""The demonstration of streams does what it says, and its verdict can be wrong."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import lakelatch
from lakelatch.demo.story import KEY
from lakelatch.demo.stream_stage import VICTIM, StreamStage
from lakelatch.demo.wide_row import BATCHES, joined, sources


def test_four_jobs_one_of_them_killed_make_the_join_of_their_sources(tmp_path: Path) -> None:
    said: list[str] = []
    stage = StreamStage(sources(1000), tmp_path, spark=frozenset(), seed=1, say=said.append)
    stage.make_table()
    stage.perform()
    assert [what for what, right in stage.verdict() if not right] == []
    assert any(f"{VICTIM} was killed with SIGKILL" in line for line in said)
    assert BATCHES < stage.landed[VICTIM] < 2 * BATCHES, (
        "it waits to be killed, however late its parent sees what has landed"
    )
    assert {name for name, line in stage.who_wrote_when() if "█" in line} >= {each.name for each in stage.sources}
    with lakelatch.open(stage.url) as table:
        some = stage.sources[3].rows.slice(0, 1)
        wrong = some.set_column(some.schema.get_field_index("planes_at"), "planes_at", pa.array([10**9]))
        table.stream("planes").upsert(wrong.set_column(some.schema.get_field_index("seats"), "seats", pa.array([0])))
    assert [what.split(" ", 1)[1] for what, right in stage.verdict() if not right] == [
        "wide rows equal the join of the four sources, row for row",
        "reads the same",
    ]


def test_events_come_late_and_twice_and_the_newest_are_the_source() -> None:
    for source in sources(2000):
        batches = source.events(seed=3)
        sent = pa.concat_tables(batches)
        late = sent.filter(pc.is_in(sent[source.ordering], value_set=pc.subtract(source.rows[source.ordering], 1)))
        assert late.num_rows > 20
        assert sent.num_rows - late.num_rows - source.rows.num_rows > 20
        assert (
            late.filter(pc.equal(late[source.columns[-1]], source.rows[source.columns[-1]][0])).num_rows < late.num_rows
        )
    assert len(joined(sources(2000))) == 2000


def test_an_older_version_has_no_value_where_its_row_has_none() -> None:
    """The join tells of the newest versions alone, and a null would leave such a value there."""
    for source in sources(50_000):
        newest = source.rows.select([KEY, *source.columns])
        older = pa.concat_tables(source.events(0)).join(
            source.rows.select([KEY, source.ordering]), KEY, right_suffix=" now"
        )
        older = older.filter(pc.less(older[source.ordering], older[f"{source.ordering} now"]))
        assert older.num_rows > 0
        pairs = older.join(newest, KEY, right_suffix=" now")
        for name in source.columns:
            assert pairs[name].is_null().equals(pairs[f"{name} now"].is_null()), (source.name, name)
