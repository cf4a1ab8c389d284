"""Merging new rows into old ones, with Arrow kernels: pure functions that keep the order of the rows.

Rules, the same in every writer of this library:

- without an ordering field the incoming row wins;
- with one, the row with the greater ordering value wins, and the incoming row on a tie: an older event never
  overwrites a newer one, a repeated batch changes nothing; of several the first that differs decides;
- a null ordering value is older than every value;
- one batch may hold a key twice only when there is an ordering field; the last row wins a tie.

A table may set other rules (`Rule`): the first row wins a tie, or columns have mergers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import InputError, UnsupportedTableError
from ...mergers import Rule, Ties, ages
from ..table import META_COLUMNS, RECORD_KEY, TableConfig, array_of_column, one_array, shown, wide_hashes

# Texts as codes of a dictionary, from the file that is read to the file that is written.
#
# A column of few distinct texts is stored as a dictionary and codes. Reading, moving and writing the codes saves most of a
# rewrite's cost for such columns: no text is made, copied or looked up.

TEXTS = pa.dictionary(pa.int32(), pa.string())
_DICTIONARY = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})


def stored_texts(metadata: pq.FileMetaData, *, but: Collection[str] = ()) -> list[str]:
    """Return the text columns that every row group stores with a dictionary. Asking Arrow for a dictionary of others costs
    more.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    without = {
        chunk.path_in_schema
        for group in groups
        for chunk in map(group.column, range(group.num_columns))
        if _DICTIONARY.isdisjoint(chunk.encodings)
    }
    texts = (field.name for field in metadata.schema.to_arrow_schema() if pa.types.is_string(field.type))
    return [name for name in texts if name not in without and name not in but]


