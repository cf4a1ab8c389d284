"""The worked example of a foreign provider: installed as a user installs it, found by its entry point, and conforming."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_lock_provider"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example installed in it."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "source")  # building leaves files beside the source
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", folder / "site", folder / "source"], check=True, timeout=120)
    return folder / "site"


def run(site: Path, *arguments: str, folder: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=300, check=False, cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("name", ["sqlite_locks.py", "test_sqlite_locks.py", "pyproject.toml"])
def test_the_page_shows_the_example_as_it_is(name: str) -> None:
    kind = "python" if name.endswith(".py") else "toml"
    page = (ROOT / "docs" / "writing-a-lock.md").read_text()
    assert f"```{kind}\n{(EXAMPLE / name).read_text()}```" in page


def test_the_example_needs_the_public_path_only() -> None:
    imported = re.findall(r"^from (lakelatch\S*) import", (EXAMPLE / "sqlite_locks.py").read_text(), re.MULTILINE)
    assert set(imported) == {"lakelatch.errors", "lakelatch.locks"}


def test_the_example_passes_the_shipped_suite(site: Path, tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "test_sqlite_locks.py", tmp_path)
    told = run(site, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sqlite_locks.py", folder=tmp_path)
    print(told.splitlines()[-1])
    assert " passed" in told


def test_a_table_uses_it(site: Path, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/locks.db"
    program = f"""
import lakelatch
from lakelatch.locks import known_schemes
assert "sqlite" in known_schemes()
with lakelatch.create({str(tmp_path / "t")!r}, record_key="id", lock={url!r}) as table:
    with table.session.lease("a look") as lease:
        print(table.settings.lock, lease.token)
"""
    stored, token = run(site, "-c", program).split()
    assert stored == url
    assert int(token) > 1, "neither the proof nor the first commit took the lock"
