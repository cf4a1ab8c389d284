"""A docstring opens with a verb, or with the name of the thing: not with half a sentence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = ("src", "storage", "locks", "conflict", "occ", "spark", "benchmarks")
# The first words of fragments, such as "What was not done in vain" and "Of one table".
FRAGMENTS = (
    "As",
    "How",
    "Of",
    "So",
    "That",
    "Those",
    "What",
    "Where",
    "Whether",
    "Which",
    "Who",
    "Whom",
    "Whose",
    "Why",
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and (doc := ast.get_docstring(node)):
            yield node.body[0].lineno, doc


def is_fragment(doc: str) -> bool:
    return bool(re.match(rf"(?:{'|'.join(FRAGMENTS)})\b", doc))


@pytest.mark.parametrize("folder", LIBRARY)
def test_docstrings_open_with_a_verb_or_a_name(folder: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}": doc
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, doc in docstrings(path.read_text())
    }
    assert len(found) > 50
    assert not {place: doc.partition("\n")[0] for place, doc in found.items() if is_fragment(doc)}


@pytest.mark.parametrize(
    ("doc", "fragment"),
    [
        ("What is left.", True),
        ("Of one table, once.", True),
        ("Return the rest.", False),
        ("Assert that it ends.", False),
    ],
)
def test_a_fragment_is_told_from_a_sentence(doc: str, fragment: bool) -> None:
    assert is_fragment(doc) is fragment


def test_two_words_that_readers_stumble_over_stay_rare() -> None:
    """Write "again", "rewrite", "anyone who" or "no matter who" instead."""
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for folder in (*LIBRARY, "tests", "examples", "scripts"):
        texts += (ROOT / folder).rglob("*.py")
    stumbled = [
        p.name for p in texts for _ in re.findall(r"\b(?:who" + r"ever|an" + r"ew)\b", p.read_text(), re.IGNORECASE)
    ]
    assert len(stumbled) <= 10, stumbled
