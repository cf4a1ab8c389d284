from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ..mutants import instead
from .aged import aged
from .world import MODELS, World


@pytest.fixture(scope="session", autouse=True)
def models() -> Iterator[None]:
    """The tables that most tests begin with: making one costs more than what many a test does with it."""
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=in_memory, prefix="lakelatch-") as name:
        World(Path(name) / "table").close()
        aged(Path(name) / "old").close()
        MODELS.update({each: Path(name) / each for each in ("model {}", "aged {}")})
        yield
        MODELS.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: nothing here is about power failures, and flushing takes most of the time."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="lakelatch-") as name:
        yield Path(name)


@pytest.fixture
def world(folder: Path) -> Iterator[World]:
    world = World(folder / "table")
    yield world
    world.close()


@pytest.fixture
def old(folder: Path) -> Iterator[World]:
    """A table with a history: what services and savepoints are about."""
    world = aged(folder / "table")
    yield world
    world.close()


@pytest.fixture
def make_world(folder: Path) -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(**settings) -> World:
        made.append(World(folder / f"table-{len(made)}", **settings))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def breaks() -> Iterator[Callable[..., object]]:
    """Takes a rule out of our code for the rest of the test, to show what harm it prevents (`instead`)."""
    with ExitStack() as stack:
        yield lambda owner, name, code: stack.enter_context(instead(owner, name, code))
