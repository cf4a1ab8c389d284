"""What `Table.why` says would have helped is tried: the same two transactions again, with that one thing changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.history import Account

from ...thorough import some

Write = Callable[[lakelatch.Transaction, str], None]
MERGES_AGAIN = {"upsert a0", "upsert a1", "upsert new", "delete a0", "delete where"}


def rows(*ids: str, v: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "day": ["a"] * len(ids), "v": [v] * len(ids)})


def rewrite(txn: lakelatch.Transaction, who: str) -> None:
    for group in txn.snapshot.file_slices("day=a"):
        old = txn.read_slice(group)
        txn.rewrite(group).write(old.set_column(2, "v", pa.array([len(who)] * old.num_rows, pa.int64())))


def overwrite(txn: lakelatch.Transaction, who: str) -> None:
    txn.overwrites("day=a")
    txn.drop_file_groups(txn.snapshot.file_slices("day=a"))
    txn.new_file("day=a").write(rows(f"only {who}"))


def guarded(txn: lakelatch.Transaction, who: str) -> None:
    txn.depends_on("day=a")
    txn.new_file("day=b").write(pa.table({"id": [f"b {who}"], "day": ["b"], "v": [1]}))


WRITES: dict[str, tuple[str, Write]] = {
    "upsert a0": ("upsert", lambda txn, who: txn.upsert(rows("a0", v=len(who)))),
    "upsert a1": ("upsert", lambda txn, who: txn.upsert(rows("a1", v=len(who)))),
    "upsert new": ("upsert", lambda txn, who: txn.upsert(rows(f"new {who}"))),
    "insert": ("insert", lambda txn, who: txn.new_file("day=a").write(rows(f"new {who}"))),
    "insert same": ("insert", lambda txn, _who: txn.new_file("day=a").write(rows("same"))),
    "delete a0": ("delete", lambda txn, _who: txn.delete(rows("a0").drop_columns(["v"]))),
    "delete where": ("delete", lambda txn, _who: txn.delete_where([("v", "<", 1)])),
    "rewrite": ("upsert", rewrite),
    "overwrite": ("insert_overwrite", overwrite),
    "guarded": ("upsert", guarded),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partition *a* with one file group of four rows."""
    folder = tmp_path_factory.mktemp("ways") / "base"
    with (
        lakelatch.create(str(folder), record_key="id", partition_by="day", lock="none://", yield_wait_s=0.02) as table,
        table.transaction("insert") as txn,
    ):
        txn.upsert(rows("a0", "a1", "a2", "a3", v=0))
    return folder


class Pair:
    """Fresh copies of one table, on which the same two transactions meet."""

    def __init__(self, base: Path, folder: Path, mine: str, other: str) -> None:
        self._base, self._folder, self._count = base, folder, 0
        self.mine, self.other = mine, other

    def table(self, **settings: object) -> lakelatch.Table:
        self._count += 1
        place = self._folder / f"t{self._count}"
        shutil.copytree(self._base, place)
        table = lakelatch.open(str(place))
        if settings:
            table.change_settings(**settings)
        return table

    def begin(self, table: lakelatch.Table, what: str, **more: object) -> lakelatch.Transaction:
        return table.transaction(WRITES[what][0], **more)

    def meet(self, table: lakelatch.Table, **more: object) -> tuple[str, lakelatch.ConflictError | None]:
        """Ours begins and writes, the other lands, ours commits."""
        ours, theirs = self.begin(table, self.mine, **more), self.begin(table, self.other)
        WRITES[self.mine][1](ours, "ours")
        WRITES[self.other][1](theirs, "theirs")
        theirs.commit()
        return ours.instant, lost(ours)

    def reserved(self, table: lakelatch.Table, *, wait: bool) -> tuple[lakelatch.ConflictError | None, ...]:
        """Ours has reserved its place; the other commits while it is open (``wait``), or after it."""
        return self.first(table, wait=wait, reserve=["day=a"])

    def first(
        self, table: lakelatch.Table, *, wait: bool, other: lakelatch.Table | None = None, **more: object
    ) -> tuple[lakelatch.ConflictError | None, ...]:
        """Both have begun and written; the other commits while ours is open (``wait``), or after it."""
        ours, theirs = self.begin(table, self.mine, **more), self.begin(other or table, self.other)
        WRITES[self.mine][1](ours, "ours")
        WRITES[self.other][1](theirs, "theirs")
        if wait:
            return lost(theirs), lost(ours)
        return tuple(reversed((lost(ours), lost(theirs))))


