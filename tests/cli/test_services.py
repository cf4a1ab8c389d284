"""`lakelatch services`, `savepoint`, `restore`, and what the other commands tell of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakelatch

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
    (done,) = run.json("services", "run", url)["executed"]
    assert (done["instant"], done["files"], done["mine"]) == (planned, 3, True)
    assert run("services", "run", url).stdout == "nothing is planned\n"
    assert run("services", "clean", url, "--retain-commits", "1").stdout == "no file may go\n"
    assert run.json("check", url)["damage"] == 0


def test_clustering_and_cancelling(run, url):
    (planned,) = run.json("services", "cluster", url, "--plan-only")["planned"]
    assert run("services", "cancel", url, planned).stdout == f"cancelled {planned}\n"
    assert "it was cancelled" in run("services", "cancel", url, planned, code=2).stderr
    assert "2 files" in run("services", "cluster", url, "--partition", "part=b").stdout
    assert "no two small files" in run("services", "cluster", url).stdout
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
    assert "no commit on the timeline" in run("restore", url, "2020", "--yes", code=2).stderr
    run("savepoint", "delete", url, saved["instant"])
    assert run("savepoint", "list", url).stdout == "no savepoint\n"
    assert run.json("check", url)["findings"] == []
