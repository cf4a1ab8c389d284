"""One session of PySpark 3.5 has Hudi's JVM bundle and this library."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow
import pytest

import lakelatch

from .neighbours import Shared
from .readers import BUNDLE, PROGRAM_S_MAX, PYTHON, alone, require_jvm

pytestmark = pytest.mark.jvm


def test_hudi_and_this_library_write_one_table_in_one_session(tmp_path: Path) -> None:
    require_jvm()
    shared = Shared(tmp_path)
    options = tmp_path / "options.json"
    options.write_text(json.dumps(shared.options))
    # That Python has PySpark 3.5 and all of its own; the rest comes from this one.
    packages = tmp_path / "packages"
    packages.mkdir()
    for each in Path(pyarrow.__file__).parents[1].iterdir():
        if not each.name.startswith(("pyspark", "py4j", "__editable__", "lakelatch")):
            (packages / each.name).symlink_to(each)
    done = subprocess.run(
        [str(PYTHON), str(Path(__file__).with_name("one_session.py")), str(BUNDLE), str(shared.path), str(options)],
        env=alone(PYTHON) | {"PYTHONPATH": f"{Path(lakelatch.__file__).parents[1]}:{packages}"},
        cwd=tmp_path, capture_output=True, text=True, timeout=PROGRAM_S_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    ours, theirs = json.loads(done.stdout.rpartition("read:")[2])
    assert ours == theirs == [["j0a", 2], ["p0a", 1], ["p1a", 2], ["p2b", 3]]
    found = shared.agreed()
    assert {key: value for key, value in found.items() if value} == dict(ours)
    shared.sound()
    shared.table.close()
