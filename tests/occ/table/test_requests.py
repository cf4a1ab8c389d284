"""What a commit and a read ask of the store is the table in requests.md, call by call."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import lakelatch
from benchmarks.commits.simulated import PART, Latency, new_table
from lakelatch.environment import SYSTEM, Process
from lakelatch.occ.table.table import Table
from lakelatch.storage import open_store
from lakelatch.testing.contention import until
from lakelatch.testing.faults import Call, FaultStore

from ...servers import BUCKET, versitygw
from ...simulation.environment import SimEnvironment
from ...simulation.files import put
from ...simulation.history import Value
from ...simulation.install import simulated
from ...simulation.scheduler import Scheduler, SimProcess
from ...simulation.store import Objects, SimStore

DOCS = Path(__file__).parents[3] / "docs"
TABLE = Path(__file__).with_name("requests.md")
ROW = re.compile(r"^\| `(\w+)` \| (\S.*?) \| (\d+) \| (\d+) \| (\d+) \|", re.MULTILINE)
COSTS = re.compile(r"^\| `(PUT|LIST|GET|HEAD|DELETE)`.*? \| (\d+) \| (\d+) \|", re.MULTILINE)
# A line of the access log: the operation, and the size of an object that was put.
LOGGED = re.compile(r"s3_(\w+) \S+ \S+ \d{3} \S+ \d+ (\d+)")
PASSING = re.compile(r"s3_PutObject t/\.hoodie/\.(?:heartbeat|temp)/")  # what each transaction puts and deletes
CHARGED = {
    "PutObject": "PUT",
    "ListObjectsV2": "LIST",
    "GetObject": "GET",
    "HeadObject": "HEAD",
    "DeleteObjects": "DELETE",
}
COMMIT, FAR, READ = range(3)
REQUEST_S = 0.02


def told(column: int) -> Counter[tuple[str, str]]:
    """The calls that the document tells in that column."""
    rows = ROW.findall(TABLE.read_text(encoding="utf-8"))
    return +Counter({(op, what.strip("`")): int(counts[column]) for op, what, *counts in rows})


def made(calls: list[Call]) -> Counter[tuple[str, str]]:
    return Counter((call.op, _plain(call.path)) for call in calls)


def _plain(path: str) -> str:
    """As the document names it."""
    path = re.sub(r"^\.hoodie/(\.lakelatch/)?\.?", "", path)
    path = path.replace("part=a/", "p=a/")
    path = re.sub(r"\d{17}_\d{17}\.commit", "T_C.commit", path)
    path = re.sub(r"^log/\d+/\d+$", "log/E/S", path)
    path = re.sub(r"\S+\.marker\.\w+$", "temp/T/marker", path)
    path = re.sub(r"[0-9a-f-]{36}\S*\.parquet$", "F", path)
    return re.sub(r"\d{17}", "T", path) or "the table"


def test_a_commit_and_a_read_ask_of_the_store_what_the_document_tells(folder: Path):
    url = str(folder / "table")
    with lakelatch.create(url, record_key="id", partition_by="p") as first:
        first.upsert([{"id": "0", "p": "a"}])
    store = FaultStore(open_store(url))
    with Table(store, writer="w") as table:
        for _ in range(2):  # the handle is warm
            table.upsert([{"id": "0", "p": "a"}])
            table.snapshot()
        store.reset()
        store.calls.clear()
        table.insert([{"id": "1", "p": "a"}])
        assert made(store.calls) == told(COMMIT)
        store.calls.clear()
        assert table.read().to_arrow().num_rows == 2
        assert made(store.calls) == told(READ)


def test_a_commit_on_a_far_store_asks_what_the_document_tells_and_waits_for_seven_answers():
    scheduler, objects = Scheduler(1), Objects(new_table())
    latency = Latency(scheduler, REQUEST_S, slow=0.0, spread=0.0)
    process = SimProcess(Process("host", "boot", 1, "1"))
    waited, calls = list[float](), list[Call]()

    def write() -> None:
        store = FaultStore(SimStore(objects, latency))  # type: ignore[arg-type]
        with Table(store, env=SimEnvironment(scheduler, process, set(), 1), writer="w") as table:

            def commit() -> None:
                began = scheduler.now
                table.run(lambda txn: put(txn, PART, f"{table.env.uuid()}-0", Value(("x",), 1, 0)), operation="insert")
                waited.append((scheduler.now - began) / REQUEST_S)

            for _ in range(3):  # the handle is warm
                commit()
            scheduler.pause(0.2)  # what was left to do has been done
            store.reset()
            commit()
            scheduler.pause(0.2)
            calls.extend(store.calls)

    with simulated():
        scheduler.spawn(process, write, name="w")
        scheduler.run()
    assert Counter({k: n for k, n in made(calls).items() if k[0] not in ("create", "settled")}) == told(FAR)
    assert round(waited[-1], 1) == 7


class Still(type(SYSTEM)):  # type: ignore[misc]
    """Nothing becomes due: what is done once a second, no matter who commits, is no request of a commit."""

    def monotonic(self) -> float:
        return 1000.0


def test_a_commit_and_a_read_cost_on_a_server_what_the_document_tells(tmp_path: Path):
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    rows = COSTS.findall(page)
    commit, read = (+Counter({kind: int(counts[column]) for kind, *counts in rows}) for column in range(2))
    kilobytes = re.search(r"^\| kB put \| ([\d.]+) \|", page, re.MULTILINE)
    assert kilobytes
    access, seen = tmp_path / "access", list[tuple[str, str]]()

    def asked(count: int) -> list[tuple[str, str]]:
        """Since the last time, at least so many: what was done, and how many bytes were put."""
        until(
            lambda: len(LOGGED.findall(access.read_text())) >= len(seen) + count,
            "fewer requests than the document tells",
        )
        lines = LOGGED.findall(access.read_text())
        new, seen[:] = lines[len(seen) :], lines
        return new

    def kinds(lines: list[tuple[str, str]]) -> Counter[str]:
        return Counter(CHARGED[kind] for kind, _ in lines)

    with versitygw(tmp_path) as bucket:
        # The server's objects are files: made as such, since on a store it would be probed before, by 1,700 requests.
        lakelatch.create(
            str(tmp_path / "objects" / BUCKET / "t"), record_key="id", partition_by="p", lock="none://"
        ).close()
        with Table(bucket.store("t"), env=Still(), writer="w") as table:
            for _ in range(2):  # the handle is warm
                table.upsert([{"id": "0", "p": "a"}])
                table.snapshot()
            # The last requests of each come after its answer.
            until(lambda: len(PASSING.findall(log := access.read_text())) == log.count("s3_DeleteObjects"), "deletions")
            asked(0)
            table.insert([{"id": "1", "p": "a"}])
            made = asked(commit.total())
            assert table.read().to_arrow().num_rows == 2
            assert (kinds(made), kinds(asked(read.total()))) == (commit, read)
            assert sum(int(size) for _, size in made) / 1000 == pytest.approx(float(kilobytes[1]), rel=0.1)
