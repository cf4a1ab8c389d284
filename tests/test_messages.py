"""Messages of errors, notes and log lines read the same way everywhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ["locks", "storage", "conflict", "occ", "spark", "src/lakelatch", "benchmarks/lab", "benchmarks/demo"]
LOGGED = {"debug", "info", "warning", "error", "exception", "add_note"}


def endings(node: ast.expr) -> Iterator[str]:
    """How a text that is written out ends, for each branch of it."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=[*_, ast.Constant(value=str(text))]):
            yield text
        case ast.BinOp(right=right):
            yield from endings(right)
        case ast.IfExp(body=body, orelse=other):
            yield from endings(body)
            yield from endings(other)


@pytest.mark.parametrize("room", ROOMS)
def test_messages_end_without_a_full_stop(room: str) -> None:
    found, wrong = 0, []
    for path in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in LOGGED or name.endswith("Error"):
                texts = [text for each in node.args for text in endings(each)]
                found += len(texts)
                wrong += [
                    f"{path}:{node.lineno} ...{text[-40:]}"
                    for text in texts
                    if text.endswith(".") and not text.endswith("..")
                ]
    assert found > 5
    assert not wrong
