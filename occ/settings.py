"""The settings that all writers of one table share. They live in the commit log, so all writers agree."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ..conflict import refuse_contradiction, refuse_isolation
from ..errors import ConfigError

OWN_LOCK = "table"
NO_LOCK = "none://"


@dataclass(frozen=True, slots=True)
class Settings:
    """Each field is declared once: name, default, unit in the name.

    Attributes:
        lock: URL of the lock provider; ``table`` is the filesystem lock in the table's own folder (local tables
            only), ``none://`` leaves the order of commits to the log alone.
        strategy: who yields when two transactions meet: ``simple``, ``bucket``, ``prefer-writer`` or ``priority``.
        isolation: what a transaction is protected from: ``snapshot``, ``write-serializable`` or ``serializable``.
        buckets: number of buckets of the bucket index; None is the simple index.
        lease_s: how long a lock lease lasts unless renewed, where the lock's URL does not say (``?lease=10s``).
        lock_wait_s: how long a commit waits for the lock.
        heartbeat_interval_s: how often a writer shows that it lives. JVM writers on the same table judge by 120 s.
        heartbeat_timeout_s: a writer whose heartbeat has not changed for so long may be rolled back.
        generation: counts changes of the lock and restarts of its tokens; cannot be set.
    """

    lock: str = OWN_LOCK
    strategy: str = "simple"
    isolation: str = "snapshot"
    buckets: int | None = None
    lease_s: float = 30.0
    lock_wait_s: float = 120.0
    heartbeat_interval_s: float = 10.0
    heartbeat_timeout_s: float = 60.0
    generation: int = 0

    def __post_init__(self) -> None:
        refuse_contradiction(self.strategy, buckets=self.buckets)
        refuse_isolation(self.isolation)
        if self.buckets is not None and not 1 <= self.buckets <= 99_999_999:
            raise ConfigError(f"buckets is {self.buckets}, must be between 1 and 99999999 (8 digits of a file id)")
        for name in ("lease_s", "lock_wait_s", "heartbeat_interval_s", "heartbeat_timeout_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, must be positive")
        if self.heartbeat_timeout_s < 2 * self.heartbeat_interval_s:
            raise ConfigError(
                f"heartbeat_timeout_s is {self.heartbeat_timeout_s}, must be at least twice heartbeat_interval_s "
                f"({self.heartbeat_interval_s}): one late beat must not cost a writer its transaction"
            )

    def to_json(self) -> dict[str, Any]:
        """Plain values for a log entry."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Settings:
        """The reverse of `to_json`. Unknown keys come from a newer writer and are refused."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(value) - known):
            raise ConfigError(
                f"the table has settings that this version does not know: {', '.join(unknown)}; upgrade lakelatch",
                settings=unknown,
            )
        return cls(**value)

    def changed(self, **changes: Any) -> Settings:
        """A copy with other values; `ConfigError` for names that do not exist."""
        known = {f.name for f in fields(self)} - {"generation"}
        if unknown := sorted(set(changes) - known):
            raise ConfigError(f"no such setting: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
        return replace(self, **changes)

    def refuse_others(self, table: str, **wanted: Any) -> None:
        """Raise `ConfigError` with both values when a writer is configured otherwise than the table."""
        for name, value in wanted.items():
            if value is not None and value != getattr(self, name):
                raise ConfigError(
                    f"{table} is set to {name}={getattr(self, name)!r}, this writer to {name}={value!r}; writers that "
                    "disagree do not exclude each other. Leave it out here, or change the table's own setting first",
                    table=table,
                    setting=name,
                )
