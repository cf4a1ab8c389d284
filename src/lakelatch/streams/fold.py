"""Folding: events of one batch with the same key are reduced before they are written."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from ..hudi.table import RECORD_KEY, array_of_column
from ..mergers import Groups, ages_of, in_time
from .contributions import lifted, mergers_of
from .declaration import KEEP, Stream
from .notes import UPSERT


def folded(rows: pa.Table, stream: Stream, kind: str = UPSERT) -> pa.Table:
    """Return the events without those that change nothing, whatever the table holds. The result is as if all were applied in
    turn.

    An event is late if one with a larger ordering value came before it. Of the others the last one counts, and earlier ones
    fill its nulls where a null keeps the old value. They stay separate rows, in the order of their ordering values: an older
    one may be too old for the table, and then so is what it would fill.

    A stream with mergers has one row per ordering value, with the contributions of all events of that value, late ones
    included. Rows of a key are adjacent, the newest last.

    Args:
        rows: in order of arrival.

    Raises:
        ConfigError: a merger cannot be imported here.
        InputError: a value cannot contribute or is too large, or several do not fit together.
    """
    merging, keeps = kind == UPSERT and bool(stream.merge), kind == UPSERT and stream.null == KEEP
    if merging:
        rows = lifted(stream, rows)
    codes = np.asarray(pc.dictionary_encode(array_of_column(rows, RECORD_KEY)).indices).astype(np.int64)
    # Without a repeated key there is nothing to fold; a merger still needs its rows in groups.
    if not len(codes) or (not merging and int(codes.max()) + 1 == len(codes)):
        return rows
    age = ages_of([array_of_column(rows, name) for name in stream.ordered_by])
    order = np.lexsort((np.arange(len(codes)), age, codes))
    counts = in_time(codes, order)
    if not merging:
        order = order[counts[order]]
    by_key, by_age = codes[order], age[order]
    new = np.append([True], by_key[1:] != by_key[:-1])
    # A fill must not travel with a newer ordering value, so rows of different ordering values stay apart.
    if merging or keeps:
        new[1:] |= by_age[1:] != by_age[:-1]
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(order)) - 1
    last, owner = order[ends], by_key[ends]
    needed = np.append(owner[1:] != owner[:-1], [True]) | merging
    mergers = mergers_of(stream, rows.column_names) if merging else {}
    groups = Groups(np.append(starts, len(order)))
    found, places = {}, dict.fromkeys(rows.column_names, last)
    for name in rows.column_names:
        if name in mergers:
            try:
                found[name] = mergers[name].merge(array_of_column(rows, name).take(pa.array(order)), groups)
            except InputError as e:
                raise InputError(f"column {name!r}: {e}; nothing was written", column=name) from e
        elif keeps and name in stream.columns:
            sets = np.asarray(rows.column(name).is_valid())[order] & counts[order]
            newest = np.maximum.accumulate(np.where(sets, np.arange(len(order)), -1))[ends]
            places[name] = np.where(newest >= starts, order[newest], -1)
            filled = np.flatnonzero(newest >= starts)
            needed[filled[np.append(owner[filled][1:] != owner[filled][:-1], [True])[: len(filled)]]] = True
    # `needed` marks the winner of each key, and older rows that fill one of its nulls.
    kept = np.flatnonzero(needed)
    if not merging:
        kept = kept[np.argsort(last[kept])]  # as the rows came
    for name in rows.column_names:
        if name not in found:
            at = places[name][kept]
            found[name] = rows.column(name).take(pa.array(at, mask=at < 0))
    return pa.table({name: found[name] for name in rows.column_names})
