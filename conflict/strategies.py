"""When do two write sets meet? One function per strategy; the name is a setting of the table."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ConfigError
from .write_set import FileGroupId, WriteSet

Strategy = Callable[[WriteSet, WriteSet], frozenset[FileGroupId]]


def simple(ours: WriteSet, theirs: WriteSet) -> frozenset[FileGroupId]:
    """File groups that both changed.

    Source: Apache Hudi, `SimpleConcurrentFileWritesConflictResolutionStrategy`.
    """
    return ours.groups & theirs.groups


_STRATEGIES: dict[str, Strategy] = {"simple": simple}


def strategy(name: str) -> Strategy:
    """The strategy of that name. Raises `ConfigError` listing what exists."""
    try:
        return _STRATEGIES[name]
    except KeyError:
        raise ConfigError(
            f"no conflict strategy {name!r}; known: {', '.join(strategy_names())}", strategy=name
        ) from None


def strategy_names() -> list[str]:
    """All names, sorted."""
    return sorted(_STRATEGIES)
