"""The merger of sketches: against the hashes that a union keeps, in tables and streams, and with bytes that are no sketch."""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import ConfigError, InputError
from lakelatch.mergers import Groups, Laws, find
from lakelatch.testing import FakeEnvironment, broken_laws

datasketches = pytest.importorskip("datasketches")  # nobody has wheels for Python 3.14
KIND = pa.binary()


def sketch(*values: int | str, lg_k: int = 12) -> bytes:
    made = datasketches.update_theta_sketch(lg_k)
    for each in values:
        made.update(each)
    found: bytes = made.compact().serialize()
    return found


def about(stored: bytes) -> float:
    found: float = datasketches.compact_theta_sketch.deserialize(stored).get_estimate()
    return found


def hashes(stored: bytes) -> tuple[int, set[int]]:
    read = datasketches.compact_theta_sketch.deserialize(stored)
    return read.theta64, set(read)


def test_a_union_keeps_the_smallest_hashes_below_every_bound_however_sketches_come() -> None:
    chance, merger = random.Random(5), find("theta(5)")
    for _ in range(150):
        drawn = [
            sketch(*chance.sample(range(500), chance.choice([0, 1, 3, 30, 200])), lg_k=chance.choice([5, 6, 8]))
            for _ in range(chance.randrange(1, 5))
        ]
        found = set()
        for _ in range(3):
            chance.shuffle(drawn)
            lifted = merger.lift(pa.array(drawn, KIND), KIND)
            cut = chance.randrange(len(drawn) + 1)
            ends = [0, cut, len(drawn)] if 0 < cut < len(drawn) else [0, len(drawn)]
            parts = merger.merge(lifted, Groups(np.array(ends)))
            (whole,) = merger.merge(parts, Groups(np.array([0, len(parts)]))).to_pylist()
            found.add(whole)
        assert len(found) == 1, "the bytes depend on the order, or on where the rows are cut"
        read = [hashes(each) for each in drawn]
        bound = min(theta for theta, _ in read)
        below = sorted(each for each in set().union(*(some for _, some in read)) if each < bound)
        theta, kept = hashes(found.pop())
        assert kept == set(below[:32])
        assert theta == (below[32] if len(below) > 32 else bound)


def test_rows_of_a_key_count_each_value_once(tmp_path: Path) -> None:
    given: dict[str, Any] = {"schema": "id string, users binary", "merge": {"users": "theta"}}
    with lakelatch.create(str(tmp_path / "t"), record_key="id", env=FakeEnvironment(seed=1), **given) as table:
        for some in (("ann",), ("bob", "😀"), ("ann", "😀"), ()):
            table.upsert([{"id": "a", "users": sketch(*some)}, {"id": "b", "users": sketch(*range(100_000), lg_k=14)}])
        table.upsert([{"id": "a", "users": None}, {"id": "c", "users": None}])
        stored = {row["id"]: row["users"] for row in table.read().to_pylist()}
    assert about(stored["a"]) == 3
    assert about(stored["b"]) == pytest.approx(100_000, rel=0.06)
    assert stored["c"] is None


def test_events_of_a_stream_come_in_any_order_and_may_be_compacted_between(tmp_path: Path) -> None:
    stream = {"columns": ["users"], "ordering": "at", "merge": {"users": "theta(5)"}, "foreign_readers": False}
    events = [{"id": "a", "at": n, "users": sketch(*range(40 * n, 40 * n + 60), lg_k=6)} for n in range(3)]
    found = set()
    for number, order in enumerate(itertools.permutations(events)):
        given: dict[str, Any] = {"schema": "id string, at bigint, users binary", "streams": {"s": stream}}
        with lakelatch.create(
            str(tmp_path / f"{number}"), record_key="id", env=FakeEnvironment(seed=1), **given
        ) as table:
            for step, event in enumerate(order):
                table.stream("s").upsert([event, event])
                if step == number % 3:
                    table.compact()
            found.add(table.read(columns=["users"]).to_pylist()[0]["users"])
    assert len(found) == 1


