"""Puts the library into the simulation: its mutexes give way to the scheduler, its lock URLs open simulated servers.

Everything else of it runs as it is. What is decoded from the same bytes again is kept, as these values never change.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest import mock

from lakelatch.hudi.table.config import TableConfig
from lakelatch.hudi.timeline import timeline
from lakelatch.locks import LockProvider, memory
from lakelatch.locks.core import lease as held
from lakelatch.locks.core import thread_queue as queue
from lakelatch.locks.core.lease import LeaseState
from lakelatch.occ.check import stored_keys
from lakelatch.occ.liveness import heartbeat, neighbours
from lakelatch.occ.log import commit_log
from lakelatch.occ.log import publisher as publish
from lakelatch.occ.services.registry import SERVICES
from lakelatch.occ.session import partners, table_lock, whole_states
from lakelatch.occ.session import session as opened
from lakelatch.occ.session import snapshot_cache as view
from lakelatch.occ.staging import apply_rows
from lakelatch.occ.table import table
from lakelatch.occ.workspace.unique_constraints import Checker

from .environment import SimEnvironment, simulated_mutexes
from .files import compare, join_files, merge_logs
from .history import Anomaly
from .row_tables import NAME, InPlace
from .strangers import READS_S, SILENT_S

_KEPT = 4096
# Their rooms export functions of the same names.
check = importlib.import_module("lakelatch.occ.check.check")
restoring = importlib.import_module("lakelatch.occ.services.restore")
log_files = importlib.import_module("lakelatch.occ.log.epochs")
adopting = importlib.import_module("lakelatch.occ.table.adopt")
_inside = 0


@contextmanager
def simulated() -> Iterator[None]:
    """Inside of this the library's modules are part of the simulation. May be nested."""
    global _inside
    _inside += 1
    try:
        if _inside > 1:
            yield
            return
        with ExitStack() as stack:
            logging.disable(logging.CRITICAL)  # tracebacks of simulated faults cost more than the schedule
            stack.callback(logging.disable, logging.NOTSET)
            stack.enter_context(
                simulated_mutexes(
                    commit_log, publish, heartbeat, opened, view, table_lock, held, memory, queue, partners
                )
            )
            stack.enter_context(mock.patch.object(table_lock, "open_provider", _open_provider))
            stack.enter_context(mock.patch.object(LeaseState, "ensure", _watched(LeaseState.ensure)))
            plain = {"CLUSTER": join_files, "COMPACT": merge_logs}
            services = {name: replace(SERVICES[name], run=run) for name, run in plain.items()}
            stack.enter_context(mock.patch.dict(SERVICES, services))
            stack.enter_context(mock.patch.object(apply_rows, "ThreadPoolExecutor", InPlace))
            # What reads rows; what is in a file is judged anyway.
            stack.enter_context(mock.patch.object(Checker, "check", compare))
            stack.enter_context(mock.patch.object(neighbours, "SILENT_S", SILENT_S))
            stack.enter_context(mock.patch.object(neighbours, "READS_S", READS_S))
            stack.enter_context(mock.patch.object(restoring, "refuse_repeated", return_value=None))
            stack.enter_context(mock.patch.object(check, "check_footers", return_value={}))
            stack.enter_context(mock.patch.object(check, "check_logs", return_value=None))
            stack.enter_context(mock.patch.object(stored_keys, "wrong_keys", _of_rows(stored_keys.wrong_keys)))
            stack.enter_context(mock.patch.object(adopting, "refuse_other_keys", return_value=None))
            for module, name in _DECODERS:
                stack.enter_context(mock.patch.object(module, name, _cached(getattr(module, name))))
            kept = functools.lru_cache(maxsize=64)(TableConfig.from_bytes)
            stack.enter_context(mock.patch.object(table.TableConfig, "from_bytes", kept))
            yield
    finally:
        _inside -= 1


_DECODERS = (
    (commit_log, "decode"), (log_files, "decode"), (timeline, "decode_commit"), (publish, "decode_commit"),
    (timeline, "parse"), (publish, "parse"), (whole_states, "decode_container"), (timeline, "decode_container"),
)  # fmt: skip


def _cached(decode):
    return functools.lru_cache(maxsize=_KEPT)(decode)


def _open_provider(url: str, *, env: SimEnvironment, lease_s: float = 0.0) -> LockProvider:
    return env.open_lock(url)


def _watched(ensure):
    """The real check that a lease is held; the server must not have taken it for ended before."""

    def checked(self: LeaseState, *, fresh: bool) -> None:
        ensure(self, fresh=fresh)
        env = self.env
        assert isinstance(env, SimEnvironment)
        ends_at = self.grant.ends_at()
        slack = self.lease_s * abs(env.sim.rate - 1.0) + 1e-6
        if env.scheduler.now > ends_at + slack:
            late = env.scheduler.now - ends_at
            env.scheduler.violation = Anomaly(
                f"{self.owner} believes that it holds the lock {late:.2f} s after its end"
            )

    return checked


def _of_rows(real):
    """Lists have no keys."""
    return lambda store, config, *rest: real(store, config, *rest) if config.name == NAME else None
