"""A merge-on-read table as another engine leaves it: log files wait to be compacted, and nobody but services changes it."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import lakelatch
from lakelatch.hudi.files import FileGroupId
from lakelatch.testing import FakeEnvironment

from ..occ.mor import Mor, Row, at, rows
from .files import encode
from .history import FOUNDER, State, Value
from .store import Bodies


@dataclass(frozen=True)
class Ground:
    """``commits``: T and C of those that were there before the log, and the states that they left."""

    bodies: Bodies
    commits: tuple[tuple[str, str, State], ...]


class _Lists(Mor):
    """Its base files hold lists, its log files a name that is appended to each of them."""

    def _commit(self, requested: str, completed: str, file_id: str, partition: str, name: str, writes: int = 1) -> None:
        path = self.folder / partition / name
        root = FileGroupId(partition, file_id)
        base = name.endswith(".parquet")
        path.write_bytes(
            encode({root: Value((FOUNDER,), 1, 100)}) if base else json.dumps(f"{FOUNDER} {requested}").encode()
        )
        super()._commit(requested, completed, file_id, partition, name, writes)


@functools.cache
def ground(groups: int) -> Ground:
    """With so many file groups, two log files on each."""
    commits: list[tuple[str, str, State]] = []
    state, number = State(), 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table")
        mor = _Lists(path, ordering=None, env=FakeEnvironment(seed=1), lock="none://")

        def commit(part: str, log: bool) -> None:
            nonlocal number, state
            requested, completed, number = at(10 * number + 1), at(10 * number + 2), number + 1
            if log:
                mor.update(requested, completed, part, {"k": 1})
                root = FileGroupId(f"part={part}", mor.groups[part])
                old = state[root]
                state = state | {root: old._replace(names=(*old.names, f"{FOUNDER} {requested}"), count=old.count + 1)}
            else:
                root = FileGroupId(f"part={part}", mor.base(requested, completed, part, _rows(part)))
                state = state | {root: Value((FOUNDER,), 1, 100)}
            commits.append((requested, completed, state))

        parts = "ab"[:groups]
        for log in (False, True, True):
            for part in parts:
                commit(part, log)
        lakelatch.adopt(
            str(path), lock="none://", lease_s=5.0, heartbeat_interval_s=1.5, heartbeat_timeout_s=4.0, lock_wait_s=15.0,
            env=FakeEnvironment(seed=1), writer=FOUNDER,
        ).close()  # fmt: skip
        bodies = {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}
    return Ground(bodies, tuple(commits))


def _rows(part: str) -> Sequence[Row]:
    return rows(part, {"k": 1})
