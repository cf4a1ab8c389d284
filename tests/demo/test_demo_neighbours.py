"""The demonstration of neighbours does what it says, and its verdict can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakelatch
from lakelatch.demo.neighbours import JVM, KILLED, OURS, NeighbourStage

from ..jvm.readers import HOME, require_jvm
from ..thorough import THOROUGH

pytestmark = pytest.mark.jvm


@pytest.mark.skipif(not THOROUGH, reason="five JVMs, a minute or two: make thorough")
def test_both_sides_write_one_is_killed_of_each_and_nothing_is_lost(tmp_path: Path) -> None:
    require_jvm()
    said: list[str] = []
    stage = NeighbourStage(tmp_path, HOME, said.append)
    stage.make_table()
    stage.perform()
    assert [what for what, right in stage.verdict() if not right] == []
    for name in KILLED:
        assert any(line.startswith(name) and "was killed with SIGKILL" in line for line in said)
    assert all(stage.landed[name] >= rounds for name, rounds in (JVM | OURS).items())
    with lakelatch.open(stage.url) as table:
        table.delete(["ingest-0"])
    assert [what.partition(" reads ")[0] for what, right in stage.verdict() if not right] == [
        "Python",
        "hudi-rs",
        "the JVM",
    ]
