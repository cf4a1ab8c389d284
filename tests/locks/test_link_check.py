"""Which folders are fit to hold locks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from lakelatch.environment import SYSTEM
from lakelatch.errors import ConfigError
from lakelatch.locks.file.filesystem_check import check_link, check_mount
from lakelatch.testing.contention import PATIENCE_S

_NFS = "rw,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,timeo=600,retrans=2,sec=sys,local_lock=none"
_LOCAL = "28 1 254:0 / / rw,relatime - ext4 /dev/vda rw"


def mounts(options: str, *, kind: str = "nfs4", point: str = "/data") -> list[str]:
    return [_LOCAL, f"90 28 0:50 / {point} rw,relatime shared:7 - {kind} server:/export {options}"]


def test_an_nfs_mount_that_keeps_the_rules_is_taken() -> None:
    check_mount("/data/locks", mounts(f"{_NFS},lookupcache=pos"))
    check_mount("/data/locks", mounts(f"{_NFS},lookupcache=none"))
    check_mount("/data/locks", mounts(f"{_NFS},noac"))


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (_NFS, "nfs4", "lookupcache=positive"),
        (_NFS.replace("hard", "soft") + ",lookupcache=pos", "nfs4", "gives up on a server"),
        (_NFS.replace("hard", "softerr") + ",lookupcache=pos", "nfs4", "gives up on a server"),
        (_NFS.replace("4.2", "3") + ",lookupcache=pos", "nfs", "not version 4"),
    ],
)
def test_an_nfs_mount_that_breaks_one_is_refused_with_what_to_change(options: str, kind: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_mount("/data/locks", mounts(options, kind=kind))


def test_only_the_mount_that_the_folder_is_on_counts() -> None:
    bad = mounts(_NFS)
    check_mount("/database/locks", bad)  # not below /data
    check_mount("/elsewhere", bad)
    check_mount("/data/locks", [*bad, "91 90 0:51 / /data/locks rw - tmpfs none rw"])
    check_mount("/data/locks", [*bad, "91 28 0:51 / /data rw - ext4 /dev/vdb rw"])  # mounted over it
    with pytest.raises(ConfigError):
        check_mount("/my data/locks", mounts(_NFS, point=r"/my\040data"))


def test_local_file_systems_pass_the_race_and_nothing_stays_behind(tmp_path: Path) -> None:
    for folder in [tmp_path, *(Path(name) for name in ("/dev/shm",) if os.access(name, os.W_OK))]:
        before = set(os.listdir(folder))
        check_link(str(folder), SYSTEM)
        assert not [name for name in set(os.listdir(folder)) - before if name.startswith(".link-check")]


def test_a_link_that_looks_before_it_leaps_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file system without an exclusive link does: it asks whether the name is free, and then makes it."""
    together = threading.Barrier(4, timeout=PATIENCE_S)

    def link(source: str, target: str) -> None:
        absent = not os.path.exists(target)
        with suppress(threading.BrokenBarrierError):  # the others have lost already
            together.wait()
        if not absent:
            raise FileExistsError(17, "File exists", target)
        shutil.copy(source, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(ConfigError, match="winners for 3 names"):
        check_link(str(tmp_path), SYSTEM)


_IN_A_MOUNT = """
import subprocess, sys
from pathlib import Path
from lakelatch.locks import open_provider
base = Path(sys.argv[1])
parts = [base / name for name in ("lower", "upper", "work", "merged")]
for part in parts:
    part.mkdir()
lower, upper, work, merged = parts
options = f"lowerdir={lower},upperdir={upper},workdir={work}"
mounted = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(merged)], capture_output=True)
if mounted.returncode:
    sys.exit(77)
with open_provider(f"file://{merged}/locks") as locks, locks.acquire("k", wait_s=5) as lease:
    assert locks.try_acquire("k") is None
    lease.ensure_held(fresh=True)
"""


@pytest.mark.process
def test_an_overlay_as_containers_have_it_is_taken(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux") or shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("only root can mount an overlay, in a mount namespace of its own")
    command = ["unshare", "-m", sys.executable, "-c", _IN_A_MOUNT, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    if ran.returncode == 77 or "unshare failed" in ran.stderr:
        pytest.skip("this container may not mount")
    assert ran.returncode == 0, ran.stderr
