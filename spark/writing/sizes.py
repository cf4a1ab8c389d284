"""Sizes that decide how a write runs: on the driver or in tasks, and in how many."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ...arguments import number
from ...errors import ConfigError

_MAY_BE_NOTHING = ("small_rows", "driver_bytes", "lookup_bytes", "property_bytes")


@dataclass(frozen=True)
class JobSizes:
    """The sizes that decide how a write runs. None of them changes the result.

    Attributes:
        small_rows: how many incoming rows the driver merges at most by itself; 0 leaves all of them to tasks.
        driver_bytes: how many bytes of base files it reads for that at most, for a rebase, and of files for a table service.
        tasks_per_core: several, so that uneven tasks even out.
        task_bytes: how many bytes of incoming rows one task gets at most.
        slot_bytes: one task takes this many bytes of a partition's new keys, up to one task for each core.
        lookup_bytes: a partition's keys are looked up by one task. Where few partitions hold more bytes than this, a
            join looks them up.
        property_bytes: how long a task's description may be to be sent with each of Spark's tasks. A longer one (tens
            of thousands of file slices) goes once to each executor.

    Raises:
        ConfigError: a size is not a whole number, or is too small.
    """

    small_rows: int = 20_000
    driver_bytes: int = 32 << 20
    tasks_per_core: int = 4
    task_bytes: int = 64 << 20
    slot_bytes: int = 2 << 20
    lookup_bytes: int = 64 << 20
    property_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        """Raise `ConfigError` for an invalid size."""
        for each in fields(self):
            least = 0 if each.name in _MAY_BE_NOTHING else 1
            number(getattr(self, each.name), each.name, least=least, whole=True, error=ConfigError)


SIZES = JobSizes()
