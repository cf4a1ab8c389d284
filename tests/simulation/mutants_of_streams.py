"""Mutants of streams: the order of events, what each does, what a compaction keeps of them (`streams/`, `occ/services/`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from lakelatch.conflict.operations import COMPLETED, INGESTION, Kind
from lakelatch.hudi.files import LogFile
from lakelatch.hudi.files.file_names import new_file_id
from lakelatch.hudi.timeline.snapshot import TimelineView
from lakelatch.occ.landing import validator
from lakelatch.occ.services import compaction, rewriting
from lakelatch.occ.session import Session
from lakelatch.occ.staging import stream_files
from lakelatch.occ.writing import stream_writes
from lakelatch.streams import CLEARED, DELETED, UPSERT, events, kept, merge

from .mutant import Patches, method, mutant
from .shape import Shape


def _streams(shape: Shape) -> Shape:
    """All of them declared, one bucket: what events do to each other."""
    return replace(shape.streaming(), streams=1, bucket_count=1, writers=3, transactions=2)


def _merging(shape: Shape) -> Shape:
    """With sums, whose columns their own stream empties, or the delete of another one."""
    return replace(_streams(shape), streams=5 + shape.seed % 2, keepers=1 + shape.seed % 2)


def _kept(shape: Shape) -> Shape:
    return replace(_streams(shape), keepers=2)


def _by_id(shape: Shape) -> Shape:
    """With a stream that keeps its events and takes some back, and compactions."""
    return replace(_streams(shape), streams=7, keepers=1 + shape.seed % 2)


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


@mutant(lambda shape: replace(_streams(shape), streams=4))
def the_properties_are_written_once() -> Patches:
    """A table that has streams gets no more of them into its properties, where a lost log is looked for."""

    def make(real: Any) -> Any:
        return lambda self: None if self.config.for_streams else real(self)

    return [method(Session, "secure_streams", make)]


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
    return [mock.patch.object(rewriting, "floors_to_footer", return_value={})]


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

    def default_at(stream: Any, name: str, _: Any) -> int:
        some = [number for number, each in enumerate(stream.defaults) if each.column == name]
        return merge._DEFAULT - some[-1] if some else merge._NULL

    return [mock.patch.object(merge._Slice, "_default_at", staticmethod(default_at))]


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

    return [mock.patch.object(events, "folded", folded)]


@mutant(_streams)
def events_of_one_bucket_conflict() -> Patches:
    """Streams meet as other writers do, and one of two loses."""
    both_compared = mock.patch("lakelatch.conflict.resolve.INDIFFERENT", frozenset())
    return [mock.patch.dict(COMPLETED, {(Kind.STREAM, Kind.STREAM): "x"}), both_compared]


def _over(shape: Shape) -> Shape:
    """With overwrites among the events, and compactions."""
    return replace(_streams(shape), mix="overwrites", keepers=shape.seed % 2)


@mutant(_over)
def an_overwrite_does_not_look_at_events() -> Patches:
    """What a stream has had since an overwrite began is replaced unseen, or stays where nothing was to stay."""

    def make(real: Any) -> Any:
        def resolve(ours: Any, reads: Any, candidates: Any, **more: Any) -> Any:
            unseen = INGESTION - {Kind.OVERWRITE} if ours.kind is Kind.OVERWRITE else ()
            met = [each for each in candidates if each.kind not in unseen]
            return real(ours, reads, met, **more)

        return resolve

    return [method(validator, "resolve", make)]


@mutant(lambda shape: replace(_over(shape), streams=2))
def an_overwrite_lands_behind_new_defaults() -> Patches:
    """The rows that an overwrite makes have the defaults of its begin, and lack those that were declared since."""
    return [method(validator, "outdated", lambda real: lambda began, now, **_: real(began, now, overwrites=False))]


# --- columns with a merger ----------------------------------------------------------------------------------------------


@mutant(_merging)
def a_late_event_contributes_nothing() -> Patches:
    """Columns with a merger pass over late events, as others do: what a row adds up to depends on the order of arrival."""
    return [method(merge._Order, "counts", lambda _: lambda self, keys, at: self._ranked[at] >= self.ranks[keys])]


@mutant(_merging)
def what_is_older_than_a_clear_contributes() -> Patches:
    """An event that was sent before its column was emptied, and comes after that, counts."""
    return [method(merge._Order, "counts", lambda _: lambda self, keys, at: np.ones(len(at), bool))]


@mutant(_merging)
def a_compaction_forgets_what_was_emptied() -> Patches:
    """Base files say nothing of keys with a row, so what is older than a clear counts after a compaction."""

    def make(real: Any) -> Any:
        def floors(self: Any, settled: Any) -> Any:
            for order in self._orders.values():
                order.floors[self._there] = -1
            return real(self, settled)

        return floors

    return [method(merge._Slice, "_floors", make)]


@mutant(_merging)
def what_was_before_a_clear_still_contributes() -> Patches:
    """A clear sets a bound for what comes, and what has come already stays."""

    def make(real: Any) -> Any:
        def empty(self: Any, number: int, stream: str, keys: Any) -> None:
            real(self, number, stream, keys)
            if stream in self._emptied:
                self._emptied[stream][:] = -1

        return empty

    return [method(merge._Slice, "_empty", make)]


@mutant(lambda shape: replace(_merging(shape), streams=5))
def a_delete_empties_its_own_stream_alone() -> Patches:
    """A row comes back, and what others had contributed to it before counts again, or what was late then."""

    def make(real: Any) -> Any:
        def apply(self: Any, number: int, block: Any) -> None:
            self._deleting = block.stream.name if block.note.kind == DELETED else ""
            real(self, number, block)

        return apply

    def make_empty(real: Any) -> Any:
        def empty(self: Any, number: int, stream: str, keys: Any) -> None:
            if self._deleting in ("", stream):
                real(self, number, stream, keys)

        return empty

    return [method(merge._Slice, "apply", make), method(merge._Slice, "_empty", make_empty)]


@mutant(_merging)
def a_write_adds_up_what_came_in_different_orders() -> Patches:
    """All that one write says of a key is one event, of its newest ordering value: what was too old comes with it."""

    def make(real: Any) -> Any:
        def folded_(rows: Any, stream: Any, kind: str = UPSERT) -> Any:
            made = real(rows, stream, kind)
            if kind != UPSERT or not stream.merge or not made.num_rows:
                return made
            newest: dict[str, Any] = {}
            for row in made.to_pylist():
                newest[row["_hoodie_record_key"]] = row[stream.ordering]
            orders = [newest[row["_hoodie_record_key"]] for row in made.to_pylist()]
            place = made.schema.get_field_index(stream.ordering)
            return made.set_column(place, made.schema.field(place), [pa.array(orders, made.schema.field(place).type)])

        return folded_

    return [method(events, "folded", make)]


@mutant(_merging)
def a_default_gives_way_to_the_first_event() -> Patches:
    """A default is what merging begins with; here it is nothing, until a compaction has made a value of it."""

    def make(real: Any) -> Any:
        def merged(self: Any, name: str, there: Any) -> Any:
            given = self._given.get(name)
            if given:
                keys = np.concatenate([self._codes[each.at] for each in given])
                places = self._places[name]
                places[keys[places[keys] <= merge._DEFAULT]] = merge._NULL
            return real(self, name, there)

        return merged

    return [method(merge._Slice, "_merged", make)]


@mutant(lambda shape: replace(_merging(shape), keepers=2, writers=3, transactions=2))
def a_plan_has_a_log_file_twice() -> Patches:
    """What lands while a plan is made is in it once more where the plan has seen it already."""

    def grown(content: Any, completion: str, plain: Any) -> Any:
        apart = {**content, "groups": [{**group, "logs": [], "completed": []} for group in content["groups"]]}
        more = _GROWN(apart, completion, plain)
        if more is None:
            return None
        return {**more, "groups": [_with(a, b) for a, b in zip(content["groups"], more["groups"], strict=True)]}

    return [mock.patch.object(compaction, "grown", grown)]


@mutant(_streams)
def what_was_written_before_a_drop_lands_after_it() -> Patches:
    """An event lands by the declaration that its stream had when it was written."""
    return [mock.patch.object(validator, "outdated", return_value="")]


@mutant(_by_id)
def an_event_that_was_taken_back_counts_if_it_comes_again() -> Patches:
    """Of one id the newest entry stands; a retraction has no ordering value, so here it loses against any event."""

    def make(real: Any) -> Any:
        def settle(self: Any, emptied: Any) -> Any:
            back, self._back = self._back, [np.zeros(len(each), bool) for each in self._back]
            settled = real(self, emptied)
            self._back = back
            return replace(settled, back=np.asarray(settled.rows.column(self.stream.ordering).is_null()))

        return settle

    return [method(kept.KeptEvents, "settle", make)]


@mutant(_by_id)
def a_compaction_forgets_what_was_taken_back() -> Patches:
    """Base files keep the events that count, and no retractions: an event that comes later, or again, counts."""

    def make(real: Any) -> Any:
        def add_kept(self: Any, lists: Any, codes: Any) -> None:
            real(self, lists, codes)
            stands = np.flatnonzero(~self._back[-1])
            self._tables[-1] = self._tables[-1].take(pa.array(stands))
            for each in (self._codes, self._blocks, self._back):
                each[-1] = each[-1][stands]

        return add_kept

    return [method(kept.KeptEvents, "add_kept", make)]


@mutant(_by_id)
def a_clear_forgets_what_was_taken_back() -> Patches:
    """What empties the columns of a stream takes its retractions away with its events."""

    def make(real: Any) -> Any:
        def settle(self: Any, emptied: Any) -> Any:
            kept = [
                emptied[codes] < np.maximum(blocks, 0) for codes, blocks in zip(self._codes, self._blocks, strict=True)
            ]
            for each in (self._codes, self._blocks, self._back):
                each[:] = [values[stands] for values, stands in zip(each, kept, strict=True)]
            self._tables[:] = [rows.filter(pa.array(stands)) for rows, stands in zip(self._tables, kept, strict=True)]
            return real(self, emptied)

        return settle

    return [method(kept.KeptEvents, "settle", make)]


@mutant(_by_id)
def what_was_before_a_clear_is_kept() -> Patches:
    """A clear leaves the events that came before it."""

    def make(real: Any) -> Any:
        return lambda self, emptied: real(self, np.full(len(emptied), -1))

    return [method(kept.KeptEvents, "settle", make)]


@mutant(_by_id)
def an_event_that_comes_again_counts_again() -> Patches:
    """Events have no ids, so each that comes counts."""

    def make(real: Any) -> Any:
        def settle(self: Any, emptied: Any) -> Any:
            number = itertools.count()
            for at, rows in enumerate(self._tables):
                names = [f"{each}{next(number)}" for each in rows.column(self.stream.event_id).to_pylist()]
                place = rows.schema.get_field_index(self.stream.event_id)
                self._tables[at] = rows.set_column(place, self.stream.event_id, pa.array(names, pa.string()))
            return real(self, emptied)

        return settle

    return [method(kept.KeptEvents, "settle", make)]


_GROWN = compaction.grown


def _with(before: Any, more: Any) -> Any:
    return more | {name: [*before[name], *more[name]] for name in ("logs", "completed")}
