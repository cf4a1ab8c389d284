"""What the tests read lies in the checkout: a clone that has nothing beside it runs the same ones."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .beside import CHECKOUT, can_watch, guard, is_beside

WHERE = ("tests", "benchmarks", "examples", "scripts", "src", "storage", "locks", "conflict", "occ", "spark")


def above(source: str, file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a module that name a folder above the checkout by where the module lies."""
    if "__file__" not in source:
        return
    tree = ast.parse(source)
    known: dict[str, Path] = {"__file__": file}

    def value(node: ast.expr) -> Path | None:
        match node:
            case ast.Name(id=name):
                return known.get(name)
            case ast.Call(func=ast.Name(id="Path"), args=[one]):
                return value(one)
            case ast.Call(func=ast.Attribute(value=inner, attr="resolve" | "absolute"), args=[]):
                return value(inner)
            case ast.Attribute(value=inner, attr="parent"):
                found = value(inner)
                return None if found is None else found.parent
            case ast.Subscript(value=ast.Attribute(value=inner, attr="parents"), slice=ast.Constant(value=int(n))):
                found = value(inner)
                return None if found is None else ([*found.parents, Path("/")])[min(n, len(found.parents))]
            case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=str(name))):
                found = value(left)
                return None if found is None else Path(os.path.normpath(found / name))
        return None

    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found = value(node.value)
            if found is not None:
                known[node.targets[0].id] = found
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and (found := value(node)) is not None and not found.is_relative_to(CHECKOUT):
            yield node.lineno, ast.unparse(node)


def test_no_module_names_a_folder_above_the_checkout():
    found = [
        f"{path.relative_to(CHECKOUT)}:{line} {text}"
        for part in WHERE
        for path in sorted((CHECKOUT / part).rglob("*.py"))
        for line, text in above(path.read_text(), path)
    ]
    assert not found, "\n".join(found)


def test_no_command_names_a_folder_above_the_checkout():
    """``cd "$(dirname "$0")/.."`` of a script in a folder of the checkout leads into it."""
    commands = [CHECKOUT / "Makefile", *(CHECKOUT / "scripts").glob("*.sh"), *(CHECKOUT / ".ci").glob("*")]
    found = [
        f"{path.relative_to(CHECKOUT)}: {line}"
        for path in commands
        for line in path.read_text().splitlines()
        if re.search(r"\.\./|CURDIR\)/\.\.", line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        'DATA = Path(__file__).parents[2] / "neighbour" / "data"',
        'ROOT = Path(__file__).parents[1]\nDATA = ROOT.parent / "data"',
        "ROOT = Path(__file__).resolve().parent\ndef tables():\n    return ROOT.parent.parent",
        'DATA = Path(__file__).parent / "../../data"',
    ],
)
def test_a_module_that_looks_above_the_checkout_is_found(source: str):
    assert list(above(source, CHECKOUT / "tests" / "test_some.py"))


@pytest.mark.parametrize(
    ("path", "beside"),
    [
        ("/home/me/shared/data/x.zip", True),
        ("/home/me/shared", True),
        ("/home/me/lakelatch-other/tests/x", True),
        ("/home/me/lakelatch/../neighbour/x", True),
        ("/home/me/lakelatch/tests/data/x.zip", False),
        ("/home/me/lakelatch", False),
        ("/home/me", False),
        ("/home/me/.cache/pip/x", False),
        ("/home/me/python/lib/x.py", False),
        ("/home/you/shared/x", False),
        ("/usr/lib/x", False),
        ("/home/me/other/../lakelatch/x", False),
    ],
)
def test_beside_is_what_shares_its_folder_with_the_checkout(path: str, beside: bool):
    assert is_beside(path, "/home/me/lakelatch", ["/home/me/python"]) is beside


@pytest.mark.parametrize("event", ["open", "os.listdir", "os.scandir"])
def test_who_reads_there_is_stopped(event: str):
    watches = guard([])
    for path in (CHECKOUT / "tests", CHECKOUT.parent, "/usr/lib", 7, None):
        watches(event, (path if isinstance(path, int | None) else str(path), "r", 0))
    path = CHECKOUT.parent / "neighbour" / "data"
    for each in (str(path), os.fsencode(path)):
        with pytest.raises(AssertionError, match="beside the checkout"):
            watches(event, (each, "r", 0))


@pytest.mark.skipif(not can_watch(), reason="beside the checkout lie folders of the system")
def test_the_guard_watches_this_run():
    with pytest.raises(AssertionError, match="beside the checkout"):
        (CHECKOUT.parent / "neighbour").open()
