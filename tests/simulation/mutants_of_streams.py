"""Mutants of streams: the order of events, what each does, what a compaction keeps of them (`streams/`, `occ/services/`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from lakelatch.conflict.operations import COMPLETED, Kind
from lakelatch.hudi.files import LogFile
from lakelatch.hudi.files.file_names import new_file_id
from lakelatch.hudi.timeline.snapshot import TimelineView
from lakelatch.occ.services import compaction
from lakelatch.occ.staging import stream_files
from lakelatch.occ.writing import stream_writes
from lakelatch.streams import CLEARED, DELETED, events, merge

from .mutant import Patches, method, mutant
from .shape import Shape


def _streams(shape: Shape) -> Shape:
    """All of them declared, one bucket: what events do to each other."""
    return replace(shape.streaming(), streams=1, bucket_count=1, writers=3, transactions=2)


def _kept(shape: Shape) -> Shape:
    return replace(_streams(shape), keepers=2)


def _in_order(key: Callable[[LogFile], Any]) -> Patches:
    return [mock.patch.object(events, "slot_order", key)]


@mutant(_streams)
def events_are_merged_by_requested_time() -> Patches:
    """Events are merged in the order in which their writers began."""
    return _in_order(lambda log: (log.instant, log.version, log.write_token))


@mutant(_streams)
def the_writes_of_one_commit_change_places() -> Patches:
    """What a transaction writes later is merged first."""
    return _in_order(lambda log: (log.completed, -log.version, log.write_token))


@mutant(_kept)
def a_compaction_knows_no_completion_times() -> Patches:
    """A compaction merges log files in another order than readers do."""

    def make(real: Any) -> Any:
        return lambda partition, names, *_: real(partition, names)

    return [method(compaction, "slices_of", make)]


@mutant(_kept)
def what_lands_beside_a_plan_is_in_no_base_file() -> Patches:
    """An event that completes while a compaction is planned belongs to the slice before it, and the plan lacks it."""
    return [mock.patch.object(compaction, "grown", lambda content, *_: content)]


@mutant(_kept)
def a_compaction_forgets_who_was_deleted() -> Patches:
    """Keys without a row keep no ordering values, so what is older than a delete counts after a compaction."""
    return [mock.patch.object(compaction, "floors_to_footer", return_value={})]


@mutant(_streams)
def a_late_event_counts() -> Patches:
    """An event counts although its stream has had a newer one."""

    def advance(self: Any, keys: Any, at: Any) -> Any:
        self._set(keys, at)
        return np.ones(len(at), bool)

    return [mock.patch.object(merge._Order, "advance", advance)]


@mutant(_streams)
def the_first_of_equal_events_stands() -> Patches:
    """Of equal ordering values the one that landed first counts."""

    def advance(self: Any, keys: Any, at: Any) -> Any:
        wins = self._ranked[at] > self.ranks[keys]
        self._set(keys[wins], at[wins])
        return wins

    return [mock.patch.object(merge._Order, "advance", advance)]


@mutant(_streams)
def a_clear_takes_the_row() -> Patches:
    """A stream that only empties its columns takes the row away."""
    return [mock.patch.object(stream_writes, "CLEARED", DELETED)]


@mutant(_streams)
def a_clear_does_not_wait_for_its_stream() -> Patches:
    """What empties the columns of a stream sets no bound: what is older counts after it."""

    def make(real: Any) -> Any:
        def apply(self: Any, number: int, block: Any) -> None:
            order = self._orders[block.stream.name]
            before = order.ranks.copy(), order._places.copy()
            real(self, number, block)
            if block.note.kind == CLEARED:
                order.ranks, order._places = before

        return apply

    return [method(merge._Slice, "apply", make)]


@mutant(_streams)
def a_default_is_written_over_a_value() -> Patches:
    """Defaults are for rows that appear; here every event of one stream sets those of all."""

    def make(real: Any) -> Any:
        def upsert(self: Any, block: Any, keys: Any, at: Any) -> None:
            self._there[keys] = False
            real(self, block, keys, at)

        return upsert

    return [method(merge._Slice, "_upsert", make)]


@mutant(_streams)
def defaults_count_for_what_was_before_them() -> Patches:
    """A default is for rows that appear after it was declared."""

    def defaulted(stream: Any, name: str, _: Any) -> bool:
        return any(each.column == name for each in stream.defaults)

    return [mock.patch.object(merge._Slice, "_defaulted", staticmethod(defaulted))]


@mutant(_streams)
def a_null_takes_the_place_of_a_value() -> Patches:
    """A null that leaves what was there is written instead."""
    return [mock.patch.object(merge, "KEEP", "")]


@mutant(_streams)
def a_row_comes_back_with_the_values_it_had() -> Patches:
    """A delete of the row leaves the values of the other streams, and they are there when it comes back."""

    def make(real: Any) -> Any:
        def apply(self: Any, number: int, block: Any) -> None:
            values = {name: places.copy() for name, places in self._places.items()}
            real(self, number, block)
            if block.note.kind == DELETED:
                for name, places in values.items():
                    self._places[name][:] = places

        return apply

    return [method(merge._Slice, "apply", make)]


@mutant(_streams)
def the_log_files_of_aborted_writers_are_read() -> Patches:
    """A log file counts whose transaction has not landed."""

    def make(real: Any) -> Any:
        def completion_of(self: TimelineView, file: Any) -> str | None:
            return real(self, file) or (file.instant if isinstance(file, LogFile) else None)

        return completion_of

    return [method(TimelineView, "completion_of", make)]


@mutant(lambda shape: replace(_streams(shape), bucket_count=2))
def every_writer_names_the_first_file_of_a_bucket() -> Patches:
    """Two writers that begin a bucket at once begin two file groups."""
    numbers = itertools.count(1)

    def named(_: str, *, bucket: int) -> str:
        return new_file_id(f"00000000-0000-0000-0000-{next(numbers):012d}", bucket=bucket)

    return [mock.patch.object(stream_files, "new_file_id", named)]


@mutant(_streams)
def of_a_batch_the_last_event_counts() -> Patches:
    """Of several events of one key in one write the last one counts, and not the newest."""

    def folded(rows: Any, *_: Any) -> Any:
        keys = rows.column("_hoodie_record_key").to_pylist()
        return rows.take(sorted({key: at for at, key in enumerate(keys)}.values()))

    return [mock.patch.object(stream_files, "folded", folded)]


@mutant(_streams)
def events_of_one_bucket_conflict() -> Patches:
    """Streams meet as other writers do, and one of two loses."""
    return [mock.patch.dict(COMPLETED, {(Kind.STREAM, Kind.STREAM): "x"})]
