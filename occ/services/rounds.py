"""A round of services: each that is due runs, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...errors import LakeLatchError
from .archive import Archival
from .scheduling import Executed

Service = Callable[[], Executed | Archival | None]


@dataclass(frozen=True, slots=True)
class Round:
    """What a round of services has done. A service in none of the three was not due.

    Attributes:
        done: what the services did that were due, by their names: compact, compact_logs, cluster, clean, archive.
        failed: the errors of those that failed; the next round tries them again.
        not_begun: the services that were left, because the round was told to stop.
    """

    done: Mapping[str, Executed | Archival]
    failed: Mapping[str, LakeLatchError]
    not_begun: tuple[str, ...]


def run_round(services: Mapping[str, Service], stop: Callable[[], bool]) -> Round:
    """Run the services in their order. After one that fails the next ones still run.

    Args:
        services: each returns None, or an archival of nothing, when it is not due.
        stop: asked before each service; what it raises ends the round.
    """
    done: dict[str, Executed | Archival] = {}
    failed: dict[str, LakeLatchError] = {}
    names = list(services)
    for at, name in enumerate(names):
        if stop():
            return Round(done, failed, tuple(names[at:]))
        try:
            outcome = services[name]()
        except LakeLatchError as e:
            failed[name] = e
        else:
            if outcome and not (isinstance(outcome, Archival) and not outcome.instants):
                done[name] = outcome
    return Round(done, failed, ())
