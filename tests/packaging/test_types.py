"""The types of public calls: a program that uses all of them is strict, and wrong words are errors before it runs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import lakelatch
from lakelatch import arguments
from lakelatch.conflict import ISOLATION_LEVELS, strategy_names
from lakelatch.occ.entries.operations import OPERATIONS
from lakelatch.occ.entries.settings import EARLY, NEIGHBOURS
from lakelatch.occ.incoming.incoming import ADD, NULL, REFUSE
from lakelatch.occ.services.layout import LINEAR, Z_ORDER
from lakelatch.spark.table import SINKS
from lakelatch.spark.writing.bulk_order import GLOBAL, NONE, PARTITION
from lakelatch.streams import declaration

from ..facts import declared, fits
from ..servers import require

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
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_program_of_every_public_call_is_strict(checker: str) -> None:
    call = {
        "mypy": [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")],
        "pyright": [
            require("pyright"),
            "--project",
            str(ROOT / "tests/packaging/pyright.json"),
            "--pythonpath",
            sys.executable,
        ],
    }[checker]
    given = [] if checker == "pyright" else [str(PROGRAM)]
    found = subprocess.run([*call, *given], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_program_uses_every_public_call() -> None:
    text = PROGRAM.read_text()
    used = set(re.findall(r"\.(\w+)", text))
    kinds = (
        lakelatch.Table, lakelatch.Transaction, lakelatch.Scan, lakelatch.Merge, lakelatch.TableStream,
        lakelatch.spark.SparkTable, lakelatch.spark.SparkTransaction, lakelatch.spark.SparkStream,
    )  # fmt: skip
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


def test_each_setting_that_people_choose_is_typed_and_no_other() -> None:
    settings = lakelatch.Settings.declared()
    typed = get_type_hints(lakelatch.SettingsDict)
    assert set(typed) == {name for name, each in settings.items() if each.choice}
    words = {name: get_args(kind) for name, kind in typed.items() if str(kind).startswith("typing.Literal")}
    assert words == {
        "neighbours": NEIGHBOURS, "strategy": tuple(strategy_names()), "isolation": ISOLATION_LEVELS,
        "ties": ("last", "first"), "early_conflict_detection": EARLY,
    }  # fmt: skip


@pytest.mark.thorough  # other tests hold each error that they see to it (`tests/facts.py`)
def test_each_fact_that_an_error_is_raised_with_is_declared_by_its_class() -> None:
    raised: dict[str, set[str]] = {}
    lacking = list[str]()
    for folder in ("benchmarks", "conflict", "locks", "occ", "spark", "src", "storage"):
        for path in (ROOT / folder).rglob("*.py"):
            for call in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Name)
                    and call.func.id in lakelatch.errors.__all__
                ):
                    given = {each.arg for each in call.keywords}
                    raised.setdefault(call.func.id, set()).update(given - {None})
                    always = {
                        name
                        for name, kind in declared(getattr(lakelatch, call.func.id)).items()
                        if not fits(None, kind)
                    }
                    if None not in given and always - given:
                        lacking.append(f"{path}:{call.lineno} lacks {always - given}")
    assert not lacking
    for name, facts in raised.items():
        assert facts <= declared(getattr(lakelatch, name)).keys(), name


def test_what_is_public_is_listed() -> None:
    assert {"open", "spark", "server", "testing", "locks"} <= set(dir(lakelatch))
    for package in (lakelatch.spark, lakelatch.testing):
        assert dir(package) == sorted(package.__all__)
