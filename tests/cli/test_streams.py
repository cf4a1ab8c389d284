"""`lakelatch streams`."""

from __future__ import annotations

import json
from datetime import date

import pyarrow as pa
import pytest

import lakelatch

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("a", pa.int64()),
        ("a_at", pa.date32()),
        ("b", pa.string()),
        ("b_at", pa.int64()),
        ("n", pa.int64()),
    ]
)


@pytest.fixture
def url(tmp_path):
    given = {"type": "merge_on_read", "table_version": 9, "bucket_count": 2}
    lakelatch.create(str(tmp_path / "t"), record_key="id", schema=SCHEMA, **given).close()
    return str(tmp_path / "t")


def test_streams_are_declared_and_listed(run, url):
    assert run("streams", "list", url).stdout == "no streams\n"
    told = run("streams", "add", url, "one", "--columns", "a", "--ordering", "a_at", "--on-delete", "row").stdout
    assert told == "one: a by a_at; on delete row\n"
    assert (
        "owns the life"
        in run(
            "streams", "add", url, "two", "--columns", "b", "--ordering", "b_at", "--on-delete", "row", code=2
        ).stderr
    )
    assert run("streams", "list", url).stdout == told
    (one,) = run.json("streams", "list", url)
    assert (one["name"], one["columns"], one["ordering"], one["on_delete"]) == ("one", ["a"], "a_at", "row")
    given = [
        "two",
        "--columns",
        "b,n",
        "--ordering",
        "b_at",
        "--null",
        "write",
        "--default",
        "b=007",
        "--default",
        "n=5",
    ]
    assert "--no-foreign-readers" in run("streams", "add", url, *given, "--merge", "n=sum", code=2).stderr
    given += ["--no-foreign-readers", "--merge", "n=sum"]
    for wrong in ("--merge=n", "--default", "=1"), ("--default", "n=x"), ("--default", f"n={'9' * 5000}"):
        assert "n" in run("streams", "add", url, *given, *wrong, code=2).stderr
    two = run.json("streams", "add", url, *given)
    assert (two["null"], two["foreign_readers"], two["merge"]) == ("write", False, [["n", "sum"]])
    assert [(each["column"], each["value"]) for each in two["defaults"]] == [("b", "007"), ("n", 5)]


def test_a_row_is_explained_by_its_events(run, url):
    assert "has no streams" in run("streams", "explain", url, "x", code=2).stderr
    with lakelatch.open(url) as table:
        table.stream("one", columns="a", ordering="a_at", on_delete="row")
        table.stream("two", columns="b", ordering="b_at", default={"b": "-"})
        table.stream("one").upsert([{"id": "x", "a": 1, "a_at": date(2020, 1, 2)}])
        first = table.session.log.state.last
        table.stream("one").upsert([{"id": "x", "a": 2, "a_at": date(2020, 1, 1)}])
        table.stream("one").upsert([{"id": "x", "a": 3, "a_at": date(2020, 1, 3)}])
        last = table.session.log.state.last
    (told,) = run.json("streams", "explain", url, "x")
    cells = {each["column"]: each for each in told["cells"]}
    assert cells["a"]["value"] == 3
    assert (cells["a"]["stream"], cells["a"]["ordering"], cells["a"]["slot"]) == ("one", "2020-01-03", last.slot)
    assert cells["a"]["beat"] == [[1, first.instant]]
    assert (cells["b"]["value"], cells["b"]["why"]) == ("-", "default of a row that appeared")
    assert [each["counted"] for each in told["events"]] == [True, False, True]
    text = run("streams", "explain", url, "x").stdout
    assert "too old" in text
    assert f"1 of {first.instant}" in text
    assert run("streams", "explain", url, "nobody").stdout == "no row and no event of nobody\n"
    with lakelatch.open(url) as table:
        table.stream("one").delete([{"id": "x", "a_at": date(2020, 1, 4)}])
    assert "no row" in run("streams", "explain", url, "x").stdout
    assert run.json("streams", "explain", url, "x")[0]["there"] is False