@pytest.mark.parametrize("kind", ["table", "stream"])
def test_other_bytes_are_refused_with_their_column(kind: str, tmp_path: Path) -> None:
    stream = {"columns": ["users"], "ordering": "at", "merge": {"users": "theta"}, "foreign_readers": False}
    more: dict[str, Any] = {"streams": {"s": stream}} if kind == "stream" else {"merge": {"users": "theta"}}
    with lakelatch.create(
        str(tmp_path / "t"), record_key="id", schema="id string, at bigint, users binary", **more
    ) as table:
        writes = table.stream("s") if kind == "stream" else table
        writes.upsert([{"id": "a", "at": 1, "users": sketch(1)}])
        seeded = bytearray(sketch(1))
        seeded[6] ^= 1  # of another seed, whose hashes are not ours
        for bad in (b"", b"junk", sketch(1)[:-1], bytes(seeded)):
            with pytest.raises(InputError, match=r"column 'users': theta .*; nothing was written"):
                writes.upsert([{"id": "a", "at": 2, "users": bad}])
        assert about(table.read(columns=["users"]).to_pylist()[0]["users"]) == 1


def test_whatever_bytes_come_make_a_sketch_or_an_error() -> None:
    chance, merger = random.Random(3), find("theta(5)")
    whole = [sketch(), sketch(7), sketch(*range(20)), sketch(*range(400), lg_k=5)]
    merged = 0
    for _ in range(3000):
        body = bytearray(chance.choice(whole))
        for _ in range(chance.randrange(3)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        try:
            lifted = merger.lift(
                pa.array([bytes(body[: chance.choice([None, chance.randrange(len(body))])])], KIND), KIND
            )
        except InputError:
            continue
        both = pa.concat_arrays([lifted, merger.lift(pa.array([whole[2]], KIND), KIND)])
        found = [merger.merge(each, Groups(np.array([0, 2]))) for each in (both, both[::-1])]
        assert found[0] == found[1]
        merged += 1
    assert merged > 100


class KeepsTheFirst:
    """Says that the order does not matter, of bytes that begin with a mark; other samples show nothing."""

    def laws(self, kind: pa.DataType) -> Laws:
        return Laws(commutative=True, associative=True, idempotent=True)

    def samples(self, kind: pa.DataType) -> list[bytes | None]:
        return [None, b"s1", b"s2"]

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        if not all(each is None or each.startswith(b"s") for each in values.to_pylist()):
            raise InputError("not marked")
        return values

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        return values.take(pa.array(groups.starts))


def test_laws_are_checked_with_a_mergers_own_samples(tmp_path: Path) -> None:
    spec = f"{__name__}:KeepsTheFirst"
    assert "order" in {each.law for each in broken_laws(spec, KIND, examples=0)}
    stream = {"columns": ["u"], "ordering": "at", "merge": {"u": spec}, "foreign_readers": False}
    with pytest.raises(InputError, match="does not keep the law 'order'"):
        lakelatch.create(
            str(tmp_path / "t"), record_key="id", schema="id string, at bigint, u binary", streams={"s": stream}
        )


def test_what_cannot_be_is_refused_when_the_table_is_made(tmp_path: Path) -> None:
    for spec, column, told in (
        ("theta", "string", "the column holds string; make it binary"),
        ("theta(4)", "binary", "a whole number from 5 to 26"),
        ("theta(lg_k=True)", "binary", "a whole number from 5 to 26"),
    ):
        with pytest.raises(ConfigError, match=told):
            lakelatch.create(str(tmp_path / "t"), record_key="id", schema=f"id string, u {column}", merge={"u": spec})


def test_without_the_library_other_columns_are_read_and_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "t")
    with lakelatch.create(url, record_key="id", schema="id string, u binary", merge={"u": "theta"}) as table:
        table.upsert([{"id": "a", "u": sketch(1)}])
    monkeypatch.setitem(sys.modules, "datasketches", None)
    find.cache_clear()
    with lakelatch.open(url) as table:
        assert table.read(columns=["id"]).to_pylist() == [{"id": "a"}]
        with pytest.raises(ConfigError, match=r"pip install 'lakelatch\[sketches\]'"):
            table.upsert([{"id": "a", "u": None}])
    monkeypatch.undo()
    find.cache_clear()
