"""A reader's lease for DataFrames: kept by the driver while Spark can still read one of them.

    t=0   read: a DataFrame over the files of the state C
    t=1   a short query has ended, and the JVM has forgotten its DataFrame: nothing was written
    t=10  a DataFrame that still exists gets the lease "at C"; from now on no cleaning takes a file of that state
    t=99  nothing in the JVM refers to its files any more: the lease is deleted

Spark shares the list of a scan's files between a DataFrame and everything derived from it, so the lifetime of that list
is theirs. The driver asks the JVM for it by weak references, with every beat. The JVM's garbage collector decides when
it is gone; Spark itself collects every 30 minutes at the latest (``spark.cleaner.periodicGC.interval``).
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...errors import LakeLatchError, TableError
from ...occ.liveness import LeaseSender, ReaderLease, lease_path

if TYPE_CHECKING:
    from ...environment import Timer
    from ...occ.session import Session

_log = logging.getLogger("lakelatch.spark")
# A notebook that is left open must not keep every state for ever.
HELD_S_MAX = 24 * 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """One state that DataFrames read: weak references to the inputs of each of its scans, and since when."""

    completion: str
    scans: tuple[Any, ...]
    since: float


class ScanLease:
    """One reader's lease for all DataFrames of a handle: at their state, or, with several states, from the oldest on.

    It ends with the last of them, after a day, with the Spark session, and with the handle on the table.
    """

    def __init__(self, spark: Any, session: Session) -> None:
        self._spark, self._session = spark, session
        self._mutex = threading.Lock()  # guards the three; never held during a request
        self._held: list[_Held] = []
        self._timer: Timer | None = None
        self._beating: LeaseSender | None = None  # of the timer's thread alone

    def hold(self, rows: Any, completion: str | None) -> None:
        """Keep the files of this DataFrame, of the state at that time. With None only the retention keeps them."""
        if completion is None or not self._session.writable:
            return
        scans = _scans(self._spark, rows)
        if scans:
            env = self._session.env
            with self._mutex:
                self._held.append(_Held(completion, scans, env.monotonic()))
                if self._timer is None:
                    interval_s = self._session.settings.heartbeat_interval_s
                    self._timer = env.every(interval_s, self._beat, name="lakelatch-spark-reader")

    def _beat(self) -> None:
        env, over = self._session.env, self._over()
        now = env.monotonic()
        with self._mutex:
            asked = list(self._held)
        left = [] if over else [each for each in asked if now - each.since < HELD_S_MAX and self._is_there(each)]
        with self._mutex:
            self._held = [each for each in self._held if each in left or (each not in asked and not over)]
            timer = None if self._held else self._timer
            if timer is not None:
                self._timer = None
        try:
            self._settle(left)
        except LakeLatchError as e:  # a reader without the right to write relies on retention
            _log.info("%s: DataFrames have no reader's lease: %s", self._session.url, e)
        if timer is not None:
            timer.cancel(join_s=0.0)

    def _settle(self, left: list[_Held]) -> None:
        """Renew the lease for the oldest of these states, or delete it when there are none."""
        env, store = self._session.env, self._session.store
        if not left:
            if self._beating is not None:
                beating, self._beating = self._beating, None
                store.delete(lease_path(beating.lease.reader))
            return
        moments = {each.completion for each in left}
        at, exact = min(moments), len(moments) == 1
        if self._beating is None or self._beating.lost:
            lease = ReaderLease(env.uuid(), self._session.writer, at, exact=exact, process=env.process())
            self._beating = LeaseSender(store, lease)
            return
        self._beating.lease = replace(self._beating.lease, at=at, exact=exact)
        self._beating.beat()

    def _over(self) -> bool:
        try:
            self._session.require_open()
        except TableError:
            return True
        return self._spark.sparkContext._jsc is None  # the session was stopped

    def _is_there(self, held: _Held) -> bool:
        try:
            return not all(each.refersTo(None) for each in held.scans)
        except Exception as e:  # noqa: BLE001 - a JVM that is gone reads nothing more; py4j has many errors for that
            if self._spark.sparkContext._jsc is not None:
                _log.info("%s: whether a DataFrame is there could not be asked: %s", self._session.url, e)
                return True
            return False


def _scans(spark: Any, rows: Any) -> tuple[Any, ...]:
    """Return weak references to the inputs of a plan's leaves, which everything derived from the DataFrame shares."""
    weak = spark._jvm.java.lang.ref.WeakReference
    leaves, found = rows._jdf.queryExecution().analyzed().collectLeaves(), []
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        kind = leaf.getClass().getSimpleName()
        if kind == "LogicalRelation":
            found.append(weak(leaf.relation().location()))
        elif kind == "LogicalRDD":
            found.append(weak(leaf.rdd()))
        elif kind == "LocalRelation" and not leaf.data().isEmpty():
            found.append(weak(leaf.data()))
    return tuple(found)