def holds(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of ``kind`` are those of ``wanted``; texts may be in a dictionary."""
    texts = pa.types.is_string(wanted) and pa.types.is_dictionary(kind)
    return bool(kind == wanted or (texts and kind.value_type == wanted))


def plain(column: Any) -> Any:
    """Return the column without a dictionary."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def cast(column: Any, kind: pa.DataType) -> Any:
    """Return the column in this type, which may be a dictionary."""
    if column.type == kind:
        return column
    if not pa.types.is_dictionary(kind):
        return column.cast(kind)
    return plain(column).cast(kind.value_type).dictionary_encode()


def joined(column: Any) -> pa.DictionaryArray:
    """Return one array with one dictionary."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.unify_dictionaries().chunks)


def without_unused(column: Any) -> pa.DictionaryArray:
    """Return the column as `TEXTS`, without unused values: a deleted row's text must not stay in the file."""
    whole = joined(column)
    codes = np.asarray(whole.indices.drop_null())
    used = np.zeros(len(whole.dictionary), bool)
    used[codes] = True
    if used.all() and whole.type == TEXTS:
        return whole
    places = pa.array(np.cumsum(used, dtype=np.int32) - np.int32(1))
    return pa.DictionaryArray.from_arrays(places.take(whole.indices), whole.dictionary.filter(pa.array(used)))


def filled(column: Any, text: str) -> pa.DictionaryArray:
    """Return the column with this text in place of nulls."""
    whole = joined(column)
    if not whole.null_count:
        return whole
    # A text that is in the dictionary already must not be there twice.
    known = whole.dictionary.index(text).as_py()
    values = whole.dictionary if known >= 0 else pa.concat_arrays([whole.dictionary, pa.array([text])])
    code = known if known >= 0 else len(whole.dictionary)
    return pa.DictionaryArray.from_arrays(whole.indices.fill_null(code), values)


@dataclass(frozen=True)
class Merged:
    """The rows after a merge, and counts of what it did."""

    rows: pa.Table
    inserts: int = 0
    updates: int = 0
    deletes: int = 0

    @property
    def inserted_keys(self) -> pa.Array:
        """The keys that the old rows lacked; their rows are at the end."""
        return array_of_column(self.rows.slice(self.rows.num_rows - self.inserts), RECORD_KEY)

    @property
    def changed(self) -> bool:
        """False if the old rows are unchanged, so nothing has to be written."""
        return bool(self.inserts or self.updates or self.deletes)


@dataclass(frozen=True)
class Effects:
    """The effects of one writer on one file group: rows it set (of keys it met, and new ones), keys it removed.

    ``settled``: its rows replace the existing ones, whatever the ordering field says.
    """

    updated: pa.Table
    added: pa.Table
    removed: pa.Array
    settled: bool = False


def merge(
    base: pa.Table,
    incoming: pa.Table,
    *,
    ordering: Sequence[str] = (),
    ties: Ties = "last",
    key: str = RECORD_KEY,
    in_place: bool = True,
) -> Merged:
    """Return ``base`` with matching rows replaced by incoming ones, and new keys at the end; unless ``in_place`` the incoming
    ones of known keys come right before those, which moves less.

    Both have the column ``key``; keys are unique in each (`deduplicate`). Columns that only ``incoming`` has are null in
    the old rows; columns that only ``base`` has (the other meta columns) are null in the new ones.
    """
    schema = joined_schema(base.schema, incoming.schema)
    if not base.num_rows:
        return Merged(widened(incoming, schema), inserts=incoming.num_rows)
    old_keys, new_keys = array_of_column(base, key), array_of_column(incoming, key)
    # Keys are unique on both sides, so each old row has at most one incoming partner: its index, or null.
    match = pc.index_in(old_keys, value_set=new_keys)
    met, partner = pc.indices_nonzero(match.is_valid()), np.asarray(match.drop_null()).astype(np.int64)
    known = np.zeros(incoming.num_rows, bool)
    known[partner] = True
    added = np.flatnonzero(~known)
    places = np.asarray(met).astype(np.int64)
    if ordering and len(places):
        wins = _newer(base, met, incoming, ordering, partner, ties)
        places, partner = places[wins], partner[wins]
    old, new = widened(base, schema), widened(incoming, schema)
    if in_place:
        source = np.arange(base.num_rows)
        source[places] = base.num_rows + partner
        rows = pa.concat_tables([old, new]).take(pa.array(np.concatenate([source, base.num_rows + added])))
    else:
        gone = np.zeros(base.num_rows, bool)
        gone[places] = True
        rows = pa.concat_tables([without(old, pa.array(gone)), new.take(pa.array(np.concatenate([partner, added])))])
    return Merged(rows, inserts=len(added), updates=len(places))


def merge_by(rule: Rule, base: pa.Table, incoming: pa.Table) -> Merged:
    """Merge by the table's rule: each column of a shared key by its merger; ``incoming`` is the result of `contributions`."""
    if rule.plain:
        return merge(base, incoming, ordering=rule.ordering, ties=rule.ties)
    # Rows merged by their columns contain the stored row already, so they replace it whatever the ordering value.
    combined = _pairs(rule, base, incoming)
    return merge(base, combined)


def _pairs(rule: Rule, base: pa.Table, incoming: pa.Table) -> pa.Table:
    """Return the incoming rows, each merged with ``base``'s row of the same key."""
    known = base.filter(pc.is_in(base.column(RECORD_KEY), value_set=array_of_column(incoming, RECORD_KEY)))
    data = [field for field in joined_schema(base.schema, incoming.schema) if field.name in incoming.column_names]
    schema = pa.schema([pa.field(each.name, incoming.schema.field(each.name).type) for each in data])
    old = [widened(known.select([name for name in schema.names if name in known.column_names]), schema)]
    return rule.one_of_each(pa.concat_tables([*old, widened(incoming, schema)]), RECORD_KEY)


def _newer(
    base: pa.Table,
    met: pa.Array,
    incoming: pa.Table,
    ordering: Sequence[str],
    partner: npt.NDArray[np.int64],
    ties: Ties,
) -> npt.NDArray[np.bool_]:
    """Return a mask of the base rows at ``met`` that the incoming rows at ``partner`` may replace."""
    new = [array_of_column(incoming, name) for name in ordering]
    old = [
        array_of_column(base, name).take(met) if name in base.column_names else pa.nulls(len(met), value.type)
        for name, value in zip(ordering, new, strict=True)
    ]
    return supersedes(new, old, partner, ties)


def supersedes(
    new: Sequence[pa.Array], old: Sequence[pa.Array], partner: npt.NDArray[Any], ties: Ties
) -> npt.NDArray[np.bool_]:
    """Return a mask of the old rows that yield to the new row at ``partner``, given the ordering columns of both.

    Where ``partner`` is negative the mask is meaningless.
    """
    places = pa.array(np.maximum(partner, 0))
    newer, tied = np.zeros(len(partner), bool), np.ones(len(partner), bool)
    # Columns are compared like the parts of a tuple: a later one decides only where all before are equal, and a tie of the
    # last column is decided by `ties`.
    for number, (theirs, mine) in enumerate(zip(new, old, strict=True), 1):
        value, there = plain(theirs).take(places), plain(mine)
        last = number == len(new)
        as_new = last and ties == "last"
        greater = pc.fill_null((pc.greater_equal if as_new else pc.greater)(value, there), fill_value=False)
        unknown = pc.is_null(there) if as_new else pc.and_(pc.is_null(there), pc.is_valid(value))
        newer |= tied & np.asarray(pc.or_(greater, unknown))
        if not last:
            both_null = pc.and_(pc.is_null(there), pc.is_null(value))
            tied &= np.asarray(pc.or_(pc.fill_null(pc.equal(value, there), fill_value=False), both_null))
    return newer


def with_rows(base: pa.Table, places: npt.NDArray[np.bool_], rows: pa.Table) -> pa.Table:
    """Return ``base`` with these rows at the marked positions, in order. Only its own columns; missing ones are null there."""
    schema = base.schema
    source = np.arange(base.num_rows)
    source[places] = base.num_rows + np.arange(rows.num_rows)
    return pa.concat_tables([widened(base, schema), widened(rows, schema)]).take(pa.array(source))


def without(rows: pa.Table, gone: pa.BooleanArray) -> pa.Table:
    """Return the rows that are not marked in ``gone``."""
    # A table filters by the numbers of the rows that stay, one by one; an array copies whole runs of them, of texts only where
    # the mask is known to have no null.
    stay, pieces, start = pc.invert(gone.drop_null()), [], 0
    for batch in rows.to_batches():
        mask = stay.slice(start, batch.num_rows)
        pieces.append(pa.RecordBatch.from_arrays([each.filter(mask) for each in batch.columns], schema=rows.schema))
        start += batch.num_rows
    return pa.Table.from_batches(pieces, rows.schema)


def remove(base: pa.Table, keys: pa.Array) -> Merged:
    """Return ``base`` without the rows that have one of the keys."""
    gone = pc.is_in(array_of_column(base, RECORD_KEY), value_set=keys)
    return remove_where(base, np.asarray(gone))


def remove_where(base: pa.Table, gone: npt.NDArray[np.bool_]) -> Merged:
    """Return ``base`` without the rows marked in ``gone``."""
    count = int(gone.sum())
    return Merged(without(base, pa.array(gone)) if count else base, deletes=count)


def contributions(rule: Rule, rows: pa.Table, *, in_order: bool = True) -> pa.Table:
    """Return the contribution of a batch: one row per `RECORD_KEY`, unless its rows must meet the stored row one by one.

    Args:
        in_order: the rows are in order of arrival. If not, and nothing else decides which is newer, a key that
            occurs twice is refused, unless the merge does not depend on order.

    Raises:
        InputError: as `deduplicate`; or a merged value does not fit its column.
    """
    if not (in_order or rule.ordering or rule.commutes(rows.schema)):
        rows = deduplicate(rows)
    refuse_nan(rows, rule.ordering)
    ahead = rule.merges_ahead(rows.schema)
    # Any order is valid; this one is the same in every attempt of a task.
    if not (in_order or ahead):
        rows = rows.sort_by([(name, "ascending") for name in rule.ordering], null_placement="at_start")
    lifted = rule.lifted(rows)
    return rule.one_of_each(lifted, RECORD_KEY) if ahead else lifted


def alone(rule: Rule, rows: pa.Table) -> pa.Table:
    """Return the contribution of each row by itself; no two rows share a key."""
    if rule.plain:
        return rows
    number = "_row"
    while number in rows.column_names:
        number += "_"
    numbered = rows.append_column(number, pa.array(np.arange(rows.num_rows)))
    return rule.one_of_each(rule.lifted(numbered), number).drop_columns([number])


def deduplicate(rows: pa.Table, *, ordering: Sequence[str] = (), ties: Ties = "last") -> pa.Table:
    """Return one row per `RECORD_KEY`, the newest by ``ordering``; rows keep their order.

    Raises:
        InputError: a key occurs twice and there is no ordering field to decide; the message names a few.
    """
    keys = array_of_column(rows, RECORD_KEY)
    refuse_nan(rows, ordering)
    kept = unrepeated(keys, wide_hashes(keys), ordering, rows.column, ties)
    return rows if kept is None else rows.take(pa.array(kept))


def unrepeated(
    keys: pa.Array,
    hashes: npt.NDArray[np.uint64],
    ordering: Sequence[str],
    column: Callable[[str], Any],
    ties: Ties = "last",
) -> npt.NDArray[np.int64] | None:
    """Return the indexes of the rows that `deduplicate` keeps; None means all.

    Args:
        hashes: `wide_hashes` of the keys; if they are distinct, so are the keys.
        ordering: the columns that decide between rows of the same key.
        column: reads one of those columns; called only if keys repeat.
    """
    # Most batches repeat no key, which hashes prove without comparing texts.
    in_order = np.sort(hashes)
    if not (in_order[1:] == in_order[:-1]).any():
        return None
    codes = np.asarray(pc.dictionary_encode(keys).indices)
    if int(codes.max()) + 1 == len(codes):
        return None
    if not ordering:
        repeated = pc.filter(keys, pa.array(np.bincount(codes)[codes] > 1)).unique()
        raise InputError(
            f"{len(repeated)} record keys occur more than once in the rows: {shown(repeated)}; remove the repetitions, "
            "or give the table an ordering field so that the newest row wins",
            keys=repeated.slice(0, 100).to_pylist(),
        )
    # Sorted by key, then age, then arrival: the last of each key is the winner.
    age = [ages(one_array(plain(column(name)))) for name in reversed(ordering)]
    arrival = np.arange(len(codes)) if ties == "last" else np.arange(len(codes), 0, -1)
    by_key = np.lexsort((arrival, *age, codes))
    last = np.append(codes[by_key][1:] != codes[by_key][:-1], [True])
    return np.sort(by_key[last])


def refuse_nan(rows: pa.Table, ordering: Collection[str]) -> None:
    """Raise `InputError` if one of the ordering columns holds NaN."""
    for name in ordering:
        column = rows.column(name)
        if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column), min_count=0).as_py():
            raise InputError(
                f"the ordering column {name!r} holds NaN, which is neither older nor newer than any value; fill these "
                "rows with a number or null",
                column=name,
            )


