"""Merge-on-read tables with log compactions: those of `tests/hudi/log_compactions.py`, and some that JVM Hudi makes itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..hudi.log_compactions import log_compactions
from ..occ.mor import Mor, at, rows
from ..thorough import THOROUGH
from .services import OPTIONS

# (version, ordering field): every value of both, not all pairs, which were tried by hand.
MADE_BY_HAND = ((8, "v"), (9, None))
MADE_BY_JVM = ((8, None), (9, "v"))[0 if THOROUGH else 1 :]
# The second and the fourth are merged with what is there; an older row of a5 comes with each.
WRITES = [[{"id": f"a{n}", "part": "a", "v": 10 + n}, {"id": "a5", "part": "a", "v": 20 - n}] for n in range(4)]
EVERY_SECOND_COMMIT = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.log.compaction.enable": "true",
    "hoodie.log.compaction.inline": "true",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.optimized.log.blocks.scan.enable": "true",
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
}


def build(folder: Path) -> dict[str, Mor]:
    """All of them below that folder; the JVM has yet to write."""
    made = {}
    for version, ordering in MADE_BY_HAND:
        made[f"logs-by-hand-v{version}"] = log_compactions(
            folder / f"hand-v{version}", version=version, ordering=ordering
        )
    for version, ordering in MADE_BY_JVM:
        mor = made[f"logs-by-jvm-v{version}"] = Mor(folder / f"jvm-v{version}", version=version, ordering=ordering)
        mor.base(at(1), at(2), "a", rows("a", {f"a{n}": 1 for n in range(6)}))
    return made


def questions(made: dict[str, Mor]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """For the JVM session."""
    asked: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, mor in made.items():
        path = {"path": str(mor.folder)}
        if "by-hand" in name:
            asked[name, "snapshot"] = path | {"kind": "snapshot"}
            continue
        own = {"hoodie.table.name": mor.config.name, "hoodie.write.table.version": str(mor.config.version)}
        if field := ",".join(mor.config.ordered_by):
            own["hoodie.datasource.write.precombine.field"] = field
        for number, batch in enumerate(WRITES):
            options = OPTIONS | EVERY_SECOND_COMMIT | own
            asked[name, "upsert", number] = path | {"kind": "upsert", "rows": batch, "options": options}
    return asked
