"""Events of one batch that have the same key, made one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..hudi.table import RECORD_KEY
from .declaration import KEEP, Stream
from .notes import UPSERT


def folded(rows: pa.Table, stream: Stream, kind: str = UPSERT) -> pa.Table:
    """One event of each key: that of the largest ordering value, the later one of equal ones.

    Where a null keeps what was there, it keeps what an earlier event of the same batch has set, too.
    """
    codes = np.asarray(pc.dictionary_encode(_array(rows, RECORD_KEY)).indices)
    if not len(codes) or int(codes.max()) + 1 == len(codes):
        return rows
    ranks = np.asarray(pc.rank(_array(rows, stream.ordering), sort_keys="ascending", tiebreaker="dense"))
    order = np.lexsort((np.arange(len(codes)), ranks, codes))
    by_key = codes[order]
    ends = np.flatnonzero(np.append(by_key[1:] != by_key[:-1], [True]))
    starts = np.concatenate([[0], ends[:-1] + 1])
    last = order[ends]
    kept = np.argsort(last)  # as the rows came
    found = {}
    for name in rows.column_names:
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
