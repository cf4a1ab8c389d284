"""``lakelatch upsert``, ``insert`` and ``delete``.

JSON: ``table``, ``operation``, ``given`` (rows of the file), and of what landed ``instant``, ``completion`` (null when
nothing changed), ``inserted``, ``updated``, ``deleted``, ``files``, ``bytes``, ``attempts`` and ``wasted_s``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .output import Waiting, bytes_text, count_text, duration_text, print_json, say
from .row_files import format_of, read_rows

if TYPE_CHECKING:
    from ..occ.transaction import Transaction


def write(operation: str, url: str, file: str, *, kind: str | None, missing: str, zone: str | None, json: bool) -> None:
    """Write the rows of a file into a table, in one transaction that is run again when it loses."""
    import lakelatch

    kind = format_of(file, kind)
    with lakelatch.open(url) as table:
        table.session.refuse_if_unwritable()
        arrived = 0
        with Waiting(f"reading {file}") as tell:

            def seen(more: int) -> None:
                nonlocal arrived
                arrived += more
                tell(f"reading {file}: {arrived:,} rows")

            rows = read_rows(file, kind, table.schema(), seen)
            attempts = 0

            def work(txn: Transaction) -> Transaction:
                nonlocal attempts
                attempts += 1
                tell(f"{operation} of {rows.num_rows:,} rows" + (f", attempt {attempts}" if attempts > 1 else ""))
                if operation == "delete":
                    txn.delete(rows)
                else:
                    txn.upsert(rows, missing=missing, zone=zone)
                return txn

            done = table.run(work, operation=operation)
        stats, landed = done.value.files if done.commit else (), done.commit
        facts = {
            "table": table.url, "operation": operation, "given": rows.num_rows,
            "instant": landed.instant if landed else None, "completion": landed.completion if landed else None,
            "inserted": sum(each.num_inserts for each in stats), "updated": sum(each.num_updates for each in stats),
            "deleted": sum(each.num_deletes for each in stats), "files": len(stats),
            "bytes": sum(each.file_size for each in stats), "attempts": done.attempts, "wasted_s": done.wasted_s,
        }  # fmt: skip
    if json:
        print_json(facts)
    else:
        _print(facts)


def _print(facts: dict[str, Any]) -> None:
    if facts["instant"] is None:
        say(
            f"nothing to {facts['operation']}: {count_text(facts['given'], 'row')} given, no change to {facts['table']}"
        )
        return
    rows = [f"{facts[each]:,} {each}" for each in ("inserted", "updated", "deleted") if facts[each]]
    files = f"{count_text(facts['files'], 'file')} ({bytes_text(facts['bytes'])})"
    say(f"{facts['instant']} landed: {', '.join(rows) or 'no row changed'}; {files}")
    if facts["attempts"] > 1:
        say(f"after {facts['attempts']} attempts; {duration_text(facts['wasted_s'])} were wasted")
