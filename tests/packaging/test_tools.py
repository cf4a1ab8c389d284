"""The scripts that put the tests' servers in place: they say what they install of the system's, and npm's versions are fixed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = sorted(each.stem for each in (ROOT / "scripts/tools").glob("*.sh") if each.stem != "common")
NEEDED = (  # noqa: SIM905 - a list of one line each
    "bash basename cat cmp cp cut dirname env flock grep head ls mkdir rm sed sort tail tr"
).split()
# Notes each call, and whether the packages had been named by then. Nothing is installed.
APT = '#!/bin/sh\ngrep -q "will install" "$SEEN" && early= || early="too early: "\necho "$early$*" >>"$CALLS"\nexit 1\n'


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkout's scripts, and a system that has nothing, and an `apt-get` for root."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "bin").mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found, name
        (tmp_path / "bin" / name).symlink_to(found)
    for name, text in (("apt-get", APT), ("id", "#!/bin/sh\necho 0\n")):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def run(bare: Path, what: str, **more: str) -> tuple[str, list[str]]:
    """What the script says, and the calls of `apt-get`."""
    seen, calls = bare / "seen", bare / "calls"
    calls.write_text("")
    given = {"PATH": str(bare / "bin"), "SEEN": str(seen), "CALLS": str(calls), "HOME": str(bare)} | more
    with seen.open("w") as out:
        subprocess.run([bare / "scripts/ensure_tools.sh", what], env=given, stdout=out, stderr=out, check=False)
    return seen.read_text(), calls.read_text().splitlines()


def packages(told: str) -> set[str]:
    (line,) = [each for each in told.splitlines() if "will install" in each]
    return set(line.partition("apt-get: ")[2].partition(". ")[0].split())


def test_what_is_installed_of_the_system_is_said_before_anything_is(bare: Path) -> None:
    told, calls = run(bare, "announce")
    assert not calls
    named = packages(told)
    assert {"chromium", "maven", "redis-server", "openjdk-17-jre-headless", "npm"} <= named
    told, calls = run(bare, "all")
    assert packages(told) == named
    assert not [each for each in calls if each.startswith("too early")]
    asked = {
        name
        for each in calls
        if " install " in f" {each} "
        for name in each.split()
        if re.fullmatch(r"[a-z][a-z0-9.-]+", name)
    }
    assert asked - {"install"} - {"openjdk-21-jre-headless", "openjdk-21-jdk-headless"} <= named


def test_nothing_of_the_system_is_installed_where_somebody_says_so(bare: Path) -> None:
    told, calls = run(bare, "all", SYSTEM_PACKAGES="no")
    assert not calls
    assert "will install" not in told
    assert "the Redis tests need redis-server" in told


def test_every_tool_says_what_it_would_install() -> None:
    for each in PARTS:
        text = (ROOT / "scripts/tools" / f"{each}.sh").read_text()
        assert f"packages_{each}()" in text
        assert f"ensure_{each}()" in text


def test_npm_installs_what_the_lock_file_says_from_whatever_registry_there_is() -> None:
    folder = ROOT / "scripts/tools/npm"
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]
    assert all(re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", each) for each in wanted.values())
    locked = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert locked.pop("")["dependencies"] == wanted
    assert all(each.get("integrity") for each in locked.values())
    assert not [name for name, each in locked.items() if "resolved" in each]
    text = "".join(each.read_text() for each in (ROOT / "scripts").rglob("*.sh"))
    assert "npm ci" in text
    assert "npm install" not in text.replace("`npm install --package-lock-only", "")
