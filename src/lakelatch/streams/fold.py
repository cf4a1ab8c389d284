"""Events of one batch that have the same key, made fewer before they are written."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from ..hudi.table import RECORD_KEY
from ..mergers import Groups
from .contributions import lifted, mergers_of
from .declaration import KEEP, Stream
from .notes import UPSERT


def folded(rows: pa.Table, stream: Stream, kind: str = UPSERT) -> pa.Table:
    """One event of each key: that of the largest ordering value, the later one of equal ones.

    Where a null keeps what was there, it keeps what an earlier event of the same batch has set, too.

    In a stream with mergers one for each ordering value, with what all of that value contribute; those of a key stand one
    after the other, the newest last. Which of them came too late is not known before they are read.

    Raises:
        ConfigError: a merger cannot be imported here.
        InputError: a value contributes nothing or too much, or several do not fit together.
    """
    merging = kind == UPSERT and bool(stream.merge)
    if merging:
        rows = lifted(stream, rows)
    codes = np.asarray(pc.dictionary_encode(_array(rows, RECORD_KEY)).indices)
    if not len(codes) or (not merging and int(codes.max()) + 1 == len(codes)):
        return rows
    ranks = np.asarray(pc.rank(_array(rows, stream.ordering), sort_keys="ascending", tiebreaker="dense"))
    order = np.lexsort((np.arange(len(codes)), ranks, codes))
    by_key = codes[order]
    first = np.append([True], by_key[1:] != by_key[:-1])
    new = first | np.append([True], ranks[order][1:] != ranks[order][:-1]) if merging else first
    ends = np.flatnonzero(np.append(new[1:], [True]))
    starts = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))[ends]  # of the key
    last = order[ends]
    kept = np.arange(len(last)) if merging else np.argsort(last)  # as the rows came
    mergers = mergers_of(stream, rows.column_names) if merging else {}
    groups = Groups(np.concatenate([[0], ends + 1]))
    found = {}
    for name in rows.column_names:
        if name in mergers:
            try:
                found[name] = mergers[name].merge(_array(rows, name).take(pa.array(order)), groups)
            except InputError as e:
                raise InputError(f"column {name!r}: {e}; nothing was written", column=name) from e
            continue
        places = last
        if kind == UPSERT and stream.null == KEEP and name in stream.columns:
            valid = np.asarray(rows.column(name).is_valid())[order]
            newest = np.maximum.accumulate(np.where(valid, np.arange(len(order)), -1))[ends]
            places = np.where(newest >= starts, order[newest], last)
        found[name] = rows.column(name).take(pa.array(places[kept]))
    return pa.table(found)


def _array(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name).combine_chunks()
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
