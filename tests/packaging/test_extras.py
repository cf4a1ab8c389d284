"""The quick part of `make extras`, and what has to hold of every extra."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ..servers import missing
from .extras import PARTS, Failed, build, extras, install, lower_bounds, prove

# The parts that a user of an extra gets from elsewhere, with a version of their own.
NO_BOUND = {"lakelatch"}


def test_every_extra_has_a_part_of_the_documents_that_is_run() -> None:
    assert set(PARTS) == set(extras())


@pytest.mark.parametrize("extra", extras())
def test_every_dependency_names_the_lowest_version_that_was_run(extra: str) -> None:
    assert not [name for name, bound in lower_bounds(extras()[extra]).items() if not bound and name not in NO_BOUND]


def test_the_wheel_with_a_light_extra_runs_at_its_lowest_versions(tmp_path: Path) -> None:
    """The rest of the matrix takes long: `make extras`."""
    wheel = build(tmp_path / "wheel")
    try:
        install(wheel, "metrics", sys.executable, "lowest", tmp_path / "env")
    except Failed as e:
        if any(words in str(e) for words in ("error sending request", "dns error", "Network", "offline")):
            missing(f"no packages can be had: {str(e)[-300:]}")
        raise
    prove(tmp_path / "env", "", tmp_path / "core")
    prove(tmp_path / "env", "metrics", tmp_path / "metrics")
