"""The architecture as a promise: rooms import downwards, through the front door of each, and the picture shows them so."""

from __future__ import annotations

import ast
import os
import re
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch

ROOT = Path(__file__).parents[1]
_spec = spec_from_file_location("rooms", ROOT / "scripts/rooms.py")
rooms = module_from_spec(_spec)
sys.modules["rooms"] = rooms  # its dataclass looks itself up there
_spec.loader.exec_module(rooms)
KNOWN = rooms.modules()
IMPORTS = list(rooms.imports(KNOWN))
# People use the package's own names, and these sit on top of everything.
PEOPLE = ("cli", "demo", "testing", "lakelatch")


def exported(room: str) -> set[str]:
    """The names in ``__all__``; of an inner room, which has none, those that its ``__init__`` imports."""
    tree = ast.parse(KNOWN[room].read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return {each.value for each in node.value.elts}
    return {name.asname or name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names}


def is_front_door(each: rooms.Import) -> bool:
    """Whether the import is an ``__init__`` gathering what lies in its own room or below it, or the library its packages."""
    return KNOWN[each.source].name == "__init__.py" and (
        each.source == "lakelatch" or each.target.startswith(each.source)
    )


def test_every_module_stands_in_a_room():
    for name in KNOWN:
        rooms.room_of(name)


def test_no_arrow_points_upwards():
    order = {room: number for number, room in enumerate(rooms.ORDER)}
    upwards = [
        f"{KNOWN[each.source].relative_to(ROOT)}:{each.line} imports {each.name or 'the module'} of {each.target}: "
        f"{rooms.room_of(each.source)} stands below {rooms.room_of(each.target)}"
        for each in IMPORTS
        if order[rooms.room_of(each.target)] > order[rooms.room_of(each.source)] and not is_front_door(each)
    ]
    assert not upwards, "\n".join(upwards)


def test_the_library_imports_neither_the_lab_nor_the_demonstrations():
    """They lie beside it, and use it; of the command line only what starts them knows them."""
    own = ("bench", "demo")
    known = {each.source for each in IMPORTS if rooms.room_of(each.target) in own}
    others = {source for source in known if rooms.room_of(source) not in own}
    assert others
    assert all(source.startswith("cli.bench.") for source in others), others
    strings = {name for name, path in KNOWN.items() if re.search(r"lakelatch\.(bench|demo)\.", path.read_text())}
    assert {name for name in strings if rooms.room_of(name) not in own} == {"cli.demo"}


def test_no_modules_import_each_other_in_a_circle():
    graph = defaultdict(set)
    for each in IMPORTS:
        if each.source != each.target and not each.source.startswith(f"{each.target}."):
            graph[each.source].add(each.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        pytest.fail(" -> ".join(e.args[1]))


def test_rooms_are_entered_by_the_front_door():
    """What another room uses is exported by the room that it comes from, and has no private name."""
    wrong = []
    for each in IMPORTS:
        here, there = rooms.room_of(each.source), rooms.room_of(each.target)
        if (
            here == there
            or {here, here.split(".")[0]} & {*PEOPLE}
            or is_front_door(each)
            or there in ("errors", "environment")
        ):
            continue
        place = f"{KNOWN[each.source].relative_to(ROOT)}:{each.line}"
        if each.name.startswith("_"):
            wrong.append(f"{place} takes {each.name}, which is private to {each.target}")
        elif each.target == there and KNOWN[there].name == "__init__.py" and each.name not in exported(there):
            wrong.append(f"{place}: {there} does not export {each.name}")
        elif each.name and each.target != there and not each.source.startswith(f"{there.rpartition('.')[0] or '-'}."):
            wrong.append(f"{place} reaches past {there} into {each.target}")
    assert not wrong, "\n".join(wrong)


def test_a_front_door_exports_only_what_others_use():
    """By an import, in the library or in tests and benchmarks; the registry imports locks by their names."""
    used = {(each.target, each.name) for each in IMPORTS}
    used |= {tuple(each.target.rpartition(".")[::2]) for each in IMPORTS}
    for path in (path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                used |= {(node.module.removeprefix("lakelatch."), each.name) for each in node.names}
    opened = set(re.findall(r"\w+", KNOWN["locks.registry"].read_text()))
    inner = [room for room, path in KNOWN.items() if path.name == "__init__.py" and "__all__" not in path.read_text()]
    inner = [
        room
        for room in inner
        if room.split(".")[0] in ("hudi", "occ", "conflict", "streams", "locks", "spark", "storage")
    ]
    assert len(inner) > 30
    unused = {(room, name) for room in inner for name in exported(room) - opened} - used
    assert not unused, sorted(unused)


@pytest.mark.parametrize("room", [r for r in rooms.ORDER if r in KNOWN and KNOWN[r].name == "__init__.py"])
def test_a_room_says_what_it_is_for(room: str):
    assert rooms.purpose(KNOWN, room)


def test_the_picture_shows_the_rooms_as_they_are():
    """To renew it: ``python scripts/rooms.py --draw docs/rooms.svg``."""
    assert (ROOT / "docs/rooms.svg").read_text() == rooms.drawing(KNOWN)


def test_one_warm_upserted_row_passes_at_most_25_rooms(tmp_path):
    """Folders whose functions are called, on any thread, by an upsert of one row into a table that the handle knows."""
    modules = {
        str(path.resolve()): name if path.name == "__init__.py" else name.rpartition(".")[0]
        for name, path in KNOWN.items()
    }
    passed: set[str] = set()

    def called(frame, event, _arg):
        if event == "call" and (room := modules.get(os.path.realpath(frame.f_code.co_filename))) is not None:
            passed.add(room)

    with lakelatch.create(str(tmp_path / "t"), record_key="id", bucket_count=2) as table:
        for value in range(3):
            if value == 2:
                threading.setprofile(called)
                sys.setprofile(called)
            try:
                table.run(lambda txn, value=value: txn.upsert(pa.table({"id": ["a"], "v": [value]})))
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
    assert {"storage.local", "locks.core", "conflict", "occ.log", "occ.staging", "occ.landing"} <= passed
    assert len(passed) <= 25, sorted(passed)  # 24 on 23 November 2026


def test_no_module_uses_a_private_name_of_another_one():
    """``x._name`` stands only where ``_name`` is made; on ``self`` it may be inherited."""
    trees = {module: list(ast.walk(ast.parse(path.read_text()))) for module, path in KNOWN.items()}
    own = {module: set(private_names(nodes)) for module, nodes in trees.items()}
    ours = set().union(*own.values())
    wrong = [
        f"{KNOWN[module].relative_to(ROOT)}:{node.lineno} uses {ast.unparse(node)}"
        for module, nodes in trees.items()
        for foreign in [ours - own[module]]
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr in foreign
        and ast.unparse(node.value) not in ("self", "cls", "super()")
    ]
    assert not wrong, "\n".join(wrong)


def private_names(nodes: list[ast.AST]) -> Iterator[str]:
    """The private names that a module makes: definitions, variables, and attributes of ``self`` and ``cls``."""
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                pass
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        if name.startswith("_") and not name.startswith("__"):
            yield name


def test_no_two_classes_of_occ_have_one_name():
    """Who reads a name finds one class by it."""
    found = Counter(
        node.name
        for module, path in KNOWN.items()
        if path.is_relative_to(ROOT / "occ")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in found.items() if count > 1] == []
    assert len(found) > 200
