"""`lakelatch worker-zip`; tests/spark/test_cluster.py has a bare worker run with what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import lakelatch

from .conftest import Command


def test_the_archive_holds_the_package_and_what_it_imports_and_is_the_same_each_time(
    run: Command, tmp_path: Path
) -> None:
    one, other = tmp_path / "one.zip", tmp_path / "other ü.zip"
    other.write_text("an older one")
    told = run("worker-zip", str(one)).stdout
    assert (
        told == f"--conf spark.archives={one}#lakelatch-worker --conf spark.executorEnv.PYTHONPATH=lakelatch-worker\n"
    )
    told = json.loads(run("worker-zip", str(other), "--json").stdout)
    assert told["settings"]["spark.archives"] == f"{other}#lakelatch-worker"
    assert one.read_bytes() == other.read_bytes()
    names = set(ZipFile(one).namelist())
    package = Path(lakelatch.__file__).parent
    for module in ("__init__.py", "spark/tasks.py", "storage/cloud/store.py", "hudi/files/log_blocks.py"):
        assert f"lakelatch/{module}" in names
        assert (package / module).exists()
    assert {"tenacity/__init__.py", "obstore/_obstore.abi3.so"} <= names
    assert not [name for name in names if name.endswith(".pyc") or ".." in name]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["one.zip", "other ü.zip"]


def test_a_file_that_spark_would_not_unpack_or_that_cannot_be_is_refused(run: Command, tmp_path: Path) -> None:
    (tmp_path / "folder.zip").mkdir()
    assert "does not end with .zip" in run("worker-zip", str(tmp_path / "worker.tgz"), code=2).stderr
    for path in (tmp_path / "folder.zip", tmp_path / "none" / "worker.zip"):
        assert "it is a folder, or its folder is not there" in run("worker-zip", str(path), code=2).stderr
    assert [each.name for each in tmp_path.iterdir()] == ["folder.zip"]
