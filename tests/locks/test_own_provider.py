"""The worked example of a foreign provider: installed as a user installs it, found by its entry point, and conforming."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_lock_provider"


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
        env=os.environ | {"PYTHONPATH": str(site)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return done.stdout


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
