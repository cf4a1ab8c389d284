from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .forge import Forge


@pytest.fixture(scope="session")
def forge(tmp_path_factory) -> Iterator[Forge]:
    with Forge(tmp_path_factory.mktemp("forge")) as forge:
        yield forge


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: a killed process takes nothing with it that the kernel has."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="lakelatch-") as name:
        yield Path(name)