def test_files_are_written_as_events_of_a_stream(run, url, tmp_path):
    run("streams", "add", url, "two", "--columns", "b", "--ordering", "b_at", "--on-delete", "row")
    events = tmp_path / "events.json"
    events.write_text('{"id": "\U0001f985", "b": "first", "b_at": 5}\n')
    done = run.json("upsert", url, str(events), "--stream", "two", "--batch", "web:1", "--note", "job=web")
    assert (done["given"], done["repeated"]) == (1, False)
    assert run.json("upsert", url, str(events), "--stream", "two", "--batch", "web:1")["repeated"]
    events.write_text('{"id": "\U0001f985", "b": "late", "b_at": 4}\n')
    run("upsert", url, str(events), "--stream", "two")
    assert '"b": "first"' in run("read", url, "--json").stdout
    events.write_text('{"id": "\U0001f985", "b_at": 6}\n')
    run("delete", url, str(events), "--stream", "two")
    assert run("read", url, "--json").stdout == ""
    for wrong, told in (
        (["--missing", "null"], "all columns of its stream"),
        (["--new-columns", "add"], "streams add"),
    ):
        assert told in run("upsert", url, str(events), "--stream", "two", *wrong, code=2).stderr
    assert "no stream 'three'" in run("upsert", url, str(events), "--stream", "three", code=2).stderr


def test_streams_are_changed_and_dropped(run, url):
    run("streams", "add", url, "two", "--columns", "b,n", "--ordering", "b_at", "--default", "n=5")
    told = run("streams", "alter", url, "two", "--default", "b=007", "--no-default", "n").stdout
    assert told == "two: b, n by b_at; on delete clear; b = '007' by default\n"
    assert "n=x" not in run("streams", "alter", url, "two", "--default", "n=x", code=2).stdout
    assert "foreign-readers" in run("streams", "alter", url, "two", "--null", "write", code=2).stderr
    made = run.json("streams", "alter", url, "two", "--null", "write", "--no-foreign-readers", "--merge", "n=max")
    assert (made["null"], made["foreign_readers"], made["merge"]) == ("write", False, [["n", "max"]])
    assert run("streams", "drop", url, "two").stdout.endswith("; dropped\n")
    assert run.json("streams", "list", url)[0]["dropped"]
    assert "was dropped" in run("streams", "alter", url, "two", "--null", "keep", code=2).stderr
    again = [
        "two",
        "--columns",
        "b,n",
        "--ordering",
        "b_at",
        "--null",
        "write",
        "--merge",
        "n=max",
        "--no-foreign-readers",
    ]
    assert "`undrop` lets it go on" in run("streams", "add", url, *again, code=2).stderr
    assert "dropped" not in run("streams", "undrop", url, "two").stdout


def test_events_are_taken_back_by_a_file_of_ids(run, tmp_path):
    url, events = str(tmp_path / "t"), tmp_path / "events.json"
    columns = "id string, n bigint, at bigint, eid string, kept array<struct<at: bigint, n: bigint, eid: string>>"
    lakelatch.create(
        url, record_key="id", schema=columns, type="merge_on_read", table_version=9, bucket_count=1
    ).close()
    given = ["--columns", "n", "--ordering", "at", "--merge", "n=sum", "--no-foreign-readers", "--event-id", "eid"]
    assert "--event-id and events" in run("streams", "add", url, "s", *given, code=2).stderr
    told = run.json("streams", "add", url, "s", *given, "--events", "kept")
    assert (told["event_id"], told["events"]) == ("eid", "kept")
    events.write_text("".join(f'{{"id": "k", "n": {n}, "at": {n}, "eid": "e{n}"}}\n' for n in (1, 10, 100)))
    run("upsert", url, str(events), "--stream", "s")
    events.write_text('{"id": "k", "n": 10, "eid": "e10"}\n')
    done = run.json("streams", "retract", url, "s", str(events), "--note", "job=fix")
    assert (done["operation"], done["given"], done["files"]) == ("retract", 1, 1)
    assert '"n": 101' in run("read", url, "--json").stdout
    assert "retract" in run("streams", "explain", url, "k").stdout
    (row,) = run.json("streams", "explain", url, "k")
    assert {each["column"]: each["value"] for each in row["cells"]}["n"] == 101
    events.write_text('{"id": "k"}\n')
    assert "lack eid" in run("streams", "retract", url, "s", str(events), code=2).stderr


