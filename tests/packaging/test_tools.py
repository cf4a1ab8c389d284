"""The scripts that put the tests' servers in place: they say what they install of the system's, and npm's versions are fixed."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "scripts" / "lock"
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


def pinned(name: str) -> dict[str, set[str]]:
    """The versions by package, of which each has its hashes and no other line stands in the file."""
    found, text = dict[str, set[str]](), (LOCK / f"{name}.txt").read_text()
    for each in text.replace(" \\\n", " ").splitlines():
        match = re.fullmatch(r"([a-z0-9-]+)==(\S+)( ;[^#]+?)?((?: +--hash=sha256:[0-9a-f]{64})+)", each)
        assert match, each
        found.setdefault(match[1], set()).add(match[2])
    return found


def asked(*extras: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [Requirement(each) for each in project["dependencies"]]
    for extra in extras:
        for each in map(Requirement, project["optional-dependencies"][extra]):
            found += asked(*each.extras) if each.name == "lakelatch" else [each]
    return found


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("dev", ["dev"]),
        ("runtime", ["cloud", "spark", "zookeeper", "redis", "dynamodb", "metrics", "tracing", "server"]),
    ],
)
def test_all_that_an_environment_asks_for_is_pinned_with_its_hashes(name: str, extras: list[str]) -> None:
    locked = pinned(name)
    for each in asked(*extras):
        versions = locked.get(canonicalize_name(each.name), set())
        assert versions, f"{each} is not in {name}.txt: scripts/lock.sh"
        assert all(each.specifier.contains(version) for version in versions), f"{each}, and {versions}: scripts/lock.sh"
    assert locked.items() <= pinned("dev").items(), "not what the tests run with"


def test_what_builds_the_others_and_the_jvms_pyspark_are_pinned_too() -> None:
    assert set(pinned("build")) == {"pip", "setuptools"}
    (version,) = pinned("jvm")["pyspark"]
    assert f"SPARK={version} " in (ROOT / "scripts/ensure_jvm.sh").read_text()
    text = "".join(each.read_text() for each in (ROOT / "scripts").rglob("*.sh"))
    assert text.count("pip install") == 1  # one place, which says --require-hashes for all but the package itself


def test_a_jar_that_is_another_file_than_before_is_not_kept(bare: Path) -> None:
    folder = bare / "jars"
    folder.mkdir()
    (folder / "good.jar").write_bytes(b"good")
    (bare / "scripts/lock/jars.sha256").write_text(f"{hashlib.sha256(b'good').hexdigest()}  good.jar\n")
    ask = ["bash", "-c", f". scripts/tools/common.sh; verified {folder}"]
    assert subprocess.run(ask, cwd=bare).returncode == 0
    (folder / "good.jar").write_bytes(b"evil")
    told = subprocess.run(ask, cwd=bare, stderr=subprocess.PIPE, text=True)
    assert told.returncode == 1
    assert "good.jar" in told.stderr
    assert not folder.exists()


def test_every_download_of_jars_is_verified() -> None:
    found = [each.read_text() for each in (ROOT / "scripts").rglob("*.sh")]
    assert sum(each.count("mvn -q -B -f") + each.count('dependency:copy "') for each in found) == 3
    assert sum(len(re.findall(r"^ +verified \"", each, re.MULTILINE)) for each in found) == 3
