"""The tables of `tables.md` that lead from the model to the code and from the traps to their tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from . import cases, features

ROOT = Path(__file__).parents[2]
TABLES = Path(__file__).with_name("tables.md")
PARTS = ("storage", "locks", "conflict", "occ", "spark", "src/lakelatch")
STEPS = {
    "protocol": ("writer", "others"),
    "rebase": ("rebase",),
    "reservations": ("reservation",),
    "lock change": ("lock_change",),
    "neighbours": ("neighbours",),
    "coordinator": ("coordinator",),
    "begins together": ("begins",),
    "confirmation": ("confirmation",),
    "several tables": ("several_tables",),
}


def table(title: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head."""
    below = TABLES.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in below.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def functions() -> set[str]:
    """Every function of the library, methods with their class."""
    found = set()
    for path in (path for part in PARTS for path in (ROOT / part).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.ClassDef):
                found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def test_every_step_of_the_model_names_what_implements_it() -> None:
    rows = table("From the model to the code")
    for model, modules in STEPS.items():
        text = "".join((ROOT / f"tests/model/{name}.py").read_text() for name in modules)
        steps = {
            step for line in re.findall(r"^ +case (.*):$", text, re.MULTILINE) for step in re.findall('"(.*?)"', line)
        }
        told = {step for row in rows if row[0] == model for step in re.findall("`(.*?)`", row[1])}
        assert steps <= told, f"{model}: {sorted(steps - told)}"
    named = {name for row in rows for name in re.findall("`(.*?)`", row[2])}
    assert len(named) > 30
    assert sorted(named - functions()) == []


def test_every_trap_names_its_tests() -> None:
    rows = table("Every trap and its test")
    traps = [int(row[0].split()[0]) for row in rows]
    assert traps[:20] == list(range(1, 21))
    assert traps == sorted(set(traps))
    known = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    for trap, tests, _rules in rows:
        named = set(re.findall("`(.*?)`", tests))
        assert named or "does not do yet" in tests, trap
        assert not named - known, trap


def test_the_model_has_the_rules_that_the_traps_name() -> None:
    told = {
        (rule, int(row[0].split()[0]))
        for row in table("Every trap and its test")
        for rule in row[2].split(", ")
        if rule
    }
    left_out = [(case.rule, case.traps) for case in cases.MISSING]
    left_out += [(case.rule, case.traps) for case in features.MISSING]
    assert {(rule, int(trap)) for rule, traps in left_out for trap in traps.split(", ") if trap} == told