def lost(txn: lakelatch.Transaction) -> lakelatch.ConflictError | None:
    try:
        txn.commit()
    except lakelatch.ConflictError as error:
        return error
    return None


def losses() -> Iterator[tuple[str, str, bool]]:
    for mine in WRITES:
        for other in WRITES:
            for rebase in (True, False):
                if rebase or MERGES_AGAIN & {mine, other}:
                    yield mine, other, rebase


@pytest.mark.parametrize(("mine", "other", "rebase"), some(losses(), 24))
def test_what_would_have_helped_helps(base: Path, folder: Path, mine: str, other: str, rebase: bool) -> None:
    pair = Pair(base, folder, mine, other)
    with pair.table(**({} if rebase else {"rebase": False})) as table:
        instant, error = pair.meet(table)
        if error is None:
            assert table.why(instant).outcome in ("landed", "aborted")  # others had done the same
            return
        account = table.why(instant)
        ways = {way.change: way for way in account.ways}
        assert account.rule == error.rule
        assert account.ways, "there is always a way"
        # To run it again is one, unless the same rows would stand twice.
        again = pair.begin(table, mine)
        if account.ways[-1].change == "order":
            WRITES[mine][1](again, "ours")
            assert lost(again) is None
        else:
            assert account.ways[-1].value == "upsert"
            assert not error.retryable
    if "merging" in ways and ways["merging"].value == "rebase=true":
        with pair.table(rebase=True) as table:
            after = pair.meet(table)[1]
            assert after is None or (
                after.rule == "both changed the same row" and "different rows" in ways["merging"].how
            )
    if "priority" in ways:
        _try_priority(pair, account, rebase=rebase)
    if "reservation" in ways and mine != "guarded":
        _try_reservation(pair, account, rebase=rebase)


def _try_priority(pair: Pair, account: Account, *, rebase: bool) -> None:
    way = next(each for each in account.ways if each.change == "priority")
    settings: dict[str, object] = {"strategy": "priority"} | ({} if rebase else {"rebase": False})
    for wait in (True, False):
        with pair.table(**settings) as table, lakelatch.open(table.url, priority=int(way.value)) as first:
            theirs, ours = pair.first(first, wait=wait, other=table)
            assert ours is None
            if wait:
                assert theirs is not None
                assert "yields to" in theirs.rule
            elif way.lands == "ours" and "merged again or" not in way.how:
                assert theirs is not None


def _try_reservation(pair: Pair, account: Account, *, rebase: bool) -> None:
    way = next(each for each in account.ways if each.change == "reservation")
    settings: dict[str, object] = {} if rebase else {"rebase": False}
    with pair.table(**settings) as table:
        theirs, ours = pair.reserved(table, wait=True)
        assert theirs is not None
        assert "has reserved" in theirs.rule
        assert ours is None
    with pair.table(**settings) as table:
        theirs, ours = pair.reserved(table, wait=False)
        assert ours is None
        if way.lands == "ours" and "merged again or" not in way.how:
            assert theirs is not None
        elif theirs is not None:  # only one that does not merge again, or that changed the same rows
            assert pair.other not in MERGES_AGAIN or theirs.rule == "both changed the same row"
            assert way.lands == "ours" or "is merged again" in way.how
