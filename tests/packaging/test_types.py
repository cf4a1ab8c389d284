"""The types of public calls: a program that uses all of them is strict, and wrong words are errors before it runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import lakelatch
from lakelatch import arguments
from lakelatch.conflict import ISOLATION_LEVELS, strategy_names
from lakelatch.occ.entries.operations import OPERATIONS
from lakelatch.occ.incoming.incoming import ADD, NULL, REFUSE
from lakelatch.occ.services.layout import LINEAR, Z_ORDER
from lakelatch.spark.table import SINKS
from lakelatch.spark.writing.bulk_order import GLOBAL, NONE, PARTITION
from lakelatch.streams import declaration

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests/packaging/every_call.py"
# For engines that write files themselves, and between the rooms of this library.
OF_ENGINES = frozenset({
    "url", "writer", "writable", "store", "env", "session", "operation", "watcher", "workspace", "narrowed", "telling",
    "add", "announced", "begin_anew", "begin_slot", "claim", "claim_turn", "current", "drop_file_groups", "file_spec", "files",
    "fresh", "has_lock", "lost_already", "lost_on", "mark_lookup", "mark_scanned", "merge_on_conflict", "merges", "new_file",
    "overwrites", "participant", "reads_complete", "require_open", "rewrite", "size_of", "staged", "written_schema",
})  # fmt: skip


@pytest.mark.process
def test_a_program_of_every_public_call_is_strict() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(PROGRAM)],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_program_uses_every_public_call() -> None:
    text = PROGRAM.read_text()
    used = set(re.findall(r"\.(\w+)", text))
    kinds = (lakelatch.Table, lakelatch.Transaction, lakelatch.Scan, lakelatch.Merge, lakelatch.TableStream)
    public = {name for kind in kinds for name in dir(kind) if not name.startswith("_")}
    assert public - used <= OF_ENGINES
    errors = {name for name in lakelatch.__all__ if name.endswith("Error")} - {"ConflictError"}
    assert set(lakelatch.__all__) - errors <= used | {"sql"}


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (arguments.Isolation, ISOLATION_LEVELS),
        (arguments.Strategy, strategy_names()),
        (arguments.OperationName, OPERATIONS),
        (arguments.Missing, (REFUSE, NULL)),
        (arguments.NewColumns, (REFUSE, ADD)),
        (arguments.LayoutName, (LINEAR, Z_ORDER)),
        (arguments.OnDelete, declaration.ON_DELETE),
        (arguments.NullEvents, declaration.NULL),
        (arguments.BulkSort, (NONE, PARTITION, GLOBAL)),
        (arguments.Sink, SINKS),
    ],
)
def test_the_words_of_the_types_are_those_that_are_taken(words: object, known: object) -> None:
    assert get_args(words) == tuple(known)  # type: ignore[arg-type]
