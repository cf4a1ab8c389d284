"""What is no file stands in a table where one belongs: a write is refused at once, nobody waits, check and doctor name it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import lakelatch
from lakelatch.errors import LakeLatchError, StorageError
from lakelatch.occ.check import check
from lakelatch.occ.doctor import advise, gather

from ...no_files import NO_FILES

pytestmark = pytest.mark.timeout(120)


def place(root: Path, where: str) -> Path:
    """The path of a file that is read, or made, by the next write."""
    meta, ours = root / ".hoodie", root / ".hoodie/.lakelatch"
    last = max(ours.glob("log/*/*"))
    return {
        "properties": meta / "hoodie.properties",
        "log slot": last.with_name(f"{int(last.name) + 1:020d}"),
        "log entry": last,
        "instant": max(meta.glob("timeline/*.commit")),
        "lock record": next(each for each in ours.glob("locks/*/") if each.is_dir()) / f"{99:020d}",
        "reader": ours / "readers/x",
        "data file": next(each for each in root.glob("*.parquet") if each.stat().st_size),
    }[where]


WHERE = ("properties", "log slot", "log entry", "instant", "lock record", "reader", "data file")


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("where", WHERE)
def test_it_is_named_by_a_write_and_by_a_check(folder: Path, where: str, kind: str) -> None:
    url = str(folder / "t")
    with lakelatch.create(url, record_key="id") as table:
        table.insert([{"id": "1", "v": 0}])
    path = place(folder / "t", where)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    NO_FILES[kind](path)
    relative = str(path.relative_to(folder / "t"))

    def write() -> None:
        with lakelatch.open(url) as table:
            table.upsert([{"id": "1", "v": 1}], timeout_s=5)
            if where == "reader":
                table.clean(retain_commits=1)

    def read() -> str:
        with lakelatch.open(url) as table:
            table.read().to_arrow()
        return path.name

    def doctor() -> str:
        with lakelatch.open(url) as table:
            return next(each.message for each in advise(gather(table.session)) if each.kind == "no-file")

    if (where, kind) == ("reader", "a folder"):  # which nobody looks for
        return
    unseen = where == "instant" or (
        kind == "a folder" and where in ("log entry", "data file")
    )  # as if there were nothing
    if not unseen:
        with pytest.raises(
            StorageError, match=f"{path.name} was not (read|written): it is {kind}, where a file belongs"
        ):
            write()
    assert path.name in told_by(read)
    (found,) = [each for each in check(lakelatch.storage.open_store(url)).findings if each.kind != "properties-damaged"]
    assert (found.kind, found.path, kind in found.message) == ("no-file", relative, True)
    assert path.name in told_by(doctor)


FOLDERS = ("", "/locks", "/locks/{key}", "/log", "/log/{epoch}", "/../.heartbeat", "/../.temp", "/../timeline")


@pytest.mark.parametrize("kind", ["a named pipe", "a link to nothing", "a link to itself", "a file"])
@pytest.mark.parametrize("where", FOLDERS)
def test_what_stands_for_a_folder_is_named_by_a_write_and_by_a_check(folder: Path, where: str, kind: str) -> None:
    url = str(folder / "t")
    with lakelatch.create(url, record_key="id") as table:
        table.insert([{"id": "1", "v": 0}])
    ours = folder / "t/.hoodie/.lakelatch"
    names = {"key": next(ours.glob("locks/*/")).name, "epoch": next(ours.glob("log/*/")).name}
    path = Path(os.path.normpath(f"{ours}{where.format(**names)}"))
    shutil.rmtree(path)
    (NO_FILES | {"a file": Path.touch})[kind](path)
    relative = str(path.relative_to(folder / "t"))

    def write() -> str:
        with lakelatch.open(url) as table:
            table.upsert([{"id": "1", "v": 1}], timeout_s=5)
        return relative

    # Not that there is no log: `adopt` would begin another one.
    assert relative in (said := told_by(write))
    assert "adopt" not in said
    is_log = where in ("", "/log", "/log/{epoch}")
    assert f"is {kind}, where a folder belongs" in said or not is_log
    assert not path.is_dir(), "a folder was made where the link leads"
    found = [each for each in check(lakelatch.storage.open_store(url)).findings if each.kind == "no-file"]
    assert [each.path for each in found] == [relative]
    assert f"is {kind}, where a folder belongs" in found[0].message
    if is_log and kind != "a link to itself":  # which stops the opening already
        with lakelatch.open(url) as table:
            advice = advise(gather(table.session))
        assert "no-file" in [each.kind for each in advice]
        assert "adopt" not in " ".join(each.message + each.mend for each in advice)


def told_by(call: Callable[[], str]) -> str:
    """What it returns, or what it says when it cannot."""
    try:
        return call()
    except LakeLatchError as e:
        return str(e)


def test_what_nobody_reads_stops_nobody(folder: Path) -> None:
    """Also a link to itself, of which every question ends with an error of the system."""
    url = str(folder / "t")
    with lakelatch.create(url, record_key="id", partition_by="p") as table:
        table.insert([{"id": "1", "v": 0, "p": "a"}])
        for number, make in enumerate(NO_FILES.values()):
            if make is not NO_FILES["a folder"]:
                for below in (
                    ".",
                    ".hoodie",
                    ".hoodie/.lakelatch",
                    "p=a",
                    ".hoodie/timeline",
                    ".hoodie/.lakelatch/log",
                ):
                    make(folder / "t" / below / f"other-{number}")
        table.upsert([{"id": "1", "v": 1, "p": "a"}], timeout_s=5)
        assert table.read().to_pylist() == [{"id": "1", "v": 1, "p": "a"}]
        for each in (table.clean, table.cluster, table.archive, table.rollback_failed_writes):
            each()
        assert table.read(as_of=table.commits()[-1][0].requested).to_pylist() == [{"id": "1", "v": 1, "p": "a"}]
        assert [each.kind for each in check(table.store).findings] == ["other-files"]
        assert not [each for each in advise(gather(table.session)) if each.kind == "no-file"]
