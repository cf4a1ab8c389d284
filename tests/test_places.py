"""What the table of docs/architecture.md says of new things is all there is to it: some are added to a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.entries.entries import Begin

ROOT = Path(__file__).parents[1]
PARTS = ("src", "storage", "locks", "conflict", "occ", "spark", "benchmarks")
TYPES, SERVICES = "src/lakelatch/hudi/table/", "occ/services/"
DECLARED = """    patience: int = _whole(3, "how patient a writer is. Of all.", 1, 9)
    generation: int"""
STORED = """    mood: Annotated[str, Stored(is_text)] = ""

    kind = "begin"
"""
USED = """
import contextlib, io, json, sys
import pyarrow as pa
import lakelatch
from lakelatch.cli.app import app
from lakelatch.occ.entries import Begin

def run(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            app(list(words))
            code = 0
        except SystemExit as e:
            code = e.code
    return code, out.getvalue(), err.getvalue()

chosen, plain = sys.argv[1:]
assert "--patience" in run("create", "--help")[1]
assert run("create", chosen, "--record-key", "id", "--patience", "4")[0] == 0
code, out, err = run("create", plain + "-not", "--record-key", "id", "--patience", "10")
assert (code, "patience is 10, must be between 1 and 9" in err) == (2, True), err
assert run("settings", chosen, "patience=5")[0] == 0
told = json.loads(run("settings", chosen, "--json")[1])
assert (told["settings"]["patience"], told["changed"]) == (5, ["patience"])
code, out, err = run("settings", chosen, "patience=0")
assert (code, "patience is 0, must be between 1 and 9" in err) == (2, True), err
with lakelatch.open(chosen) as table:
    table.change_settings(patience=6)
    for wrong in (2.5, "7", None):
        try:
            table.change_settings(patience=wrong)
        except lakelatch.ConfigError as e:
            assert "patience is" in str(e)
        else:
            raise AssertionError(wrong)
with lakelatch.open(chosen) as table:
    assert table.settings.patience == 6

schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
with lakelatch.create(plain, record_key="id", schema=schema) as table:
    session = table.session
    begin = lambda state: Begin(session.next_instant(state.top), "commit", "UPSERT", "w", session.env.process(), mood="glad")
    session.log.append(begin)
with lakelatch.open(plain) as table:
    (open_,) = table.session.log.state.open.values()
    assert (open_.mood, table.settings.patience) == ("glad", 3)
"""

# A service that writes each base file again, alone: a plan of clustering with one file in each group.
TIDY = """
from ...hudi.files import new_file_id
from ..entries import by_partition
from . import clustering
from .planned_service import PlannedService, service_operation
from .rewriting import free_slices


def due(session, state):
    slices = [each for each in free_slices(session, state, session.view(), None) if each.base.size < 1 << 20]
    groups = [
        {"partition": each.partition, "files": [each.path.rpartition("/")[2]], "file_id": new_file_id(session.env.uuid())}
        for each in slices
    ]
    return {"groups": groups, "slices": by_partition(each.path for each in slices)} if groups else None


SERVICE = PlannedService("tidy", service_operation("clustering", "TIDY"), clustering.run, due=due)
"""
TIDIED = """
import sys
import lakelatch
from lakelatch.conflict import Kind, kind_of
from lakelatch.occ.check import check

with lakelatch.create(sys.argv[1], record_key="id") as table:
    table.upsert([{"id": "a", "n": 1}])
    (before,) = table.snapshot().file_slices()
    done = table.run_services().done
    assert (done["tidy"].files, kind_of("TIDY")) == (1, Kind.CLUSTERING), done
    (after,) = table.snapshot().file_slices()
    assert before.group != after.group
    assert table.read().to_arrow().to_pylist() == [{"id": "a", "n": 1}]
    assert check(table.store).sound(strict=True)
"""

MADE_UP_LOCKS = """
from .core import LeasedLocks
from .lock_url import LEASE_S, parse_lock_url
from .memory import MemoryBackend


def open_made_up_locks(url, *, env, lease_s=LEASE_S):
    settings = parse_lock_url(url, lease_s=lease_s)
    return LeasedLocks(MemoryBackend(f"made up, {settings.host}", env), settings, env)
"""
LOCKED = """
import sys
import lakelatch

with lakelatch.lock("madeup://here", "some job") as lease:
    lease.ensure_held()
    try:
        with lakelatch.lock("madeup://here", "some job", wait_s=0):
            raise AssertionError("two holders")
    except lakelatch.LockError:
        pass
with lakelatch.create(sys.argv[1], record_key="id", lock="madeup://here") as table:
    table.upsert([{"id": "a", "n": 1}])
    assert table.settings.lock == "madeup://here"
"""

TIMED = """
import datetime, sys
import pyarrow as pa
import lakelatch

noon = datetime.time(12)
with lakelatch.create(sys.argv[1], record_key="id") as table:
    table.upsert(pa.table({"id": ["a"], "at": pa.array([noon], pa.time64("us"))}))
    table.add_column("until", "time")
    table.upsert([{"id": "b", "at": noon, "until": noon}])
with lakelatch.open(sys.argv[1]) as table:
    assert table.schema().field("at").type == table.schema().field("until").type == pa.time64("us")
    assert table.read(columns=["at"]).to_arrow().to_pylist() == [{"at": noon}] * 2
"""


def run(source: Path, script: str, *words: str) -> None:
    """Run a script with the package at ``source``."""
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def places(what: str) -> list[str]:
    """The places that the table of docs/architecture.md names, before what it says of other cases."""
    table = (ROOT / "docs/architecture.md").read_text()
    (row,) = [line for line in table.splitlines() if line.startswith(f"| {what} |")]
    return re.findall(r"`([^`]+(?:\.py|/))`", row.partition(". ")[0])


def copy(folder: Path, changes: Iterable[tuple[str, str, str]], new: Mapping[str, str] = MappingProxyType({})) -> Path:
    """A copy of the tree with new files and with changes: a file, a text in it, and the text that takes its place."""
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, now in changes:
        text = (folder / name).read_text()
        assert text.count(old) == 1, (name, old)
        (folder / name).write_text(text.replace(old, now))
    for name, text in new.items():
        (folder / name).write_text(text)
    return folder / "src"


def test_a_setting_and_a_field_of_an_entry_are_added_in_one_place_each(tmp_path: Path) -> None:
    settings, entries = "occ/entries/settings.py", "occ/entries/entries.py"
    assert (places("a setting"), places("a field of a log entry")) == ([settings], [entries])
    source = copy(
        tmp_path / "copy",
        [(settings, "    generation: int", DECLARED), (entries, '\n    kind = "begin"\n', STORED)],
    )
    chosen, plain = str(tmp_path / "chosen"), str(tmp_path / "plain")
    run(source, USED, chosen, plain)
    # This version is an older one: it skips the field, reads settings at their default, and refuses the unknown one.
    with lakelatch.open(plain) as older:
        (begin,) = older.session.log.state.open.values()
        assert isinstance(begin, Begin)
        assert not hasattr(begin, "mood")
        older.upsert(pa.table({"id": ["a"], "n": [1]}))
        assert older.read().count() == 1
    with pytest.raises(lakelatch.ConfigError, match="patience; upgrade lakelatch"):
        lakelatch.open(chosen)


def test_a_service_is_a_module_a_line_and_a_kind(tmp_path: Path) -> None:
    assert places("a table service") == [SERVICES, "registry.py", "conflict/operations.py"]
    registry, kinds = f"{SERVICES}registry.py", "conflict/operations.py"
    imported, listed, kind = "import archive,", "        archive.SERVICE,\n", '    "CLUSTER": Kind.CLUSTERING,\n'
    changes = [
        (registry, imported, "import tidy, archive,"),
        (registry, listed, f"{listed}        tidy.SERVICE,\n"),
        (kinds, kind, f'{kind}    "TIDY": Kind.CLUSTERING,\n'),
    ]
    run(copy(tmp_path / "copy", changes, {f"{SERVICES}tidy.py": TIDY}), TIDIED, str(tmp_path / "t"))


def test_a_lock_backend_is_a_module_and_a_line(tmp_path: Path) -> None:
    assert places("a lock backend") == [
        "locks/<service>/",
        "locks/core/backend.py",
        "locks/memory.py",
        "locks/registry.py",
    ]
    line = '    "memory": (".memory", "open_memory_locks", ""),\n'
    changes = [("locks/registry.py", line, f'{line}    "madeup": (".made_up", "open_made_up_locks", ""),\n')]
    run(copy(tmp_path / "copy", changes, {"locks/made_up.py": MADE_UP_LOCKS}), LOCKED, str(tmp_path / "t"))


def test_a_column_type_is_a_row_in_three_tables(tmp_path: Path) -> None:
    assert places("a column type") == [TYPES, "column_types.py", "avro_schema.py", "type_names.py"]
    days, avro = '        (("is_date32", "is_date64"), pa.date32()),\n', "        pa.date32(): {"
    names = '    "date": "date32",\n'
    time = f'        pa.time64("us"): {{"type": "long", "logicalType": "time-micros"}},\n{avro}'
    changes = [
        (f"{TYPES}column_types.py", days, f'{days}        (("is_time32", "is_time64"), pa.time64("us")),\n'),
        (f"{TYPES}avro_schema.py", avro, time),
        (f"{TYPES}type_names.py", names, f'{names}    "time": "time64[us]",\n'),
    ]
    run(copy(tmp_path / "copy", changes), TIMED, str(tmp_path / "t"))
