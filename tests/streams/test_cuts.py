"""The same events of a stream, cut into writes in every way: a row is what its events make of it one after the other.

Every key has a story of its own, and all stories of that length are there; so an event is late, early, null or one of
several equal ones at every place, and every order of each set of events is there too.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.streams import UPSERT, Stream
from lakelatch.testing import FakeEnvironment

from .model import Model, Row

LENGTH = 4
EVENTS = [(at, null) for at in (1, 2, 3) for null in (False, True)]
MERGERS = {
    "n_sum": ("sum", pa.int64()),
    "n_count": ("count", pa.int64()),
    "n_min": ("min", pa.int64()),
    "n_max": ("max", pa.int64()),
    "n_and": ("bool_and", pa.bool_()),
    "n_or": ("bool_or", pa.bool_()),
    "n_set": ("collect_set(2)", pa.list_(pa.int64())),
    "n_top": ("top_n(2)", pa.list_(pa.int64())),
    "n_nested": (
        "nested_update('x', by='ts', count=2)",
        pa.list_(pa.struct([("x", pa.string()), ("ts", pa.int64()), ("y", pa.int64())])),
    ),
    "n_map": ("merge_map(2, by='ts')", pa.map_(pa.string(), pa.struct([("ts", pa.int64()), ("x", pa.int64())]))),
}
SCHEMA = pa.schema(
    [("id", pa.string()), ("a", pa.int64()), ("b", pa.int64()), ("at", pa.int64())]
    + [(name, kind) for name, (_, kind) in MERGERS.items()]
)
STREAMS = {
    "keep": Stream("s", ("a", "b"), "at"),
    "write": Stream("s", ("a", "b"), "at", null="write", foreign_readers=False),
    "keep, mergers": Stream("s", ("a", "b"), "at", foreign_readers=False),
    "write, mergers": Stream("s", ("a", "b"), "at", null="write", foreign_readers=False),
}
CUTS = [[n for n in range(1, LENGTH) if cuts & 1 << n - 1] for cuts in range(2 ** (LENGTH - 1))]


def story(key: str, chosen: tuple[tuple[int, bool], ...], columns: tuple[str, ...]) -> list[Row]:
    """Where ``a`` has a null, ``b`` has none; both tell the place of their event, and columns with a merger its order alone."""
    rows = []
    for place, (at, null) in enumerate(chosen):
        entries = [("odd" if at % 2 else "even", {"ts": at, "x": -at}), ("both", {"ts": 1, "x": at})]
        of_kind: dict[str, Any] = {
            "n_map": entries,
            "n_nested": [{"x": name, "ts": item["ts"], "y": item["x"]} for name, item in entries],
            "n_and": at > 1,
            "n_or": at > 1,
            "n_set": [at, 1],
            "n_top": [at, 1],
        }
        merged = {name: None if null else of_kind.get(name, at) for name in columns if name.startswith("n_")}
        rows.append({"id": key, "at": at, "a": None if null else place, "b": place if null else None, **merged})
    return rows


def in_cuts(stories: list[list[Row]], cuts: list[int]) -> list[list[Row]]:
    """One batch for each piece, with that piece of every story."""
    return [[row for each in stories for row in each[a:b]] for a, b in zip([0, *cuts], [*cuts, LENGTH], strict=True)]


@pytest.mark.parametrize("kind", STREAMS)
def test_a_row_is_what_its_events_make_one_after_the_other_wherever_they_are_cut(kind: str, tmp_path: Any) -> None:
    stream = STREAMS[kind]
    merge = {name: spec for name, (spec, _) in MERGERS.items()} if "mergers" in kind else {}
    columns = (*stream.columns, *merge)
    told = Stream("s", columns, "at", null=stream.null, foreign_readers=False, merge=tuple(merge.items()))
    chosen = list(product(EVENTS, repeat=LENGTH))
    stories = [story(f"k{number}", each, columns) for number, each in enumerate(chosen)]
    model = Model(("id",), [told])
    for each in stories:
        model.apply("s", UPSERT, each)
    expected = {key: row for (key,), row in model.rows().items()}
    sets: dict[Any, Row] = {}
    for number, each in enumerate(chosen):  # in whatever order events come, a column with a merger is the same
        merged = {name: expected[f"k{number}"][name] for name in merge}
        assert sets.setdefault(tuple(sorted(each)), merged) == merged
    for number, cuts in enumerate(CUTS):
        given: dict[str, Any] = {"type": "merge_on_read", "table_version": 9, "bucket_count": 1}
        url = str(tmp_path / f"{number}")
        with lakelatch.create(url, record_key="id", schema=SCHEMA, env=FakeEnvironment(seed=1), **given) as table:
            opened = table.stream(
                "s",
                columns=columns,
                ordering="at",
                null=stream.null,
                merge=merge or None,
                foreign_readers=stream.foreign_readers,
            )
            for part, batch in enumerate(in_cuts(stories, cuts)):
                fields = [SCHEMA.field(name) for name in ("id", "at", *columns)]
                opened.upsert(pa.Table.from_pylist(batch, pa.schema(fields)), batch=("test", part))
                if part == number % 2:
                    table.compact()
            for _ in range(2):
                read = {row.pop("id"): row for row in table.read(columns=["id", "at", *columns]).to_pylist()}
                wrong = [key for key in expected if read[key] != expected[key]]
                assert not wrong, (cuts, stories[int(wrong[0][1:])], read[wrong[0]], expected[wrong[0]])
                table.compact()