def test_a_stream_is_overwritten_in_some_partitions(run, tmp_path):
    url, events = str(tmp_path / "t"), tmp_path / "events.json"
    streams = {"s": {"columns": "n", "ordering": "at"}}
    lakelatch.create(
        url, record_key="id", partition_by="day", schema="id string, day int, n bigint, at bigint", streams=streams
    ).close()
    events.write_text("".join(f'{{"id": "k{n}", "day": {n % 3}, "n": {n}, "at": 9}}\n' for n in range(6)))
    run("upsert", url, str(events), "--stream", "s")
    events.write_text('{"id": "k0", "day": 0, "n": 7, "at": 1}\n')
    done = run.json("streams", "overwrite", url, "s", str(events), "--batch", "days:1")
    assert (done["operation"], done["given"], done["repeated"]) == ("overwrite", 1, False)
    assert run.json("streams", "overwrite", url, "s", str(events), "--batch", "days:1")["repeated"]
    paths = ("--partition", "day=0", "--partition", "day=1")
    assert run("streams", "overwrite", url, "s", str(events), *paths).stdout.startswith("2")
    read = run("read", url, "--json").stdout.splitlines()
    assert sorted((row["id"], row["n"]) for row in map(json.loads, read)) == [("k0", 7), ("k2", 2), ("k5", 5)]
    told = run("streams", "overwrite", url, "s", str(events), "--partition", "day=1", code=2).stderr
    assert "'day=0' are not among the partitions to overwrite" in told


def test_one_call_makes_a_table_with_its_streams(run, tmp_path):
    url = str(tmp_path / "made")
    columns = "id string, a bigint, a_at timestamp, seq int, b string, b_at bigint, c string, day date, hour int"
    streams = ["--stream", "one:a_at,seq:a", "--stream", "two:b_at:b"]
    run("create", url, "--record-key", "id", "--schema", columns, *streams)
    with lakelatch.open(url) as table:
        assert [(each.name, each.columns, each.ordered_by) for each in table.streams] == [
            ("one", ("a",), ("a_at", "seq")),
            ("two", ("b",), ("b_at",)),
        ]
        assert (table.config.merge_on_read, table.settings.bucket_count) == (True, 8)
    assert "c by day, hour" in run("streams", "add", url, "three", "--columns", "c", "--ordering", "day,hour").stdout
    rows = tmp_path / "rows.json"
    rows.write_text('{"id": "x", "a": 5, "a_at": "2026-01-01 00:00:00Z", "b": "", "b_at": 1}\n')
    refused = run("upsert", url, str(rows), code=2).stderr
    assert (
        "Write through a stream: table.stream(name).upsert, .delete or .overwrite, in a shell --stream NAME" in refused
    )
    for wrong, told in (
        (["--schema", "id strin"], "declares no columns"),
        (["--schema", columns, "--stream", "one:a"], "--stream 'one:a' is no stream"),
        (["--schema", columns, *streams, "--type", "copy_on_write"], "merge-on-read"),
        (["--schema", "nowhere.json"], "nowhere.json cannot be read"),
    ):
        assert told in run("create", str(tmp_path / "no"), "--record-key", "id", *wrong, code=2).stderr
    assert not (tmp_path / "no").exists()


def lines(*numbers: int) -> str:
    return "".join(f'{{"id": "k{each % 3}", "n": 1, "at": {each}}}\n' for each in numbers)


@pytest.fixture
def counted(tmp_path):
    """A table whose column n adds up the events of a stream."""
    with lakelatch.create(
        str(tmp_path / "counted"), record_key="id", schema="id string, n bigint, at bigint",
        streams={"s": {"columns": "n", "ordering": "at", "merge": {"n": "sum"}, "foreign_readers": False}},
    ) as table:  # fmt: skip
        yield table


def added(table: lakelatch.Table) -> int:
    return sum(each["n"] for each in table.read().to_pylist())


