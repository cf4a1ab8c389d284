"""Numbers of any size and texts that are none, as every argument and option of every command: never a fault of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakelatch
from lakelatch.cli.app import app

from ..command_line import commands
from ..thorough import some

NUMBERS = [
    "1" + "0" * 25,
    "-1" + "0" * 25,
    "9" * 5000,
    "nan",
    "inf",
    "-inf",
    "1e400",
    "-1",
    "0",
    "1e-320",
    "\u00b2",
    "9" * 19,
]
TEXTS = [
    "\udcff",
    "a\ud800b",
    "",
    " ",
    "\u00b2",
    "a" * 5000,
    "9" * 5000,
    "-1",
    "..",
    "/",
    "\u202e",
    "[",
    "%",
    "=",
    ":",
    ",",
]
# They run until somebody stops them, or measure for long; of these the arguments are read as of the others.
ENDLESS = {
    "server",
    "demo",
    "watch",
    "bench run",
    "locks watch",
    "locks hold",
    "locks check",
    "worker-zip",
    "mergers check",
}
GIVEN: dict[str, str] = {
    "record_key": "id", "columns": "v", "ordering": "v", "name": "s", "key": "k0", "query": "select 1", "merger": "max",
    "reason": "r", "token": "1", "first": "a", "second": "b", "folder": "a", "count": "4",
    "database": "d",
}  # fmt: skip


TRIED = [(" ".join(path), each.imported) for path, each in commands() if " ".join(path) not in ENDLESS]


def line(path: str, command: Any, given: dict[str, str], changed: Any, value: str) -> list[str]:
    """The command with what it needs, and with one argument or option changed."""
    words, arguments = path.split(), []
    for each in command.params:
        if each.param_type_name == "option":
            if each is changed:
                words.append(f"{each.opts[-1]}={value}")
            elif each.required or each.name == "record_key":
                words.append(f"{each.opts[-1]}={given[each.name]}")
        elif each is changed:
            arguments.append(value)
        elif each.required:
            arguments.append(given[each.name])
    return [*words, "--", *arguments]


def is_flag(each: Any) -> bool:
    return each.param_type_name == "option" and each.type_descriptor.annotation is bool


@pytest.mark.parametrize(("path", "command"), TRIED, ids=[path for path, _ in TRIED])
def test_no_value_is_a_fault_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, command: Any) -> None:
    monkeypatch.chdir(tmp_path)
    rows = tmp_path / "rows.csv"
    rows.write_text("id,v\nk0,1\n")
    url = str(tmp_path / "t")
    with lakelatch.create(url, record_key="id") as table:
        table.insert([{"id": "k0", "v": 0}])
        instant = table.commits()[-1][0].requested
    given = {
        **GIVEN, "url": url, "path": url, "file": str(rows), "before": instant,
        "instant": instant, "after": instant, "lock": f"file://{tmp_path}/locks", "lock_url": f"file://{tmp_path}/locks",
        "table": f"t={url}" if path == "sql" else url,
    }  # fmt: skip
    faults = []
    for each in command.params:
        if is_flag(each) or each.name == "help":
            continue
        for value in some(NUMBERS, 4) if each.type_descriptor.annotation in (int, float) else some(TEXTS, 2):
            if path == "create":
                given["url"] = str(tmp_path / f"new-{len(faults)}-{each.name}-{abs(hash(value))}")
            words = line(path, command, given, each, value)
            result = CliRunner().invoke(app, words, input="y\n")
            ends = (0, 1, 2, 64, 75) if path.startswith("locks ") else (0, 1, 2)
            if result.exit_code not in ends or not isinstance(result.exception, SystemExit | None):
                faults.append((each.name, value[:20], result.exit_code, result.exception, result.output[-300:]))
    assert not faults
