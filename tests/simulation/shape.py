"""What a schedule consists of. All of it follows from the seed, unless it is given."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from .faults import COORDINATOR_STEPS, FAULTS, PROTOCOL_STEPS, SEVERAL_STEPS, faults_of

LOCKS = ("sim://first", "sim://second")
NO_LOCK = "none://"
SHARED_LOCK = "sim://shared?key=table"  # with writers of another engine
LOG_EPOCHS = (1, 10)
BUCKETS = (None, 2)
MIXES: dict[str, dict[str, int]] = {
    "mixed": {
        "append": 6, "upsert": 4, "insert": 3, "insert_overwrite": 3,
        "insert_overwrite_table": 1, "delete_partition": 1, "change_mind": 1,
    },
    "bank": {"transfer": 8, "append": 1, "insert_overwrite": 1},
    "rows": {"upsert": 6, "pay": 4, "transfer": 1, "insert": 1, "insert_overwrite": 1},
    "counter": {"increment": 8, "insert": 1},
    "skew": {"skew": 6, "append": 1, "insert": 1},
    "streams": {"event": 8, "remove": 3, "several": 3, "again": 2, "declare": 1},
    "overwrites": {"event": 8, "remove": 2, "several": 2, "again": 2, "declare": 1, "replace": 4, "drop_partition": 1},
    "appends": {"put": 6, "take": 2, "both": 2, "set_where": 2},
    "columns": {"put": 6, "drop": 3, "take": 1, "set_where": 1},
    "buckets": {"put": 6, "take": 1},
    "apart": {"insert": 6, "append": 5, "upsert": 2, "skew": 2, "insert_overwrite": 1, "change_mind": 1},
    "keys": {"insert_rows": 5, "upsert_rows": 5, "append": 1, "upsert": 1, "insert_overwrite": 1},
    "gone": {"insert_rows": 4, "upsert_rows": 5, "remove_rows": 3},
}  # fmt: skip
STREAMING = ("streams", "overwrites")


_SCALE = {"outage": 0.25, "forget": 10.0}  # one is long, the other strikes at one step only


def _some_faults(luck: random.Random) -> dict[str, float]:
    """None, some that strike anywhere, or some that often strike at one step: what needs three of them is found so."""
    how = luck.choice(("none", "anywhere", "anywhere", "aimed", "aimed"))
    if how == "none":
        return {}
    if how == "anywhere":
        rate = luck.choice((0.003, 0.01, 0.03))
        return {fault: rate * _SCALE.get(fault, 1) for fault in luck.sample(FAULTS, 5)}
    steps = luck.sample(PROTOCOL_STEPS, 3)
    return {f"{luck.choice(faults_of(step))} at {step}": luck.choice((0.05, 0.2, 0.2)) for step in steps}


@dataclass(frozen=True)
class Shape:
    """``threads`` of one process share a handle. ``admin``: somebody changes locks and settings and cleans meanwhile.
    ``reserve``: how many of the transactions reserve something as they begin. ``keepers``: processes that clean old
    slices, cluster, make savepoints and restore. ``readers``: processes that read under a lease. ``unique``: the column
    with this name in it is under a unique constraint. ``power_cut``: at the end some names are lost that nobody has flushed.
    ``buckets``: the table has a bucket index with so many. ``merge_on_read``: it has log files, and only services work on it.
    ``appends``: it has, and writers append more of them, of rows that go ``by_events`` or by commits (`row_tables`).
    ``streams``: they are events of streams, of which so many sets are declared to begin with (`stream_tables.SETS`).
    ``batches``: most transactions are numbered batches, many of them sent again.
    ``strangers``: so many processes of another engine write beside ours (`strangers`).
    ``coordinators``: so many processes begin and commit for the writers that ask them (`coordinators`).
    ``at_once``: the instants of an entry are published in any order, and no reader of the timeline is judged meanwhile.
    ``far``: the store is no local disk, so entries of the log are read ahead.
    ``tables``: with several it is a bank over so many (`bank`), of which some are now and then ``restores``."""

    seed: int
    writers: int = 2
    transactions: int = 1
    threads: int = 1
    groups: int = 2
    mix: str = "mixed"
    lock: str = NO_LOCK
    isolation: str = "snapshot"
    admin: bool = False
    reserve: float = 0.0
    faults: dict[str, float] = field(default_factory=dict)
    crashes: int = 0
    skew_s: float = 0.0
    drift: float = 0.0
    epoch_slots: int = 1000
    log_epochs: int = 10
    keepers: int = 0
    readers: int = 0
    unique: bool = False
    power_cut: bool = False
    bucket_count: int | None = None
    merge_on_read: bool = False
    appends: bool = False
    by_events: bool = False
    streams: int = 0
    batches: bool = False
    far: bool = False
    strangers: int = 0
    coordinators: int = 0
    at_once: bool = False
    tables: int = 1
    restores: bool = False

    @classmethod
    def of(cls, seed: int) -> Shape:
        luck = random.Random(seed * 7919 + 1)
        shape = cls(
            seed=seed,
            writers=luck.choice((2, 2, 2, 3)),
            transactions=luck.choice((1, 1, 2)),
            threads=luck.choice((1, 1, 1, 1, 2)),
            groups=luck.choice((1, 2, 2, 3)),
            mix=luck.choice(("mixed", "mixed", "rows", "rows", "bank", "counter", "skew", "keys", "keys")),
            lock=luck.choice((NO_LOCK, *LOCKS)),
            isolation=luck.choice(("snapshot", "snapshot", "write-serializable", "serializable")),
            admin=luck.random() < 0.12,
            reserve=luck.choice((0.0, 0.0, 0.3)),
            faults=_some_faults(luck),
            crashes=luck.randint(0, 2),
            skew_s=luck.choice((0.0, 0.0, 5.0, 7200.0)),
            drift=luck.choice((0.0, 0.0, 0.0005)),
            epoch_slots=luck.choice((1000, 1000, 12, 5)),
            log_epochs=luck.choice(LOG_EPOCHS),
            keepers=luck.choice((0,) * 27 + (1, 1, 2)),
            readers=luck.choice((0,) * 9 + (1,)),
            unique=luck.random() < 0.1,
            power_cut=luck.random() < 0.3,
            bucket_count=luck.choice((None, None, None, 2)),
            batches=random.Random(seed * 31 + 5).random() < 0.25,
            far=random.Random(seed * 7919 + 2).random() < 0.5,  # by itself: what else a seed means stays
        )
        if shape.mix == "keys" and random.Random(seed * 7919 + 6).random() < 0.4:
            shape = replace(shape, mix="gone")
        if random.Random(seed * 7919 + 7).random() < 0.04:
            return shape.beside()
        if luck.random() < 0.02:
            return shape.only_services()
        if luck.random() < 0.02:
            shape = shape.appending(by_events=luck.random() < 0.5)
            return (shape.dropping(), shape.rebucketing(), shape)[seed % 3]
        return shape.streaming() if luck.random() < 0.02 else shape

    def coordinated(self) -> Shape:
        """With a coordinator or two, which most writers ask; half of these schedules have faults where that is done."""
        luck = random.Random(self.seed * 7919 + 8)
        shape = self.crowded() if luck.random() < 0.6 and self.writers else self.alone()
        steps = luck.sample(COORDINATOR_STEPS, 2)
        aimed = {f"{luck.choice(faults_of(step))} at {step}": luck.choice((0.1, 0.3)) for step in steps}
        faults = shape.faults | aimed if shape.faults and luck.random() < 0.5 else shape.faults
        crashes = shape.crashes + luck.choice((0, 2)) if faults else shape.crashes
        at_once = shape.far and luck.random() < 0.3
        return replace(shape, coordinators=luck.choice((1, 1, 2)), faults=faults, crashes=crashes, at_once=at_once)

    def several(self) -> Shape:
        """A bank over two or three tables; half of these schedules have faults where tables are prepared and settled."""
        luck = random.Random(self.seed * 7919 + 9)
        steps = (
            luck.sample((*SEVERAL_STEPS, "put commit", "put rollback", "put abort"), 2) if luck.random() < 0.5 else ()
        )
        aimed = {f"{luck.choice(faults_of(step))} at {step}": luck.choice((0.05, 0.2)) for step in steps}
        return replace(
            Shape(self.seed),
            tables=luck.choice((2, 2, 3)),
            writers=luck.choice((2, 2, 3)),
            transactions=self.transactions,
            groups=luck.choice((1, 2)),
            lock=luck.choice((NO_LOCK, LOCKS[0])),
            faults=self.faults | aimed,
            crashes=self.crashes + luck.choice((0, 1)),
            skew_s=self.skew_s,
            drift=self.drift,
            epoch_slots=self.epoch_slots,
            log_epochs=self.log_epochs,
            far=self.far,
            restores=luck.random() < 0.2,
        )

    def beside(self) -> Shape:
        """Beside another engine, as far as its contract goes: with its clocks, and a lock that forgets nobody."""
        faults = {name: rate for name, rate in self.faults.items() if not name.startswith(("jump", "forget"))}
        return replace(
            self,
            strangers=1 + self.seed % 2,
            lock=SHARED_LOCK,
            faults=faults,
            bucket_count=None,
            merge_on_read=False,
            appends=False,
            streams=0,
            unique=False,
            admin=False,
            mix="mixed" if self.mix in ("appends", "buckets", "columns", "keys", *STREAMING) else self.mix,
            skew_s=min(self.skew_s, 0.09),
            drift=0.0,
        )

    def alone(self) -> Shape:
        """The same without another engine."""
        return replace(self, strangers=0, lock=LOCKS[self.seed % 2]) if self.strangers else self

    def crowded(self) -> Shape:
        """The same, with so many writers that most of them wait."""
        if not self.writers:  # there nobody waits
            return replace(self, writers=2, merge_on_read=False, keepers=1).crowded()
        mix = self.mix if self.appends or self.seed % 4 == 0 else "apart"
        # Without faults nobody may wait too long for the lock; of so many somebody does where an admin bounds that at 5 s.
        admin = self.admin and bool(self.faults)
        lock = LOCKS[self.seed % 2] if self.lock in (NO_LOCK, SHARED_LOCK) else self.lock
        more = {"writers": 4 + self.seed % 3, "transactions": 2, "groups": 3}
        return replace(self.alone(), **more, lock=lock, mix=mix, admin=admin)

    def appending(self, *, by_events: bool | None = None) -> Shape:
        """On a merge-on-read table to which its writers append, beside services."""
        return replace(
            self.alone(),
            merge_on_read=True,
            appends=True,
            by_events=bool(self.seed % 2) if by_events is None else by_events,
            mix="appends",
            isolation="snapshot",
            keepers=1,
            unique=False,
            admin=False,
            reserve=0.0,
        )

    def dropping(self) -> Shape:
        """The same on a table of which a column is dropped."""
        return replace(self.appending(), mix="columns", streams=0)

    def rebucketing(self) -> Shape:
        """The same on a table whose number of buckets changes."""
        return replace(self.appending(), mix="buckets", streams=0, bucket_count=2)

    def streaming(self) -> Shape:
        """On a table with streams, of which writers send events, beside services."""
        return replace(
            self.appending(by_events=False),
            mix="overwrites" if random.Random(self.seed * 31 + 13).random() < 0.4 else "streams",
            admin=self.admin,
            streams=1 + self.seed % 4 if random.Random(self.seed * 31 + 11).random() < 0.6 else 5 + self.seed % 3,
            bucket_count=1 + self.seed % 2,
            writers=max(self.writers, 2 + self.seed % 3 // 2),
        )

    def only_services(self) -> Shape:
        """On a merge-on-read table, whose rows another engine writes and which is compacted here."""
        return replace(
            self.alone(),
            merge_on_read=True,
            writers=0,
            keepers=2,
            readers=1,
            bucket_count=None,
            unique=False,
            groups=min(self.groups, 2),
        )

    def smaller(self) -> Iterator[Shape]:
        """Shapes with one thing less, those first that make the trace much shorter."""
        for name, least in (
            ("writers", 1),
            ("keepers", 0),
            ("readers", 0),
            ("strangers", 1 if self.strangers else 0),
            ("tables", 2 if self.tables > 1 else 1),
            ("coordinators", 1 if self.coordinators else 0),
            ("threads", 1),
            ("transactions", 1),
            ("groups", 1),
            ("crashes", 0),
        ):
            value: int = getattr(self, name)
            for less in sorted({least, value - 1}):
                if least <= less < value:
                    yield replace(self, **{name: less})
        for kind in self.faults:
            yield replace(self, faults={k: v for k, v in self.faults.items() if k != kind})
        plain = Shape(self.seed)
        for name in (
            "admin",
            "batches",
            "power_cut",
            "bucket_count",
            "unique",
            "drift",
            "skew_s",
            "epoch_slots",
            "log_epochs",
            "reserve",
            "far",
            "restores",
            *(() if self.strangers else ("lock",)),
            "isolation",
            "mix",
        ):
            if getattr(self, name) != getattr(plain, name):
                yield replace(self, **{name: getattr(plain, name)})
