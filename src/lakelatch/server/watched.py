"""One table that the server watches: its growing log, the holder of its lock, and views cached until it changes."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import InputError, LakeLatchError
from ..hudi.timeline import to_epoch_ms
from ..locks import shown
from ..occ.doctor import state_of
from ..occ.entries import extent, held
from ..occ.history import why
from ..occ.liveness import list_markers
from ..occ.log import Tail
from ..occ.turns import queue
from .lanes import picture, span_json, stretch
from .ledger import Ledger, LogBodies

if TYPE_CHECKING:
    from ..locks import Holder
    from ..occ.entries import Begin
    from ..occ.landing import Coordinator
    from ..occ.session import View
    from ..occ.table import Table

T = TypeVar("T")
_HOLDS = 2000  # periods of lock ownership that are kept per writer
_VIEW_MAX_S = 10.0  # engines that bypass the log change a table unseen
_OPEN_MAX_S = 1.0
_SEEN_S = 10.0  # a healthy server polls at least this often
_log = logging.getLogger("lakelatch.server")


class Watched:
    """A table under a name. Reads the table and changes nothing; safe to share between threads.

    Attributes:
        version: grows with every change that a user can see.
        error: the reason why the last poll failed; "" if it did not.
        ready: True once the log has been read to its head.
        coordinator: begins and commits for the table's writers in this process, if one does.
    """

    def __init__(self, name: str, table: Table) -> None:
        table.session.require_log()
        self.name, self.table, self.env = name, table, table.env
        self.version, self.error, self.ready = 0, "", False
        self.changed: Callable[[], object] = lambda: None
        self.coordinator: Coordinator | None = None
        self._ledger, self._bodies = Ledger(), LogBodies(table.store)
        self._tail = Tail(table.store, newest=False, body=self._bodies.body)
        self._mutex = threading.RLock()  # guards the ledger and the holds
        self._looking = threading.Lock()
        self._looked_at: float | None = None
        self._holder: Holder | None = None
        self._waiting_since: dict[str, float] = {}
        self._holds: dict[str, deque[tuple[int, int]]] = defaultdict(lambda: deque(maxlen=_HOLDS))
        self._kept: dict[str, tuple[object, float, Any]] = {}
        self._keeping = {name: threading.Lock() for name in ("open", "services", "timeline", "view")}

    @property
    def url(self) -> str:
        """The table's URL, without secrets."""
        return shown(self.table.url) if "@" in self.table.url else self.table.url

    # --- following it ----------------------------------------------------------------------------------------

    def look(self) -> None:
        """Poll the log and the lock. Without news that costs one read, one listing and one inspection of the lock."""
        asked = self.env.monotonic()
        with self._looking:
            if self._looked_at is not None and self._looked_at > asked:
                return  # another thread has polled while this one waited
            last, self._looked_at = self._looked_at, self.env.monotonic()
            before = (self._ledger.slot, self.error)
            try:
                # After a long pause the time at which new entries were written is unknown.
                self._read_log(seen=last is not None and self._looked_at - last < _SEEN_S)
                news = self._look_at_lock()
                self.error = ""
            except LakeLatchError as e:
                news, self.error = False, str(e)
            if news or before != (self._ledger.slot, self.error):
                self.version += 1
                self.changed()

    def _read_log(self, *, seen: bool) -> None:
        first = not self.ready
        with self._bodies.ahead() if first else nullcontext():
            for entry in self._tail.read():
                with self._mutex:
                    self._ledger.apply(entry, seen_ms=self._now_ms() if seen and not first else None)
        if first:
            # Transactions that the log does not contain any more. Read once, since all later ones are in the log.
            instants = [*self.table.session.history.instants().values(), *self.table.timeline().completed]
            with self._mutex:
                self._ledger.add_earlier(instants)
            self.ready = True

    def _look_at_lock(self) -> bool:
        found = self.table.lock.provider(self._ledger.state.settings)
        holder = found[0].inspect(found[1]) if found else None
        now, before = self.env.now(), self._holder
        with self._mutex:
            if holder is not None and (writer := self._writer_of(holder)):
                holds = self._holds[writer]
                since = int(holder.since * 1000)
                # The same hold as at the last poll: extend it.
                if holds and holds[-1][0] == since:
                    holds.pop()
                holds.append((since, int(now * 1000)))
            line = holder.queue if holder else ()
            self._waiting_since = {each: self._waiting_since.get(each, now) for each in line}
            self._holder = holder
        return (before and (before.token, before.queue)) != (holder and (holder.token, holder.queue))

    def _writer_of(self, holder: Holder) -> str:
        """Return the lane of the lock's holder: a lease's reason begins with the writer's name (`occ.session.table_lock`)."""
        names = [name for name in self._ledger.lanes if holder.reason.startswith(f"{name}: ")]
        return max(names, key=len, default="")

    def _now_ms(self) -> int:
        return int(self.env.now() * 1000)

    # --- what it shows ---------------------------------------------------------------------------------------

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """Yield the known transactions; none is added inside the block."""
        with self._mutex:
            yield self._ledger

    def summary(self) -> dict[str, Any]:
        """Return the table in a few numbers."""
        with self._mutex:
            ledger, state, now = self._ledger, self._ledger.state, self.env.now()
            outcomes: dict[str, int] = defaultdict(int)
            for (outcome, _operation), count in ledger.counts.items():
                outcomes[outcome] += count
            last = state.last
            return {
                "name": self.name,
                "url": self.url,
                "ready": self.ready,
                "error": self.error,
                "version": self.version,
                "slot": ledger.slot,
                "instants": len(ledger.spans),
                "writers": len(ledger.lanes),
                "outcomes": dict(outcomes),
                "open": sum(begin.plan is None for begin in state.open.values()),
                "planned": sum(begin.plan is not None for begin in state.open.values()),
                "conflicts": dict(ledger.conflicts),
                "wasted_s": round(ledger.wasted_s, 3),
                "coordinator": self.coordinator and asdict(self.coordinator.work) | {"waiting": self.coordinator.waiting},
                "last_commit": last and {
                    "instant": last.instant, "completion": last.completion, "operation": last.operation,
                    "writer": last.writer, "age_s": round(max(now - to_epoch_ms(last.completion) / 1000, 0), 3),
                },
            }  # fmt: skip

    def settings(self) -> dict[str, Any]:
        """Return the settings that its writers share, without secrets."""
        settings = self._ledger.state.settings
        return settings.to_json() | {"lock": shown(settings.lock)}

    def lanes(
        self,
        *,
        since_ms: int | None,
        until_ms: int | None,
        lanes: int,
        skip: int,
        writer: str,
        gone: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Return the `picture` of a stretch of time; without a beginning, of the newest few hundred transactions."""
        with self._mutex:
            now = self._now_ms()
            since, until = stretch(self._ledger, since_ms, until_ms, now_ms=now)
            return picture(
                self._ledger,
                self._holds,
                since_ms=since,
                until_ms=until,
                now_ms=now,
                lanes=lanes,
                skip=skip,
                writer=writer,
                gone=gone or {},
            )

    def state(self, *, newest: int, **stretch: Any) -> dict[str, Any]:
        """Return all that the dashboard shows, as of one slot of the log.

        Args:
            newest: how many of the newest transactions.
            stretch: as of `lanes`.
        """
        # Beats and markers are read before, since that takes time: of a transaction that has begun since they are unknown.
        # While the log is being read for the first time it is not read twice, so that the picture comes soon and grows.
        opened = self.open() if self.ready else []
        services = self.services() if self.ready else {"plans": [], "readers": []}
        with self._mutex:
            begun = self._ledger.state.open
            known = {each["instant"]: each for each in opened if each["instant"] in begun}
            found = [*known.values(), *(_just_begun(begin) for name, begin in begun.items() if name not in known)]
            plans = {each["instant"]: each for each in services["plans"]}
            gone = {
                each["instant"]: self._now_ms() - round((each["beat_s"] or 0) * 1000)
                for each in found if each["state"] in ("silent", "dead")
            }  # fmt: skip
            return {
                "summary": self.summary() | {"gone": len(gone)},
                "lock": self.lock(),
                "lanes": self.lanes(**stretch, gone=gone),
                "open": found,
                "services": services | {"plans": [each for name, each in plans.items() if name in begun]},
                "newest": [
                    each | {"heard_ms": gone.get(each["instant"])}
                    for each in self.timeline(limit=newest, before="")["instants"]
                ],
            }

    def timeline(self, *, limit: int, before: str) -> dict[str, Any]:
        """Return the newest transactions, newest first."""
        with self._mutex:
            found = [span_json(each) for each in self._ledger.newest(limit, before=before)]
        return {"instants": found, "before": found[-1]["instant"] if len(found) == limit else None}

    def lock(self) -> dict[str, Any]:
        """Return the holder of the lock and its waiters, and for how long this server has seen them."""
        with self._mutex:
            holder, now, state = self._holder, self.env.now(), self._ledger.state
            held_by = holder and {
                "owner": holder.owner, "writer": self._writer_of(holder), "reason": holder.reason, "host": holder.host,
                "pid": holder.pid, "token": holder.token, "held_s": round(max(now - holder.since, 0), 3),
                "left_s": None if holder.until is None else round(holder.until - now, 3),
            }  # fmt: skip
            line = [{"owner": each, "waits_s": round(now - since, 3)} for each, since in self._waiting_since.items()]
            return {
                "lock": shown(state.settings.lock), "generation": state.settings.generation, "last_token": state.token,
                "holder": held_by, "queue": line,
            }  # fmt: skip

    def open(self) -> list[dict[str, Any]]:
        """Return the open transactions: the ones with a reservation first, by rank."""
        return self._keep("open", (self._ledger.slot,), _OPEN_MAX_S, lambda: [
            self._open_one(*each) for each in queue(self.table.session)
        ])  # fmt: skip

    def _open_one(self, begin: Begin, behind: list[str]) -> dict[str, Any]:
        state, beat = state_of(self.table.session, begin)
        return _just_begun(begin) | {
            "age_s": round(max(self.env.now() - to_epoch_ms(begin.instant) / 1000, 0), 3),
            "beat_s": None if beat is None else round(beat, 3),
            "state": "planned" if begin.waits else state,
            "behind": behind,
            "markers": len(list_markers(self.table.store, begin.instant)),
        }

    def markers(self, instant: str, *, limit: int) -> dict[str, Any]:
        """Return the data files that a transaction has announced; ``list`` is None for a marker that is an object of its own."""
        found = list_markers(self.table.store, instant)
        shown = [{"path": each.path, "io": each.io, "list": each.list or None} for each in found[:limit]]
        return {"markers": shown, "total": len(found)}

    def services(self) -> dict[str, Any]:
        """Return plans that wait for execution, and readers' leases."""
        return self._keep("services", (self._ledger.slot,), _OPEN_MAX_S, self._services)

    def _services(self) -> dict[str, Any]:
        plans = []
        for begin in self.table.plans():
            files = extent(held(self.table.store, begin.plan or {}))
            age = round(max(self.env.now() - to_epoch_ms(begin.instant) / 1000, 0), 3)
            plans.append(
                {"instant": begin.instant, "action": begin.action, "writer": begin.writer, "files": files, "age_s": age}
            )
        leases = self.table.session.leases.alive(timeout_s=self.table.settings.heartbeat_timeout_s)
        readers = [{"reader": each.reader, "writer": each.writer, "at": each.at} for each in leases]
        return {"plans": plans, "readers": readers}

    def sizes(self) -> dict[str, Any]:
        """Return partitions with file groups and bytes, the 200 largest at most, and the two parts of the timeline."""
        found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for each in self._view().snapshot.file_slices():
            size = found[each.group.partition]
            size[0] += 1
            size[1] += len(each.logs)
            size[2] += (each.base.size if each.base else 0) + sum(log.size for log in each.logs)
        ranked = sorted(found.items(), key=lambda item: (-item[1][2], item[0]))
        return {
            "partitions": len(found),
            "file_groups": sum(size[0] for size in found.values()),
            "log_files": sum(size[1] for size in found.values()),
            "bytes": sum(size[2] for size in found.values()),
            "largest": [
                {"partition": name, "file_groups": groups, "log_files": logs, "bytes": size}
                for name, (groups, logs, size) in ranked[:200]
            ],
            "timeline": self._keep("timeline", self._ledger.slot, _VIEW_MAX_S, self._timeline),
        }

    def _timeline(self) -> dict[str, Any]:
        """Return the size of the active timeline, which Hudi's readers list each time, and of the archived one."""
        session = self.table.session
        active, archived = session.timeline(), session.history.manifest().files
        return {
            "active": len(active.completed),
            "first_active": active.first_active,
            "archived_files": len(archived),
            "archived_bytes": sum(size for _, size in archived),
        }

    def files(self, *, partition: str | None, limit: int, after: str) -> dict[str, Any]:
        """Return the file slices that readers see now, by partition and file id."""
        snapshot = self._view().snapshot
        if partition is not None and partition not in snapshot.partitions():
            raise InputError(f"table {self.name} has no partition {partition!r}")
        slices = snapshot.file_slices() if partition is None else snapshot.file_slices(partition)
        ordered = sorted(slices, key=lambda each: str(each.group))
        chosen = [each for each in ordered if str(each.group) > after][: limit + 1]
        found = [
            {
                "group": str(each.group),
                "partition": each.group.partition,
                "file_id": each.group.file_id,
                "base": each.base.path if each.base else None,
                "bytes": (each.base.size if each.base else 0) + sum(log.size for log in each.logs),
                "logs": [log.path for log in each.logs],
            }
            for each in chosen[:limit]
        ]
        return {"slices": found, "after": found[-1]["group"] if len(chosen) > limit else None}

    def why(self, instant: str) -> dict[str, Any]:
        """Return the outcome of a transaction and its reason, as ``lakelatch why T --json`` prints it."""
        session = self.table.session
        self.look()
        return why(session, session.time_of(instant, "instant"), self._bodies.entries()).to_json()

    def _view(self) -> View:
        self.look()  # so that the view is as new as the log
        return self._keep("view", self._ledger.slot, _VIEW_MAX_S, self.table.view)

    def _keep(self, name: str, head: object, max_s: float, make: Callable[[], T]) -> T:
        """Return the cached answer until the log has grown or ``max_s`` has passed; one thread computes while others wait."""
        # One lock per answer: a slow one does not hold up others.
        with self._keeping[name]:
            now = self.env.monotonic()
            kept = self._kept.get(name)
            if kept is None or kept[0] != head or now - kept[1] >= max_s:
                kept = self._kept[name] = (head, now, make())
            found: T = kept[2]
            return found


def _just_begun(begin: Begin) -> dict[str, Any]:
    """Return an open transaction of which no beat and no marker has been looked for yet."""
    process = begin.process
    return {
        "instant": begin.instant,
        "operation": begin.operation,
        "writer": begin.writer,
        "host": process.host if process else None,
        "pid": process.pid if process else None,
        "age_s": 0.0,
        "beat_s": None,
        "state": "planned" if begin.waits else "alive",
        "reserved": str(begin.reserved) if begin.reserved else None,
        "behind": [],
        "markers": 0,
    }
