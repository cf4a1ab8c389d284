"""`lakelatch services`, `savepoint`, `restore`, and what the other commands tell of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakelatch
from lakelatch.cli.services.loop import Rounds
from lakelatch.errors import StorageError
from lakelatch.occ.services import ServiceRound

from ..occ.mor import Mor, at, rows
from ..occ.world import add, content, insert, make


@pytest.fixture
def url(tmp_path: Path) -> str:
    folder = tmp_path / "t"
    make(folder)
    with lakelatch.open(str(folder)) as table:
        for _ in range(3):
            with table.transaction() as txn:
                add(txn, "a")
        with table.transaction("insert") as txn:
            insert(txn, "b", "b9")
    return str(folder)


def test_a_clean_is_planned_by_one_command_and_executed_by_another(run, url):
    (planned,) = run.json("services", "clean", url, "--retain-commits", "1", "--plan-only")["planned"]
    told = run.json("services", "list", url)
    assert [(p["instant"], p["action"], p["files"]) for p in told["plans"]] == [(planned, "clean", 3)]
    assert planned in run("services", "list", url).stdout
    assert run.json("timeline", url)["instants"][0]["outcome"] == "planned"
    assert "which lives without a writer" in run("rollback", url, planned, code=2).stderr
    assert run.json("rollback", url) == {"rolled_back": [], "still_open": []}
    (done,) = run.json("services", "execute", url)["executed"]
    assert (done["instant"], done["files"], done["mine"]) == (planned, 3, True)
    assert run("services", "execute", url).stdout == "nothing is planned\n"
    assert run("services", "clean", url, "--retain-commits", "1").stdout == "no file may go\n"
    assert run.json("check", url)["damage"] == 0


def test_clustering_and_cancelling(run, url):
    (planned,) = run.json("services", "cluster", url, "--plan-only")["planned"]
    assert run("services", "cancel", url, planned).stdout == f"cancelled {planned}\n"
    assert "it was cancelled" in run("services", "cancel", url, planned, code=2).stderr
    assert "2 files" in run("services", "cluster", url, "--partition", "part=b").stdout
    assert "no two small files" in run("services", "cluster", url).stdout
    sort = ("services", "cluster", url, "--sort-by", "v, id", "--layout", "z-order")
    assert "files" in run(*sort).stdout
    assert "all are laid out so" in run(*sort).stdout
    assert run.json("check", url)["findings"] == []


def test_buckets_are_changed_after_it_was_shown_what_that_rewrites(run, url):
    told = run("services", "buckets", url, "4").stdout
    assert told.startswith("a simple index becomes 4 buckets: 3 files of 2 partitions rewritten, ")
    assert told.endswith("nothing was changed yet: say --yes\n")
    assert "simple index" in run("describe", url).stdout
    assert "services buckets" in run("settings", url, "bucket_count=4", code=2).stderr
    assert run("services", "buckets", url, "4", "--yes").stdout.endswith("done\n")
    done = run.json("services", "buckets", url, "3", "--yes")
    assert (done["before"], done["bucket_count"], done["files"], done["done"]) == (4, 3, 8, True)
    assert run.json("check", url)["findings"] == []


def test_archival(run, url):
    before = run.json("timeline", url)["instants"]
    assert "no more than 30 commits" in run("services", "archive", url).stdout
    assert run("services", "archive", url, "--plan-only").stdout == "no instant may go\n"
    few = ("--keep-min", "2", "--keep-max", "3")
    (planned,) = run.json("services", "archive", url, *few, "--plan-only")["planned"]
    (plan,) = run.json("services", "list", url)["plans"]
    assert (plan["instant"], plan["action"], plan["files"]) == (planned, "archive", 4)
    assert "cannot be cancelled" in run("services", "cancel", url, planned, code=2).stderr
    assert "executed" in run("services", "execute", url).stdout
    told = run.json("timeline", url)["instants"]
    assert [row["outcome"] for row in told] == ["done", "committed", "committed", *["archived"] * 3, "created"]
    counted = ("requested", "completed", "operation", "inserted", "updated", "written")
    assert [[row[k] for k in counted] for row in told[1:]] == [[row[k] for k in counted] for row in before]
    done = run.json("services", "archive", url, "--keep-min", "1", "--keep-max", "1")
    assert (done["instants"], done["kept_by"]) == (1, "the newest 1 commits stay")
    assert done["first_active"] == told[1]["requested"]
    assert run("services", "archive", url, *few).stdout.startswith("archived 0 instants; no more, because")
    assert "keep" in run("services", "archive", url, "--keep-min", "0", code=2).stderr
    assert run.json("check", url)["findings"] == []


def test_savepoints_and_restore(run, url):
    (saved,) = run.json("savepoint", "create", url, "--comment", "kept")["savepoints"]
    assert run.json("savepoint", "list", url)["savepoints"] == [saved]
    assert "kept" in run("savepoint", "list", url).stdout
    with lakelatch.open(url) as table, table.transaction("insert") as txn:
        before = content(table)
        insert(txn, "b", "b8")
    later = run.json("timeline", url)["instants"][0]["requested"]
    done = run.json("restore", url, saved["instant"], "--yes")
    assert (done["instant"], done["undone"], done["files"]) == (saved["instant"], [later], 1)
    rows = {row["requested"]: row for row in run.json("timeline", url)["instants"] if row["action"] == "commit"}
    assert rows[later]["outcome"] == "taken back"
    with lakelatch.open(url) as table:
        assert content(table) == before
    assert "nothing has landed after" in run("restore", url, saved["instant"], "--yes").stdout
    assert "no commit on the timeline" in run("restore", url, "2020-01-01", "--yes", code=2).stderr
    run("savepoint", "delete", url, saved["instant"])
    assert run("savepoint", "list", url).stdout == "no savepoint\n"
    assert run.json("check", url)["findings"] == []


def test_compaction(run, tmp_path):
    mor = Mor(tmp_path / "mor")
    mor.base(at(1), at(2), "a", rows("a", {"a0": 1}))
    mor.update(at(10), at(11), "a", {"a0": 5})
    run("adopt", str(mor.folder), "none://")
    (planned,) = run.json("services", "compact", str(mor.folder), "--partition", "part=a", "--plan-only")["planned"]
    assert run.json("services", "list", str(mor.folder))["plans"][0]["action"] == "compaction"
    assert "2 files" in run("services", "execute", str(mor.folder), planned).stdout
    assert "there are no log files" in run("services", "compact", str(mor.folder)).stdout
    assert run.json("check", str(mor.folder))["findings"] == []


def test_log_compaction(run, tmp_path):
    mor = Mor(tmp_path / "mor")
    mor.base(at(1), at(2), "a", rows("a", {"a0": 1}))
    for number in (10, 12, 14):
        mor.update(at(number), at(number + 1), "a", {"a0": number})
    url = str(mor.folder)
    run("adopt", url, "none://")
    assert "no file slice has 5 log files to merge" in run("services", "compact-logs", url).stdout
    assert "4 files" in run("services", "compact-logs", url, "--min-logs", "3", "--partition", "part=a").stdout
    (planned,) = run.json("services", "compact", url, "--plan-only")["planned"]
    assert run.json("services", "execute", url, planned)["executed"][0]["files"] == 5
    assert run.json("check", url)["findings"] == []


class _Outage:
    """A table whose store is away for the first round, and which is told to stop after the second."""

    url = "a table"

    def __init__(self) -> None:
        self.asked = 0

    def run_services(self, *, stop):
        self.asked += 1
        if self.asked == 1:
            raise StorageError("the store does not answer", path="t")
        self.rounds.stop()
        return ServiceRound({}, {}, ())


def test_a_loop_of_services_sits_out_an_outage_of_the_store(capsys):
    table = _Outage()
    table.rounds = Rounds(table, None, 0.001, loop=True, json=False)
    table.rounds.run()
    assert table.asked == 2
    assert "the store does not answer" in capsys.readouterr().err


def test_one_round_of_services_ends_with_the_outage_of_the_store():
    table = _Outage()
    with pytest.raises(StorageError):
        Rounds(table, None, 0.001, loop=False, json=False).run()
    assert table.asked == 1
