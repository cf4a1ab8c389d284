"""The commit protocol within some bounds: who may move in a state, and the judge that looks at each."""

from __future__ import annotations

from collections.abc import Iterator

from .explore import STATES_MAX, Bounded, Result, explore
from .log import Log
from .others import CleanerSteps, ReaderSteps
from .rules import Bounds, Rules
from .state import Cleaner, State, World, Writer, bit
from .writer import WriterSteps


class Search(Bounded):
    """All behaviours of one set of rules within one set of bounds."""

    processes = "processes"

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        super().__init__(rules, bounds)
        self.world = World(rules, bounds)
        self._writer, self._cleaner = WriterSteps(self.world), CleanerSteps(self.world)
        self._reader = ReaderSteps(self.world)
        self._judged: dict[Log, str | None] = {}

    def run(self, states_max: int = STATES_MAX) -> Result:
        """Visit every state, nearest first, until one is at fault; then say how it came about."""
        return explore(self, states_max=states_max)

    def start(self) -> State:
        """The first state."""
        return self.world.start()

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Every next state, with who did what."""
        for i, process in enumerate(state.processes):
            if isinstance(process, Writer):
                name, steps = f"writer {i}", self._writer(state, i, process)
            elif isinstance(process, Cleaner):
                name, steps = "cleaner", self._cleaner(state, i, process)
            else:
                name, steps = "reader", self._reader(state, i, process)
            for what, after in steps:
                yield f"{name} {what}", after
        yield from self.world.surroundings(state)

    def judge(self, s: State) -> str | None:
        """The first invariant that does not hold, or an empty text; None for the mirror image of another state."""
        hist = s.hist
        committed = hist.committed
        if s.fault:
            return s.fault
        if s.published & ~committed:
            return "an instant is published that never committed"
        if s.acknowledged & ~s.published:
            return "an acknowledged commit is not published"
        if committed & ~s.files:
            return "files of a committed transaction are deleted"
        if s.told_lost & committed:
            return "a writer was told that nothing landed, and its commit landed"
        if s.files & ~committed & ~s.markers:
            return "a file of no commit has no marker: no cleaner will find it"
        unpublished = committed & ~s.published
        if unpublished & ~bit(hist.last):
            first = min(slot for slot, txn, _ in hist.commits if unpublished >> txn & 1)
            if any(slot > first and s.published >> txn & 1 for slot, txn, _ in hist.commits):
                return "an instant is published before an earlier one"
        if hist not in self._judged:
            self._judged[hist] = None if self.world.is_mirrored(hist) else self._judge_log(hist)
        if unpublished & ~bit(hist.last) and self.world.rules.publish_earlier and not self._judged[hist]:
            return "a commit before the last one is not published"
        return self._judged[hist]

    def _judge_log(self, hist: Log) -> str:
        for slot, _, _ in hist.commits:
            entry = hist.entries[slot]
            assert entry is not None
            if entry.relied != Log.of(hist.entries[:slot]).changes:
                return "a commit relied on settings or columns that had changed before it"
        commits = [e for e in hist.entries if e is not None and e.kind == "commit"]
        for n, later in enumerate(commits):
            if later.txn in hist.ended:
                return "a transaction is both committed and rolled back"
            for earlier in commits[:n]:
                if earlier.c >= later.c:
                    return "completion times are out of order"
                if self._overlap(earlier.txn, later.txn):
                    if not later.seen >> earlier.txn & 1:
                        return "two overlapping transactions both committed"
                    if earlier.t >= later.t:
                        return "an overlapping commit has a T above that of its successor, which readers then miss"
        times = [e.t for e in hist.entries if e is not None and e.kind == "begin"]
        return "a T is used twice" if len(set(times)) < len(times) else ""

    def _overlap(self, one: int, other: int) -> bool:
        a, b = self.world.writer_of(one), self.world.writer_of(other)
        return a == b or self.world.bounds.overlap(a, b)
