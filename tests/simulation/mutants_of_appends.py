"""Mutants of appending log files: who may (`occ/rebase/replay_rows.py`), where they lie, and what wants a base file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

from lakelatch.conflict.operations import COMPLETED, Kind
from lakelatch.hudi.timeline import snapshot
from lakelatch.occ.landing import landing, validator
from lakelatch.occ.rebase import replay_rows
from lakelatch.occ.services import log_compaction
from lakelatch.occ.staging import apply_rows
from lakelatch.occ.writing import row_writes

from . import upkeep
from .mutant import Patches, method, mutant
from .shape import Shape


def _appends(shape: Shape) -> Shape:
    return replace(shape.appending(), writers=3, bucket_count=1, streams=0)


def _by_events(shape: Shape) -> Shape:
    return replace(_appends(shape), by_events=True)


@mutant(_appends)
def rows_that_others_changed_are_not_looked_at() -> Patches:
    """Two transactions may append to one file group whatever rows they change."""
    return [mock.patch.object(owner, "refuse_same_rows") for owner in (replay_rows, row_writes)]


@mutant(_by_events)
def ties_need_no_order() -> Patches:
    """Rows with equal ordering values stand, whichever of the two landed first."""
    return [mock.patch.object(replay_rows, "_differ", return_value=True)]


@mutant(_by_events)
def a_row_that_comes_back_is_appended() -> Patches:
    """A row that a log file had deleted is written into another one, where an older version in the base file beats it."""
    return [mock.patch.object(apply_rows, "_has_reinserted", return_value=False)]


@mutant(_by_events)
def an_older_value_is_appended() -> Patches:
    """What was read and became older stands in a log file, which readers merge by age."""
    return [mock.patch.object(apply_rows, "_older", return_value=set[str]())]


@mutant(lambda shape: replace(_appends(shape), bucket_count=None))
def nobody_covers_log_files() -> Patches:
    """What replaces file groups has log files as well, and is the newest by T: a compaction of Hudi's skips them."""
    return [mock.patch.object(landing, "cover_log_files")]


@mutant(lambda shape: replace(_appends(shape), keepers=2))
def a_log_file_lies_where_its_transaction_began() -> Patches:
    """A log file belongs to the base file of before its T: what lands after a compaction is lost."""

    def since(base: Any, logs: Any) -> Any:
        kept = [log for log in logs if base is None or log.instant >= base.instant]
        return tuple(sorted(kept, key=lambda log: log.order))

    return [mock.patch.object(snapshot, "_since", since)]


@mutant(
    lambda shape: replace(
        _appends(shape), keepers=4, transactions=4, groups=1, by_events=False, crashes=0, faults={}, skew_s=0.0
    )
)
def a_log_compaction_takes_in_all_that_has_landed() -> Patches:
    """A writer that is open may land below what was merged, where readers take its rows for the older ones."""
    bound = mock.patch.object(log_compaction, "_bound", lambda _session, state: f"{state.top}~")
    return [
        bound,
        mock.patch.object(upkeep, "_ACTS_OF_APPENDS", {"compact_logs": 1}),
    ]  # as long as nothing is compacted


@mutant(lambda shape: replace(_appends(shape), keepers=2, bucket_count=None))
def a_clustering_and_an_append_do_not_meet() -> Patches:
    """A log file may land on a file group that a clustering has replaced, and a clustering after it."""
    both: Mapping[Any, str] = {(Kind.APPEND, Kind.CLUSTERING): ".", (Kind.CLUSTERING, Kind.APPEND): "."}
    return [mock.patch.dict(COMPLETED, both)]


@mutant(lambda shape: replace(shape.dropping(), writers=3, bucket_count=1, streams=0))
def rows_land_behind_the_drop_of_their_column() -> Patches:
    """What a transaction relied on of the columns is not looked at where it commits."""
    return [mock.patch.object(validator, "dropped_since", return_value=())]


@mutant(lambda shape: replace(shape.rebucketing(), writers=3, keepers=2, transactions=3))
def rows_land_behind_another_number_of_buckets() -> Patches:
    """The number of buckets by which a transaction has placed its rows is not looked at where it commits."""

    def make(real: Any) -> Any:
        def refuse(self: Any, settings: Any, instant: str, dropped: Any) -> None:
            real(self, replace(settings, bucket_count=self._began.bucket_count), instant, dropped)

        return refuse

    return [method(validator.CommitValidator, "_refuse_new_promises", make)]
