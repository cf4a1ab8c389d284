"""What the table of docs/architecture.md says of new things is all there is to it: some are added to a copy of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.entries.entries import Begin

ROOT = Path(__file__).parents[1]
PARTS = ("src", "storage", "locks", "conflict", "occ", "spark", "benchmarks")
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


def copy(folder: Path, changes: Mapping[str, tuple[str, str]]) -> Path:
    """A copy of the tree with changes: in each file a text, and what takes its place."""
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (old, new) in changes.items():
        text = (folder / name).read_text()
        assert text.count(old) == 1, (name, old)
        (folder / name).write_text(text.replace(old, new))
    return folder / "src"


def test_a_setting_and_a_field_of_an_entry_are_added_in_one_place_each(tmp_path: Path) -> None:
    settings, entries = "occ/entries/settings.py", "occ/entries/entries.py"
    table = (ROOT / "docs/architecture.md").read_text()
    for what, place in (("a setting", settings), ("a field of a log entry", entries)):
        (row,) = [line for line in table.splitlines() if line.startswith(f"| {what} |")]
        assert f"`{place}`" in row
        assert row.count(".py`") == 1
    source = copy(
        tmp_path / "copy",
        {settings: ("    generation: int", DECLARED), entries: ('\n    kind = "begin"\n', STORED)},
    )
    chosen, plain = str(tmp_path / "chosen"), str(tmp_path / "plain")
    done = subprocess.run(
        [sys.executable, "-c", USED, chosen, plain],
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # This version is an older one: it skips the field, reads settings at their default, and refuses the unknown one.
    with lakelatch.open(plain) as older:
        (begin,) = older.session.log.state.open.values()
        assert isinstance(begin, Begin)
        assert not hasattr(begin, "mood")
        older.upsert(pa.table({"id": ["a"], "n": [1]}))
        assert older.read().count() == 1
    with pytest.raises(lakelatch.ConfigError, match="patience; upgrade lakelatch"):
        lakelatch.open(chosen)