def joined_schema(base: pa.Schema, incoming: pa.Schema) -> pa.Schema:
    """Return the columns of both, in the types of the first."""
    if base.equals(incoming):
        return base
    known = set(base.names)
    return pa.schema([*base, *(field for field in incoming if field.name not in known)])


def widened(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with these columns in these types; missing columns are null."""
    # Most have them already, and looking at each column of each of many small tables takes longer than their rows.
    if rows.schema.equals(schema) and all(field.nullable for field in schema):
        return rows.replace_schema_metadata()
    columns: list[Any] = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(field.name)
        columns.append(cast(column, field.type))
    return pa.Table.from_arrays(columns, schema=pa.schema([f.with_nullable(True) for f in schema]))


def ordering_of(config: TableConfig) -> tuple[str, ...]:
    """Return the columns that order versions of a row; () if the order of commits does.

    Raises:
        UnsupportedTableError: the rules that merge the table's log files are unknown here.
    """
    reason = config.unknown_merge()
    if not config.populate_meta_fields:
        reason = "it has no meta columns, so that rows cannot be told apart"
    if reason:
        raise UnsupportedTableError(
            f"Table {config.name} has log files, and {reason}: how to merge them is not known here. Read it with Hudi on "
            "Spark, or compact it with Hudi",
            table=config.name,
            feature="merge_rules",
        )
    return config.newer_by


def rule_of(config: TableConfig, merge: Iterable[tuple[str, str]] = (), ties: Ties = "last") -> Rule:
    """Return the rule by which writers of this library merge rows: the properties' rule with the table's ``merge`` settings."""
    fixed = (*config.record_key_fields, *config.partition_fields, *META_COLUMNS)
    # The rows of one key in one partition may be of different times.
    newest = (config.time_source,) if config.time_unit and config.time_source not in fixed else ()
    return Rule(dict(merge), config.newer_by, ties, fixed, newest)
