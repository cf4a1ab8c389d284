from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lakelatch.bench import Plan, Results, contenders, measure, read, scenario


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of the systems that are wrong, which writers' processes find too."""
    here = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(here)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
    return "faulty_systems"


@pytest.fixture
def lab(tmp_path: Path) -> Callable[..., Results]:
    """Measures with few operations and no think time, and gives what was kept."""

    def run(
        *names: str, writers: int = 2, operations: int = 5, rounds: int = 1, facts=None, place=None, keep=False, **who
    ) -> Results:
        found, skipped = contenders(**who)
        assert not skipped
        chosen = tuple(map(scenario.load, names)) or (scenario.of("own", facts),)
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        measure(
            Plan(
                chosen,
                tuple(found),
                out,
                writers=(writers,),
                operations=operations,
                rounds=rounds,
                place=place,
                keep=keep,
            )
        )
        return read(out)

    return run
