"""A writer without Spark: the transaction in its own commit path.

    python examples/embed_pyarrow.py [FOLDER]

Makes a small table, then two writers that count on the same rows at once. Each re-runs what it lost, so no count is
missing at the end.
"""

from __future__ import annotations

import sys
import tempfile
import threading

import pyarrow as pa
import pyarrow.compute as pc

import lakelatch
from lakelatch import Transaction

ROUNDS = 5


def make(url: str) -> None:
    with (
        lakelatch.create(url, record_key="airport", partition_by="country", exist_ok=True) as table,
        table.transaction("insert") as txn,
    ):
        rows = pa.table({"airport": ["OSL", "BGO"], "country": ["NO", "NO"], "landings": pa.array([0, 0], pa.int64())})
        txn.new_file("country=NO").write(rows)


def one_more_landing(txn: Transaction) -> None:
    """The whole transaction: read what is there now, write what follows from it. Runs again after a conflict."""
    for group in txn.snapshot.file_slices("country=NO"):
        rows = txn.read_slice(group)
        place = rows.column_names.index("landings")
        txn.rewrite(group).write(rows.set_column(place, "landings", pc.add(rows["landings"], 1)))


def writer(url: str, name: str, lost: list[int]) -> None:
    with lakelatch.open(url, writer=name) as table:
        for _ in range(ROUNDS):
            lost.append(table.run(one_more_landing).attempts - 1)


def main(url: str) -> int:
    make(url)
    lost: list[int] = []
    writers = [threading.Thread(target=writer, args=(url, name, lost)) for name in ("first", "second")]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    with lakelatch.open(url) as table:
        landings = table.read().to_arrow()["landings"].to_pylist()
    print(f"landings: {landings}, {len(lost)} commits, {sum(lost)} attempts lost and run again")
    return 0 if landings == [2 * ROUNDS, 2 * ROUNDS] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
