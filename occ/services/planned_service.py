"""A table service that works by plans: one value in the module of each, listed in `registry`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..entries import Content, Operation
from ..log import LogState

if TYPE_CHECKING:
    from ..session import Session

Find = Callable[[LogState], Content | None]  # the content of a plan as of a state of the log


@dataclass(frozen=True, slots=True)
class PlannedService:
    """One kind of service.

    Attributes:
        name: its verb, such as ``compact``.
        operation: its appearance on the timeline.
        run: carries a plan out, given its `Execution`; any process may run it, several at once.
        decided: others rely on its plan, which can then neither lose nor be cancelled.
        due: finds the work of a round of services; None: `Table.run_services` asks for it with options.
    """

    name: str
    operation: Operation
    run: Callable[[Any], None]
    decided: bool = False
    due: Callable[[Session, LogState], Content | None] | None = None


def service_operation(action: str, hudi_name: str) -> Operation:
    """Return the operation of a service that changes no row; the pending instant of its plan has content."""
    return Operation(action, hudi_name, announced=(), service=True)
