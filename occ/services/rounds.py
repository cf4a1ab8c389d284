"""A round of services: run those that are due, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...errors import LakeLatchError
from .archive import Archival
from .scheduling import Executed

Service = Callable[[], Executed | Archival | None]


@dataclass(frozen=True, slots=True)
class ServiceRound:
    """The outcome of a round of services. A service in none of the three was not due.

    Attributes:
        done: results by service name: compact, compact_logs, cluster, clean, archive.
        failed: errors by service name; the next round tries these services again.
        not_begun: the services left out because ``stop`` ended the round.
    """

    done: Mapping[str, Executed | Archival]
    failed: Mapping[str, LakeLatchError]
    not_begun: tuple[str, ...]


def run_round(services: Mapping[str, Service], stop: Callable[[], bool]) -> ServiceRound:
    """Run the services in their order; one that fails does not stop the next ones.

    Args:
        services: each returns None, or an archival of nothing, when it is not due.
        stop: called before each service; True or an exception ends the round.
    """
    done: dict[str, Executed | Archival] = {}
    failed: dict[str, LakeLatchError] = {}
    names = list(services)
    for at, name in enumerate(names):
        if stop():
            return ServiceRound(done, failed, tuple(names[at:]))
        try:
            outcome = services[name]()
        except LakeLatchError as e:
            failed[name] = e
        else:
            if outcome and not (isinstance(outcome, Archival) and not outcome.instants):
                done[name] = outcome
    return ServiceRound(done, failed, ())
