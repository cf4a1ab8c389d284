"""The transactions and counts of one table's log, for observers: each transaction is a stretch of time. Pure.

The log has no clock. A begin has T and a commit C, which are times; a loss has its duration. Any other end is only known to
come after the largest time before it, unless the server saw it being written.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from ..conflict import INGESTION, kind_of
from ..hudi.timeline import COMMIT_ACTIONS, Instant, to_epoch_ms
from ..occ.entries import Begin, Commit, End, LogEntry, Open, Prepare, Single, decode, singly
from ..occ.log import LogState, epochs, is_slot, slot_path
from ..storage import Store, is_far

SPANS_MAX = 250_000
EARLIER = "(before the log)"  # the lane of transactions that the log does not contain
REASONS_MAX = 40
_WAITED = "it waits for its turn"  # the abort of a transaction that begins again later (`occ.turns`)
_VARIES = re.compile(r"\s*\([^)]*\)|(?<=has reserved ).*(?= and goes first)|(?<=under isolation ).*")


@dataclass(slots=True)
class Span:
    """One transaction from its begin to its end.

    Attributes:
        end_ms: None while it is open.
        outcome: ``open``, ``planned``, ``landed``, ``merged`` (landed after it was merged again), ``lost``, ``waited`` (ended to
            begin again at its turn), ``aborted``, ``rolled back`` or ``taken back`` (by a restore).
        winner: T of the transaction that it lost against.
        age: shared by all attempts of one piece of work; ``attempt`` counts them from 1.
        service: True if it rearranges or removes files, and changes no row.
        partners: the tables of its transaction, as "T of URL", if it is one over several.
        exact: False if its end is only known not to be earlier.
    """

    instant: str
    operation: str
    writer: str
    begin_ms: int
    end_ms: int | None = None
    outcome: str = "open"
    completion: str = ""
    winner: str = ""
    reason: str = ""
    reserved: str = ""
    age: int = -1
    attempt: int = 1
    wasted_s: float = 0.0
    service: bool = False
    partners: tuple[str, ...] = ()
    exact: bool = True


class Ledger:
    """The known transactions of a table; fed by one thread.

    Attributes:
        state: the log's state at the last entry.
        slot: the slot of that entry.
        counts: ended transactions by (outcome, operation).
        conflicts: losses by reason; ``wasted_s`` is their total duration.
    """

    def __init__(self) -> None:
        self.state = LogState()
        self.slot = -1
        self.spans: dict[str, Span] = {}
        self.lanes: dict[str, list[Span]] = defaultdict(list)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.conflicts: Counter[str] = Counter()
        self.wasted_s = 0.0
        self._attempts: dict[tuple[int, str], int] = {}  # by age and writer: several may begin at one slot

    def apply(self, entry: LogEntry, *, seen_ms: int | None = None) -> Span | None:
        """Add the next entry; return the transaction that it changed. ``seen_ms``: when it was written, if that was seen."""
        span = None
        match entry:
            case Begin():
                span = self._begin(entry)
            case Commit() if entry.instant in self.state.open:
                span = self._commit(entry)
            case Prepare() if (span := self.spans.get(entry.instant)) is not None:
                span.partners = _partners(entry.commit)
            case End() if entry.instant in self.state.open:
                span = self._end(entry, seen_ms)
            case Open():
                for begin in entry.open:
                    self._begin(begin)
        # Applied last, because the cases above need the transaction's begin, which an end removes from the state.
        self.state.apply(entry)
        self.slot = entry.slot
        return span

    def add_earlier(self, instants: Iterable[Instant]) -> None:
        """Add completed instants that the log does not contain (any more); their writer is unknown."""
        found = []
        for each in instants:
            if each.requested in self.spans or not each.completed:
                continue
            begin_ms, end_ms = to_epoch_ms(each.requested), to_epoch_ms(each.completed)
            service = each.action not in COMMIT_ACTIONS
            span = Span(
                each.requested, each.action, EARLIER, begin_ms, max(end_ms, begin_ms), "landed", each.completed, service=service
            )  # fmt: skip
            self.spans[span.instant] = span
            found.append(span)
        lane = self.lanes[EARLIER] + found
        lane.sort(key=lambda span: span.begin_ms)
        if lane:
            self.lanes[EARLIER] = lane[-SPANS_MAX:]
        else:
            del self.lanes[EARLIER]

    def newest(self, limit: int, *, before: str = "") -> list[Span]:
        """Return the newest transactions by T, newest first; ``before``: only older ones."""
        names = sorted(self.spans)
        end = bisect_left(names, before) if before else len(names)
        return [self.spans[name] for name in reversed(names[max(end - limit, 0) : end])]

    def _begin(self, entry: Begin) -> Span:
        known = self.spans.get(entry.instant)
        # A new epoch lists open transactions again.
        if known is not None and known.age == entry.age:
            return known
        outcome = "planned" if entry.plan is not None else "open"
        service = entry.plan is not None or kind_of(entry.operation) not in INGESTION
        span = Span(
            entry.instant, entry.operation, entry.writer, to_epoch_ms(entry.instant), outcome=outcome, service=service,
            reserved=str(entry.reserved) if entry.reserved else "", age=entry.age,
            attempt=self._attempts.get((entry.age, entry.writer), 0) + 1,
        )  # fmt: skip
        self.spans[entry.instant] = span
        self.lanes[entry.writer].append(span)
        # Forgetting copies everything, so it happens once per tenth of the limit, not per transaction.
        if len(self.spans) > 1.1 * SPANS_MAX:
            self._forget()
        return span

    def _commit(self, entry: Commit) -> Span | None:
        span = self.spans.get(entry.instant)
        if span is None:
            return None
        begin = self.state.open[entry.instant]
        merged = entry.action == "replacecommit" and begin.action != "replacecommit"
        self._close(span, "merged" if merged else "landed", to_epoch_ms(entry.completion))
        span.completion, span.partners = entry.completion, _partners(entry)
        if entry.restores:
            for name in entry.undone:
                if gone := self.spans.get(name.partition("_")[0]):
                    gone.outcome = "taken back"
        return span

    def _end(self, entry: End, seen_ms: int | None) -> Span | None:
        span = self.spans.get(entry.instant)
        if span is None:
            return None
        if entry.lost is not None:
            span.winner, span.reason, span.wasted_s = entry.lost.winner, entry.lost.rule, entry.lost.took_s
            self.wasted_s += span.wasted_s
            self.conflicts[self._reason(span.reason)] += 1
            self._close(span, "lost", span.begin_ms + round(span.wasted_s * 1000))
            self._attempts[span.age, span.writer] = span.attempt
            return span
        waited = entry.kind == "abort" and entry.reason == _WAITED
        if waited:
            self._attempts[span.age, span.writer] = span.attempt
        outcome = "rolled back" if entry.kind == "rollback" else "waited" if waited else "aborted"
        span.reason, span.exact = entry.reason, seen_ms is not None
        self._close(span, outcome, seen_ms or to_epoch_ms(self.state.top))
        return span

    def _close(self, span: Span, outcome: str, end_ms: int) -> None:
        span.outcome, span.end_ms = outcome, max(end_ms, span.begin_ms)
        self.counts[outcome, span.operation] += 1

    def _reason(self, rule: str) -> str:
        """Return the rule without its variable parts: it labels a metric, which must not have many labels."""
        found = " ".join(_VARIES.sub("", rule).split()) or "unknown"
        return found if found in self.conflicts or len(self.conflicts) < REASONS_MAX else "another"

    def _forget(self) -> None:
        kept = set(sorted(self.spans)[-SPANS_MAX:]) | set(self.state.open)
        self.spans = {name: span for name, span in self.spans.items() if name in kept}
        lanes = {writer: [each for each in lane if each.instant in kept] for writer, lane in self.lanes.items()}
        self.lanes = defaultdict(list, {writer: lane for writer, lane in lanes.items() if lane})
        works = {(span.age, span.writer) for span in self.spans.values()}
        self._attempts = {work: count for work, count in self._attempts.items() if work in works}


def _partners(commit: Commit) -> tuple[str, ...]:
    return tuple(f"{each.instant} of {each.url}" for each in commit.several)


# Entries of a log on a remote store: prefetched by several threads, and cached.
#
# An entry never changes, so a cached one needs no request. At thirty milliseconds each, a log of ten thousand entries would
# take five minutes, at the server's start and again for each `why`.

_THREADS, _AHEAD = 16, 256


class LogBodies:
    """A reader of one log's entries. For one thread, except `entries`."""

    def __init__(self, store: Store, *, kept_bytes: int = 64 << 20) -> None:
        self._store, self._kept_bytes = store, kept_bytes
        self._far = is_far(store.url)
        self._paths: deque[str] = deque()
        self._coming: dict[str, Future[bytes | None]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._kept: dict[str, bytes] = {}
        self._size = 0

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Prefetch the existing entries inside the block, by many threads, in the order in which they will be read."""
        if not self._far:
            yield
            return
        for epoch in epochs(self._store):
            names = self._store.names(slot_path(epoch, 0).rpartition("/")[0])
            paths = (slot_path(epoch, int(name)) for name in names if is_slot(name))
            self._paths += [path for path in paths if path not in self._kept]
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="lakelatch-log") as self._pool:
            try:
                yield
            finally:
                self._paths.clear()
                self._coming.clear()
                self._pool.shutdown(cancel_futures=True)
                self._pool = None

    def body(self, path: str) -> bytes | None:
        """Return an entry's bytes; None if there is none."""
        while self._pool is not None and self._paths and len(self._coming) < _AHEAD:
            each = self._paths.popleft()
            self._coming[each] = self._pool.submit(self._store.body, each)
        coming = self._coming.pop(path, None)
        # An entry that was missing when it was prefetched may exist by now.
        found = (coming.result() if coming else None) or self._store.body(path)
        if found is not None and self._far:
            self._size += len(found)
            # Too large to keep: from here on nothing is complete, so `entries` returns None.
            self._kept = self._kept if self._size <= self._kept_bytes else {}
            self._kept[path] = found
        return found

    def entries(self) -> list[Single] | None:
        """Return all entries that were read, in order; None if they are not all cached."""
        if not self._far or self._size > self._kept_bytes:
            return None
        return [each for path, body in list(self._kept.items()) for each in singly(decode(body, path))]
