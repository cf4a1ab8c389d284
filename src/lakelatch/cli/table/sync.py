"""``lakelatch sync``.

JSON: ``url``, ``dry_run`` and ``tables``, each with ``name``, ``change`` (created, changed or none), and the partitions
``added``, ``changed`` and ``dropped``, each as a list of values.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, Url
from ..output import count_text, print_json, say


def glue(
    url: Url,
    database: Annotated[str, typer.Argument(metavar="DATABASE", help="The database in Glue.")],
    *,
    name: Annotated[str | None, typer.Option(help="The table's name there; its own otherwise.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be changed.")] = False,
    json: Json = False,
) -> None:
    """Register a table in a database of AWS Glue's Data Catalog, or bring it up to date there.

    boto3's configuration says where: AWS_DEFAULT_REGION, AWS_PROFILE, AWS_ENDPOINT_URL_GLUE. For Athena, Spark, Trino and Hive,
    as Hudi's sync tool does it; a merge-on-read table is there as NAME, NAME_rt and NAME_ro.
    """
    import lakelatch

    with lakelatch.open(url) as table:
        found = lakelatch.glue.sync(table, database, name=name, dry_run=dry_run)
        if json:
            print_json({"url": table.url, "dry_run": dry_run, "tables": [each.to_json() for each in found]})
            return
    would = "would be " if dry_run else ""
    for each in found:
        told = [] if each.change == "none" else [f"{would}{each.change}"]
        for what in ("added", "changed", "dropped"):
            if some := getattr(each, what):
                told.append(f"{count_text(len(some), 'partition')} {would}{what}")
        say(f"{each.name}: {', '.join(told) or 'nothing to change'}")
