"""Lay a filled table out in another number of buckets, or in its first (`Table.change_buckets`).

    buckets   one clustering of all partitions that are not in so many buckets. Its commit also sets the number, so no reader
              and no writer meets rows out of their buckets. It loses to whatever wrote rows since it was planned
    simple    clusterings, beside writers, for a simple index finds rows in any files; then one entry sets the number, unless
              rows were written since they were looked at

Each state between is a sound table. Transactions that began under another number do not commit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...errors import ConfigError, ConflictError
from ...progress import Reporter
from ..services import SERVICES, Runner, find_buckets, out_of_buckets, perform
from ..session import Session
from ..workspace import constrained

_TRIES = 5


@dataclass(frozen=True, slots=True)
class BucketChange:
    """The change of a table's number of buckets.

    Attributes:
        before: the number before; None: the table had a simple index.
        bucket_count: the number then.
        partitions: the number of partitions whose rows are written again.
        files: how many data files are read and replaced.
        bytes: their size.
        done: True if the table has so many buckets now.
    """

    before: int | None
    bucket_count: int
    partitions: int
    files: int
    bytes: int
    done: bool


def planned_buckets(session: Session, count: int) -> BucketChange:
    """Return what `change_buckets` would do; reads keys. Errors as there."""
    session.require_log()
    session.refuse_if_unwritable()
    settings = session.log.catch_up().settings
    settings.changed(bucket_count=count)
    if settings.timeline_first:
        raise ConfigError(
            f"{session.url} has neighbours={settings.neighbours}: JVM writers have a number of buckets of their own, and would "
            "go on writing into the old ones. Nothing was changed. Stop them, set neighbours=none, change the buckets, and start "
            "them with hoodie.bucket.index.num.buckets of then",
            setting="neighbours",
        )
    if settings.bucket_count == count:
        return BucketChange(count, count, 0, 0, 0, done=True)
    found = list(out_of_buckets(session, session.snapshot().file_slices(), count))
    slices = [each for _, some in found for each in some]
    files, size = sum(len(each.paths) for each in slices), sum(each.total_size for each in slices)
    return BucketChange(settings.bucket_count, count, len(found), files, size, done=False)


def change_buckets(session: Session, count: int, report: Reporter, runner: Runner) -> BucketChange:
    """Carry `planned_buckets` out, and return it as it was before. See `Table.change_buckets`."""
    plan, last = planned_buckets(session, count), None
    for _ in range(_TRIES):
        if session.settings.bucket_count == count:
            return replace(plan, done=True)
        try:
            find = lambda state: find_buckets(session, state, count)  # noqa: E731
            perform(session, SERVICES["CLUSTER"], find, report, runner=runner)
            if session.log.catch_up().settings.bucket_count != count:
                constrained(session, {"bucket_count": count})
        except ConflictError as e:  # a plan has lost to rows that were written meanwhile
            if not e.winner:
                raise
            last = e
        except ConfigError as e:  # rows were written meanwhile into other files than buckets
            if e.path is None:
                raise
        else:
            return replace(plan, done=True)
    raise ConflictError.without_winner(
        f"{session.url}: others wrote rows meanwhile, {_TRIES} times, so its number of buckets is as before. No row was lost: "
        "pause writers that insert rows, then try again",
        table=session.url,
        instant="",
        rule="a table gets buckets when its rows lie in them, and nobody has written since they were looked at",
    ) from last
