"""What a transaction is called once it has landed: by what it did, where it was begun for whatever comes."""

from __future__ import annotations

import pytest

import lakelatch
from lakelatch.occ.check import check

ROWS = [{"id": "a", "n": 1}, {"id": "b", "n": 1}]
WORK = {
    "insert": lambda txn: txn.insert([{"id": "c", "n": 1}]),
    "delete": lambda txn: txn.delete([{"id": "a"}]),
    "delete_where": lambda txn: (txn.delete_where("id = 'a'"), txn.delete([{"id": "b"}])),
    "delete_all": lambda txn: txn.delete_all(),
    "upsert": lambda txn: txn.upsert([{"id": "c", "n": 1}]),
    "update_where": lambda txn: txn.update_where("true", set={"n": 2}),
    "merge": lambda txn: txn.merge([{"id": "a", "n": 3}]).when_matched(delete=True).run(),
    "both": lambda txn: (txn.insert([{"id": "c", "n": 1}]), txn.delete([{"id": "a"}])),
}
LABELS = {"insert": "INSERT", "delete": "DELETE", "delete_where": "DELETE", "delete_all": "DELETE"}


@pytest.mark.parametrize("bucket_count", [None, 1])
@pytest.mark.parametrize("name", WORK)
def test_a_commit_is_called_by_what_its_transaction_did(tmp_path, name, bucket_count):
    wanted = LABELS.get(name, "UPSERT")
    with lakelatch.create(str(tmp_path / "t"), record_key="id", bucket_count=bucket_count) as table:
        first = table.insert(ROWS)
        assert (first.operation, table.commits()[-1][1].operation) == ("insert", "INSERT")
        with table.transaction() as txn:
            WORK[name](txn)
        instant, metadata = table.commits()[-1]
        assert (instant.requested, metadata.operation) == (txn.instant, wanted)
        assert table.why(txn.instant).operation == wanted
        told = table.events(after=first.instant)
        assert next(each.operation for each in told if each.event == "commit" and each.instant == txn.instant) == wanted
        assert check(table.store, deep=True).sound(strict=True)


def test_one_that_was_begun_as_something_keeps_its_name(tmp_path):
    with lakelatch.create(str(tmp_path / "t"), record_key="id") as table:
        table.insert(ROWS)
        with table.transaction("insert") as txn:
            txn.delete([{"id": "a"}])
        assert table.commits()[-1][1].operation == "INSERT"
        with table.transaction() as txn:
            (group,) = txn.snapshot.file_slices()
            txn.rewrite(group).write(txn.read_slice(group, meta=True))
            txn.delete([{"id": "b"}])
        assert table.commits()[-1][1].operation == "UPSERT"


def test_inserts_and_deletions_that_land_together_keep_their_names(tmp_path):
    with lakelatch.create(str(tmp_path / "t"), record_key="id", partition_by="n") as table:
        table.insert(ROWS)
        one, other = table.transaction(), table.transaction()
        one.insert([{"id": "x", "n": 2}])
        other.delete([{"id": "a", "n": 1}])
        one.commit()
        other.commit()
        assert [each.operation for _, each in table.commits()][-2:] == ["INSERT", "DELETE"]
