"""The services that work by plans, by the operation that their log entries name."""

from __future__ import annotations

from . import archive, clean, clustering, compaction, log_compaction
from .planned_service import PlannedService

SERVICES: dict[str, PlannedService] = {
    each.operation.hudi_name: each
    for each in (
        compaction.SERVICE,
        log_compaction.SERVICE,
        clustering.SERVICE,
        clean.SERVICE,
        archive.SERVICE,
    )
}


def is_decided(operation: str) -> bool:
    """Return whether others rely on plans of that operation, so that none can lose or be cancelled."""
    return (service := SERVICES.get(operation)) is not None and service.decided
