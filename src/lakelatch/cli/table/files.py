"""``lakelatch files``.

JSON: ``table``, ``as_of`` and ``files``, each with ``partition``, ``file_id``, ``instant`` (T of its base file),
``path`` and ``size`` of the base file (null for a group of log files only), ``log_files``, ``log_bytes`` and ``rows``
of the base file (null when they were not counted).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..options import Json, Url
from ..output import bytes_text, count_text, print_json, print_table, say

if TYPE_CHECKING:
    from ...hudi.timeline import FileSlice
    from ...occ.table import Table

# Counting reads a footer from each file, so without --rows it is done only up to this number.
_COUNTED_BY_ITSELF = 200
_THREADS = 8


def files(
    url: Url,
    *,
    partition: Annotated[str | None, typer.Option(help="Only this partition; '' is the root.")] = None,
    as_of: Annotated[str | None, typer.Option(metavar="T", help="As of a past requested time, or a date.")] = None,
    rows: Annotated[bool | None, typer.Option(help="Count rows; by itself up to 200 files.")] = None,
    json: Json = False,
) -> None:
    """List the file slices that readers see."""
    import lakelatch

    from ...occ.session import known_partition

    with lakelatch.open(url) as table:
        moment = table.session.time_of(as_of, "--as-of") if as_of is not None else None
        snapshot = table.snapshot(as_of=moment)
        if partition is not None:
            partition = known_partition(table.store, table.config, snapshot, partition)
        slices = snapshot.file_slices(partition)
        wanted = rows if rows is not None else len(slices) <= _COUNTED_BY_ITSELF
        counted = _rows(table, slices) if wanted else {}
        found = [_facts(each, counted) for each in slices]
        if json:
            print_json({"table": table.url, "as_of": moment, "files": found})
            return
    _print(found, merge_on_read=any(each["log_files"] for each in found))


def _facts(each: FileSlice, rows: dict[str, int]) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "file_id": each.file_id,
        "instant": each.instant,
        "path": each.base.path if each.base else None,
        "size": each.base.size if each.base else None,
        "log_files": [log.path for log in each.logs],
        "log_bytes": sum(log.size for log in each.logs),
        "rows": rows.get(each.base.path) if each.base else None,
    }


def _rows(table: Table, slices: list[FileSlice]) -> dict[str, int]:
    from concurrent.futures import ThreadPoolExecutor

    from ...occ.check import inspect

    bases = [each.base for each in slices if each.base is not None and each.base.extension == "parquet"]
    with ThreadPoolExecutor(_THREADS) as pool:
        footers = pool.map(lambda base: inspect(table.store, table.config, base, None), bases)
        return {footer.path: footer.rows for footer in footers if footer.rows is not None}


def _print(found: list[dict[str, Any]], *, merge_on_read: bool) -> None:
    if not found:
        say("no files")
        return
    headers = ["partition", "file id", "instant", "size", *(["logs"] if merge_on_read else []), "rows"]
    rows = []
    for each in found:
        cells = {
            "partition": each["partition"] or "-",
            "file id": each["file_id"],
            "instant": each["instant"],
            "size": bytes_text(each["size"]) if each["size"] is not None else "-",
            "logs": f"{len(each['log_files'])}, {bytes_text(each['log_bytes'])}" if each["log_files"] else "-",
            "rows": f"{each['rows']:,}" if each["rows"] is not None else "-",
        }
        rows.append([cells[header] for header in headers])
    print_table(headers, rows, right=("size", "rows"), fold=("partition", "file id", "logs"))
    total = sum(each["size"] or 0 for each in found) + sum(each["log_bytes"] for each in found)
    counted = [each["rows"] for each in found if each["rows"] is not None]
    base_only = " in base files" if merge_on_read else ""
    rows_text = f", {count_text(sum(counted), 'row')}{base_only}" if counted else ""
    say()
    say(f"{count_text(len(found), 'file group')}, {bytes_text(total)}{rows_text}")