def test_a_growing_file_is_followed_and_each_line_counts_once(run, counted, tmp_path):
    file = tmp_path / "events"
    follow = "streams", "follow", counted.url, "s", str(file), "--once"
    file.write_text(lines(1, 2) + '{"id": "k0"')  # whose writer is in the middle of a line
    whole = len(lines(1, 2))
    assert f"2 events, up to byte {whole:,} of {file}" in run(*follow).stdout.replace("\n", "")
    assert run(*follow).stdout == ""
    file.write_text("\n \n" + lines(1, 2)[2:] + "\n\n" + lines(3))
    assert "no line that ends at byte" in run(*follow, code=2).stderr.replace("\n", " ")
    file.write_text(lines(1, 2) + "\n\r\n" + lines(3))
    (told,) = [run.json(*follow)]
    assert (told["rows"], told["bytes"], told["repeated"]) == (1, file.stat().st_size, False)
    assert counted.last_batch(str(file)) == file.stat().st_size
    file.write_text(lines(1))
    assert "another file" in run(*follow, code=2).stderr.replace("\n", " ")
    assert added(counted) == 3


def test_a_bad_line_stops_and_the_batch_with_it(run, counted, tmp_path):
    file = tmp_path / "events"
    follow = "streams", "follow", counted.url, "s", str(file), "--once", "--source", "mine"
    file.write_text(lines(1))
    run(*follow)
    for bad in (
        "{",
        "[1]",
        '{"id": "k0"}',
        '{"id": "k0", "n": "x", "at": 5}',
        '{"id": "\\ud800", "n": 1, "at": 5}',
        "\0",
    ):
        file.write_text(lines(1, 2) + bad + "\n")
        told = run(*follow, code=2).stderr
        assert "nothing was written" in told.lower().replace("\n", " "), told
    assert added(counted) == 1
    assert counted.last_batch("mine") == len(lines(1))


def test_another_follower_of_the_same_source_is_noticed(run, counted, tmp_path):
    """It has cut the file elsewhere: what both have read must not count twice."""
    file = tmp_path / "events"
    file.write_text(lines(1, 2, 3))
    stream, real = counted.stream("s"), lakelatch.Table.last_batch

    def last(self, source):
        found = real(self, source)
        stream.upsert([{"id": "k1", "n": 1, "at": 1}], batch=("mine", len(lines(1))))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lakelatch.Table, "last_batch", last)
        told = run("streams", "follow", counted.url, "s", str(file), "--once", "--source", "mine", code=2).stderr
    assert "is to be the first of its source" in told.replace("\n", " ")
    assert added(counted) == 1


def test_standard_input_needs_a_source(run, counted):
    assert "--source" in run("streams", "follow", counted.url, "s", "-", code=2).stderr
    assert "unknown" in run("streams", "follow", counted.url, "unknown", "-", "--source", "a", code=2).stderr
    assert "cannot be read" in run("streams", "follow", counted.url, "s", "/no/such/file", code=2).stderr


def test_a_filled_table_gets_streams_after_its_plan_was_shown(run, tmp_path):
    url = str(tmp_path / "filled")
    with lakelatch.create(url, record_key="id", ordering_field="b_at", schema=SCHEMA) as table:
        table.upsert([{"id": "x", "a": 1, "a_at": None, "b": "old", "b_at": 5, "n": None}])
    given = ["streams", "adopt", url, "--stream", "one:a_at:a", "--stream", "two:b_at:b", "--bucket-count", "2"]
    told = run(*given).stdout
    assert told.splitlines()[:2] == ["type COPY_ON_WRITE becomes MERGE_ON_READ", "version 8 becomes 9"]
    assert told.endswith("nothing was changed yet: say --yes\n")
    assert run("streams", "list", url).stdout == "no streams\n"
    assert run(*given, "--yes").stdout.endswith("done\n")
    again = run.json(*given, "--yes")
    assert (again["done"], again["changes"], again["bucket_count"]) == (True, [], 2)
    assert [each["name"] for each in again["streams"]] == ["one", "two"]
    with lakelatch.open(url) as table:
        table.stream("two").upsert([{"id": "x", "b": "late", "b_at": 4}, {"id": "y", "b": "new", "b_at": 1}])
        assert sorted(table.read(columns=["b"]).to_arrow()["b"].to_pylist()) == ["new", "old"]
